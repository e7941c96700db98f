//! H1–H7: leases that live as long as the work, and how holders learn when they do not.

use std::error::Error;
use std::future::{IntoFuture, pending, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Either, join, join3, select};
use quorate_core::error::InvalidRequest;
use quorate_core::{
    AdoptError, DetachedLock, ExtendError, LeaseEnd, LockError, LockGuard, LockManager,
    ReleaseError, Runtime, Stopped, WithError,
};
use quorate_memory::{Fault, MemoryNode, Sim, Value};
use quorate_protocol::error_of_reply;

use crate::waiting::processes::Scene;
use crate::world::{MS, Paused, SECOND, World};

mod closing;
mod detaching;
mod with;

const HOUR: Duration = Duration::from_secs(3600);
const MARGIN: Duration = Duration::from_millis(500);

/// A manager that waits long between two rounds.
fn patient(world: &World) -> LockManager {
    world.builder().backoff(HOUR, HOUR).build().unwrap()
}

/// Other tasks of its holder hear of the end at once, though no node answers.
#[test]
fn a_lease_that_its_guard_ends_is_over_for_those_who_wait_for_its_end() {
    let ends: [fn(LockGuard); 3] =
        [drop, |guard| drop(guard.detach()), |guard| drop(guard.release().now_or_never())];
    for end in ends {
        let (world, guard) = World::new(3).held();
        world.inject(.., Fault::Hung);
        let heard = Arc::new(Mutex::new(None));
        let (lost, told) = (guard.lost(), Arc::clone(&heard));
        world.sim.spawn(Box::pin(async move { *told.lock().unwrap() = Some(lost.await) }));
        world.sim.advance(MS);
        end(guard);
        world.sim.advance(Duration::ZERO);
        let heard = heard.lock().unwrap().take();
        assert!(matches!(heard, Some(LeaseEnd::Released | LeaseEnd::Detached)), "{heard:?}");
    }
}

/// One end, with or without a listener and a renewal.
#[test]
fn h4_a_lease_has_one_end_whatever_the_nodes_do() {
    let loading = error_of_reply("LOADING");
    for fault in [None, Some(Fault::Hung), Some(Fault::Down), Some(Fault::Failing(loading))] {
        for (is_renewed, has_listener) in
            [(false, false), (false, true), (true, false), (true, true)]
        {
            let (world, guard) = World::new(5).held();
            if is_renewed {
                guard.auto_renew();
            }
            let lost = has_listener.then(|| Box::pin(guard.lost()));
            for node in &world.nodes[..3] {
                fault.clone().into_iter().for_each(|fault| node.inject(fault));
            }
            if fault.is_none() && is_renewed {
                world.sim.advance(HOUR);
                assert!(guard.is_valid() && lost.is_none_or(|lost| lost.now_or_never().is_none()));
                continue;
            }
            let valid_until = guard.valid_until();
            match lost {
                Some(lost) => {
                    let reason = world.sim.block_on(lost);
                    assert!(matches!(reason, LeaseEnd::Expired { .. }), "{reason:?}");
                }
                None => {
                    world.sim.advance(guard.remaining() - MS / 1_000_000);
                    assert!(guard.is_valid());
                    world.sim.advance(MS / 1_000_000);
                }
            }
            assert_eq!(world.sim.now(), valid_until);
            assert!(!guard.is_valid());
            assert_eq!((guard.valid_until(), guard.remaining()), (valid_until, Duration::ZERO));
            // The nodes that answered last keep the key for drift and safety margin.
            assert!(fault.is_some() || world.holders("r") == 5);
            world.heal();
            let extended = world.sim.block_on(guard.extend());
            let ended = matches!(extended, Err(ExtendError::Lost(LeaseEnd::Expired { .. })));
            assert!(ended && !guard.is_valid(), "{extended:?}");
            let lost = guard.lost().now_or_never();
            assert!(matches!(lost, Some(LeaseEnd::Expired { .. })), "{lost:?}");
        }
    }
}

#[test]
fn h4_the_reason_says_what_the_nodes_answered() {
    let (world, guard) = World::new(3).held();
    guard.auto_renew();
    world.inject(1.., Fault::Down);
    let reason = world.sim.block_on(guard.lost()).to_string();
    assert!(reason.starts_with("the lease expired: 1 of 3 nodes granted"), "{reason}");
    assert!(reason.contains("memory-2: connection refused"), "{reason}");
    assert!(reason.contains("memory-3: connection refused"), "{reason}");
}

