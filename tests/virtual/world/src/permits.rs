//! Worlds of permits: tasks of several processes want one of a few names, on nodes and networks that fail.
//!
//! Nodes forget nothing, and clocks drift within the allowance. So no name has two holders (S1), and there are never more
//! holders than the highest count that a process gives (S5). When all is well again, each client has permits (S2, S3).

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorate_core::{LockManager, LockRequest, Runtime};
use quorate_memory::Sim;

use crate::bodies::Bodies;
use crate::nemesis;
use crate::plan::{Ability, Class, Plan};
use crate::run::{Outcome, Scene, manager};
use crate::world::{dice_of, lock};

/// What all tasks of a world share.
struct Field {
    scene: Arc<Scene>,
    /// The lowest and the highest count that a client gives.
    permits: (u16, u16),
    end: Duration,
    managers: Vec<LockManager>,
    bodies: Arc<Bodies>,
    /// The clients that had a permit since the end of the chaos.
    had: Mutex<BTreeSet<usize>>,
}

impl Deref for Field {
    type Target = Scene;

    fn deref(&self) -> &Scene {
        &self.scene
    }
}

/// Runs the world of `seed`.
pub(crate) fn run(seed: u64) -> Outcome {
    let sim = Sim::shuffled(seed);
    let dice = dice_of(&sim);
    let ttl = Duration::from_millis(*dice.pick(&[500, 1_000, 2_000, 10_000]));
    let least = *dice.pick(&[1, 2, 2, 3, 5]);
    let permits = (least, least + *dice.pick(&[0, 0, 1, 3, 20]));
    let (queue, polled, nothing) = (Ability::Queue, Ability::Polled, Ability::Nothing);
    let plan = Plan {
        nodes: *dice.pick(&[1, 3, 3, 3, 5]),
        clients: 2 + dice.below(4),
        tasks: 1 + dice.below(4),
        ttl,
        latency: ttl / *dice.pick(&[1_000, 200, 50]),
        chaos: ttl * 20,
        thinking: ttl * 2,
        loss: 0,
        drift: *dice.pick(&[0, 1_000, 4_000]),
        // Of all processes: others would get what those with a queue leave.
        ability: *dice.pick(&[queue, queue, queue, polled, nothing]),
        used: &[Ability::Queue],
        margin: None,
        renew_every: None,
        ..Plan::draw(seed, &dice, Class::Permits)
    };
    // The last faults of the chaos go on for two ttls.
    let end = plan.chaos + Duration::from_secs(60) + ttl * 8;
    let scene = Scene::new_calm(&sim, plan);
    let managers = scene.processes.iter().filter_map(|process| manager(&scene, process)).collect();
    let (bodies, had) = (Bodies::new(&scene), Mutex::default());
    let field = Arc::new(Field { scene: Arc::clone(&scene), permits, end, managers, bodies, had });
    sim.spawn(Box::pin(nemesis::run(Arc::clone(&scene))));
    for client in 0..scene.plan.clients {
        let (least, most) = permits;
        let more = scene.dice.below(usize::from(most - least) + 1);
        let count = if client == 0 { most } else { least + u16::try_from(more).unwrap_or(0) };
        for _ in 0..scene.plan.tasks {
            let use_permits = Arc::clone(&field).use_permits(client, count);
            scene.processes[client].spawn(Box::pin(use_permits));
        }
    }
    sim.advance(end);
    field.check_calm();
    scene.end(format!("permits, {permits:?}, {:?}", scene.plan))
}

impl Field {
    fn request(&self, client: usize, count: usize) -> LockRequest {
        let request = self.managers[client].permit("p", count).fenced();
        match self.dice.below(10) {
            0 | 1 => request.no_wait(),
            2 => request.timeout(self.dice.scaled_time(self.plan.ttl)),
            _ => request.timeout(self.end),
        }
    }

    /// Uses one permit after the other.
    async fn use_permits(self: Arc<Self>, client: usize, count: u16) {
        while self.sim.elapsed() < self.end {
            let field = Arc::clone(&self);
            let steps = self.dice.below(4);
            let used = self.request(client, count.into()).with(async move |lease| {
                let body = field.bodies.begin(client, lease);
                let holders = field.bodies.count();
                let is_over = holders > usize::from(field.permits.1);
                field.wrong_if(is_over, format!("{holders} have a permit"));
                body.work(steps, field.plan.ttl / 4).await;
            });
            if used.await.is_ok() && self.sim.elapsed() >= self.plan.chaos {
                lock(&self.had).insert(client);
            }
            let pause = self.dice.scaled_time(self.plan.ttl / 4);
            self.processes[client].client().sleep(pause.max(self.plan.ttl / 100)).await;
        }
    }

    /// All has been well for a minute: each client has had permits. Without a wait queue some client has.
    fn check_calm(&self) {
        let had = lock(&self.had).clone();
        let least = if self.plan.ability == Ability::Nothing { 1 } else { self.plan.clients };
        if had.len() < least {
            self.wrong(format!("all is well, and only the clients {had:?} have permits"));
        }
    }
}
