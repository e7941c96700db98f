//! Nothing is left behind: slow and hung nodes, cancelled and careless clients, and a count of keys
//! long before any of them could have expired.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use quorate_core::{LockManager, LockRequest, Runtime};
use quorate_memory::{Effect, Fault, MemoryNode, Operation, Rule, Sim};

use crate::dice::Dice;
use crate::oracle::Violation;
use crate::plan::Plan;
use crate::worker::{fenced, loading, lock_keys, name};

/// Uses locks on nodes that answer late, and counts what is left after nineteen twentieths of the
/// ttl.
///
/// There and back takes at most a fifth of the ttl, and no message is lost. A lock is won within an
/// eighth; an acquire, an extension, a repair and a release one after the other have reached a node
/// before that. And a key that was left cannot have expired.
pub fn check(
    sim: &Sim,
    dice: &Dice,
    plan: &Plan,
    nodes: &[MemoryNode],
    managers: &[LockManager],
) -> Vec<Violation> {
    let mut violations = Vec::new();
    for _ in 0..4 {
        let start = sim.elapsed();
        for node in nodes {
            node.clear_rules();
            let most = plan.latency;
            node.add_rule(Rule::new(Effect::Delay { least: most / 10, most }));
            hinder(sim, dice, plan, node);
        }
        let resource = name(dice.below(plan.resources));
        let manager = dice.pick(managers);
        let tidy = Tidy { sim, dice, plan, nodes, manager, resource: &resource };
        if !tidy.use_carelessly() {
            let what = "work under a lock never came to its end".to_owned();
            violations.push(Violation::Other { at: start, what });
        }
        sim.advance((start + plan.ttl * 19 / 20).saturating_sub(sim.elapsed()));
        for node in nodes {
            for key in lock_keys(node) {
                let key = String::from_utf8_lossy(&key);
                let what = format!("{key} was left behind on {}", node.name());
                violations.push(Violation::Other { at: start, what });
            }
            node.heal();
        }
        // Whatever was left is gone before the next one looks.
        sim.advance(plan.ttl * 2);
    }
    violations
}

fn hinder(sim: &Sim, dice: &Dice, plan: &Plan, node: &MemoryNode) {
    let lasting = dice.scaled_time(plan.ttl / 8);
    match dice.below(9) {
        0 => node.inject(Fault::Slow(lasting)),
        1 => node.inject(Fault::Late(lasting)),
        2 => {
            node.inject(Fault::Hung);
            let (node, world) = (node.clone(), sim.clone());
            let until = sim.now() + lasting;
            sim.spawn(Box::pin(async move {
                world.sleep_until(until).await;
                node.heal();
            }));
        }
        3 => {
            // What is sent first arrives last.
            node.inject(Fault::Slow(lasting));
            let (node, world) = (node.clone(), sim.clone());
            let until = sim.now() + lasting / 4;
            sim.spawn(Box::pin(async move {
                world.sleep_until(until).await;
                node.heal();
            }));
        }
        // It grants, and the caller hears of a broken connection.
        4 => node.add_rule(Rule::new(Effect::Cut).on(Operation::Acquire)),
        // Its releases fail, for less than an eighth of the ttl.
        6 => {
            let loading = loading();
            let (node, world) = (node.clone(), sim.clone());
            let (from, until) = (sim.now() + plan.latency * 4, sim.now() + lasting);
            sim.spawn(Box::pin(async move {
                world.sleep_until(from).await;
                node.inject(Fault::Failing(loading));
                world.sleep_until(until).await;
                node.heal();
            }));
        }
        // It comes again after the release.
        5 => node.add_rule(Rule::new(Effect::Duplicate(lasting)).on(Operation::Extend)),
        _ => {}
    }
}

struct Tidy<'a> {
    sim: &'a Sim,
    dice: &'a Dice,
    plan: &'a Plan,
    nodes: &'a [MemoryNode],
    manager: &'a LockManager,
    resource: &'a str,
}

impl Tidy<'_> {
    /// Returns whether it came to its end.
    fn use_carelessly(&self) -> bool {
        let (sim, dice, manager) = (self.sim, self.dice, self.manager);
        let fences = self.plan.fences(dice);
        let request = fenced(manager.lock(self.resource).timeout(self.plan.ttl / 8), fences);
        let guard = match dice.below(4) {
            0 => sim.block_on_for(request, dice.below(12)).and_then(Result::ok),
            1 => {
                let request = manager.lock(self.resource).no_wait();
                sim.block_on(fenced(request, fences)).ok()
            }
            2 => return self.with(request),
            _ => sim.block_on(request).ok(),
        };
        let Some(guard) = guard else { return true };
        match dice.below(3) {
            0 => {
                self.forget();
                drop(sim.block_on_for(guard.extend(), 1 + dice.below(8)));
                // Else the repair has not left when the release begins.
                if dice.percent(50) {
                    sim.advance(dice.scaled_time(self.plan.ttl / 16));
                }
            }
            1 => {
                self.forget();
                guard.auto_renew();
                sim.advance(dice.time(Duration::ZERO, self.plan.ttl / 8));
            }
            _ => {}
        }
        match dice.below(3) {
            0 => drop(guard),
            1 => drop(sim.block_on_for(guard.release(), dice.below(8))),
            _ => drop(sim.block_on(guard.release())),
        }
        true
    }

    /// The work is done, or dropped in the middle. Returns whether it came to its end.
    fn with(&self, request: LockRequest) -> bool {
        let (sim, lasting) = (self.sim.clone(), self.dice.time(Duration::ZERO, self.plan.ttl / 8));
        let body = async |_| {
            self.forget();
            sim.sleep_until(sim.now() + lasting).await;
        };
        if self.dice.percent(50) {
            drop(self.sim.block_on_for(request.with(body), self.dice.below(12)));
            return true;
        }
        // A wrong core never ends it.
        let mut work = pin!(request.with(body));
        let mut over = self.sim.sleep(self.plan.ttl * 4);
        self.sim.block_on(poll_fn(|context| match work.as_mut().poll(context) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending => over.as_mut().poll(context).map(|()| false),
        }))
    }

    /// A few nodes forget the keys, so that an extension repairs them.
    fn forget(&self) {
        for node in self.nodes.iter().take((self.nodes.len() - 1) / 2) {
            if self.dice.percent(40) {
                node.expire(self.resource);
            }
        }
    }
}
