//! Worlds of jobs and leaders: `once_per` and `lead`, on nodes and networks that fail.
//!
//! Nodes forget nothing, clocks drift within the allowance, and the wall clocks are within one period of each other. So two
//! bodies of one name never run at once (E1, O1), and none begins once a quorum has the mark of a success (O1). When all is
//! well again, each period has one success, and a process leads (E3, E4).

use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorate_core::backend::{Capabilities, Holder, LockBackend as _};
use quorate_core::{LockManager, Runtime};
use quorate_memory::{MemoryNode, Sim, Value};

use crate::bodies::Bodies;
use crate::nemesis;
use crate::plan::{Class, Plan};
use crate::run::{Outcome, Scene, manager};
use crate::world::{Cancel, dice_of, lock};

/// What all tasks of a world share.
struct Field {
    scene: Arc<Scene>,
    period: Duration,
    end: Duration,
    /// Of each process, with how many of them have been closed before.
    managers: Vec<Mutex<(LockManager, u32)>>,
    bodies: Arc<Bodies>,
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
    let period = (ttl * *dice.pick(&[3, 4, 8])).max(Duration::from_secs(1));
    let chaos = period * 12;
    let plan = Plan {
        nodes: *dice.pick(&[1, 3, 3, 3, 5]),
        clients: 2 + dice.below(4),
        ttl,
        latency: ttl / *dice.pick(&[1_000, 200, 50]),
        renew_every: dice.percent(30).then_some(ttl / 8),
        chaos,
        thinking: ttl * 2,
        loss: 0,
        drift: *dice.pick(&[0, 1_000, 4_000]),
        ..Plan::draw(seed, &dice, Class::Jobs)
    };
    // A leader may be in a pause of 30 s, and its ttl may have to pass before.
    let calm = (period * 6).max(Duration::from_secs(60) + ttl * 4);
    let scene = Scene::new_calm(&sim, plan);
    let half = i32::try_from(period.as_millis() / 2 - 1).unwrap_or(i32::MAX);
    for process in &scene.processes {
        process.set_wall_clock(i64::from(scene.dice.signed(half)) * 1_000);
    }
    let managers = scene.processes.iter().filter_map(|process| manager(&scene, process));
    let managers = managers.map(|manager| Mutex::new((manager, 0))).collect();
    // The last faults of the chaos go on for two ttls.
    let end = chaos + ttl * 2 + calm;
    let field = Arc::new(Field {
        scene: Arc::clone(&scene),
        period,
        end,
        managers,
        bodies: Bodies::new(&scene),
    });
    sim.spawn(Box::pin(nemesis::run(Arc::clone(&scene))));
    sim.spawn(Box::pin(Arc::clone(&field).close_managers()));
    for (place, process) in scene.processes.iter().enumerate() {
        process.spawn(Box::pin(Arc::clone(&field).run_jobs(place)));
        process.spawn(Box::pin(Arc::clone(&field).lead(place)));
    }
    let terms = || lock(&field.bodies.names).get("leader").map_or(0, |name| name.begun);
    sim.advance(chaos + ttl * 2);
    let calm_since = sim.unix_micros();
    sim.advance(calm / 2);
    let before = terms();
    sim.advance(calm / 2);
    field.check_calm(calm_since);
    scene.wrong_if(terms() <= before, "all is well, and there is no new leader");
    scene.end(format!("jobs and leaders, a period of {period:?}, {:?}", scene.plan))
}

impl Field {
    fn is_over(&self) -> bool {
        self.sim.elapsed() >= self.end
    }

    /// Drops the future after some polls, one time in ten, until the chaos ends.
    async fn perhaps<F: IntoFuture>(&self, future: F) -> Option<F::Output> {
        let is_dropped = self.sim.elapsed() < self.plan.chaos && self.dice.percent(10);
        let polls = is_dropped.then(|| self.dice.below(12));
        polls.map_or(Cancel::Never, Cancel::AfterPolls).or(future, &self.sim).await
    }

