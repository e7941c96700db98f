//! Nothing is left behind: slow and hung nodes, cancelled and careless clients, and a count of keys
//! long before any of them could have expired.

use std::time::Duration;

use quorate_core::{LockManager, LockRequest, Runtime};
use quorate_memory::{Effect, Fault, MemoryNode, Operation, Rule};

use crate::calm::give_up;
use crate::run::Scene;
use crate::world::{Cancel, fenced, loading, name};

/// Uses locks on nodes that answer late, and counts what is left after nineteen twentieths of the
/// ttl.
///
/// There and back takes at most a fifth of the ttl, and no message is lost. A lock is won within an
/// eighth; an acquire, an extension, a repair and a release one after the other have reached a node
/// before that. And a key that was left cannot have expired.
pub(crate) fn check(scene: &Scene, managers: &[LockManager]) {
    let (sim, dice, plan) = (&scene.sim, &scene.dice, &scene.plan);
    for _ in 0..4 {
        let start = sim.elapsed();
        for node in &scene.nodes {
            scene.calm(node);
            hinder(scene, node);
        }
        let resource = name(dice.below(plan.resources));
        if !use_carelessly(scene, dice.pick(managers), &resource) {
            scene.wrong("work under a lock never came to its end");
        }
        sim.advance((start + plan.ttl * 19 / 20).saturating_sub(sim.elapsed()));
        scene.no_keys_left("behind careless clients", |_| true);
        scene.heal();
        // Whatever was left is gone before the next one looks.
        sim.advance(plan.ttl * 2);
    }
}

fn hinder(scene: &Scene, node: &MemoryNode) {
    let (sim, plan) = (&scene.sim, &scene.plan);
    let lasting = scene.dice.scaled_time(plan.ttl / 8);
    match scene.dice.below(9) {
        3 => {
            // What is sent first arrives last.
            node.inject(Fault::Slow(lasting));
            scene.heals(node, sim.now() + lasting / 4);
        }
        // It grants, and the caller hears of a broken connection.
        4 => node.add_rule(Rule::new(Effect::Cut).on(Operation::Acquire)),
        // It comes again after the release.
        5 => node.add_rule(Rule::new(Effect::Duplicate(lasting)).on(Operation::Extend)),
        // Its releases fail, for less than an eighth of the ttl.
        6 => {
            let (node, world) = (node.clone(), sim.clone());
            let (from, until) = (sim.now() + plan.latency * 4, sim.now() + lasting);
            sim.spawn(Box::pin(async move {
                world.sleep_until(from).await;
                node.inject(Fault::Failing(loading()));
                world.sleep_until(until).await;
                node.heal();
            }));
        }
        draw => drop(scene.hinder(node, draw, lasting)),
    }
}

fn use_carelessly(scene: &Scene, manager: &LockManager, resource: &str) -> bool {
    let (sim, dice, ttl) = (&scene.sim, &scene.dice, scene.plan.ttl);
    let fences = scene.plan.fences(dice);
    let request = fenced(manager.lock(resource).timeout(ttl / 8), fences);
    let guard = match dice.below(4) {
        0 => sim.block_on_for(request, dice.below(12)).and_then(Result::ok),
        1 => sim.block_on(fenced(manager.lock(resource).no_wait(), fences)).ok(),
        2 => return with(scene, resource, request),
        _ => sim.block_on(request).ok(),
    };
    let Some(guard) = guard else { return true };
    match dice.below(3) {
        0 => {
            forget(scene, resource);
            drop(sim.block_on_for(guard.extend(), 1 + dice.below(8)));
            // Else the repair has not left when the release begins.
            if dice.percent(50) {
                sim.advance(dice.scaled_time(ttl / 16));
            }
        }
        1 => {
            forget(scene, resource);
            guard.auto_renew();
            sim.advance(dice.time(Duration::ZERO, ttl / 8));
        }
        _ => {}
    }
    give_up(scene, guard);
    true
}

/// The work is done, or dropped in the middle. Returns whether it came to its end.
fn with(scene: &Scene, resource: &str, request: LockRequest) -> bool {
    let (sim, dice, ttl) = (&scene.sim, &scene.dice, scene.plan.ttl);
    let lasting = dice.time(Duration::ZERO, ttl / 8);
    let body = async |_| {
        forget(scene, resource);
        sim.sleep_until(sim.now() + lasting).await;
    };
    if dice.percent(50) {
        drop(sim.block_on_for(request.with(body), dice.below(12)));
        return true;
    }
    // A wrong core never ends it.
    sim.block_on(Cancel::After(ttl * 4).or(request.with(body), sim)).is_some()
}

/// A few nodes forget the keys, so that an extension repairs them.
fn forget(scene: &Scene, resource: &str) {
    for node in scene.nodes.iter().take(scene.spare()) {
        if scene.dice.percent(40) {
            node.expire(resource);
        }
    }
}
