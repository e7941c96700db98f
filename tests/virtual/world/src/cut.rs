//! Worlds in which nodes lose keys, and cannot be reached by some clients.
//!
//! A node that has lost a key gives it to the next client, so a lock can have two holders: until
//! the first of them hears of it. The judge hears what each client hears, and has the rule of its
//! own: until when each node has promised to keep the keys of an attempt. No client relies on a
//! lock beside another one when it has heard that no quorum keeps its keys (H5).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use quorate_core::backend::{
    AcquireOptions, Claim, ExtendOptions, ReleaseOptions, Reply, Vote, async_trait,
};
use quorate_core::{BackendError, LockBackend, LockManager, Runtime};
use quorate_memory::{MemoryNode, Sim};

use crate::plan::{Class, Plan};
use crate::process::Process;
use crate::run::{Outcome, Scene};
use crate::world::{dice_of, lock, name};

/// What a client has heard of its latest attempt: of each node, until when it keeps the keys.
#[derive(Debug, Default)]
struct Ear {
    token: Vec<u8>,
    promises: BTreeMap<usize, Option<Instant>>,
}

impl Ear {
    /// Until when a quorum keeps the keys; `None` if none does.
    fn end(&self, quorum: usize) -> Option<Instant> {
        let mut promises: Vec<Instant> = self.promises.values().flatten().copied().collect();
        promises.sort_unstable();
        promises.len().checked_sub(quorum).map(|at| promises[at])
    }
}

/// A node as a client sees it, and what it hears of it.
#[derive(Debug)]
struct Listening {
    node: MemoryNode,
    at: usize,
    scene: Arc<Scene>,
    process: Process,
    ear: Arc<Mutex<Ear>>,
}

impl Listening {
    fn hear(&self, claim: &Claim, promise: Option<Instant>, reply: &Result<Reply, BackendError>) {
        let mut ear = lock(&self.ear);
        if ear.token != claim.token().as_bytes() {
            return;
        }
        let promised = ear.promises.entry(self.at).or_default();
        match reply.as_ref().map(|reply| reply.vote) {
            Ok(Vote::Granted) => *promised = (*promised).max(promise),
            Ok(_) => *promised = None,
            Err(_) => {}
        }
    }

    fn promise(&self, claim: &Claim) -> Instant {
        let validity = self.scene.plan.validity_of(claim.ttl().as_duration());
        self.process.client().now() + validity
    }
}

#[async_trait]
impl LockBackend for Listening {
    async fn acquire(&self, claim: &Claim, options: AcquireOptions) -> Result<Reply, BackendError> {
        let promise = self.promise(claim);
        let is_repair = {
            let (mut ear, token) = (lock(&self.ear), claim.token().as_bytes());
            if ear.token != token {
                *ear = Ear { token: token.to_vec(), ..Ear::default() };
            }
            ear.promises.insert(self.at, None).is_some()
        };
        let reply = self.node.acquire(claim, options).await;
        self.hear(claim, Some(promise).filter(|_| !is_repair), &reply);
        reply
    }

    async fn extend(&self, claim: &Claim, options: ExtendOptions) -> Result<Reply, BackendError> {
        let promise = self.promise(claim);
        let reply = self.node.extend(claim, options).await;
        self.hear(claim, Some(promise), &reply);
        reply
    }

    async fn release(&self, claim: &Claim, options: ReleaseOptions) -> Result<Reply, BackendError> {
        self.node.release(claim, options).await
    }

    fn name(&self) -> Cow<'_, str> {
        self.node.name().into()
    }
}

/// What all clients of a world share.
struct Field {
    scene: Arc<Scene>,
    ears: Vec<Arc<Mutex<Ear>>>,
}

/// Runs the world of `seed`.
pub(crate) fn run(seed: u64) -> Outcome {
    let sim = Sim::shuffled(seed);
    let dice = dice_of(&sim);
    let plan = Plan::of_one_lock(seed, &dice, Class::Cut);
    let (nodes, clients) = (*dice.pick(&[3, 3, 5]), 2 + dice.below(3));
    let plan = Plan { nodes, clients, chaos: plan.ttl * 30, ..plan };
    let ttl = plan.ttl;
    let scene = Scene::new_calm(&sim, plan);
    let ears: Vec<_> = scene.processes.iter().map(|_| Arc::default()).collect();
    let field = Arc::new(Field { scene: Arc::clone(&scene), ears });
    let managers: Vec<_> = (0..scene.plan.clients).filter_map(|at| field.manager(at)).collect();
    let all = (0..scene.nodes.len()).collect();
    let of = Arc::clone(&scene);
    sim.spawn(Box::pin(Arc::clone(&scene).cut(all, [ttl, ttl * 4], move |at| {
        let loses = of.dice.percent(60);
        if loses {
            of.nodes[at].expire(name(0));
            of.count("key gone");
            of.note(format!("{} loses the key", of.nodes[at].name()));
        }
        loses
    })));
    let judging = Arc::clone(&field);
    scene.hold_all(&managers, ttl * 6, move || judging.judge());
    for (client, manager) in managers.iter().enumerate() {
        let locked = sim.block_on(manager.lock(name(0)).timeout(ttl * 8));
        scene.wrong_if(locked.is_err(), format!("all is well, but client {client} has no lock"));
    }
    scene.end(format!("{:?}", scene.plan))
}

impl Field {
    fn manager(&self, client: usize) -> Option<LockManager> {
        let (scene, process) = (&self.scene, &self.scene.processes[client]);
        let nodes = scene.nodes.iter().enumerate().map(|(at, node)| Listening {
            node: node.seen_by(process.client()),
            at,
            scene: Arc::clone(scene),
            process: process.clone(),
            ear: Arc::clone(&self.ears[client]),
        });
        let builder = LockManager::builder(nodes).runtime(process.clone());
        builder.ttl(scene.plan.ttl).build().ok()
    }

    /// Of two that hold the lock, none has heard that no quorum keeps its keys.
    fn judge(&self) {
        let scene = &self.scene;
        let valid = scene.holding();
        if valid.len() < 2 {
            return;
        }
        scene.count("two holders");
        for client in valid {
            let end = lock(&self.ears[client]).end(scene.nodes.len() / 2 + 1);
            let now = scene.processes[client].client().now();
            scene.wrong_if(
                end.is_none_or(|end| end <= now),
                format!("client {client} holds beside another, and has heard that no quorum does,"),
            );
        }
    }
}
