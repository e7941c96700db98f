//! Nothing is left behind: slow and hung nodes, cancelled and careless clients, and a count of keys
//! long before any of them could have expired.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use quorate_core::{LockManager, LockRequest, Runtime};
use quorate_memory::{Effect, Fault, MemoryNode, Operation, Rule};

use crate::oracle::Violation;
use crate::stage::Stage;
use crate::worker::{fenced, loading, name};

/// Uses locks on nodes that answer late, and counts what is left after nineteen twentieths of the
/// ttl.
///
/// There and back takes at most a fifth of the ttl, and no message is lost. A lock is won within an
/// eighth; an acquire, an extension, a repair and a release one after the other have reached a node
/// before that. And a key that was left cannot have expired.
pub(crate) fn check(stage: &Stage<'_>) -> Vec<Violation> {
    let Stage { sim, dice, plan, nodes, managers, .. } = *stage;
    let mut violations = Vec::new();
    for _ in 0..4 {
        let start = sim.elapsed();
        for node in nodes {
            stage.calm(node);
            hinder(stage, node);
        }
        let resource = name(dice.below(plan.resources));
        let manager = dice.pick(managers);
        let tidy = Tidy { stage: *stage, manager, resource: &resource };
        if !tidy.use_carelessly() {
            violations.push(stage.wrong("work under a lock never came to its end"));
        }
        sim.advance((start + plan.ttl * 19 / 20).saturating_sub(sim.elapsed()));
        violations.extend(stage.keys_left("behind careless clients"));
        stage.heal();
        // Whatever was left is gone before the next one looks.
        sim.advance(plan.ttl * 2);
    }
    violations
}

fn hinder(stage: &Stage<'_>, node: &MemoryNode) {
    let Stage { sim, dice, plan, .. } = *stage;
    let lasting = dice.scaled_time(plan.ttl / 8);
    match dice.below(9) {
        0 => node.inject(Fault::Slow(lasting)),
        1 => node.inject(Fault::Late(lasting)),
        2 => {
            node.inject(Fault::Hung);
            stage.heals(node, sim.now() + lasting);
        }
        3 => {
            // What is sent first arrives last.
            node.inject(Fault::Slow(lasting));
            stage.heals(node, sim.now() + lasting / 4);
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
    stage: Stage<'a>,
    manager: &'a LockManager,
    resource: &'a str,
}

impl Tidy<'_> {
    /// Returns whether it came to its end.
    fn use_carelessly(&self) -> bool {
        let (sim, dice, manager) = (self.stage.sim, self.stage.dice, self.manager);
        let fences = self.stage.plan.fences(dice);
        let request = fenced(manager.lock(self.resource).timeout(self.stage.plan.ttl / 8), fences);
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
                    sim.advance(dice.scaled_time(self.stage.plan.ttl / 16));
                }
            }
            1 => {
                self.forget();
                guard.auto_renew();
                sim.advance(dice.time(Duration::ZERO, self.stage.plan.ttl / 8));
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
        let (sim, lasting) =
            (self.stage.sim.clone(), self.stage.dice.time(Duration::ZERO, self.stage.plan.ttl / 8));
        let body = async |_| {
            self.forget();
            sim.sleep_until(sim.now() + lasting).await;
        };
        if self.stage.dice.percent(50) {
            drop(self.stage.sim.block_on_for(request.with(body), self.stage.dice.below(12)));
            return true;
        }
        // A wrong core never ends it.
        let mut work = pin!(request.with(body));
        let mut over = self.stage.sim.sleep(self.stage.plan.ttl * 4);
        self.stage.sim.block_on(poll_fn(|context| match work.as_mut().poll(context) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending => over.as_mut().poll(context).map(|()| false),
        }))
    }

    /// A few nodes forget the keys, so that an extension repairs them.
    fn forget(&self) {
        for node in self.stage.nodes.iter().take(self.stage.spare()) {
            if self.stage.dice.percent(40) {
                node.expire(self.resource);
            }
        }
    }
}
