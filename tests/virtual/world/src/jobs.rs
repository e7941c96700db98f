//! Worlds of jobs and leaders: `once_per` and `lead`, on nodes and networks that fail.
//!
//! Nodes forget nothing, clocks drift within the allowance, and the wall clocks are within one period of each other. So two
//! bodies of one name never run at once (E1, O1), and none begins once a quorum has the mark of a success (O1). When all is
//! well again, each period has one success, and a process leads (E3, E4).

use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use quorate_core::{
    BackendError, BackendErrorKind, FencingToken, Lease, LockError, LockManager, Runtime,
};
use quorate_memory::{Effect, Fault, MemoryNode, Rule, Sim};

use crate::dice::Dice;
use crate::history::{History, What};
use crate::oracle::Violation;
use crate::process::Process;
use crate::run::Outcome;
use crate::waiting::Waits;
use crate::world::{Faults, lock};

/// What such a world is like.
#[derive(Clone, Copy, Debug)]
struct Plan {
    nodes: usize,
    clients: usize,
    ttl: Duration,
    period: Duration,
    /// How far clocks gain or lose, in parts of a million.
    drift: i32,
    latency: Duration,
    chaos: Duration,
    end: Duration,
}

impl Plan {
    fn draw(dice: &Dice) -> Self {
        let ttl = Duration::from_millis(*dice.pick(&[500, 1_000, 2_000, 10_000]));
        let period = (ttl * *dice.pick(&[3, 4, 8])).max(Duration::from_secs(1));
        let chaos = period * 12;
        Self {
            nodes: *dice.pick(&[1, 3, 3, 3, 5]),
            clients: 2 + dice.below(4),
            ttl,
            period,
            drift: *dice.pick(&[0, 1_000, 4_000]),
            latency: ttl / *dice.pick(&[1_000, 200, 50]),
            chaos,
            // A leader may be in a pause of 30 s, and its ttl may have to pass before.
            end: chaos + (period * 6).max(Duration::from_secs(60) + ttl * 4),
        }
    }
}

/// What is known of the bodies of one name.
#[derive(Debug, Default)]
struct Name {
    begun: u64,
    /// The body that is there, and its client.
    open: Option<(u64, usize)>,
    /// A quorum has the mark of a success.
    is_done: bool,
    successes: u32,
    token: Option<FencingToken>,
}

/// What all tasks of a world share.
struct Field {
    sim: Sim,
    dice: Dice,
    plan: Plan,
    nodes: Vec<MemoryNode>,
    processes: Vec<Process>,
    /// Of each client, with how many of them have been closed before.
    managers: Vec<Mutex<(LockManager, u32)>>,
    paused_until: Mutex<BTreeMap<usize, Duration>>,
    names: Mutex<BTreeMap<String, Name>>,
    wrong: Mutex<Vec<Violation>>,
    faults: Mutex<Faults>,
    history: History,
}

/// Runs the world of `seed`.
pub(crate) fn run(seed: u64) -> Outcome {
    let sim = Sim::shuffled(seed);
    let dice = Dice::new(sim.clone());
    let plan = Plan::draw(&dice);
    let nodes: Vec<MemoryNode> = MemoryNode::cluster(plan.nodes, sim.clone())
        .into_iter()
        .map(|node| if dice.percent(60) { node } else { node.unordered() })
        .collect();
    nodes.iter().for_each(|node| node.drift(dice.signed(plan.drift)));
    let processes: Vec<Process> = (0..plan.clients)
        .map(|_| Process::new(&sim, sim.client(dice.signed(plan.drift))))
        .collect();
    let half = i32::try_from(plan.period.as_millis() / 2 - 1).unwrap_or(i32::MAX);
    for process in &processes {
        process.set_wall_clock(i64::from(dice.signed(half)) * 1_000);
    }
    let managers = processes.iter().filter_map(|process| manager(&plan, &nodes, process));
    let managers = managers.map(|manager| Mutex::new((manager, 0))).collect();
    let field = Arc::new(Field {
        sim: sim.clone(),
        dice,
        plan,
        nodes,
        processes,
        managers,
        paused_until: Mutex::default(),
        names: Mutex::default(),
        wrong: Mutex::default(),
        faults: Mutex::default(),
        history: History::default(),
    });
    field.nodes.iter().for_each(|node| field.calm(node));
    sim.spawn(Box::pin(Arc::clone(&field).break_things()));
    for client in 0..plan.clients {
        let process = &field.processes[client];
        process.spawn(Box::pin(Arc::clone(&field).run_jobs(client)));
        process.spawn(Box::pin(Arc::clone(&field).lead(client)));
    }
    sim.advance(plan.chaos);
    let calm_since = sim.unix_micros();
    let calm = plan.end - plan.chaos;
    sim.advance(calm / 2);
    let terms = lock(&field.names).get("leader").map_or(0, |name| name.begun);
    sim.advance(calm / 2);
    field.check_calm(calm_since, terms);
    let outcome = Outcome {
        world: field.to_string(),
        violations: std::mem::take(&mut *lock(&field.wrong)),
        overlaps: 0,
        tokens: lock(&field.names).get("leader").map_or(0, |name| name.begun),
        refused: 0,
        history: field.history.clone(),
        simulated: sim.elapsed(),
        faults: lock(&field.faults).clone(),
        waits: Waits::default(),
    };
    sim.end();
    outcome
}