#[test]
fn h4_trouble_that_has_passed_is_no_reason() {
    let (world, guard) = World::new(3).held();
    world.inject(..2, Fault::Hung);
    assert!(world.sim.block_on(guard.extend()).is_err());
    world.heal();
    world.sim.block_on(guard.extend()).unwrap();
    let reason = world.sim.block_on(guard.lost()).to_string();
    assert_eq!(reason, "the lease expired");
}

#[test]
fn h4_a_lease_that_expired_in_a_pause_is_lost_at_the_first_look() {
    let world = World::new(3);
    let client = Paused::new(&world.sim);
    let manager =
        LockManager::builder(world.nodes.clone()).runtime(client.clone()).build().unwrap();
    let guard = world.sim.block_on(manager.lock("r")).unwrap();
    guard.auto_renew();
    let lost = guard.lost();
    client.pause(20 * SECOND);
    assert!(!guard.is_valid(), "though no task ran");
    let reason = world.sim.block_on(lost);
    assert!(matches!(reason, LeaseEnd::Expired { .. }), "{reason:?}");
}

#[test]
fn h4_every_holder_of_the_future_learns_of_the_end() {
    let (world, guard) = World::new(3).held();
    let told = Arc::new(AtomicU32::new(0));
    for _ in 0..10 {
        let (lost, told) = (guard.lease().lost(), Arc::clone(&told));
        world.sim.spawn(Box::pin(async move {
            assert!(matches!(lost.await, LeaseEnd::Released));
            told.fetch_add(1, Ordering::Relaxed);
        }));
    }
    world.catch_up();
    let lease = guard.lease();
    world.sim.block_on(guard.release()).unwrap();
    world.catch_up();
    assert_eq!(told.load(Ordering::Relaxed), 10);
    assert!(!lease.is_valid());
}

#[test]
fn h5_a_renewal_is_tried_until_the_end() {
    let (world, guard) = World::new(3).held();
    guard.auto_renew();
    world.inject(..2, Fault::Hung);
    world.sim.advance(guard.remaining() - 100 * MS);
    assert!(guard.is_valid(), "many renewals have failed, and the lease still holds");
    let tries = world.log.operations().iter().filter(|done| **done == "extend").count();
    assert!(tries > 6, "{tries} calls");
    world.heal();
    world.sim.advance(HOUR);
    assert!(guard.is_valid(), "the last try was in time");
}

#[test]
fn h1_a_lease_that_no_quorum_can_have_is_lost_at_once() {
    let (world, guard) = World::new(5).held();
    guard.auto_renew();
    world.nodes[..3].iter().for_each(MemoryNode::restart);
    let valid_until = guard.valid_until();
    let reason = world.sim.block_on(guard.lost());
    assert!(matches!(reason, LeaseEnd::NotHeld(_)), "{reason:?}");
    assert!(world.sim.now() < valid_until - 5 * SECOND);
    assert!(!guard.is_valid());
    world.catch_up();
    assert_eq!(
        world.holders("r"),
        0,
        "nothing was set again, and the keys that were left are released"
    );
}

#[test]
fn h6_no_renewal_is_in_flight_when_the_release_begins() {
    for dropped in [false, true] {
        let (world, guard) = World::new(3).held();
        guard.auto_renew();
        world.inject(.., Fault::Late(300 * MS));
        // A renewal is in flight.
        while !world.log.operations().contains(&"extend") {
            world.sim.advance(MS);
        }
        match dropped {
            true => drop(guard),
            false => drop(world.sim.block_on(guard.release())),
        }
        world.sim.settle();
        let operations = world.log.operations();
        let last_extend = operations.iter().rposition(|done| *done == "extend").unwrap();
        let releases = operations.iter().position(|done| *done == "release").unwrap();
        assert!(last_extend < releases, "{operations:?}");
        assert_eq!(world.keys_left(), 0);
        world.sim.advance(HOUR);
        assert_eq!(world.log.operations(), operations, "nothing goes on");
    }
}

/// A node forgot the key, answers the extension late, and by then the lock is being released.
#[test]
fn h6_a_repair_never_comes_after_the_release() {
    for release_after in [0, 50, 99, 100, 101, 150, 199, 200, 201, 300] {
        let (world, guard) = World::new(3).held();
        world.catch_up();
        world.nodes[0].restart();
        world.nodes[0].inject(Fault::Late(100 * MS));
        world.sim.block_on(guard.extend()).unwrap();
        world.sim.advance(release_after * MS);
        drop(guard);
        world.sim.advance(SECOND);
        assert_eq!(world.keys_left(), 0, "released after {release_after} ms");
    }
}

