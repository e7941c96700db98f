//! Worlds of permits: tasks of several processes want one of a few names, on nodes and networks that fail.
//!
//! Nodes forget nothing, and clocks drift within the allowance. So no name has two holders (S1), and there are never more
//! holders than the highest count that a process gives (S5). When all is well again, each client has permits (S2, S3).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorate_core::{
    BackendError, BackendErrorKind, FencingToken, Lease, LockManager, LockRequest, Runtime,
};
use quorate_memory::{Effect, Fault, MemoryNode, Rule, Sim};

use crate::dice::Dice;
use crate::history::{History, What};
use crate::oracle::Violation;
use crate::plan::Ability;
use crate::process::Process;
use crate::run::Outcome;
use crate::waiting::Waits;
use crate::world::{Faults, lock};

/// What such a world is like.
#[derive(Clone, Copy, Debug)]
struct Plan {
    nodes: usize,
    clients: usize,
    tasks: usize,
    /// The lowest and the highest count that a client gives.
    permits: (u16, u16),
    ttl: Duration,
    /// How far clocks gain or lose, in parts of a million.
    drift: i32,
    /// What all processes can use of the nodes. Others would get what those with a queue leave.
    ability: Ability,
    latency: Duration,
    chaos: Duration,
    end: Duration,
}

impl Plan {
    fn draw(dice: &Dice) -> Self {
        let ttl = Duration::from_millis(*dice.pick(&[500, 1_000, 2_000, 10_000]));
        let least = *dice.pick(&[1, 2, 2, 3, 5]);
        let more = *dice.pick(&[0, 0, 1, 3, 20]);
        let chaos = ttl * 20;
        let (queue, polled, nothing) = (Ability::Queue, Ability::Polled, Ability::Nothing);
        Self {
            nodes: *dice.pick(&[1, 3, 3, 3, 5]),
            clients: 2 + dice.below(4),
            tasks: 1 + dice.below(4),
            permits: (least, least + more),
            ttl,
            drift: *dice.pick(&[0, 1_000, 4_000]),
            ability: *dice.pick(&[queue, queue, queue, polled, nothing]),
            latency: ttl / *dice.pick(&[1_000, 200, 50]),
            chaos,
            end: chaos + Duration::from_secs(60) + ttl * 8,
        }
    }
}

/// What is known of the bodies under one name.
#[derive(Debug, Default)]
struct Name {
    begun: u64,
    /// The body that is there, and its client.
    open: Option<(u64, usize)>,
    token: Option<FencingToken>,
}

/// What all tasks of a world share.
struct Field {
    sim: Sim,
    dice: Dice,
    plan: Plan,
    nodes: Vec<MemoryNode>,
    processes: Vec<Process>,
    managers: Vec<LockManager>,
    paused_until: Mutex<BTreeMap<usize, Duration>>,
    names: Mutex<BTreeMap<String, Name>>,
    /// How many permits each client had since the end of the chaos.
    had: Mutex<BTreeMap<usize, u64>>,
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
        .map(|node| if dice.percent(75) { node } else { node.unordered() })
        .collect();
    nodes.iter().for_each(|node| node.drift(dice.signed(plan.drift)));
    let processes: Vec<Process> = (0..plan.clients)
        .map(|_| Process::new(&sim, sim.client(dice.signed(plan.drift))))
        .collect();
    let managers = processes.iter().filter_map(|process| {
        let seen = nodes.iter().map(|node| plan.ability.of(node.seen_by(process.client())));
        LockManager::builder(seen).runtime(process.clone()).ttl(plan.ttl).build().ok()
    });
    let managers = managers.collect();
    let field = Arc::new(Field {
        sim: sim.clone(),
        dice,
        plan,
        nodes,
        processes,
        managers,
        paused_until: Mutex::default(),
        names: Mutex::default(),
        had: Mutex::default(),
        wrong: Mutex::default(),
        faults: Mutex::default(),
        history: History::default(),
    });
    field.nodes.iter().for_each(|node| field.calm(node));
    sim.spawn(Box::pin(Arc::clone(&field).break_things()));
    for client in 0..plan.clients {
        let (least, most) = plan.permits;
        let more = field.dice.below(usize::from(most - least) + 1);
        let count = if client == 0 { most } else { least + u16::try_from(more).unwrap_or(0) };
        for _ in 0..plan.tasks {
            let use_permits = Arc::clone(&field).use_permits(client, count);
            field.processes[client].spawn(Box::pin(use_permits));
        }
    }
    sim.advance(plan.end);
    field.check_calm();
    let tokens = lock(&field.names).values().map(|name| name.begun).sum();
    let outcome = Outcome {
        world: field.to_string(),
        violations: std::mem::take(&mut *lock(&field.wrong)),
        overlaps: 0,
        tokens,
        refused: 0,
        history: field.history.clone(),
        simulated: sim.elapsed(),
        faults: lock(&field.faults).clone(),
        waits: Waits::default(),
    };
    sim.end();
    outcome
}

impl Field {
    fn wrong(&self, what: impl Into<String>) {
        lock(&self.wrong).push(Violation::other(self.sim.elapsed(), what));
    }

    fn happens(&self, kind: &'static str, more: impl fmt::Display) {
        *lock(&self.faults).entry(kind).or_default() += 1;
        self.history.add(self.sim.elapsed(), 0, What::Note(format!("{kind} {more}")));
    }

