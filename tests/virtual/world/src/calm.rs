//! While a quorum is well, a lease that is kept alive is not lost: one node down, slow, flapping or
//! restarted after the other, and short outages of all. And nodes that lost its keys get them back
//! if a quorum still had them, and else not.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quorate_core::{ExtendError, LockGuard, LockManager, Lost, Runtime};
use quorate_memory::{Effect, Fault, MemoryNode, Rule, Sim};

use crate::dice::Dice;
use crate::oracle::Violation;
use crate::plan::Plan;
use crate::worker::{fenced, loading, lock_keys, name};

/// A waiter behind an entry whose LEAVE was lost competes after two of these: the process before may get no
/// pushes.
const SECOND_LOOK: Duration = Duration::from_millis(100);

/// Keeps one lease through one kind of trouble.
pub fn check(
    sim: &Sim,
    dice: &Dice,
    plan: &Plan,
    nodes: &[MemoryNode],
    managers: &[LockManager],
) -> Vec<Violation> {
    for node in nodes {
        node.heal();
        node.clear_rules();
        let most = plan.latency;
        node.add_rule(Rule::new(Effect::Delay { least: most / 10, most }));
    }
    let resource = name(dice.below(plan.resources));
    let request = dice.pick(managers).lock(&*resource).timeout(plan.ttl * 4 + SECOND_LOOK * 2);
    let request = fenced(request, plan.fences(dice));
    let Ok(guard) = sim.block_on(request) else {
        return vec![wrong(sim, "all is well, but a lock was refused")];
    };
    // Until every node has it.
    sim.advance(plan.latency * 3);
    let calm = Calm { sim, dice, plan, nodes, resource, told: told(sim, &guard), guard };
    let mut violations = match dice.below(4) {
        0 => calm.keys_lost(),
        1 => calm.some_in_trouble(),
        2 => calm.short_outage(),
        _ => calm.rolling_restarts(),
    };
    for node in nodes {
        node.heal();
    }
    match dice.below(3) {
        0 => drop(calm.guard),
        1 => drop(sim.block_on_for(calm.guard.release(), dice.below(8))),
        _ => drop(sim.block_on(calm.guard.release())),
    }
    // Calls in flight take a quarter of it, and the release comes behind them.
    sim.advance(plan.ttl / 2);
    for node in nodes {
        for key in lock_keys(node) {
            let key = String::from_utf8_lossy(&key);
            violations.push(wrong(
                sim,
                format!("{key} was left behind on {} after the calm", node.name()),
            ));
        }
    }
    sim.advance(plan.ttl * 2);
    violations
}

type Told = Arc<Mutex<Option<Lost>>>;

struct Calm<'a> {
    sim: &'a Sim,
    dice: &'a Dice,
    plan: &'a Plan,
    nodes: &'a [MemoryNode],
    resource: String,
    guard: LockGuard,
    told: Told,
}

