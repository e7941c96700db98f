//! What kills waiters, and breaks the nodes that keep their queues.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quorate_core::Runtime;
use quorate_memory::{Effect, Fault, MemoryNode, Operation, Rule, Value};

use super::crowd::Crowd;
use crate::ability::Ability;
use crate::history::AttemptId;
use crate::nemesis::Faults;
use crate::plan::Class;
use crate::process::Process;
use crate::worker::name;

/// Kills processes and breaks nodes until the world is over.
#[derive(Clone, Debug)]
pub(crate) struct Nemesis {
    crowd: Crowd,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    faults: Faults,
    /// Whether a node lost locks, so that there may be two holders.
    forgot: bool,
    /// What the processes that were killed have begun.
    dead: HashSet<AttemptId>,
}

const MS: Duration = Duration::from_millis(1);

impl Nemesis {
    /// Takes hold of a world.
    pub(crate) fn new(crowd: &Crowd) -> Self {
        Self { crowd: crowd.clone(), seen: Arc::default() }
    }

    /// What was injected.
    pub(crate) fn faults(&self) -> Faults {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).faults.clone()
    }

    /// Whether a node lost locks.
    pub(crate) fn forgot(&self) -> bool {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).forgot
    }

    /// Does what the class of the world says.
    pub(crate) async fn run(self) {
        let crowd = &self.crowd;
        crowd.sim.sleep(crowd.dice.time(MS * 200, MS * 3_000)).await;
        while !crowd.is_over() {
            match crowd.plan.class {
                Class::Kills => self.kill_some(),
                Class::Gate => self.break_one().await,
                _ => return,
            }
            crowd.sim.sleep(crowd.dice.scaled_time(MS * 30_000)).await;
        }
    }

    /// The second and the fourth in line, or any two.
    fn kill_some(&self) {
        let (crowd, dice) = (&self.crowd, &self.crowd.dice);
        let line = crowd.board.line(0);
        let places: Vec<usize> = match dice.percent(60) {
            true => [1, 3].iter().filter_map(|place| line.get(*place).copied()).collect(),
            false => (0..1 + dice.below(2)).map(|_| dice.below(crowd.plan.processes)).collect(),
        };
        crowd.note(format!("in line: {line:?}"));
        let places: HashSet<usize> = places.into_iter().collect();
        let mut places: Vec<usize> = places.into_iter().collect();
        places.sort_unstable();
        for place in places {
            let Some(member) = crowd.kill(place) else { continue };
            self.count("process killed");
            crowd.board.killed(crowd.sim.elapsed(), member.who.client);
            let (nemesis, later) = (self.clone(), dice.percent(30));
            crowd.sim.spawn(Box::pin(async move {
                let crowd = &nemesis.crowd;
                // What it has sent arrives.
                crowd.sim.sleep(crowd.plan.round_trip()).await;
                nemesis.see_what_is_left(&member.process);
                if later {
                    crowd.sim.sleep(crowd.dice.time(Duration::ZERO, MS * 1_000)).await;
                    crowd.start(place);
                }
            }));
            if !later {
                crowd.start(place);
            }
        }
    }

    /// Locks of processes that are gone block a key until a quorum of nodes has none of them.
    fn see_what_is_left(&self, process: &Process) {
        let crowd = &self.crowd;
        let theirs = {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.dead.extend(process.all_drawn());
            seen.dead.clone()
        };
        let now = crowd.sim.elapsed();
        for key in 0..crowd.plan.keys {
            let left = |node: &MemoryNode| {
                let attempt = attempt_of(node.get(name(key)))?;
                node.time_left(name(key)).filter(|_| theirs.contains(&attempt))
            };
            let mut left: Vec<Duration> = crowd.nodes.iter().filter_map(left).collect();
            left.sort_unstable();
            left.reverse();
            if let Some(longest) = left.first() {
                crowd.board.is_stale(key, now + *longest);
            }
            if let Some(until) = left.get((crowd.nodes.len() - 1) / 2) {
                crowd.note(format!("what was killed keeps {} for {until:?}", name(key)));
                crowd.board.is_blocked(now, key, now + *until);
            }
        }
    }

    /// One node hangs or dies for up to 5 s, or forgets; or all lose notifications.
    async fn break_one(&self) {
        let (crowd, dice) = (&self.crowd, &self.crowd.dice);
        let node = dice.pick(&crowd.nodes);
        let lasting = dice.scaled_time(MS * 5_000);
        let spare = crowd.nodes.len() > 2;
        let (kind, fault) = match dice.below(5) {
            0 if spare => ("hung", Some(Fault::Hung)),
            1 if spare => ("down", Some(Fault::Down)),
            2 if spare => {
                self.seen.lock().unwrap_or_else(PoisonError::into_inner).forgot = true;
                node.restart();
                ("restarted empty", None)
            }
            3 => {
                for key in
                    node.keys().iter().filter(|key| key.windows(9).any(|part| part == b":quorate:"))
                {
                    node.expire(key);
                }
                ("forgot the queue", None)
            }
            _ => {
                let chance = *dice.pick(&[50_000, 200_000, 1_000_000]);
                for node in &crowd.nodes {
                    let lost = Rule::new(Effect::DropReply).on(Operation::Watch);
                    node.add_rule(lost.chance(chance));
                }
                ("notifications lost", None)
            }
        };
        self.count(kind);
        crowd.note(format!("{} {kind}", node.name()));
        crowd.board.is_disturbed(crowd.sim.elapsed(), lasting + crowd.plan.node_timeout() * 2);
        if let Some(fault) = fault {
            node.inject(fault);
        }
        crowd.sim.sleep(lasting).await;
        self.heal();
    }

    /// All is well again, but for the data that was forgotten.
    pub(crate) fn heal(&self) {
        for node in &self.crowd.nodes {
            node.heal();
            node.clear_rules();
            let most = self.crowd.plan.latency;
            node.add_rule(Rule::new(Effect::Delay { least: most * 2 / 3, most }));
        }
        self.crowd.note("all nodes are well");
    }

    /// Notes keys that stay at a node though the lock is not held: W1 lets a waiter wait for them.
    pub(crate) async fn look_for_stale_keys(self) {
        let crowd = &self.crowd;
        let mut before = HashSet::new();
        if crowd.plan.ability != Ability::Queue {
            return;
        }
        loop {
            crowd.sim.sleep(MS * 50).await;
            let mut found = HashSet::new();
            let now = crowd.sim.elapsed();
            for key in (0..crowd.plan.keys).filter(|key| !crowd.board.is_held(*key)) {
                let attempts =
                    crowd.nodes.iter().filter_map(|node| attempt_of(node.get(name(key))));
                let attempts: Vec<AttemptId> = attempts.collect();
                if attempts.iter().any(|attempt| before.contains(attempt)) {
                    crowd.board.is_blocked(now, key, now);
                }
                found.extend(attempts);
            }
            before = found;
        }
    }

    fn count(&self, kind: &'static str) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        *seen.faults.entry(kind).or_default() += 1;
    }
}

/// The attempt whose lock is at a key.
pub(crate) fn attempt_of(value: Option<Value>) -> Option<AttemptId> {
    match value {
        Some(Value::String(token)) => Some(AttemptId::of(token)),
        _ => None,
    }
}