    /// Asks for the job of each period again and again.
    async fn run_jobs(self: Arc<Self>, place: usize) {
        while !self.is_over() {
            let pause = self.dice.time(Duration::ZERO, self.period / 3);
            self.processes[place].client().sleep(pause).await;
            let (manager, _) = lock(&self.managers[place]).clone();
            let (field, succeeded) = (Arc::clone(&self), Arc::<Mutex<String>>::default());
            let name = Arc::clone(&succeeded);
            let job = manager.once_per("job", self.period, async move |lease| {
                let body = field.bodies.begin(place, lease);
                *lock(&name) = body.name.clone();
                body.work(field.dice.below(6), field.plan.ttl / 2).await;
                let fails = field.dice.percent(30);
                // When all is well, a period has one success: not each of its bodies may fail.
                let may_fail = body.number == 1 || field.sim.elapsed() < field.plan.chaos;
                if fails && may_fail { Err(()) } else { Ok(()) }
            });
            match self.perhaps(job).await {
                Some(Ok(Some(Ok(())))) => self.succeeded(place, &lock(&succeeded)),
                Some(Err(error)) if !error.is_closed() => self.note(format!("job failed: {error}")),
                _ => {}
            }
        }
    }

    /// A body has succeeded, and so has its mark, if its process has heard of a quorum that has it. Then the mark reads
    /// *done*, but over a pool. There a quorum may have a mark that its process takes back.
    fn succeeded(&self, place: usize, name: &str) {
        let process = &self.processes[place];
        let used = self.plan.used[process.client().id() % self.plan.used.len()];
        let in_order = |node: &MemoryNode| {
            used.of(node.seen_by(process.client())).capabilities().contains(Capabilities::ORDERED)
        };
        let is_known = self.nodes.iter().all(in_order);
        let is_done = |node: &MemoryNode| match node.get(name) {
            Some(Value::String(value)) => Holder::new(value).is_done(),
            _ => false,
        };
        // Longer than any lease.
        let has_mark =
            |node: &&MemoryNode| node.time_left(name).is_some_and(|left| left > self.plan.ttl);
        let quorum = self.nodes.len() / 2 + 1;
        let is_marked = match is_known {
            true => self.nodes.iter().any(is_done),
            false => self.nodes.iter().filter(has_mark).count() >= quorum,
        };
        if !is_marked {
            // The value was returned with a warning.
            return self.count("mark without a quorum");
        }
        if let Some(name) = lock(&self.bodies.names).get_mut(name) {
            (name.is_done, name.successes) = (is_known, name.successes + 1);
        }
    }

    /// Leads for some time, again and again.
    async fn lead(self: Arc<Self>, place: usize) {
        while !self.is_over() {
            let (manager, closed) = lock(&self.managers[place]).clone();
            let field = Arc::clone(&self);
            let leading = manager.lock("leader").fenced().lead(move |lease| {
                let field = Arc::clone(&field);
                async move {
                    let body = field.bodies.begin(place, lease);
                    body.work(field.dice.below(20), field.plan.ttl / 2).await;
                }
            });
            match self.perhaps(leading).await {
                Some(Ok(None)) if lock(&self.managers[place]).1 > closed => {}
                // Before the first term, such an error ends it.
                Some(Err(error)) if error.is_permanent() && !error.is_closed() => {
                    self.wrong_if(self.sim.elapsed() > self.end - self.period, error.to_string());
                }
                Some(Ok(Some(()))) | None => {}
                Some(other) => self.wrong(format!("leading ended: {other:?}")),
            }
            let pause = self.dice.scaled_time(self.plan.ttl);
            self.processes[place].client().sleep(pause).await;
        }
    }

    /// Closes a manager at random times, and gives its process another one.
    async fn close_managers(self: Arc<Self>) {
        while self.sim.elapsed() < self.plan.chaos {
            self.sleep(self.dice.time(Duration::ZERO, self.plan.ttl * 10)).await;
            let place = self.dice.below(self.plan.clients);
            let Some(next) = manager(&self.scene, &self.processes[place]) else { continue };
            self.count("manager closed");
            let old = {
                let mut manager = lock(&self.managers[place]);
                manager.1 += 1;
                std::mem::replace(&mut manager.0, next)
            };
            let _ = old.close(self.plan.ttl).await;
        }
    }

    /// All has been well since then: each whole period has one success.
    fn check_calm(&self, since: u64) {
        let period = u64::try_from(self.period.as_micros()).unwrap_or(u64::MAX);
        for number in since / period + 2..=since / period + 4 {
            let successes =
                lock(&self.bodies.names).get(&format!("job@{number}")).map(|name| name.successes);
            if successes != Some(1) {
                self.wrong(format!("all is well, and period {number} has {successes:?} successes"));
            }
        }
    }
}
