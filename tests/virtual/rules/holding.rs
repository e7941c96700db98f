//! H1–H5, and what a guard knows without I/O.

use std::time::Duration;

use futures_util::future::join;
use quorate_core::algorithm::lease::SafetyMargin;
use quorate_core::backend::{Drift, Ttl};
use quorate_core::{ExtendError, LeaseEnd};
use quorate_memory::Fault;
use quorate_protocol::error_of_reply;

use crate::world::{MS, SECOND, World};

#[test]
fn h1_a_failed_extension_leaves_the_lease_as_it_is() {
    let (world, guard) = World::new(5).held();
    let valid_until = guard.valid_until();
    world.inject(..3, Fault::Hung);
    let failed = world.sim.block_on(guard.extend());
    assert!(matches!(failed, Err(ExtendError::NoQuorum(_))), "{failed:?}");
    assert_eq!(guard.valid_until(), valid_until);
    assert!(guard.is_valid());
    world.sim.advance(SECOND);
    world.heal();
    world.sim.advance(SECOND);
    assert_eq!(world.holders("r"), 5, "nothing was released");
    world.sim.block_on(guard.extend()).expect("the next try may succeed");
    assert!(guard.valid_until() > valid_until);
}

/// The round goes on, and its votes count.
#[test]
fn c5_an_extension_goes_on_when_its_future_is_dropped() {
    let (world, guard) = World::new(3).held();
    world.sim.advance(SECOND);
    let valid_until = guard.valid_until();
    world.inject(.., Fault::Late(100 * MS));
    assert!(world.sim.block_on_for(guard.extend(), 1).is_none());
    assert_eq!(guard.valid_until(), valid_until);
    world.sim.advance(100 * MS);
    assert_eq!(guard.valid_until(), valid_until + SECOND);
}

#[test]
fn h2_a_shorter_extension_never_shortens() {
    let (world, guard) = World::new(3).held();
    world.inject(.., Fault::Late(100 * MS));
    let (long, short) =
        world.sim.block_on(join(guard.extend_to(60 * SECOND), guard.extend_to(5 * SECOND)));
    long.unwrap();
    short.unwrap();
    assert!(guard.remaining() > 58 * SECOND);
    assert!(world.nodes.iter().all(|node| node.time_left("r") > Some(59 * SECOND)));
}

#[test]
fn h3_an_extension_needs_a_quorum_that_still_has_the_keys() {
    let (world, guard) = World::new(5).held();
    world.nodes[0].expire("r");
    world.nodes[1].expire("r");
    world.sim.block_on(guard.extend()).expect("three still have it");
    world.nodes[..3].iter().for_each(|node| node.expire("r"));
    let failed = world.sim.block_on(guard.extend());
    assert!(matches!(failed, Err(ExtendError::Lost(LeaseEnd::NotHeld(_)))), "{failed:?}");
    assert!(!guard.is_valid());
    world.catch_up();
    assert_eq!(world.holders("r"), 0, "no key came back, and the others are released");
    let lost = world.sim.block_on(guard.lost());
    assert!(matches!(lost, LeaseEnd::NotHeld(_)), "{lost:?}");
    assert_eq!(world.sim.elapsed(), Duration::ZERO, "at once");
}

#[test]
fn h3_nothing_is_sent_once_the_lease_is_over() {
    let (world, guard) = World::new(3).held();
    world.sim.advance(guard.remaining());
    let failed = world.sim.block_on(guard.extend());
    let Err(error @ ExtendError::Lost(LeaseEnd::Expired { .. })) = failed else {
        panic!("{failed:?}")
    };
    assert_eq!(error.to_string(), "the lease has ended: the lease expired");
    assert_eq!(world.log.operations(), ["acquire"; 3]);
}

#[test]
fn an_extension_counts_from_when_it_was_sent() {
    let (world, guard) = World::new(3).held();
    world.sim.advance(4 * SECOND);
    world.inject(.., Fault::Slow(300 * MS));
    let sent = world.sim.elapsed();
    world.sim.block_on(guard.extend()).unwrap();
    let spent = world.sim.elapsed() - sent;
    let ttl = Ttl::try_from(10 * SECOND).unwrap();
    let whole = Drift::default().validity_of(ttl) - SafetyMargin::default().of(ttl);
    assert_eq!(guard.remaining(), whole - spent);
}

#[test]
fn several_resources_are_one_lock() {
    let world = World::new(3);
    let manager = world.manager();
    let both = world.sim.block_on(manager.lock(["a", "b"])).unwrap();
    for name in ["a", "b"] {
        assert!(world.sim.block_on(manager.lock(name).no_wait()).is_err());
    }
    let third = world.sim.block_on(manager.lock(["b", "c"]).no_wait());
    assert!(third.is_err());
    world.catch_up();
    assert_eq!(world.holders("c"), 0, "all or nothing");
    world.sim.block_on(both.release()).unwrap();
    assert_eq!(world.keys_left(), 0);
}

#[test]
fn locks_exclude_each_other_under_the_same_prefix_only() {
    let world = World::new(3);
    let plain = world.manager();
    let other = world.builder().key_prefix("app:").build().unwrap();
    let held = world.sim.block_on(plain.lock("r")).unwrap();
    let guard = world.sim.block_on(other.lock("r").no_wait()).unwrap();
    assert_eq!(world.nodes[0].keys(), [b"app:r".to_vec(), b"r".to_vec()]);
    drop((held, guard));
}

/// One node forgot, two do not answer: the lease may well live on.
#[test]
fn h5_not_held_is_only_said_if_no_quorum_can_have_it() {
    let loading = error_of_reply("LOADING");
    for fault in [Fault::Hung, Fault::Failing(loading)] {
        let (world, guard) = World::new(5).held();
        world.nodes[0].restart();
        world.nodes[1].inject(fault.clone());
        world.nodes[2].inject(fault);
        let failed = world.sim.block_on(guard.extend());
        assert!(matches!(failed, Err(ExtendError::NoQuorum(_))), "{failed:?}");
        world.nodes[1].heal();
        world.nodes[2].heal();
        world.sim.block_on(guard.extend()).expect("four of five have it");
    }
}

#[test]
fn h3_an_extension_is_not_waited_for_beyond_the_lease() {
    let (world, guard) = World::new(3).held();
    world.sim.advance(guard.remaining() - 10 * MS);
    world.inject(.., Fault::Hung);
    let start = world.sim.elapsed();
    assert!(world.sim.block_on(guard.extend()).is_err());
    assert_eq!(world.sim.elapsed() - start, 10 * MS);
}

/// The other nodes decide each round before this one answers.
#[test]
fn h3_a_node_that_answers_after_each_round_gets_its_keys_back() {
    let world = World::in_order(5);
    let manager = world.builder().renew_interval(50 * MS).build().unwrap();
    let guard = world.sim.block_on(manager.lock("r")).unwrap();
    guard.auto_renew();
    world.sim.advance(SECOND);
    world.nodes[4].restart();
    world.nodes[4].inject(Fault::Late(30 * MS));
    assert_eq!(world.holders("r"), 4);
    world.sim.advance(SECOND);
    assert_eq!(world.holders("r"), 5);
}
