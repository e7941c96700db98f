//! What a manager does with its settings, and without them, on ttls short and long.

use std::time::Duration;

use quorate_core::{BuildError, Drift, LockManagerBuilder, Lost, Runtime};
use quorate_memory::{Fault, MemoryNode};

use crate::world::{MS, SECOND, World};

fn milliseconds(count: f64) -> Duration {
    Duration::from_secs_f64(count / 1e3)
}

fn assert_about(what: &str, seen: Duration, expected: f64) {
    let expected = milliseconds(expected);
    assert!(seen.abs_diff(expected) <= MS / 10, "{what}: {seen:?} instead of {expected:?}");
}

/// For how long a lease is valid on nodes that answer at once.
fn validity(world: &World, builder: LockManagerBuilder) -> Duration {
    let guard = world.sim.block_on(builder.build().unwrap().lock("r")).unwrap();
    guard.valid_until() - world.sim.now()
}

/// How long a round listens to nodes that do not answer.
fn node_timeout(world: &World, builder: LockManagerBuilder, ttl: Duration) -> Duration {
    world.nodes.iter().for_each(|node| node.inject(Fault::Hung));
    let (manager, start) = (builder.build().unwrap(), world.sim.elapsed());
    assert!(world.sim.block_on(manager.try_lock("r").ttl(ttl)).is_err());
    let taken = world.sim.elapsed() - start;
    world.nodes.iter().for_each(MemoryNode::heal);
    world.catch_up();
    taken
}

/// How long before its end a lease is lost that nobody renews.
fn margin(world: &World, builder: LockManagerBuilder, ttl: Duration) -> Duration {
    let manager = builder.build().unwrap();
    let guard = world.sim.block_on(manager.lock("r").ttl(ttl)).unwrap();
    let lost = world.sim.block_on(guard.lost());
    assert!(matches!(lost, Lost::Expired { .. }), "{lost:?}");
    guard.valid_until() - world.sim.now()
}

/// When a lease is renewed for the first time, after it was taken: the earliest and the latest.
fn renewal(world: &World, builder: LockManagerBuilder, ttl: Duration) -> [Duration; 2] {
    let manager = builder.build().unwrap();
    let mut seen: Vec<Duration> = (0..60)
        .map(|_| {
            let guard = world.sim.block_on(manager.lock("r").ttl(ttl)).unwrap();
            let (taken, until) = (world.sim.now(), guard.valid_until());
            guard.keep_alive();
            while guard.valid_until() == until {
                world.sim.advance(ttl / 1000);
            }
            world.sim.now() - taken
        })
        .collect();
    seen.sort();
    [seen[0], seen[59]]
}

fn assert_window(seen: [Duration; 2], every: f64, ttl: Duration) {
    let (every, step) = (milliseconds(every), ttl / 1000);
    let [earliest, latest] = seen;
    assert!(earliest >= every / 10 * 7 && earliest <= every / 10 * 8, "{every:?}: {seen:?}");
    assert!(latest >= every / 10 * 9 && latest <= every + step, "{every:?}: {seen:?}");
}

#[test]
fn what_is_not_set_goes_by_the_ttl() {
    for (ttl, valid, timeout, margin_, every) in [
        (100 * MS, 97.0, 10.0, 9.7, 32.333),
        (SECOND, 988.0, 100.0, 98.8, 329.333),
        (10 * SECOND, 9_898.0, 500.0, 500.0, 3_299.333),
        (60 * SECOND, 59_398.0, 500.0, 500.0, 19_799.333),
    ] {
        let world = World::new(3);
        let builder = || world.builder().ttl(ttl);
        assert_about("the validity", validity(&world, builder()), valid);
        world.catch_up();
        assert_about("the node timeout", node_timeout(&world, builder(), ttl), timeout);
        assert_about("the margin", margin(&world, builder(), ttl), margin_);
        world.catch_up();
        assert_window(renewal(&world, builder(), ttl), every, ttl);
    }
}

#[test]
fn t2_the_drift_is_what_was_set() {
    let world = World::new(3);
    let builder = world.builder().ttl(10 * SECOND).drift(Drift::new(100_000, 50 * MS));
    assert_about("the validity", validity(&world, builder), 8_950.0);
}

/// So that a slow node leaves time for another try, and a renewal for a second.
#[test]
fn what_was_set_is_cut_for_a_request_with_a_shorter_ttl() {
    let world = World::new(3);
    let builder = || world.builder().ttl(20 * SECOND);
    let timeout = node_timeout(&world, builder().node_timeout(3 * SECOND), SECOND);
    assert_about("half of the validity", timeout, 494.0);
    let seen = margin(&world, builder().margin(2 * SECOND), SECOND);
    assert_about("a quarter of the validity", seen, 247.0);
    world.catch_up();
    let seen = renewal(&world, builder().renew_every(5 * SECOND), SECOND);
    assert_window(seen, 988.0 - 98.8 - 2.0 * 100.0, SECOND);
}

#[test]
fn what_is_set_may_be_as_much_as_the_error_says() {
    let world = World::new(3);
    let build = |builder: LockManagerBuilder| builder.build().err();
    let (tiny, long) = (Duration::from_nanos(1), Duration::from_secs(60));
    let Some(BuildError::NodeTimeout { most, .. }) = build(world.builder().node_timeout(long))
    else {
        panic!("too long");
    };
    assert_eq!(build(world.builder().node_timeout(most)), None);
    assert!(build(world.builder().node_timeout(most + tiny)).is_some());
    let Some(BuildError::Margin { most, .. }) = build(world.builder().margin(long)) else {
        panic!("too long");
    };
    assert_eq!(build(world.builder().margin(most)), None);
    assert!(build(world.builder().margin(most + tiny)).is_some());
    let Some(BuildError::RenewInterval { most, .. }) = build(world.builder().renew_every(long))
    else {
        panic!("too long");
    };
    assert_eq!(build(world.builder().renew_every(most)), None);
    assert!(build(world.builder().renew_every(most + tiny)).is_some());
    let Some(BuildError::CleanupTimeout { least, .. }) =
        build(world.builder().cleanup_timeout(tiny))
    else {
        panic!("too short");
    };
    assert_eq!(build(world.builder().cleanup_timeout(least)), None);
    assert!(build(world.builder().cleanup_timeout(least - tiny)).is_some());
}