fn manager(plan: &Plan, nodes: &[MemoryNode], process: &Process) -> Option<LockManager> {
    let seen = nodes.iter().map(|node| node.seen_by(process.client()));
    LockManager::builder(seen).runtime(process.clone()).ttl(plan.ttl).build().ok()
}

impl Field {
    fn wrong(&self, what: impl Into<String>) {
        lock(&self.wrong).push(Violation::other(self.sim.elapsed(), what));
    }

    fn happens(&self, kind: &'static str, more: impl fmt::Display) {
        *lock(&self.faults).entry(kind).or_default() += 1;
        self.history.add(self.sim.elapsed(), 0, What::Note(format!("{kind} {more}")));
    }

    fn is_over(&self) -> bool {
        self.sim.elapsed() >= self.plan.end
    }

    fn is_paused(&self, client: usize) -> bool {
        let paused = lock(&self.paused_until).get(&client).copied();
        paused.is_some_and(|until| self.sim.elapsed() <= until)
    }

    fn calm(&self, node: &MemoryNode) {
        node.clear_rules();
        node.add_rule(Rule::new(Effect::Delay {
            least: self.plan.latency / 10,
            most: self.plan.latency,
        }));
    }

    /// Drops the future after some polls, one time in ten, until the chaos ends.
    async fn perhaps<F: Future>(&self, future: F) -> Option<F::Output> {
        let mut future = pin!(future);
        let is_dropped = self.sim.elapsed() < self.plan.chaos && self.dice.percent(10);
        let mut left = if is_dropped { self.dice.below(12) } else { usize::MAX };
        poll_fn(move |context| match left {
            0 => Poll::Ready(None),
            _ => {
                left -= 1;
                future.as_mut().poll(context).map(Some)
            }
        })
        .await
    }

    /// Asks for the job of each period again and again.
    async fn run_jobs(self: Arc<Self>, client: usize) {
        while !self.is_over() {
            let pause = self.dice.time(Duration::ZERO, self.plan.period / 3);
            self.processes[client].client().sleep(pause).await;
            let (manager, _) = lock(&self.managers[client]).clone();
            let (field, succeeded) = (Arc::clone(&self), Arc::<Mutex<String>>::default());
            let name = Arc::clone(&succeeded);
            let job = manager.once_per("job", self.plan.period, async move |lease| {
                let body = Body::begin(&field, client, lease);
                *lock(&name) = body.name.clone();
                body.work(field.dice.below(6)).await;
                if field.dice.percent(30) { Err(()) } else { Ok(()) }
            });
            match self.perhaps(job).await {
                Some(Ok(Some(Ok(())))) => self.succeeded(&lock(&succeeded)),
                Some(Err(error)) if !error.is_closed() => self.happens("job failed", error),
                _ => {}
            }
        }
    }

    /// A body has succeeded, and so has its mark, if a quorum has it.
    fn succeeded(&self, name: &str) {
        // Longer than any lease.
        let has_mark =
            |node: &&MemoryNode| node.time_left(name).is_some_and(|left| left > self.plan.ttl);
        let marks = self.nodes.iter().filter(has_mark).count();
        if marks <= self.nodes.len() / 2 {
            // The value was returned with a warning.
            return self.happens("mark without a quorum", name);
        }
        let mut names = lock(&self.names);
        let Some(name) = names.get_mut(name) else { return };
        (name.is_done, name.successes) = (true, name.successes + 1);
    }

    /// Leads for a while, again and again.
    async fn lead(self: Arc<Self>, client: usize) {
        while !self.is_over() {
            let (manager, closed) = lock(&self.managers[client]).clone();
            let field = Arc::clone(&self);
            let leading = manager.lock("leader").fenced().lead_future(move |lease| {
                let field = Arc::clone(&field);
                async move {
                    let body = Body::begin(&field, client, lease);
                    body.work(field.dice.below(20)).await;
                }
            });
            match self.perhaps(leading).await {
                Some(Err(LockError::Closed)) if lock(&self.managers[client]).1 > closed => {}
                Some(Ok(())) | None => {}
                Some(Err(error)) => self.wrong(format!("leading ended: {error}")),
            }
            let pause = self.dice.scaled_time(self.plan.ttl);
            self.processes[client].client().sleep(pause).await;
        }
    }

