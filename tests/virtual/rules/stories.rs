//! Random locks, releases and faults: a node that answers again keeps nothing, though another one hangs.

use std::fmt::Write as _;

use quorate_core::LockGuard;
use quorate_memory::{Fault, MemoryNode, Sim};
use quorate_protocol::error_of_reply;

use crate::world::{MS, SECOND, World};

/// At most 200 ms each.
const STEPS: usize = 25;

/// Far longer than any story, so that no key expires.
const TTL: u32 = 60;

/// Plays a story, and returns it if a key was left in it.
fn left_in_the_end(seed: u64, world: &World, fenced: bool) -> Option<String> {
    let (sim, mut told) = (Sim::new(seed), String::new());
    let below = |bound: u64| u32::try_from(sim.random_below(bound)).unwrap();
    let any_node = || below(world.nodes.len() as u64) as usize;
    let manager = world.builder().ttl(TTL * SECOND).node_timeout(100 * MS).build().unwrap();
    let mut guards: Vec<LockGuard> = Vec::new();
    for _ in 0..STEPS {
        let node = &world.nodes[any_node()];
        let fault = match below(10) {
            0 => Some(Fault::Hung),
            1 => Some(Fault::Failing(error_of_reply("LOADING"))),
            2 => Some(Fault::Slow(below(300) * MS)),
            3 => Some(Fault::Late(below(300) * MS)),
            4 => Some(Fault::Down),
            5 => {
                node.heal();
                let _ = write!(told, "{} is well; ", node.name());
                None
            }
            6 | 7 => {
                let request = manager.lock("r").no_wait();
                let request = if fenced { request.fenced() } else { request };
                let polls = if below(3) == 0 { below(6) as usize } else { usize::MAX };
                let locked = world.sim.block_on_for(request, polls);
                let _ = write!(told, "lock {polls} {:?}; ", locked.as_ref().map(Result::is_ok));
                guards.extend(locked.and_then(Result::ok));
                None
            }
            8 => {
                let polls = 1 + below(6) as usize;
                if let Some(guard) = guards.last() {
                    let extended = world.sim.block_on_for(guard.extend(), polls);
                    let _ = write!(told, "extend {polls} {extended:?}; ");
                }
                None
            }
            _ => {
                let polls = below(6) as usize;
                if let Some(guard) = guards.pop() {
                    let released = world.sim.block_on_for(guard.release(), polls);
                    let _ = write!(told, "release {polls} {released:?}; ");
                }
                None
            }
        };
        if let Some(fault) = fault {
            let _ = write!(told, "{} {fault:?}; ", node.name());
            node.inject(fault);
        }
        let pause = below(200) * MS;
        let _ = writeln!(told, "{pause:?} pass");
        world.sim.advance(pause);
    }
    let stuck = any_node();
    world.heal();
    world.nodes[stuck].inject(Fault::Hung);
    guards.clear();
    // A failed release was sent again after a pause that doubled for as long as its node failed.
    world.sim.advance(15 * SECOND);
    let has = |(at, node): (usize, &MemoryNode)| at != stuck && node.get("r").is_some();
    let is_left = world.nodes.iter().enumerate().any(has);
    is_left.then(|| format!("seed {seed}, {stuck} hangs in the end:\n{told}"))
}

#[test]
fn c7_a_node_that_answers_again_keeps_nothing_though_another_hangs() {
    for seed in 0..250 {
        for fenced in [false, true] {
            let worlds = [World::new(3), World::in_order(3), World::complete(3), World::new(5)];
            for world in &worlds {
                if let Some(story) = left_in_the_end(seed, world, fenced) {
                    panic!("fenced: {fenced}, {story}");
                }
            }
        }
    }
}
