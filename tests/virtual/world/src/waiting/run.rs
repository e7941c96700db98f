//! One world of waiters, and its verdict.

use std::sync::Arc;
use std::time::Duration;

use quorate_core::Runtime as _;
use quorate_memory::{MemoryNode, Observed, Sim};

use super::board::rule;
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
    let crowd = Crowd::new(Arc::clone(&scene), habits);
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
    scene.no_keys_left("when all is over");
    sim.advance(LEFT.saturating_sub(plan.ttl * 2));
    for node in nodes.iter().filter(|node| !node.keys().is_empty()) {
        let what = format!("{} keys on {}", node.keys().len(), node.name());
        crowd.board().broke(sim.elapsed(), rule::W3_LEFT, what);
    }
    nodes.iter().for_each(MemoryNode::stop_observing);
    crowd.board().check_costs(sim.elapsed());
    let mut outcome = scene.outcome(format!("{plan:?}"));
    outcome.violations.append(&mut crowd.board().wrong);
    // A node that lost locks may have two holders.
    if !outcome.faults.contains_key("restarted empty") {
        outcome.violations.extend(judge(&judged, Duration::ZERO).0);
    }
    sim.end();
    outcome
}
