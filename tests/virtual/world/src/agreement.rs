//! A token costs no round trip where the nodes agree, and they agree again after one lock.

use std::time::Duration;

use quorate_core::LockManager;
use quorate_memory::{Effect, Fault, Rule};

use crate::plan::Tokens;
use crate::run::Scene;
use crate::world::name;

/// Lets as many nodes fall behind as can fail, and one holder bring them up to the others; then
/// the next one has its token in one round trip, whichever of the nodes are slow.
///
/// The wall clocks are behind, and fall, so that hints are no help.
pub(crate) fn check(scene: &Scene, managers: &[LockManager]) {
    let (sim, dice, plan) = (&scene.sim, &scene.dice, &scene.plan);
    if plan.tokens == Tokens::Nobody {
        return;
    }
    // A second round trip has to be over within the node timeout, too.
    let most = (plan.node_timeout() / 5).min(Duration::from_millis(50));
    let way = plan.latency.clamp(Duration::from_micros(1), most);
    for node in &scene.nodes {
        node.heal();
        node.clear_rules();
        node.add_rule(Rule::new(Effect::Delay { least: way, most: way }));
    }
    // An entry of a wait whose end the gate did not hear of would make the next one queue. It lasts for 10 s.
    sim.advance(Duration::from_secs(11));
    let place = dice.below(managers.len());
    let (process, manager) = (&scene.processes[place], &managers[place]);
    let resource = name(dice.below(plan.resources));
    let mut took = Duration::ZERO;
    let late = Fault::Late(plan.ttl / 20);
    let turns = [None, Some(Fault::Down), Some(Fault::Down), Some(late.clone()), Some(late)];
    for (turn, fault) in (0..).zip(turns) {
        process.set_wall_clock(-7_200_000_000 - turn * 100_000_000_000);
        for node in scene.some_nodes(dice.below(scene.spare() + 1)) {
            fault.iter().for_each(|fault| node.inject(fault.clone()));
        }
        let start = sim.elapsed();
        let request = manager.lock(&*resource).fenced().timeout(plan.ttl * 4);
        let Ok(guard) = sim.block_on(request) else {
            return scene.wrong("a quorum is well, but a lock with a token was refused");
        };
        took = sim.elapsed() - start;
        if fault.is_none() {
            // Some may be ahead of the others, and an extension tells them all.
            sim.advance(way * 2);
            drop(sim.block_on(guard.extend()));
            sim.advance(way * 2);
        }
        drop(sim.block_on(guard.release()));
        sim.advance(plan.ttl / 2);
        scene.heal();
        // What they were not asked while they were silent is over.
        sim.advance(plan.ttl * 2);
    }
    if took > way * 2 {
        scene.wrong(format!("a token took {took:?}, and a round trip is {:?}", way * 2));
    }
}
