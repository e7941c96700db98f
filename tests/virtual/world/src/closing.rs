//! A manager that is closed gives everything up, and leaves nothing behind.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorate_core::{LeaseEnd, LockError, LockManager, Runtime};
use quorate_memory::MemoryNode;

use crate::calm::told;
use crate::run::Scene;
use crate::world::{fenced, lock, name};

/// Closes one of the managers while it holds a lock and waits for it again.
pub(crate) fn check(scene: &Scene, managers: &[LockManager]) {
    let (sim, dice, plan) = (&scene.sim, &scene.dice, &scene.plan);
    // A call whose reply was lost in the chaos is given up: it says that its node does not answer.
    sim.advance(Duration::from_secs(10) + 4 * plan.ttl);
    let mut hindered = Vec::new();
    for node in &scene.nodes {
        scene.calm(node);
        let lasting = dice.scaled_time(plan.ttl / 8);
        if scene.hinder(node, dice.below(6), lasting) {
            hindered.push(node.name());
        }
    }
    let (manager, resource) = (dice.pick(managers), name(dice.below(plan.resources)));
    let start = sim.elapsed();
    let request = |most| fenced(manager.lock(&*resource).timeout(most), plan.fences(dice));
    let guard = sim.block_on(request(plan.ttl / 8)).ok();
    let lost = guard.as_ref().map(|guard| told(sim, guard));
    if let Some(guard) = guard.as_ref().filter(|_| dice.percent(60)) {
        guard.auto_renew();
    }
    let waiting: Arc<Mutex<Option<Result<(), LockError>>>> = Arc::default();
    let waits = dice.percent(60);
    if waits {
        let (request, result) = (request(plan.ttl * 2), Arc::clone(&waiting));
        sim.spawn(Box::pin(async move {
            let locked = request.await.map(drop);
            *lock(&result) = Some(locked);
        }));
    }
    sim.advance(dice.scaled_time(plan.ttl / 16));

    let (begun, hurry) = (sim.elapsed(), dice.percent(25));
    let bound = if hurry { dice.scaled_time(plan.ttl / 16) } else { plan.ttl * 2 };
    let report = sim.block_on(manager.close(bound));
    let took = sim.elapsed() - begun;
    // The bound is kept by the client's clock.
    if took > bound + bound / 100 + Duration::from_micros(1) {
        scene.wrong(format!("closing took {took:?} of {bound:?}"));
    }
    // No node but a slow or a hung one fails to answer.
    let is_named = |node: &MemoryNode| report.nodes().any(|name| name == node.name());
    if !hurry && report.nodes().any(|name| !hindered.contains(&name)) {
        scene.wrong(format!("closing left something: {report}"));
    }
    let when = format!("by a closed manager: {report}");
    let soon = || sim.elapsed() < start + plan.ttl * 9 / 10;
    scene.no_keys_left(&when, |node| soon() && !is_named(node));
    // What was in flight to a slow node arrives, and a late release is sent again.
    sim.advance(plan.ttl * 5 / 10);
    scene.no_keys_left(&when, |_| soon());
    if let (Some(guard), Some(lost)) = (&guard, lost) {
        let lost = lock(&lost).clone();
        if guard.is_valid() || !matches!(lost, Some(LeaseEnd::Closed)) {
            scene.wrong(format!("a lock outlived its manager, and what was told is {lost:?}"));
        }
    }
    if !matches!(sim.block_on(manager.lock(&*resource).no_wait()), Err(LockError::Closed)) {
        scene.wrong("a manager that was closed went on");
    }
    match &*lock(&waiting) {
        None if waits => scene.wrong("a lock is waited for though the manager was closed"),
        // Where the first round had not been won.
        Some(Ok(())) if guard.is_some() => scene.wrong("a lock was taken twice"),
        _ => {}
    }
    drop(guard);
    scene.heal();
    sim.advance(plan.ttl * 3);
}
