//! What a manager does with its settings, and without them, on ttls short and long.

use std::time::Duration;

use quorate_core::backend::{Drift, InvalidTtl};
use quorate_core::error::InvalidRequest;
use quorate_core::{BuildError, LeaseEnd, LockError, LockManagerBuilder, Runtime};
use quorate_memory::Fault;

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

/// How long a round waits for nodes that do not answer.
fn node_timeout(world: &World, builder: LockManagerBuilder, ttl: Duration) -> Duration {
    world.inject(.., Fault::Hung);
    let manager = builder.build().unwrap();
    let failed = world.sim.block_on(manager.lock("r").no_wait().ttl(ttl)).unwrap_err();
    let waited = failed.failure().unwrap().waited();
    world.heal();
    world.catch_up();
    waited
}

/// How long before its keys may expire a lease ends that is not extended, without the drift.
fn margin(world: &World, builder: LockManagerBuilder, ttl: Duration) -> Duration {
    let manager = builder.build().unwrap();
    let guard = world.sim.block_on(manager.lock("r").ttl(ttl)).unwrap();
    let after_the_end = world.nodes[0].time_left("r").unwrap() - guard.remaining();
    let lost = world.sim.block_on(guard.lost());
    assert!(matches!(lost, LeaseEnd::Expired { .. }), "{lost:?}");
    assert_eq!(guard.valid_until(), world.sim.now(), "one end");
    after_the_end - Drift::default().of(ttl.try_into().unwrap())
}

/// When a lease is renewed for the first time, after it was taken: the earliest and the latest.
fn renewal(world: &World, builder: LockManagerBuilder, ttl: Duration) -> [Duration; 2] {
    let manager = builder.build().unwrap();
    let mut seen: Vec<Duration> = (0..60)
        .map(|_| {
            let guard = world.sim.block_on(manager.lock("r").ttl(ttl)).unwrap();
            let (taken, until) = (world.sim.now(), guard.valid_until());
            guard.auto_renew();
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
        (100 * MS, 87.0, 10.0, 10.0, 29.0),
        (SECOND, 888.0, 100.0, 100.0, 296.0),
        (10 * SECOND, 9_398.0, 500.0, 500.0, 3_132.667),
        (60 * SECOND, 58_898.0, 500.0, 500.0, 19_632.667),
    ] {
        let world = World::new(3);
        let builder = || world.builder().ttl(ttl);
        assert_about("the validity", validity(&world, builder()), valid);
        world.catch_up();
        assert_about("the node timeout", node_timeout(&world, builder(), ttl), timeout);
        assert_about("the safety margin", margin(&world, builder(), ttl), margin_);
        world.catch_up();
        assert_window(renewal(&world, builder(), ttl), every, ttl);
    }
}

#[test]
fn t2_the_drift_is_what_was_set() {
    let world = World::new(3);
    let builder = world.builder().ttl(10 * SECOND).drift(Drift::new(100_000, 50 * MS));
    assert_about("the validity", validity(&world, builder), 8_450.0);
}

#[test]
fn t2_a_safety_margin_of_zero_gives_the_bare_formula() {
    let world = World::new(3);
    let builder = || world.builder().ttl(10 * SECOND).safety_margin(Duration::ZERO);
    assert_about("the validity", validity(&world, builder()), 9_898.0);
    world.catch_up();
    assert_about("the margin", margin(&world, builder(), 10 * SECOND), 0.0);
}

/// So that a slow node leaves time for another try, and a renewal for a second.
#[test]
fn what_was_set_is_cut_for_a_request_with_a_shorter_ttl() {
    let world = World::new(3);
    let builder = || world.builder().ttl(20 * SECOND);
    let timeout = node_timeout(&world, builder().node_timeout(3 * SECOND), SECOND);
    assert_about("half of the validity", timeout, 444.0);
    let seen = renewal(&world, builder().renew_interval(5 * SECOND), SECOND);
    assert_window(seen, 888.0 - 2.0 * 100.0, SECOND);
}

#[test]
fn t3_a_ttl_of_a_request_that_is_not_over_the_safety_margin_is_refused() {
    let world = World::new(3);
    let manager = world.builder().ttl(20 * SECOND).safety_margin(2 * SECOND).build().unwrap();
    let failed = world.sim.block_on(manager.lock("r").ttl(SECOND)).unwrap_err();
    let LockError::Invalid(InvalidRequest::Ttl(InvalidTtl::TooShort { least, .. })) = failed else {
        panic!("{failed}");
    };
    assert!(world.log.calls().is_empty());
    assert!(world.sim.block_on(manager.lock("r").ttl(least - MS)).is_err());
    assert!(world.sim.block_on(manager.lock("r").ttl(least)).is_ok());
}

#[test]
fn t3_what_is_set_may_be_as_much_as_the_error_says() {
    let world = World::new(3);
    let (tiny, long) = (Duration::from_nanos(1), Duration::from_secs(60));
    let builder = || world.builder();
    type Set = fn(LockManagerBuilder, Duration) -> LockManagerBuilder;
    let settings: [(&str, Set, Duration); 4] = [
        ("node_timeout", LockManagerBuilder::node_timeout, long),
        ("renew_interval", LockManagerBuilder::renew_interval, long),
        ("cleanup_bound", LockManagerBuilder::cleanup_bound, tiny),
        ("hold_limit", LockManagerBuilder::hold_limit, Duration::ZERO),
    ];
    // A renewal leaves time for a second try.
    let longest = [4_699 * MS, 8_398 * MS, Duration::MAX, Duration::MAX];
    for ((name, set, wrong), longest) in settings.into_iter().zip(longest) {
        let build = |value| set(builder(), value).build().err();
        let refused = build(wrong);
        let Some(BuildError::OutOfRange { setting, value, least, most }) = refused else {
            panic!("{name}: {refused:?}");
        };
        assert_eq!((setting, value, most), (name, wrong, longest));
        assert_eq!((build(least), build(most)), (None, None), "{name}");
        assert!(build(least - tiny).is_some(), "{name}");
        assert!(most == Duration::MAX || build(most + tiny).is_some(), "{name}");
    }
    let Some(BuildError::Ttl(InvalidTtl::TooShort { least, .. })) =
        builder().safety_margin(long).build().err()
    else {
        panic!("the margin is longer than the ttl");
    };
    assert!(builder().safety_margin(long).ttl(least).build().is_ok());
}

#[test]
fn t3_a_backoff_without_a_delay_is_refused() {
    let world = World::new(3);
    let build = |base, most| world.builder().backoff(base, most).build();
    for (base, most) in [(Duration::ZERO, Duration::ZERO), (MS / 2, SECOND), (2 * MS, MS)] {
        let error = build(base, most).unwrap_err();
        assert!(matches!(error, BuildError::OutOfRange { setting: "backoff", .. }), "{error}");
    }
    // The shortest one still lets time pass, on nodes without latency.
    world.occupy(..);
    let shortest = world.builder().backoff(MS, MS).build().unwrap();
    assert!(world.sim.block_on(shortest.lock("r").timeout(20 * MS)).is_err());
}
