//! A manager that is closed gives everything up, and leaves nothing behind.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quorate_core::{LeaseEnd, LockError, Runtime};
use quorate_memory::{Fault, MemoryNode};

use crate::calm::told;
use crate::oracle::Violation;
use crate::stage::Stage;
use crate::worker::{fenced, lock_keys, name};

/// Closes one of the managers while it holds a lock and waits for it again.
pub(crate) fn check(stage: &Stage<'_>) -> Vec<Violation> {
    let Stage { sim, dice, plan, nodes, managers, .. } = *stage;
    let mut violations = Vec::new();
    // A call whose reply was lost in the chaos is given up: it says that its node does not answer.
    sim.advance(Duration::from_secs(10) + 4 * plan.ttl);
    let mut wrong = |what: String| violations.push(stage.wrong(what));
    let mut hindered = Vec::new();
    for node in nodes {
        stage.calm(node);
        let lasting = dice.scaled_time(plan.ttl / 8);
        let kind = dice.below(6);
        if kind < 3 {
            hindered.push(node.name());
        }
        match kind {
            0 => node.inject(Fault::Slow(lasting)),
            1 => node.inject(Fault::Late(lasting)),
            2 => {
                node.inject(Fault::Hung);
                stage.heals(node, sim.now() + lasting);
            }
            _ => {}
        }
    }
    let (manager, resource) = (dice.pick(managers), name(dice.below(plan.resources)));
    let start = sim.elapsed();
    let request = fenced(manager.lock(&*resource).timeout(plan.ttl / 8), plan.fences(dice));
    let guard = sim.block_on(request).ok();
    let lost = guard.as_ref().map(|guard| told(sim, guard));
    if let Some(guard) = guard.as_ref().filter(|_| dice.percent(60)) {
        guard.auto_renew();
    }
    let waiting: Arc<Mutex<Option<Result<(), LockError>>>> = Arc::default();
    let waits = dice.percent(60);
    if waits {
        let request = fenced(manager.lock(&*resource).timeout(plan.ttl * 2), plan.fences(dice));
        let result = Arc::clone(&waiting);
        sim.spawn(Box::pin(async move {
            let locked = request.await.map(drop);
            *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(locked);
        }));
    }
    sim.advance(dice.scaled_time(plan.ttl / 16));

    let (begun, hurry) = (sim.elapsed(), dice.percent(25));
    let bound = if hurry { dice.scaled_time(plan.ttl / 16) } else { plan.ttl * 2 };
    let report = sim.block_on(manager.close(bound));
    let took = sim.elapsed() - begun;
    // The bound is kept by the client's clock.
    if took > bound + bound / 100 + Duration::from_micros(1) {
        wrong(format!("closing took {took:?} of {bound:?}"));
    }
    // No node but a slow or a hung one fails to answer.
    let is_named = |node: &MemoryNode| report.nodes().any(|name| name == node.name());
    if !hurry && report.nodes().any(|name| !hindered.contains(&name)) {
        wrong(format!("closing left something: {report}"));
    }
    let soon = || sim.elapsed() < start + plan.ttl * 9 / 10;
    let mut look = |of: &dyn Fn(&MemoryNode) -> bool| {
        for node in nodes.iter().filter(|node| soon() && of(node)) {
            for key in lock_keys(node) {
                let key = String::from_utf8_lossy(&key);
                wrong(format!("{key} was left on {} by a closed manager: {report}", node.name()));
            }
        }
    };
    look(&|node| !is_named(node));
    // What was in flight to a slow node arrives, and a late release is sent again.
    sim.advance(plan.ttl * 5 / 10);
    look(&|_| true);
    if let (Some(guard), Some(lost)) = (&guard, lost) {
        let lost = lost.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if guard.is_valid() || !matches!(lost, Some(LeaseEnd::Closed)) {
            wrong(format!("a lock outlived its manager, and what was told is {lost:?}"));
        }
    }
    if !matches!(sim.block_on(manager.lock(&*resource).no_wait()), Err(LockError::Closed)) {
        wrong("a manager that was closed went on".to_owned());
    }
    match &*waiting.lock().unwrap_or_else(PoisonError::into_inner) {
        None if waits => wrong("a lock is waited for though the manager was closed".to_owned()),
        // Where the first round had not been won.
        Some(Ok(())) if guard.is_some() => wrong("a lock was taken twice".to_owned()),
        _ => {}
    }
    drop(guard);
    stage.heal();
    sim.advance(plan.ttl * 3);
    violations
}