#[test]
fn h3_nodes_that_lost_the_key_get_it_back_and_count_from_the_next_time() {
    let (world, guard) = World::new(5).held();
    world.catch_up();
    world.nodes[0].restart();
    world.nodes[1].restart();
    world.sim.block_on(guard.extend()).expect("three still have it");
    world.catch_up();
    assert_eq!(world.holders("r"), 5);
    // The other three: the repaired nodes are among the quorum now.
    world.nodes[2].restart();
    world.nodes[3].restart();
    world.sim.block_on(guard.extend()).expect("three have it");
}

/// Its reply takes so long that the lease has ended by then.
#[test]
fn h3_a_node_is_not_repaired_after_the_end_of_the_lease() {
    let (world, guard) = World::new(3).held();
    world.catch_up();
    world.nodes[0].restart();
    world.nodes[0].inject(Fault::Late(9_450 * MS));
    world.sim.block_on(guard.extend()).unwrap();
    world.sim.advance(11 * SECOND);
    assert!(!guard.is_valid());
    assert_eq!(world.keys_left(), 0);
}

#[test]
fn h3_a_key_that_another_client_has_acquired_is_left_alone() {
    let (world, guard) = World::new(3).held();
    world.catch_up();
    world.nodes[0].put("r", Value::String(b"theirs".to_vec()));
    world.sim.block_on(guard.extend()).unwrap();
    world.catch_up();
    let theirs = world.nodes[0].get("r");
    assert_eq!(theirs, Some(Value::String(b"theirs".to_vec())));
}

#[test]
fn h7_a_hold_limit_ends_the_lease_however_often_it_is_extended() {
    let world = World::new(3);
    let manager = world.manager();
    let guard = world.sim.block_on(manager.lock("r").hold_limit(60 * SECOND)).unwrap();
    guard.auto_renew();
    let start = world.sim.now();
    world.sim.advance(58 * SECOND);
    assert!(guard.is_valid());
    world.sim.block_on(guard.extend_to(HOUR)).unwrap();
    assert_eq!(guard.valid_until(), start + 60 * SECOND);
    assert!(matches!(world.sim.block_on(guard.lost()), LeaseEnd::HoldLimit));
    assert_eq!(world.sim.now(), start + 60 * SECOND);

    let none = world.sim.block_on(manager.lock("s").hold_limit(Duration::ZERO));
    assert!(matches!(none, Err(LockError::Invalid(InvalidRequest::HoldLimit))), "{none:?}");
}

#[test]
fn a_lease_that_was_released_or_detached_ends_then() {
    let world = World::new(3);
    let manager = world.manager();
    for detaches in [false, true] {
        let guard = world.sim.block_on(manager.lock("r")).unwrap();
        let lease = guard.lease();
        world.sim.advance(SECOND);
        let now = world.sim.now();
        if detaches {
            let _record = guard.detach().unwrap();
        } else {
            world.sim.block_on(guard.release()).unwrap();
        }
        assert_eq!(lease.valid_until(), now);
        world.catch_up();
    }
}

#[test]
fn h7_a_lease_that_has_reached_its_hold_limit_is_not_renewed() {
    let world = World::new(3);
    let request = world.manager().lock("r").hold_limit(9 * SECOND);
    let guard = world.sim.block_on(request).unwrap();
    guard.auto_renew();
    world.sim.advance(60 * SECOND);
    assert!(matches!(world.sim.block_on(guard.lost()), LeaseEnd::HoldLimit));
    assert!(!world.log.operations().contains(&"extend"));
}

#[test]
fn a_manager_keeps_nothing_of_the_locks_that_were_released_or_detached() {
    let world = World::new(3);
    let manager = world.manager();
    let guard = world.sim.block_on(manager.lock("r")).unwrap();
    guard.auto_renew();
    world.sim.advance(12 * SECOND);
    let _record = guard.detach().unwrap();
    world.nodes.iter().for_each(|node| node.expire("r"));
    for _ in 0..10 {
        let _ = world.sim.block_on(world.sim.block_on(manager.lock("r")).unwrap().release());
        drop(world.sim.block_on(manager.lock("r")).unwrap());
        world.catch_up();
    }
    let debug = format!("{manager:?}");
    assert!(debug.contains("{ keys: 0, tasks: 0, open: 0,"), "{debug}");
}
