//! A token costs no round trip where the nodes agree, and they agree again after one lock.

use std::time::Duration;

use quorate_core::LockManager;
use quorate_memory::{Effect, Fault, MemoryNode, Rule, Sim};

use crate::dice::Dice;
use crate::oracle::Violation;
use crate::plan::{Plan, Tokens};
use crate::process::Process;
use crate::worker::name;

/// Lets as many nodes fall behind as can fail, and one holder bring them up to the others; then
/// the next one has its token in one round trip, whichever of the nodes are slow.
///
/// The wall clocks are behind, and fall, so that hints are no help.
pub fn check(
    sim: &Sim,
    dice: &Dice,
    plan: &Plan,
    nodes: &[MemoryNode],
    processes: &[Process],
    managers: &[LockManager],
) -> Vec<Violation> {
    if plan.tokens == Tokens::Nobody {
        return Vec::new();
    }
    // A second round trip has to be over within the node timeout, too.
    let most = (plan.node_timeout() / 5).min(Duration::from_millis(50));
    let way = plan.latency.clamp(Duration::from_micros(1), most);
    for node in nodes {
        node.heal();
        node.clear_rules();
        node.add_rule(Rule::new(Effect::Delay { least: way, most: way }));
    }
    // An entry of a wait whose end the gate did not hear of would make the next one queue.
    sim.advance(ENTRY_LASTS);
    let place = dice.below(managers.len());
    let (process, manager) = (&processes[place], &managers[place]);
    let resource = name(dice.below(plan.resources));
    let mut took = Duration::ZERO;
    let late = Fault::Late(plan.ttl / 20);
    let turns = [None, Some(Fault::Down), Some(Fault::Down), Some(late.clone()), Some(late)];
    for (turn, fault) in (0..).zip(turns) {
        process.set_wall_clock(-7_200_000_000 - turn * 100_000_000_000);
        for node in some_nodes(dice, nodes) {
            if let Some(fault) = &fault {
                node.inject(fault.clone());
            }
        }
        let start = sim.elapsed();
        let Ok(guard) = sim.block_on(manager.lock(&*resource).fenced().timeout(plan.ttl * 4))
        else {
            return vec![wrong(sim, "a quorum is well, but a lock with a token was refused")];
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
        for node in nodes {
            node.heal();
        }
        // What they were not asked while they were silent is over.
        sim.advance(plan.ttl * 2);
    }
    match took > way * 2 {
        true => {
            vec![wrong(sim, format!("a token took {took:?}, and a round trip is {:?}", way * 2))]
        }
        false => Vec::new(),
    }
}

/// After that time nothing is left of a wait queue.
const ENTRY_LASTS: Duration = Duration::from_secs(11);

/// So many as can fail, at the most.
fn some_nodes<'a>(dice: &Dice, nodes: &'a [MemoryNode]) -> Vec<&'a MemoryNode> {
    let mut some: Vec<&MemoryNode> = nodes.iter().collect();
    let count = dice.below((nodes.len() - 1) / 2 + 1);
    while some.len() > count {
        some.swap_remove(dice.below(some.len()));
    }
    some
}

fn wrong(sim: &Sim, what: impl Into<String>) -> Violation {
    Violation::Other { at: sim.elapsed(), what: what.into() }
}