    fn is_chaos(&self) -> bool {
        self.sim.elapsed() < self.plan.chaos
    }

    fn is_paused(&self, client: usize) -> bool {
        let paused = lock(&self.paused_until).get(&client).copied();
        paused.is_some_and(|until| self.sim.elapsed() <= until)
    }

    fn calm(&self, node: &MemoryNode) {
        let (least, most) = (self.plan.latency / 10, self.plan.latency);
        node.clear_rules();
        node.add_rule(Rule::new(Effect::Delay { least, most }));
    }

    fn request(&self, client: usize, count: usize) -> LockRequest {
        let request = self.managers[client].permit("p", count).fenced();
        match self.dice.below(10) {
            0 | 1 => request.no_wait(),
            2 => request.timeout(self.dice.scaled_time(self.plan.ttl)),
            _ => request.timeout(self.plan.end),
        }
    }

    /// Uses one permit after the other.
    async fn use_permits(self: Arc<Self>, client: usize, count: u16) {
        if count == 0 {
            return;
        }
        while self.sim.elapsed() < self.plan.end {
            let field = Arc::clone(&self);
            let steps = self.dice.below(4);
            let used = self.request(client, count.into()).with(async move |lease| {
                let body = Body::begin(&field, client, lease);
                for _ in 0..steps {
                    let pause = field.dice.scaled_time(field.plan.ttl / 4);
                    field.processes[client].client().sleep(pause).await;
                    body.check();
                }
            });
            if used.await.is_ok() && !self.is_chaos() {
                *lock(&self.had).entry(client).or_default() += 1;
            }
            let pause = self.dice.scaled_time(self.plan.ttl / 4);
            self.processes[client].client().sleep(pause.max(self.plan.ttl / 100)).await;
        }
    }

    /// Breaks nodes, networks and clients until the chaos ends.
    async fn break_things(self: Arc<Self>) {
        while self.is_chaos() {
            self.sim.sleep(self.dice.scaled_time(self.plan.ttl)).await;
            let lasting = self.dice.scaled_time(self.plan.ttl * 3);
            let lasting = lasting.min(self.plan.chaos.saturating_sub(self.sim.elapsed()));
            let (node, small) = (self.dice.pick(&self.nodes), lasting / 4);
            let client = self.dice.below(self.plan.clients);
            let loading = BackendError::new(BackendErrorKind::Loading, "an error");
            let (kind, fault) = match self.dice.below(10) {
                0 | 1 => ("hung", Fault::Hung),
                2 => ("down", Fault::Down),
                3 => ("slow", Fault::Slow(small)),
                4 => ("late", Fault::Late(small)),
                5 => ("error", Fault::Failing(loading)),
                6 | 7 => {
                    self.happens("partition of client", client);
                    let effect = *self.dice.pick(&[Effect::DropRequest, Effect::DropReply]);
                    let cut = Rule::new(effect).client(self.processes[client].client());
                    self.nodes.iter().for_each(|node| node.add_rule(cut));
                    self.sim.sleep(lasting).await;
                    self.nodes.iter().for_each(|node| self.calm(node));
                    continue;
                }
                _ => {
                    self.happens("pause of client", client);
                    let until = self.sim.elapsed() + lasting;
                    lock(&self.paused_until).insert(client, until);
                    self.processes[client].client().pause(lasting);
                    self.sim.sleep(lasting).await;
                    continue;
                }
            };
            self.happens(kind, node.name());
            node.inject(fault);
            self.sim.sleep(lasting).await;
            node.heal();
        }
        self.nodes.iter().for_each(MemoryNode::heal);
    }

    /// All has been well for a minute: each client has had permits. Without a wait queue some client has.
    fn check_calm(&self) {
        let had: Vec<usize> = lock(&self.had).keys().copied().collect();
        let least = if self.plan.ability == Ability::Nothing { 1 } else { self.plan.clients };
        if had.len() < least {
            self.wrong(format!("all is well, and only the clients {had:?} have permits"));
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "permits, {:?}", self.plan)
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
            field.wrong(format!("clients {other} and {client} both have {key}"));
        }
        if lease.fencing_token() < name.token {
            field.wrong(format!("the token of {key} falls"));
        }
        name.token = lease.fencing_token();
        name.begun += 1;
        name.open = Some((name.begun, client));
        let number = name.begun;
        let open = names.values().filter_map(|name| name.open);
        let holders = open.filter(|(_, client)| !field.is_paused(*client)).count();
        drop(names);
        if holders > usize::from(field.plan.permits.1) {
            field.wrong(format!("{holders} have a permit"));
        }
        let note = What::Note(format!("has {key}, body {number}"));
        field.history.add(field.sim.elapsed(), client, note);
        Self { field: Arc::clone(field), name: key, number, client, lease }
    }

    /// No other body may see the step.
    fn check(&self) {
        let is_last = lock(&self.field.names)[&self.name].begun == self.number;
        if !is_last || !self.lease.is_valid() {
            self.field.wrong(format!("client {} works on at {}", self.client, self.name));
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
    fn a_seed_of_permits_is_one_run_and_clean() {
        for seed in 1..4 {
            let (once, again) = (run(seed), run(seed));
            assert_eq!(once.violations, [], "seed {seed}");
            assert_eq!(once.history.digest(), again.history.digest(), "seed {seed}");
        }
    }
}
