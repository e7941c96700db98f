//! How often a fencing token needs a second round trip: not while nodes agree, once after one was
//! away, and seldom among many that ask at once.

#![allow(clippy::print_stdout, reason = "a measurement")]

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use quorate_core::{LockManager, Runtime};
use quorate_memory::{Effect, Fault, Rule};

use crate::world::{MS, SECOND, World};

const HOUR: u64 = 3_600_000_000;

/// The share of locks, in percent, for which numbers had to be raised.
#[derive(Debug)]
struct Share {
    locks: usize,
    raised: usize,
}

impl Share {
    fn of(world: &World, locks: usize) -> Self {
        let raises = world.log.calls().into_iter().filter(|call| call.operation == "raise");
        let raised: HashSet<Vec<u8>> = raises.map(|call| call.token).collect();
        Self { locks, raised: raised.len() }
    }

    fn print(&self, what: &str) {
        let percent = self.raised * 1_000 / self.locks;
        println!(
            "{what}: {} of {} locks, {}.{} %",
            self.raised,
            self.locks,
            percent / 10,
            percent % 10
        );
    }
}

/// Nodes at some distance, and managers whose wall clocks are up to so many microseconds apart.
fn managers(world: &World, count: u64, apart: u64) -> Vec<LockManager> {
    for node in &world.nodes {
        node.add_rule(Rule::new(Effect::Delay { least: MS / 10, most: 2 * MS }));
    }
    let manager = |process: u64| {
        let clock = world.sim.clone();
        let hint = move || clock.unix_micros() - apart / 2 + process * apart / count;
        world.builder().fencing_hint(hint).build().unwrap()
    };
    (0..count).map(manager).collect()
}

fn one_by_one(world: &World, managers: &[LockManager], locks: usize) {
    for manager in managers.iter().cycle().take(locks) {
        let guard = world.sim.block_on(manager.lock("r").fenced()).unwrap();
        world.sim.block_on(guard.release()).unwrap();
        world.sim.advance(10 * MS);
    }
}

#[test]
fn nodes_that_are_well_need_no_second_round_however_wrong_the_clocks() {
    for nodes in [3, 5] {
        for apart in [0, 2 * HOUR] {
            let world = World::new(nodes);
            let managers = managers(&world, 4, apart);
            one_by_one(&world, &managers, 1_000);
            let share = Share::of(&world, 1_000);
            share.print(&format!("{nodes} nodes, healthy, clocks {} h apart", apart / HOUR));
            assert_eq!(share.raised, 0);
        }
    }
}

#[test]
fn a_node_that_was_away_needs_one_second_round_at_the_most() {
    for nodes in [3, 5] {
        for apart in [0, 2 * HOUR] {
            let world = World::new(nodes);
            let managers = managers(&world, 4, apart);
            one_by_one(&world, &managers, 20);
            world.nodes[0].inject(Fault::Down);
            one_by_one(&world, &managers, 100);
            assert_eq!(Share::of(&world, 100).raised, 0, "while it is away");
            world.nodes[0].heal();
            one_by_one(&world, &managers, 100);
            let share = Share::of(&world, 100);
            share
                .print(&format!("{nodes} nodes, after an outage, clocks {} h apart", apart / HOUR));
            assert!(share.raised <= 1, "{share:?}");
        }
    }
}

#[test]
fn fifty_that_contend_need_few_second_rounds() {
    for nodes in [3, 5] {
        for apart in [0, 2 * HOUR] {
            let world = World::new(nodes);
            let had: Arc<Mutex<usize>> = Arc::default();
            for manager in managers(&world, 10, apart) {
                for _ in 0..5 {
                    let (manager, sim, had) =
                        (manager.clone(), world.sim.clone(), Arc::clone(&had));
                    world.sim.spawn(Box::pin(async move {
                        for _ in 0..20 {
                            let wait = 600 * SECOND;
                            let guard = manager.lock("r").fenced().timeout(wait).await.unwrap();
                            sim.sleep_until(sim.now() + MS).await;
                            guard.release().await.unwrap();
                            *had.lock().unwrap() += 1;
                        }
                    }));
                }
            }
            world.sim.settle();
            assert_eq!(*had.lock().unwrap(), 1_000);
            let share = Share::of(&world, 1_000);
            share.print(&format!("{nodes} nodes, 50 tasks, clocks {} h apart", apart / HOUR));
            let most = if apart == 0 { 5 } else { 250 };
            assert!(share.raised <= most, "{share:?}");
        }
    }
}
