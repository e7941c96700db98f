//! While a quorum is well, a lease that is kept alive is not lost: one node down, slow, flapping or
//! restarted after the other, and short outages of all. And nodes that lost its keys get them back
//! if a quorum still had them, and else not.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quorate_core::{ExtendError, LeaseEnd, LockGuard, Runtime};
use quorate_memory::{Fault, MemoryNode, Sim};

use crate::oracle::Violation;
use crate::stage::Stage;
use crate::worker::{fenced, loading, name};

/// A waiter behind an entry whose LEAVE was lost competes after two of these: the process before may get no
/// pushes.
const SECOND_LOOK: Duration = Duration::from_millis(100);

/// Keeps one lease through one kind of trouble.
pub(crate) fn check(stage: &Stage<'_>) -> Vec<Violation> {
    let Stage { sim, dice, plan, nodes, managers, .. } = *stage;
    stage.heal();
    nodes.iter().for_each(|node| stage.calm(node));
    let resource = name(dice.below(plan.resources));
    let request = dice.pick(managers).lock(&*resource).timeout(plan.ttl * 4 + SECOND_LOOK * 2);
    let request = fenced(request, plan.fences(dice));
    let Ok(guard) = sim.block_on(request) else {
        return vec![stage.wrong("all is well, but a lock was refused")];
    };
    // Until every node has it.
    sim.advance(plan.latency * 3);
    let calm = Calm { stage: *stage, resource, told: told(sim, &guard), guard };
    let mut violations = match dice.below(4) {
        0 => calm.keys_lost(),
        1 => calm.some_in_trouble(),
        2 => calm.short_outage(),
        _ => calm.rolling_restarts(),
    };
    stage.heal();
    match dice.below(3) {
        0 => drop(calm.guard),
        1 => drop(sim.block_on_for(calm.guard.release(), dice.below(8))),
        _ => drop(sim.block_on(calm.guard.release())),
    }
    // Calls in flight take a quarter of it, and the release comes behind them.
    sim.advance(plan.ttl / 2);
    violations.extend(stage.keys_left("after the calm"));
    sim.advance(plan.ttl * 2);
    violations
}

type Told = Arc<Mutex<Option<LeaseEnd>>>;

struct Calm<'a> {
    stage: Stage<'a>,
    resource: String,
    guard: LockGuard,
    told: Told,
}

impl Calm<'_> {
    /// Any nodes lose the keys at once. An extension counts those that still had them, and if they
    /// are a quorum the others get them back.
    fn keys_lost(&self) -> Vec<Violation> {
        let mut violations = Vec::new();
        let lost = self.stage.some_nodes(1 + self.stage.dice.below(self.stage.nodes.len()));
        for node in &lost {
            node.expire(&self.resource);
        }
        let extended = self.stage.sim.block_on(self.guard.extend());
        self.stage.sim.advance(self.stage.plan.latency * 6);
        let there = |node: &&MemoryNode| node.get(&self.resource).is_some();
        let back = lost.iter().copied().filter(there).count();
        match extended {
            Ok(()) if lost.len() > self.stage.spare() => {
                violations.push(self.stage.wrong(format!(
                    "extended though {} of {} nodes had lost the keys",
                    lost.len(),
                    self.stage.nodes.len()
                )))
            }
            Ok(()) if back < lost.len() => {
                violations.push(self.stage.wrong("a node was not repaired"))
            }
            Err(ExtendError::Lost(LeaseEnd::NotHeld(_)))
                if lost.len() > self.stage.spare() && back > 0 =>
            {
                violations
                    .push(self.stage.wrong("a node was repaired though no quorum had the keys"));
            }
            Err(ExtendError::Lost(LeaseEnd::NotHeld(_))) if lost.len() > self.stage.spare() => {}
            Err(error) => {
                violations.push(self.stage.wrong(format!("an extension failed: {error}")))
            }
            Ok(()) => {}
        }
        self.guard.auto_renew();
        self.stage.sim.advance(self.stage.plan.ttl * 6 / 10);
        let told = self.told();
        match &told {
            Some(LeaseEnd::NotHeld(_)) if lost.len() > self.stage.spare() => {
                if self.guard.is_valid() {
                    violations
                        .push(self.stage.wrong("valid after it was told that the keys are gone"));
                }
            }
            None if lost.len() <= self.stage.spare() => violations.extend(self.not_held()),
            _ => violations.push(self.stage.wrong(format!(
                "{} of {} nodes had lost the keys, and what was told is {told:?}",
                lost.len(),
                self.stage.nodes.len()
            ))),
        }
        violations
    }

    /// As many nodes as can fail do, on and off.
    fn some_in_trouble(&self) -> Vec<Violation> {
        self.guard.auto_renew();
        let end = self.stage.sim.now() + self.stage.plan.ttl * 2;
        for node in self.stage.some_nodes(self.stage.dice.below(self.stage.spare() + 1)) {
            let fault = match self.stage.dice.below(6) {
                0 => Fault::Dead,
                1 => Fault::Down,
                2 => Fault::Hung,
                3 => Fault::Slow(self.stage.dice.scaled_time(self.stage.plan.ttl / 4)),
                4 => Fault::Late(self.stage.dice.scaled_time(self.stage.plan.ttl / 4)),
                _ => Fault::Failing(loading()),
            };
            let (node, sim) = (node.clone(), self.stage.sim.clone());
            let lasting =
                (self.stage.plan.ttl / 12).max(self.stage.dice.scaled_time(self.stage.plan.ttl));
            self.stage.sim.spawn(Box::pin(async move {
                while sim.now() < end {
                    node.inject(fault.clone());
                    sim.sleep_until((sim.now() + lasting).min(end)).await;
                    node.heal();
                    sim.sleep_until((sim.now() + lasting).min(end)).await;
                }
            }));
        }
        self.stage.sim.advance(self.stage.plan.ttl * 2);
        self.not_held()
    }

    /// No node answers for a sixth of the validity: what fails is tried again in time.
    fn short_outage(&self) -> Vec<Violation> {
        self.guard.auto_renew();
        self.stage.sim.advance(self.stage.dice.time(Duration::ZERO, self.stage.plan.ttl * 6 / 10));
        let fault = match self.stage.dice.below(3) {
            0 => Fault::Down,
            1 => Fault::Hung,
            _ => Fault::Failing(loading()),
        };
        for node in self.stage.nodes {
            node.inject(fault.clone());
        }
        self.stage.sim.advance(self.stage.plan.validity() / 6);
        self.stage.heal();
        self.stage.sim.advance(self.stage.plan.ttl);
        self.not_held()
    }

    /// One node after the other forgets everything. Each gets the keys back before the next does.
    fn rolling_restarts(&self) -> Vec<Violation> {
        self.guard.auto_renew();
        if self.stage.spare() > 0 {
            for node in self.stage.nodes.iter().take(5) {
                node.restart();
                self.stage.sim.advance(self.stage.plan.validity() * 6 / 10);
            }
        }
        self.not_held()
    }

    /// What is wrong if it is no longer held.
    fn not_held(&self) -> Vec<Violation> {
        let told = self.told();
        let lost = told.is_some() || !self.guard.is_valid();
        let what =
            || self.stage.wrong(format!("a quorum was well, and a lease was lost: {told:?}"));
        lost.then(what).into_iter().collect()
    }

    fn told(&self) -> Option<LeaseEnd> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
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
