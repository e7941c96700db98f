//! Nothing is left behind: slow and hung nodes, cancelled and careless clients, and a count of keys
//! long before any of them could have expired.

use std::time::Duration;

use quorate_core::{BackendError, LockManager, Runtime};
use quorate_memory::{Effect, Fault, MemoryNode, Operation, Rule, Sim, Violation};

use crate::dice::Dice;
use crate::plan::Plan;
use crate::worker::name;

/// Uses locks on nodes that answer late, and counts what is left after eight tenths of the ttl.
///
/// There and back takes at most a fifth of the ttl, and no message is lost. A lock is won within an
/// eighth; an acquire, an extension and a release one after the other have reached a node before
/// seven tenths are over. And a key that was left cannot have expired.
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
        use_carelessly(sim, dice, manager, &resource, plan.ttl / 8);
        sim.advance((start + plan.ttl * 8 / 10).saturating_sub(sim.elapsed()));
        for node in nodes {
            for key in node.keys() {
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
        // Its releases fail for a while.
        6 => {
            let loading = BackendError::from_reply("LOADING");
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

fn use_carelessly(sim: &Sim, dice: &Dice, manager: &LockManager, resource: &str, wait: Duration) {
    let request = manager.lock(resource).wait(wait);
    let guard = match dice.below(3) {
        0 => sim.block_on_for(request, dice.below(12)).and_then(Result::ok),
        1 => sim.block_on(manager.try_lock(resource)).ok(),
        _ => sim.block_on(request).ok(),
    };
    let Some(guard) = guard else { return };
    match dice.below(4) {
        0 => drop(guard),
        1 => drop(sim.block_on_for(guard.release(), dice.below(8))),
        2 => {
            drop(sim.block_on_for(guard.extend(), dice.below(8)));
            drop(guard);
        }
        _ => drop(sim.block_on(guard.release())),
    }
}
