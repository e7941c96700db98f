//! One world of waiters, and its verdict.

use std::time::Duration;

use quorate_core::Runtime;
use quorate_memory::{MemoryNode, Observed, Sim};

use super::counts::Rule;
use super::crowd::Crowd;
use super::nemesis::Nemesis;
use super::plan::Plan;
use crate::dice::Dice;
use crate::history::AttemptId;
use crate::oracle::{Violation, judge};
use crate::plan::Class;
use crate::run::Outcome;
use crate::worker::lock_keys;

/// How long the keys of a killed waiter may stay at a node.
const LEFT: Duration = Duration::from_secs(10);

/// Runs the world of `seed`.
pub(crate) fn run(seed: u64, class: Class) -> Outcome {
    let sim = Sim::shuffled(seed);
    let dice = Dice::new(sim.clone());
    let plan = Plan::draw(&dice, class);
    let nodes = nodes(&sim, &dice, &plan);
    let crowd = Crowd::new(&sim, &dice, &plan, &nodes, seed);
    let nemesis = Nemesis::new(&crowd);
    nemesis.heal();
    for node in &nodes {
        let (board, world) = (crowd.board.clone(), sim.clone());
        node.observe(move |observed| match observed {
            Observed::Sent { operation, client } => board.sent(client, operation),
            Observed::Set(claim) => {
                board.set(world.elapsed(), AttemptId::of(claim.token().as_bytes()));
            }
            _ => {}
        });
    }
    (0..plan.processes).for_each(|place| crowd.start(place));
    sim.spawn(Box::pin(nemesis.clone().run()));
    if class == Class::Gate {
        sim.spawn(Box::pin(nemesis.clone().look_for_stale_keys()));
    }
    while sim.elapsed() < plan.lasting && !crowd.is_over() {
        sim.advance(Duration::from_millis(100));
    }
    crowd.end();
    nemesis.heal();
    let mut violations = come_to_an_end(&crowd);
    let judged = crowd.history.events();
    sim.advance(plan.ttl * 2);
    for node in &nodes {
        for key in lock_keys(node) {
            let key = String::from_utf8_lossy(&key).into_owned();
            violations.push(Violation::other(&sim, format!("{key} is left on {}", node.name())));
        }
    }
    sim.advance(LEFT.saturating_sub(plan.ttl * 2));
    for node in &nodes {
        let left = node.keys().len();
        if left > 0 {
            let what = format!("{left} keys on {} at {:?}", node.name(), sim.elapsed());
            crowd.board.broke(sim.elapsed(), Rule::W3Left, what);
        }
    }
    nodes.iter().for_each(MemoryNode::stop_observing);
    violations.extend(crowd.take_wrong());
    let mut waits = crowd.board.found(sim.elapsed());
    if !plan.is_ordered() {
        waits = waits.unordered();
    }
    violations.extend(crowd.board.take_wrong());
    let held_twice = judge(&judged, Duration::ZERO);
    let overlaps = held_twice.len();
    if !nemesis.forgot() {
        violations.extend(held_twice);
    }
    let (simulated, faults) = (sim.elapsed(), nemesis.faults());
    crowd.forget();
    sim.end();
    Outcome {
        world: plan.to_string(),
        violations,
        overlaps,
        tokens: 0,
        refused: 0,
        excused: 0,
        history: crowd.history.clone(),
        simulated,
        faults,
        waits,
    }
}

fn nodes(sim: &Sim, dice: &Dice, plan: &Plan) -> Vec<MemoryNode> {
    MemoryNode::cluster(plan.nodes, sim.clone())
        .into_iter()
        .map(|node| if dice.percent(70) { node } else { node.unordered() })
        .map(|node| plan.ability.of(node))
        .collect()
}

/// No waiter stays behind: with all well again, each task gets its lock and stops.
fn come_to_an_end(crowd: &Crowd) -> Vec<Violation> {
    let bound = crowd.sim.elapsed() + Duration::from_secs(130);
    while crowd.working() > 0 && crowd.sim.elapsed() < bound {
        crowd.sim.advance(Duration::from_millis(500));
    }
    match crowd.working() {
        0 => Vec::new(),
        left => vec![Violation::other(&crowd.sim, format!("{left} tasks never came to an end"))],
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
