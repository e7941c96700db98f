//! C1–C6: what attempts leave behind.

use std::collections::HashSet;
use std::future::IntoFuture;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorate_core::{LeaseEnd, ReleaseError, Runtime};
use quorate_memory::{Fault, MemoryNode, Value};

use crate::backends::Odd;
use crate::every_future::{self, Stage, Trial};
use crate::world::{Client, MS, SECOND, World, failing};

mod releasing;
mod undo;

#[test]
fn c1_every_attempt_has_a_token_of_its_own() {
    let world = World::new(3);
    world.occupy(..);
    let manager = world.builder().backoff(100 * MS, 100 * MS).build().unwrap();
    assert!(world.run(manager.lock("r").timeout(SECOND)).is_err());
    let tokens = world.log.tokens();
    assert!(tokens.len() >= 10, "ten rounds in a second: {}", tokens.len());
    let distinct: HashSet<&Vec<u8>> = tokens.iter().collect();
    assert_eq!(distinct.len(), tokens.len(), "no token comes back after another");
    assert!(tokens.iter().all(|token| token.len() == 40));
}

#[test]
fn c2_a_lost_round_releases_on_all_nodes_before_the_delay() {
    for world in [World::new(3), World::in_order(3)] {
        // One grants, one refuses, one fails.
        world.occupy(1..2);
        world.inject(2.., failing("LOADING"));
        let manager = world.builder().backoff(900 * MS, 900 * MS).build().unwrap();
        let lost = world.run(manager.lock("r").timeout(3 * SECOND)).unwrap_err();
        assert!(lost.is_held(), "{lost}");
        let calls = world.log.calls();
        let tokens: HashSet<&Vec<u8>> = calls.iter().map(|call| &call.token).collect();
        assert!(tokens.len() > 2, "{} rounds", tokens.len());
        for token in tokens {
            let ours = || calls.iter().enumerate().filter(|(_, call)| &call.token == token);
            let (last_acquire, _) = ours().rfind(|(_, call)| call.operation == "acquire").unwrap();
            let releases = &calls[last_acquire + 1..][..3];
            let nodes: HashSet<&str> = releases.iter().map(|call| &*call.node).collect();
            assert!(releases.iter().all(|call| call.operation == "release"), "{releases:?}");
            assert_eq!(nodes.len(), 3, "on each node, and before anything else");
        }
        assert_eq!(world.holders("r"), 1);
    }
}

/// The process that had it before may have it on nodes that did not answer the adopter.
#[test]
fn c2_an_adopted_lock_is_released_where_its_extension_found_no_answer() {
    for (at, heals_first) in [(0, true), (2, true), (2, false)] {
        let world = World::new(3);
        let record = world.detached();
        world.catch_up();
        world.inject(at..=at, Fault::Down);
        let guard = world.run(world.manager().adopt(&record)).unwrap();
        if heals_first {
            world.heal();
        }
        drop(guard);
        world.advance(SECOND);
        world.heal();
        world.advance(2 * SECOND);
        assert_eq!(world.keys_left(), 0, "node {at}, {heals_first}");
    }
}

#[test]
fn c3_a_release_never_overtakes_its_acquire() {
    for (won, world) in [true, false].into_iter().flat_map(|won| World::KINDS.map(|new| (won, new)))
    {
        let world = world(3);
        world.inject(..1, Fault::Slow(100 * MS));
        if !won {
            world.occupy(1..);
        }
        let lock = world.try_lock(&world.manager());
        assert_eq!(lock.is_ok(), won);
        // From now on the way is short: a release that was sent at once would come first.
        world.heal();
        drop(lock);
        world.sim.settle();
        assert_eq!(world.nodes[0].keys().len(), 0, "won: {won}");
    }
}

#[test]
fn c4_a_late_grant_is_recorded_as_ours() {
    let world = World::new(5);
    world.inject(..2, Fault::Slow(2 * SECOND));
    let guard = world.lock(&world.manager());
    world.advance(3 * SECOND);
    world.heal();
    assert_eq!(world.holders("r"), 5, "the late acquires were executed");
    world.run(guard.extend()).unwrap();
    assert!(world.nodes.iter().all(|node| node.time_left("r") == Some(10 * SECOND)));
    world.run(guard.release()).unwrap();
    world.catch_up();
    assert_eq!(world.keys_left(), 0);
}

/// Rule Q5.
#[test]
fn c5_cleanup_ends_at_its_own_bound() {
    let world = World::new(3);
    let manager = world.builder().ttl(4 * SECOND).build().unwrap();
    world.inject(.., Fault::Hung);
    assert!(world.try_lock(&manager).is_err());
    world.sim.settle();
    // A node timeout for the round, the bound, a node timeout for the last releases, and the last
    // second of the timekeeper.
    assert_eq!(world.sim.elapsed(), 400 * MS + 4 * SECOND + 400 * MS + SECOND);
    world.heal();
    assert_eq!(world.keys_left(), 0, "the releases were behind the acquires");
}

