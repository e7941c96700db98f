//! One world of waiters, and its verdict.

use std::sync::Arc;
use std::time::Duration;

use quorate_core::Runtime;
use quorate_memory::{MemoryNode, Observed, Sim};

use super::counts::rule;
use super::crowd::Crowd;
use super::nemesis;
use super::plan::{MS, Plan};
use crate::dice::Dice;
use crate::history::AttemptId;
use crate::oracle::judge;
use crate::plan::Class;
use crate::run::Outcome;
use crate::world::{World, lock};

const LEFT: Duration = Duration::from_secs(10);

pub(crate) fn run(seed: u64, class: Class) -> Outcome {
    let sim = Sim::shuffled(seed);
    let plan = Plan::draw(&Dice::new(sim.clone()), class);
    let delay = (plan.latency * 2 / 3, plan.latency);
    let world = World::new(&sim, (plan.nodes, plan.ability), 70, delay);
    let crowd = Crowd::new(world, plan, seed);
    let (plan, nodes) = (&crowd.plan, &crowd.nodes);
    nemesis::heal(&crowd);
    for node in nodes {
        let (board, world) = (Arc::clone(&crowd.board), sim.clone());
        node.observe(move |observed| match observed {
            Observed::Sent { operation, client } => lock(&board).sent(client, operation),
            Observed::Set(claim) => {
                lock(&board).set(world.elapsed(), AttemptId::of(claim.token().as_bytes()));
            }
            _ => {}
        });
    }
    (0..plan.processes).for_each(|place| crowd.start(place));
    sim.spawn(Box::pin(nemesis::run(crowd.clone())));
    if class == Class::Gate {
        sim.spawn(Box::pin(nemesis::look_for_stale_keys(crowd.clone())));
    }
    while sim.elapsed() < plan.lasting && !crowd.is_over() {
        sim.advance(MS * 100);
    }
    crowd.end();
    nemesis::heal(&crowd);
    // No waiter stays behind: with all well again, each task gets its lock and stops.
    let bound = sim.elapsed() + Duration::from_secs(130);
    while crowd.working() > 0 && sim.elapsed() < bound {
        sim.advance(MS * 500);
    }
    crowd.wrong_if(crowd.working() > 0, format!("{} tasks never came to an end", crowd.working()));
    let judged = crowd.history.events();
    sim.advance(plan.ttl * 2);
    crowd.no_keys_left("when all is over", |_| true);
    sim.advance(LEFT.saturating_sub(plan.ttl * 2));
    for node in nodes.iter().filter(|node| !node.keys().is_empty()) {
        let what = format!("{} keys on {}", node.keys().len(), node.name());
        crowd.board().broke(sim.elapsed(), rule::W3_LEFT, what);
    }
    nodes.iter().for_each(MemoryNode::stop_observing);
    let waits = crowd.board().found(sim.elapsed());
    let mut violations = crowd.take_wrong();
    violations.append(&mut crowd.board().wrong);
    let held_twice = judge(&judged, Duration::ZERO);
    let overlaps = held_twice.len();
    if !lock(&crowd.shared).forgot {
        violations.extend(held_twice);
    }
    let simulated = sim.elapsed();
    crowd.forget();
    sim.end();
    Outcome {
        world: format!("{plan:?}"),
        violations,
        overlaps,
        history: crowd.history.clone(),
        simulated,
        faults: crowd.faults(),
        waits: if plan.is_ordered() { waits } else { waits.unordered() },
        ..Outcome::default()
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
}