impl Calm<'_> {
    /// So many nodes as can fail.
    fn spare(&self) -> usize {
        (self.nodes.len() - 1) / 2
    }

    /// Any nodes lose the keys at once. An extension counts those that still had them, and if they
    /// are a quorum the others get them back.
    fn keys_lost(&self) -> Vec<Violation> {
        let mut violations = Vec::new();
        let lost = self.some_nodes(1 + self.dice.below(self.nodes.len()));
        for node in &lost {
            node.expire(&self.resource);
        }
        let extended = self.sim.block_on(self.guard.extend());
        self.sim.advance(self.plan.latency * 6);
        let there = |node: &&MemoryNode| node.get(&self.resource).is_some();
        let back = lost.iter().copied().filter(there).count();
        match extended {
            Ok(()) if lost.len() > self.spare() => violations.push(self.wrong(format!(
                "extended though {} of {} nodes had lost the keys",
                lost.len(),
                self.nodes.len()
            ))),
            Ok(()) if back < lost.len() => violations.push(self.wrong("a node was not repaired")),
            Err(ExtendError::Lost(Lost::NotHeld(_))) if lost.len() > self.spare() && back > 0 => {
                violations.push(self.wrong("a node was repaired though no quorum had the keys"));
            }
            Err(ExtendError::Lost(Lost::NotHeld(_))) if lost.len() > self.spare() => {}
            Err(error) => violations.push(self.wrong(format!("an extension failed: {error}"))),
            Ok(()) => {}
        }
        self.guard.auto_renew();
        self.sim.advance(self.plan.ttl * 6 / 10);
        let told = self.told();
        match &told {
            Some(Lost::NotHeld(_)) if lost.len() > self.spare() => {
                if self.guard.is_valid() {
                    violations.push(self.wrong("valid after it was told that the keys are gone"));
                }
            }
            None if lost.len() <= self.spare() => violations.extend(self.not_held()),
            _ => violations.push(self.wrong(format!(
                "{} of {} nodes had lost the keys, and what was told is {told:?}",
                lost.len(),
                self.nodes.len()
            ))),
        }
        violations
    }

    /// As many nodes as can fail do, on and off.
    fn some_in_trouble(&self) -> Vec<Violation> {
        self.guard.auto_renew();
        let end = self.sim.now() + self.plan.ttl * 2;
        for node in self.some_nodes(self.dice.below(self.spare() + 1)) {
            let fault = match self.dice.below(6) {
                0 => Fault::Dead,
                1 => Fault::Down,
                2 => Fault::Hung,
                3 => Fault::Slow(self.dice.scaled_time(self.plan.ttl / 4)),
                4 => Fault::Late(self.dice.scaled_time(self.plan.ttl / 4)),
                _ => Fault::Failing(loading()),
            };
            let (node, sim) = (node.clone(), self.sim.clone());
            let lasting = (self.plan.ttl / 12).max(self.dice.scaled_time(self.plan.ttl));
            self.sim.spawn(Box::pin(async move {
                while sim.now() < end {
                    node.inject(fault.clone());
                    sim.sleep_until((sim.now() + lasting).min(end)).await;
                    node.heal();
                    sim.sleep_until((sim.now() + lasting).min(end)).await;
                }
            }));
        }
        self.sim.advance(self.plan.ttl * 2);
        self.not_held()
    }

    /// No node answers for a sixth of the validity: what fails is tried again in time.
    fn short_outage(&self) -> Vec<Violation> {
        self.guard.auto_renew();
        self.sim.advance(self.dice.time(Duration::ZERO, self.plan.ttl * 6 / 10));
        let fault = match self.dice.below(3) {
            0 => Fault::Down,
            1 => Fault::Hung,
            _ => Fault::Failing(loading()),
        };
        for node in self.nodes {
            node.inject(fault.clone());
        }
        self.sim.advance(self.plan.validity() / 6);
        for node in self.nodes {
            node.heal();
        }
        self.sim.advance(self.plan.ttl);
        self.not_held()
    }

    /// One node after the other forgets everything. Each gets the keys back before the next does.
    fn rolling_restarts(&self) -> Vec<Violation> {
        self.guard.auto_renew();
        if self.spare() > 0 {
            for node in self.nodes.iter().take(5) {
                node.restart();
                self.sim.advance(self.plan.validity() * 6 / 10);
            }
        }
        self.not_held()
    }

    fn some_nodes(&self, count: usize) -> Vec<&MemoryNode> {
        let mut nodes: Vec<&MemoryNode> = self.nodes.iter().collect();
        while nodes.len() > count {
            nodes.swap_remove(self.dice.below(nodes.len()));
        }
        nodes
    }

    /// What is wrong if it is no longer held.
    fn not_held(&self) -> Vec<Violation> {
        let told = self.told();
        let lost = told.is_some() || !self.guard.is_valid();
        let what = || self.wrong(format!("a quorum was well, and a lease was lost: {told:?}"));
        lost.then(what).into_iter().collect()
    }

    fn told(&self) -> Option<Lost> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn wrong(&self, what: impl Into<String>) -> Violation {
        wrong(self.sim, what)
    }
}

/// What a guard reports to its holder about its loss.
pub(crate) fn told(sim: &Sim, guard: &LockGuard) -> Told {
    let told = Told::default();
    let (lost, tells) = (guard.lost(), Arc::clone(&told));
    sim.spawn(Box::pin(async move {
        let lost = lost.await;
        *tells.lock().unwrap_or_else(PoisonError::into_inner) = Some(lost);
    }));
    told
}

fn wrong(sim: &Sim, what: impl Into<String>) -> Violation {
    Violation::Other { at: sim.elapsed(), what: what.into() }
}
