//! While a quorum is well, a lease that is kept alive is not lost: one node down, slow, flapping or
//! restarted after the other, and short outages of all.

use std::time::Duration;

use quorate_core::{BackendErrorKind, LockGuard, LockManager, Runtime};
use quorate_memory::Fault;

use crate::nemesis::faults;
use crate::run::Scene;
use crate::world::{fenced, loading, name};

/// A waiter behind an entry whose LEAVE was lost competes after two of these: the process before may get no
/// pushes.
const SECOND_LOOK: Duration = Duration::from_millis(100);

pub(crate) fn check(scene: &Scene, managers: &[LockManager]) {
    let (sim, dice, plan) = (&scene.sim, &scene.dice, &scene.plan);
    scene.heal();
    scene.nodes.iter().for_each(|node| scene.calm(node));
    let resource = name(dice.below(plan.resources));
    let request = dice.pick(managers).lock(&*resource).timeout(plan.ttl * 4 + SECOND_LOOK * 2);
    let Ok(guard) = sim.block_on(fenced(request, plan.fences(dice))) else {
        return scene.wrong("all is well, but a lock was refused");
    };
    // Until every node has it.
    sim.advance(plan.latency * 3);
    guard.auto_renew();
    match dice.below(3) {
        0 => some_in_trouble(scene),
        1 => short_outage(scene),
        _ => rolling_restarts(scene),
    }
    let reason = sim.block_on_for(Box::pin(guard.lost()), 1);
    if reason.is_some() || !guard.is_valid() {
        scene.wrong(format!("a quorum was well, and a lease was lost: {reason:?}"));
    }
    scene.heal();
    give_up(scene, guard);
    // Calls in flight take a quarter of it, and the release comes behind them.
    sim.advance(plan.ttl / 2);
    scene.no_keys_left("after the calm");
    sim.advance(plan.ttl * 2);
}

pub(crate) fn give_up(scene: &Scene, guard: LockGuard) {
    match scene.dice.below(3) {
        0 => drop(guard),
        1 => drop(scene.sim.block_on_for(guard.release(), scene.dice.below(8))),
        _ => drop(scene.sim.block_on(guard.release())),
    }
}

/// As many nodes as can fail do, on and off.
fn some_in_trouble(scene: &Scene) {
    let (sim, dice, ttl) = (&scene.sim, &scene.dice, scene.plan.ttl);
    let end = sim.now() + ttl * 2;
    for node in scene.some_nodes(dice.below(scene.spare() + 1)) {
        let delay = dice.scaled_time(ttl / 4);
        let (kind, fault) = dice.pick(&faults(delay, BackendErrorKind::Loading)).clone();
        scene.count(kind);
        let (node, sim) = (node.clone(), sim.clone());
        let lasting = (ttl / 12).max(dice.scaled_time(ttl));
        scene.sim.spawn(Box::pin(async move {
            while sim.now() < end {
                node.inject(fault.clone());
                sim.sleep_until((sim.now() + lasting).min(end)).await;
                node.heal();
                sim.sleep_until((sim.now() + lasting).min(end)).await;
            }
        }));
    }
    sim.advance(ttl * 2);
}

/// No node answers for a sixth of the validity: what fails is tried again in time.
fn short_outage(scene: &Scene) {
    let (sim, dice, plan) = (&scene.sim, &scene.dice, &scene.plan);
    sim.advance(dice.time(Duration::ZERO, plan.ttl * 6 / 10));
    let fault = match dice.below(3) {
        0 => Fault::Down,
        1 => Fault::Hung,
        _ => Fault::Failing(loading()),
    };
    scene.nodes.iter().for_each(|node| node.inject(fault.clone()));
    sim.advance(plan.validity() / 6);
    scene.heal();
    sim.advance(plan.ttl);
}

/// One node after the other forgets everything. Each gets the keys back, and promises to keep them
/// with the next extension (H3), before the next one does.
fn rolling_restarts(scene: &Scene) {
    if scene.spare() > 0 {
        for node in scene.nodes.iter().take(5) {
            node.restart();
            scene.sim.advance(scene.plan.validity() * 8 / 10);
        }
    }
}
