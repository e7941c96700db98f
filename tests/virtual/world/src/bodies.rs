//! The bodies of jobs, leaders and permits: no two of one name are there at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorate_core::{FencingToken, Lease};

use crate::history::What;
use crate::run::Scene;
use crate::world::lock;

/// What is known of the bodies of one name.
#[derive(Debug, Default)]
pub(crate) struct Name {
    pub(crate) begun: u64,
    /// The body that is there, and its client.
    open: Option<(u64, usize)>,
    token: Option<FencingToken>,
    /// A quorum has the mark of a success.
    pub(crate) is_done: bool,
    pub(crate) successes: u32,
}

/// The bodies of a world.
#[derive(Debug)]
pub(crate) struct Bodies {
    scene: Arc<Scene>,
    pub(crate) names: Mutex<BTreeMap<String, Name>>,
}

impl Bodies {
    pub(crate) fn new(scene: &Arc<Scene>) -> Arc<Self> {
        Arc::new(Self { scene: Arc::clone(scene), names: Mutex::default() })
    }

    /// The body of the process at `place` begins.
    pub(crate) fn begin(self: &Arc<Self>, place: usize, lease: Lease) -> Body {
        let (scene, key) = (&self.scene, lease.keys()[0].to_string());
        let client = scene.processes[place].client().id();
        let mut names = lock(&self.names);
        let name = names.entry(key.clone()).or_default();
        if let Some((_, other)) = name.open
            && !scene.is_paused(other)
        {
            scene.wrong(format!("clients {other} and {client} both have {key}"));
        }
        scene.wrong_if(name.is_done, format!("client {client} runs {key}, which has succeeded"));
        scene.wrong_if(lease.fencing_token() < name.token, format!("the token of {key} falls"));
        (name.token, name.begun) = (lease.fencing_token(), name.begun + 1);
        name.open = Some((name.begun, client));
        let number = name.begun;
        drop(names);
        let note = What::Note(format!("has {key}, body {number}"));
        scene.history.add(scene.sim.elapsed(), client, note);
        Body { bodies: Arc::clone(self), name: key, number, place, lease }
    }

    /// How many are there, but for those of clients that stand still.
    pub(crate) fn count(&self) -> usize {
        let names = lock(&self.names);
        let open = names.values().filter_map(|name| name.open);
        open.filter(|(_, client)| !self.scene.is_paused(*client)).count()
    }
}

/// A body, from its begin to its end.
pub(crate) struct Body {
    bodies: Arc<Bodies>,
    pub(crate) name: String,
    pub(crate) number: u64,
    place: usize,
    lease: Lease,
}

impl Body {
    /// Works in steps of up to `most`, each of which no other body may see.
    pub(crate) async fn work(&self, steps: usize, most: Duration) {
        let scene = &self.bodies.scene;
        let client = scene.processes[self.place].client();
        for _ in 0..steps {
            client.sleep(scene.dice.scaled_time(most)).await;
            let is_last = lock(&self.bodies.names)[&self.name].begun == self.number;
            if !is_last || !self.lease.is_valid() {
                scene.wrong(format!("client {} works on at {}", client.id(), self.name));
            }
        }
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        if let Some(name) = lock(&self.bodies.names).get_mut(&self.name) {
            name.open.take_if(|(number, _)| *number == self.number);
        }
    }
}