/// Every public future, dropped after every number of polls, with nodes of every kind. Two of them
/// have to be repaired on the way.
/// Rule A2.
#[test]
fn c5_a_future_dropped_at_any_poll_leaves_no_key() {
    let (mut moments, mut repaired) = (0, 0);
    for doing in every_future::ALL {
        let name = doing.name;
        for polls in doing.polls() {
            let world = World::new(5);
            let slow = [Fault::Slow(20 * MS), Fault::Late(30 * MS), Fault::Slow(1200 * MS)];
            for (node, fault) in world.nodes[1..].iter().zip(slow.into_iter().chain([Fault::Dead]))
            {
                node.inject(fault);
            }
            let (sim, manager) = (&world.sim, world.builder().ttl(20 * SECOND).build().unwrap());
            let rival = world.manager();
            let clock = Arc::new(sim.clone());
            let stage = Stage { manager: manager.clone(), rival, clock, hold: 8 * SECOND };
            let Trial { future, record } = world.run(doing.begin(&stage));
            let (slow, dead) = (world.nodes[3].clone(), world.nodes[4].clone());
            world.later(2 * SECOND, move || {
                slow.expire("r");
                dead.heal();
            });
            let is_done = world.run(every_future::is_done_after(polls, future));
            // From now on the way is short: a release that overtook something would leave it there.
            world.nodes[3].heal();
            let operations = world.log.operations();
            let extended = operations.iter().position(|operation| *operation == "extend");
            let set_again = |at| operations[at..].contains(&"acquire");
            repaired += u32::from(!doing.ends_its_manager && extended.is_some_and(set_again));
            world.run(every_future::finish(record, &manager));
            // Less than the ttl: no key is gone because it expired.
            world.advance(5 * SECOND);
            assert_eq!(world.keys_left(), 0, "{name} dropped after {polls} polls");
            let report = world.run(manager.close(Duration::ZERO));
            assert!(report.is_clean(), "{name}: {polls}: {report}");
            moments += 1;
            if is_done {
                break;
            }
        }
    }
    assert!(moments > 200, "the sweep saw only {moments} moments");
    assert!(repaired > 10, "and only {repaired} repairs");
}

/// A call in front of the release is given up at the cleanup bound, and the release a node timeout later.
#[test]
fn c5_the_task_of_a_call_that_hangs_ends_with_the_cleanup() {
    type Calls = Arc<Mutex<Vec<&'static str>>>;

    struct InFlight(Calls, &'static str);

    impl Drop for InFlight {
        fn drop(&mut self) {
            self.0.lock().unwrap().retain(|method| *method != self.1);
        }
    }

    for (hangs, before, at_the_bound) in [
        ("acquire", "acquire", ""),
        ("extend", "extend", ""),
        ("release", "release", "release"),
        ("acquire, release", "acquire", "release"),
    ] {
        let (world, calls) = (World::new(3), Calls::default());
        let nodes = world.nodes.iter().zip([hangs, "", ""]);
        let manager = world.over(nodes.map(|(node, hangs)| {
            let calls = Arc::clone(&calls);
            Odd::new(node).before(move |method| {
                if !hangs.contains(method) {
                    return Box::pin(async { Ok(()) });
                }
                calls.lock().unwrap().push(method);
                let in_flight = InFlight(Arc::clone(&calls), method);
                Box::pin(async {
                    let _in_flight = in_flight;
                    std::future::pending().await
                })
            })
        }));
        let guard = world.lock(&manager);
        world.run(guard.extend()).unwrap();
        world.run(guard.release()).unwrap();
        for (after, expected) in [(9_900, before), (200, at_the_bound), (500, "")] {
            world.advance(after * MS);
            assert_eq!(calls.lock().unwrap().join(", "), expected, "{hangs} hangs");
        }
    }
}

/// The round goes on, and its votes count.
#[test]
fn c5_an_extension_goes_on_when_its_future_is_dropped() {
    let (world, guard) = World::new(3).held();
    world.advance(SECOND);
    let valid_until = guard.valid_until();
    world.inject(.., Fault::Late(100 * MS));
    assert!(world.sim.block_on_for(guard.extend(), 1).is_none());
    assert_eq!(guard.valid_until(), valid_until);
    world.advance(100 * MS);
    assert_eq!(guard.valid_until(), valid_until + SECOND);
}

#[test]
fn c6_an_acquire_is_sent_once() {
    for fault in [Fault::Hung, failing("LOADING")] {
        let world = World::new(3);
        world.inject(..1, fault);
        let _guard = world.lock(&world.manager());
        world.sim.settle();
        assert_eq!(world.log.count("acquire"), 3);
    }
}
