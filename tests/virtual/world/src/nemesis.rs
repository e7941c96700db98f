//! What breaks, and when.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quorate_core::{BackendError, BackendErrorKind, LockManager, Runtime};
use quorate_memory::{Effect, Fault, MemoryNode, Rule, Sim};

use crate::dice::Dice;
use crate::history::History;
use crate::plan::{Class, Plan};
use crate::process::Process;
use crate::worker::name;

/// How often each kind of fault was injected.
pub(crate) type Faults = BTreeMap<&'static str, u64>;

/// Breaks nodes, networks and clients until the chaos ends, and then mends them all.
#[derive(Clone, Debug)]
pub(crate) struct Nemesis {
    sim: Sim,
    dice: Dice,
    plan: Plan,
    nodes: Vec<MemoryNode>,
    processes: Vec<Process>,
    history: History,
    faults: Arc<Mutex<Faults>>,
    /// From when to when clients stood still.
    pauses: Arc<Mutex<Vec<(usize, Duration, Duration)>>>,
}

impl Nemesis {
    /// Takes hold of a world. Nothing breaks before [`run`](Self::run).
    pub(crate) fn new(
        sim: &Sim,
        plan: &Plan,
        nodes: &[MemoryNode],
        processes: &[Process],
        history: &History,
    ) -> Self {
        let nemesis = Self {
            sim: sim.clone(),
            dice: Dice::new(sim.clone()),
            plan: plan.clone(),
            nodes: nodes.to_vec(),
            processes: processes.to_vec(),
            history: history.clone(),
            faults: Arc::default(),
            pauses: Arc::default(),
        };
        for node in nodes {
            node.drift(nemesis.dice.signed(plan.drift));
            nemesis.network(node, true);
        }
        nemesis
    }