    /// Breaks nodes, networks and clients until the chaos ends.
    async fn break_things(self: Arc<Self>) {
        while self.sim.elapsed() < self.plan.chaos {
            self.sim.sleep(self.dice.scaled_time(self.plan.ttl)).await;
            let lasting = self.dice.scaled_time(self.plan.ttl * 3);
            let lasting = lasting.min(self.plan.chaos.saturating_sub(self.sim.elapsed()));
            let (node, small) = (self.dice.pick(&self.nodes), lasting / 4);
            let client = self.dice.below(self.plan.clients);
            let process = &self.processes[client];
            let loading = BackendError::new(BackendErrorKind::Loading, "an error");
            let (kind, fault) = match self.dice.below(10) {
                0 => ("hung", Fault::Hung),
                1 => ("down", Fault::Down),
                2 => ("slow", Fault::Slow(small)),
                3 => ("late", Fault::Late(small)),
                4 => ("error", Fault::Failing(loading)),
                5 | 6 => {
                    self.happens("partition of client", client);
                    let effect = *self.dice.pick(&[Effect::DropRequest, Effect::DropReply]);
                    let cut = Rule::new(effect).client(process.client());
                    self.nodes.iter().for_each(|node| node.add_rule(cut));
                    self.sim.sleep(lasting).await;
                    self.nodes.iter().for_each(|node| self.calm(node));
                    continue;
                }
                7 | 8 => {
                    self.happens("pause of client", client);
                    let until = self.sim.elapsed() + lasting;
                    lock(&self.paused_until).insert(client, until);
                    process.client().pause(lasting);
                    self.sim.sleep(lasting).await;
                    continue;
                }
                _ => {
                    self.happens("close of client", client);
                    if let Some(next) = manager(&self.plan, &self.nodes, process) {
                        let old = self.replace_manager(client, next);
                        let _ = old.close(self.plan.ttl).await;
                    }
                    continue;
                }
            };
            self.happens(kind, node.name());
            node.inject(fault);
            let (field, node) = (Arc::clone(&self), node.clone());
            self.sim.spawn(Box::pin(async move {
                field.sim.sleep(lasting).await;
                node.heal();
            }));
        }
        self.sim.sleep(Duration::ZERO).await;
        self.nodes.iter().for_each(MemoryNode::heal);
    }

    /// Returns the manager that the client had.
    fn replace_manager(&self, client: usize, next: LockManager) -> LockManager {
        let mut manager = lock(&self.managers[client]);
        manager.1 += 1;
        std::mem::replace(&mut manager.0, next)
    }

    /// All has been well since then: each whole period has one success, and there are new terms.
    fn check_calm(&self, since: u64, terms: u64) {
        let period = u64::try_from(self.plan.period.as_micros()).unwrap_or(u64::MAX);
        for number in since / period + 2..=since / period + 4 {
            let successes =
                lock(&self.names).get(&format!("job@{number}")).map(|name| name.successes);
            if successes != Some(1) {
                self.wrong(format!("all is well, and period {number} has {successes:?} successes"));
            }
        }
        let names = lock(&self.names);
        let leads = names.get("leader").is_some_and(|name| name.begun > terms);
        drop(names);
        if !leads {
            self.wrong("all is well, and there is no new leader");
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "jobs and leaders, {:?}", self.plan)
    }
}

/// A body, from its begin to its end.
struct Body {
    field: Arc<Field>,
    name: String,
    number: u64,
    client: usize,
    lease: Lease,
}

impl Body {
    fn begin(field: &Arc<Field>, client: usize, lease: Lease) -> Self {
        let key = lease.keys()[0].to_string();
        let mut names = lock(&field.names);
        let name = names.entry(key.clone()).or_default();
        if let Some((_, other)) = name.open
            && !field.is_paused(other)
        {
            field.wrong(format!("clients {other} and {client} both run {key}"));
        }
        if name.is_done {
            field.wrong(format!("client {client} runs {key}, which has succeeded"));
        }
        if lease.fencing_token() < name.token {
            field.wrong(format!("the token of {key} falls"));
        }
        name.token = lease.fencing_token();
        name.begun += 1;
        name.open = Some((name.begun, client));
        let number = name.begun;
        drop(names);
        field.history.add(
            field.sim.elapsed(),
            client,
            What::Note(format!("runs {key}, run {number}")),
        );
        Self { field: Arc::clone(field), name: key, number, client, lease }
    }

    /// Works in steps, each of which no other body may see.
    async fn work(&self, steps: usize) {
        for _ in 0..steps {
            let pause = self.field.dice.scaled_time(self.field.plan.ttl / 2);
            self.field.processes[self.client].client().sleep(pause).await;
            let is_last = lock(&self.field.names)[&self.name].begun == self.number;
            if !is_last || !self.lease.is_valid() {
                self.field.wrong(format!("client {} works on at {}", self.client, self.name));
            }
        }
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        let mut names = lock(&self.field.names);
        if let Some(name) = names.get_mut(&self.name) {
            name.open.take_if(|(number, _)| *number == self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_of_jobs_is_one_run_and_clean() {
        for seed in 1..8 {
            let (once, again) = (run(seed), run(seed));
            assert_eq!(once.violations, [], "seed {seed}");
            assert_eq!(once.history.digest(), again.history.digest(), "seed {seed}");
        }
    }
}
