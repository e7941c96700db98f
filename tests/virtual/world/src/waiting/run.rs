//! One world of waiters, and its verdict.

use std::sync::Arc;
use std::time::Duration;

use quorate_core::Runtime as _;
use quorate_memory::{MemoryNode, Observed, Sim};

use super::counts::rule;
use super::crowd::Crowd;
use super::kills;
use super::plan::{Habits, MS};
use crate::history::AttemptId;
use crate::nemesis;
use crate::oracle::judge;
use crate::plan::{Class, Plan};
use crate::run::{Outcome, Scene};
use crate::world::{dice_of, lock};

const LEFT: Duration = Duration::from_secs(10);

pub(crate) fn run(seed: u64, class: Class) -> Outcome {
    let sim = Sim::shuffled(seed);
    let habits = Habits::draw(seed, &dice_of(&sim), class);
    let scene = Arc::new(Scene::new(&sim, Plan::clone(&habits)));
    let crowd = Crowd::new(Arc::clone(&scene), habits, seed);
    let (plan, nodes) = (&crowd.habits, &crowd.nodes);
    for node in nodes {
        scene.calm(node);
        let (board, world) = (Arc::clone(&crowd.board), sim.clone());
        node.observe(move |observed| match observed {
            Observed::Sent { operation, client } => lock(&board).sent(client, operation),
            Observed::Set(claim) => {
                lock(&board).set(world.elapsed(), AttemptId::of(claim.token().as_bytes()));
            }
            _ => {}
        });
    }
    (0..plan.clients).for_each(|place| crowd.start(place));
    match class {
        Class::Kills => sim.spawn(Box::pin(kills::kill_waiters(crowd.clone()))),
        Class::Gate => {
            sim.spawn(Box::pin(nemesis::run(Arc::clone(&scene))));
            sim.spawn(Box::pin(kills::look_for_stale_keys(crowd.clone())));
        }
        _ => {}
    }
    sim.advance(plan.chaos);
    crowd.board().is_over(sim.elapsed());
    // No waiter stays behind: with all well again, each task gets its lock and stops.
    let bound = sim.elapsed() + Duration::from_secs(130);
    let at_work = || *lock(&scene.working);
    while at_work() > 0 && sim.elapsed() < bound {
        sim.advance(MS * 500);
    }
    scene.wrong_if(at_work() > 0, format!("{} tasks never came to an end", at_work()));
    let judged = scene.history.events();
    sim.advance(plan.ttl * 2);
    scene.no_keys_left("when all is over", |_| true);
    sim.advance(LEFT.saturating_sub(plan.ttl * 2));
    for node in nodes.iter().filter(|node| !node.keys().is_empty()) {
        let what = format!("{} keys on {}", node.keys().len(), node.name());
        crowd.board().broke(sim.elapsed(), rule::W3_LEFT, what);
    }
    nodes.iter().for_each(MemoryNode::stop_observing);
    let waits = crowd.board().found(sim.elapsed());
    let mut violations = scene.take_wrong();
    violations.append(&mut crowd.board().wrong);
    let (held_twice, faults) = (judge(&judged, Duration::ZERO), scene.faults());
    let overlaps = held_twice.len();
    // A node that lost locks may have two holders.
    if !faults.contains_key("restarted empty") {
        violations.extend(held_twice);
    }
    let simulated = sim.elapsed();
    sim.end();
    Outcome {
        world: format!("{plan:?}"),
        violations,
        overlaps,
        history: scene.history.clone(),
        simulated,
        faults,
        waits: if plan.is_ordered() { waits } else { waits.unordered() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_of_waiters_is_one_run() {
        for class in [Class::Line, Class::Kills, Class::Gate] {
            for seed in 1..4 {
                let once = || {
                    let outcome = run(seed, class);
                    assert_eq!(outcome.violations, [], "seed {seed}, {class:?}");
                    (outcome.history.digest(), outcome.waits)
                };
                assert_eq!(once(), once(), "seed {seed}, {class:?}");
            }
        }
    }

    /// Found from outside: the second and the fourth in line are killed and start again. The first
    /// version made others wait for 54 s, until what the dead had left expired.
    #[test]
    fn waiters_behind_killed_ones_are_not_starved() {
        let outcome = run(164, Class::Kills);
        assert_eq!(outcome.violations, []);
        assert!(outcome.faults.contains_key("process killed"), "{:?}", outcome.faults);
        assert!(outcome.waits.longest_wait.0 < Duration::from_secs(10), "{}", outcome.waits);
    }

    /// Two processes that lock again at once. One of them was overtaken, joined again with each refresh, and rested while the
    /// other one left it the lock, which was overtaking it anew: it waited until the other one stopped.
    #[test]
    fn a_waiter_that_was_overtaken_is_not_overtaken_again_and_again() {
        for seed in [698, 1627] {
            let outcome = run(seed, Class::Gate);
            assert_eq!(outcome.violations, [], "seed {seed}");
        }
    }
}