    /// What was injected.
    pub(crate) fn faults(&self) -> Faults {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether a client stood still at any time in between.
    pub(crate) fn has_paused(&self, client: usize, from: Duration, to: Duration) -> bool {
        let pauses = self.pauses.lock().unwrap_or_else(PoisonError::into_inner);
        pauses.iter().any(|(who, start, end)| *who == client && *start <= to && *end >= from)
    }

    /// Breaks things until the chaos ends; then everything is well.
    pub(crate) async fn run(self) {
        let idle = self.plan.ttl / 2 + self.plan.thinking / 4;
        while self.sim.elapsed() < self.plan.chaos {
            self.sleep(self.dice.scaled_time(idle)).await;
            self.strike().await;
        }
        for node in &self.nodes {
            node.heal();
            self.network(node, false);
        }
        self.note("the chaos is over");
    }

    /// Sets the wall clocks of clients until the chaos ends. It is only the order of tokens, after a
    /// loss of data, that may suffer from it.
    pub(crate) async fn set_wall_clocks(self, most: Duration) {
        for process in &self.processes {
            self.set_wall_clock(process, most);
        }
        while self.sim.elapsed() < self.plan.chaos {
            self.sleep(self.dice.time(Duration::ZERO, self.plan.ttl * 2)).await;
            self.set_wall_clock(self.dice.pick(&self.processes), most);
        }
    }

    /// Keys vanish until the chaos ends, some of them before their holder has the reply.
    pub(crate) async fn lose_keys(self) {
        while self.sim.elapsed() < self.plan.chaos {
            self.sleep(self.dice.scaled_time(self.plan.ttl / 2)).await;
            let node = self.dice.pick(&self.nodes);
            node.expire(name(self.dice.below(self.plan.resources)));
            self.count("key gone");
        }
    }

    /// Locks are revoked until the chaos ends, by any client.
    pub(crate) async fn revoke(self, managers: Vec<LockManager>) {
        while self.sim.elapsed() < self.plan.chaos && !managers.is_empty() {
            self.sleep(self.dice.scaled_time(self.plan.ttl / 2)).await;
            let name = name(self.dice.below(self.plan.resources));
            let revoked = self.dice.pick(&managers).revoke(name.as_str()).await;
            let note = match revoked {
                Ok(revocation) => {
                    if revocation.is_effective() {
                        self.count("lock revoked");
                    }
                    format!("{name}: {revocation}")
                }
                Err(error) => format!("{name}: {error}"),
            };
            self.note(note);
        }
    }

    fn set_wall_clock(&self, process: &Process, most: Duration) {
        let most = i32::try_from(most.as_millis()).unwrap_or(i32::MAX);
        let ahead = i64::from(self.dice.signed(most)) * 1_000;
        process.set_wall_clock(ahead);
        self.count("wall clock set");
        self.note(format!(
            "the wall clock of client {} is {ahead} µs ahead",
            process.client().id()
        ));
    }

    async fn strike(&self) {
        let lasting = self.dice.scaled_time(self.plan.ttl * 2);
        match self.dice.below(10) {
            0..=4 => self.break_node(lasting).await,
            5 | 6 => self.part(lasting).await,
            _ => self.pause(lasting),
        }
    }

    async fn break_node(&self, lasting: Duration) {
        let node = self.dice.pick(&self.nodes);
        let small = self.dice.scaled_time(self.plan.ttl / 2);
        let kinds = match self.plan.class {
            Class::Broken | Class::Guarded => 9,
            Class::Storm => 6,
            _ => 5,
        };
        let (kind, fault) = match self.dice.below(kinds) {
            5 if self.plan.class == Class::Storm => {
                node.jump(self.dice.time(Duration::ZERO, self.plan.ttl * 2));
                ("clock jumped", None)
            }
            0 => ("hung", Some(Fault::Hung)),
            1 => ("down", Some(Fault::Down)),
            2 => ("slow", Some(Fault::Slow(small))),
            3 => ("late", Some(Fault::Late(small))),
            4 => {
                let kind = *self.dice.pick(&[
                    BackendErrorKind::ReadOnly,
                    BackendErrorKind::Loading,
                    BackendErrorKind::OutOfMemory,
                    BackendErrorKind::Misconfigured,
                    BackendErrorKind::Auth,
                ]);
                ("error", Some(Fault::Failing(BackendError::new(kind, "an error"))))
            }
            5 => {
                node.restart();
                ("restarted empty", None)
            }
            6 => {
                node.restart_from_save();
                ("restarted from an old save", None)
            }
            7 if self.plan.class == Class::Guarded => {
                node.flush();
                ("flushed", None)
            }
            7 => {
                node.jump(self.dice.time(Duration::ZERO, self.plan.ttl * 2));
                ("clock jumped", None)
            }
            _ => {
                node.save();
                return;
            }
        };
        self.count(kind);
        self.note(format!("{} {kind}", node.name()));
        let Some(fault) = fault else { return };
        node.inject(fault);
        // Several nodes can be broken at once: not every one is waited for.
        if self.dice.percent(70) {
            let (nemesis, node) = (self.clone(), node.clone());
            self.sim.spawn(Box::pin(async move {
                nemesis.sleep(lasting).await;
                nemesis.heal(&node);
            }));
        } else {
            self.sleep(lasting).await;
            self.heal(node);
        }
    }

    fn heal(&self, node: &MemoryNode) {
        node.heal();
        self.note(format!("{} is well", node.name()));
    }

    /// Cuts a client off some nodes, in one direction or in both.
    async fn part(&self, lasting: Duration) {
        let client = self.dice.pick(&self.processes).client();
        let effects: &[Effect] = match self.dice.below(3) {
            0 => &[Effect::DropRequest],
            1 => &[Effect::DropReply],
            _ => &[Effect::DropRequest, Effect::DropReply],
        };
        self.count(if effects.len() == 2 { "partition" } else { "one-way partition" });
        let mut parted = Vec::new();
        for node in &self.nodes {
            if self.dice.percent(50) {
                for effect in effects {
                    node.add_rule(Rule::new(*effect).client(client));
                }
                parted.push(node.name());
            }
        }
        self.note(format!("client {} is cut off {parted:?}: {effects:?}", client.id()));
        self.sleep(lasting).await;
        for node in &self.nodes {
            self.network(node, true);
        }
        self.note(format!("client {} is back", client.id()));
    }

    fn pause(&self, lasting: Duration) {
        let client = self.dice.pick(&self.processes).client();
        self.count("client paused");
        let start = self.sim.elapsed();
        self.note(format!("client {} stands still for {lasting:?}", client.id()));
        client.pause(lasting);
        let mut pauses = self.pauses.lock().unwrap_or_else(PoisonError::into_inner);
        pauses.push((client.id(), start, start + lasting));
    }

    /// The network as it always is; with losses while the chaos lasts.
    fn network(&self, node: &MemoryNode, lossy: bool) {
        node.clear_rules();
        let most = self.plan.latency;
        node.add_rule(Rule::new(Effect::Delay { least: most / 10, most }));
        if lossy && self.plan.loss > 0 {
            let late = self.plan.ttl / 2;
            for effect in [
                Effect::DropRequest,
                Effect::DropReply,
                Effect::Cut,
                Effect::Duplicate(late),
                Effect::Reorder(late),
            ] {
                node.add_rule(Rule::new(effect).chance(self.plan.loss));
            }
        }
    }

    fn count(&self, kind: &'static str) {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        *faults.entry(kind).or_default() += 1;
    }

    fn note(&self, note: impl Into<String>) {
        self.history.note(self.sim.elapsed(), 0, note);
    }

    async fn sleep(&self, time: Duration) {
        self.sim.sleep_until(self.sim.now() + time).await;
    }
}
