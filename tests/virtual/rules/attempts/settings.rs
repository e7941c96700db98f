//! T3: what a manager does with its settings, and without them.

use std::time::Duration;

use quorate_core::backend::{Drift, InvalidTtl, Ttl};
use quorate_core::error::InvalidRequest;
use quorate_core::{
    BuildError, LeaseEnd, LockError, LockManager, LockManagerBuilder, Runtime, WithError,
};
use quorate_memory::{Fault, MemoryNode, Sim};

use crate::world::{MS, SECOND, World};

fn milliseconds(count: f64) -> Duration {
    Duration::from_secs_f64(count / 1e3)
}

fn assert_about(what: &str, seen: Duration, expected: f64) {
    let expected = milliseconds(expected);
    assert!(seen.abs_diff(expected) <= MS / 10, "{what}: {seen:?} instead of {expected:?}");
}

/// How long a round waits for nodes that do not answer.
fn node_timeout(world: &World, builder: LockManagerBuilder, ttl: Duration) -> Duration {
    world.inject(.., Fault::Hung);
    let failed = world.run(builder.build().unwrap().lock("r").no_wait().ttl(ttl)).unwrap_err();
    world.heal();
    world.catch_up();
    failed.failure().unwrap().waited()
}

/// For how long a lease is valid that is not extended, and how long before its keys may expire it ends, without the
/// drift.
fn lease(world: &World, builder: LockManagerBuilder, drift: Duration) -> [Duration; 2] {
    let guard = world.lock(&builder.build().unwrap());
    let (valid, left) = (guard.remaining(), world.nodes[0].time_left("r").unwrap());
    let lost = world.run(guard.lost());
    assert!(matches!(lost, LeaseEnd::Expired { .. }), "{lost:?}");
    assert_eq!(guard.valid_until(), world.sim.now(), "one end");
    drop(guard);
    world.catch_up();
    [valid, left - valid - drift]
}

/// When a lease is renewed for the first time, after it was taken: the earliest and the latest.
fn assert_renewed(world: &World, builder: LockManagerBuilder, ttl: Duration, every: f64) {
    let manager = builder.build().unwrap();
    let renewal = |_| {
        let guard = world.run(manager.lock("r").ttl(ttl)).unwrap();
        let (taken, until) = (world.sim.now(), guard.valid_until());
        guard.auto_renew();
        while guard.valid_until() == until {
            world.advance(ttl / 1000);
        }
        world.sim.now() - taken
    };
    let mut seen: Vec<Duration> = (0..60).map(renewal).collect();
    seen.sort();
    let (every, step) = (milliseconds(every), ttl / 1000);
    let (earliest, latest) = (seen[0], seen[59]);
    assert!(earliest >= every / 10 * 7 && earliest <= every / 10 * 8, "{every:?}: {seen:?}");
    assert!(latest >= every / 10 * 9 && latest <= every + step, "{every:?}: {seen:?}");
}

/// Rule T2.
#[test]
fn what_is_not_set_goes_by_the_ttl() {
    for (ttl, valid, timeout, margin, every) in [
        (100 * MS, 87.0, 10.0, 10.0, 29.0),
        (SECOND, 888.0, 100.0, 100.0, 296.0),
        (10 * SECOND, 9_398.0, 500.0, 500.0, 3_132.667),
        (60 * SECOND, 58_898.0, 500.0, 500.0, 19_632.667),
    ] {
        let world = World::new(3);
        let builder = || world.builder().ttl(ttl);
        let seen = lease(&world, builder(), Drift::default().of(ttl.try_into().unwrap()));
        assert_about("the validity", seen[0], valid);
        assert_about("the safety margin", seen[1], margin);
        assert_about("the node timeout", node_timeout(&world, builder(), ttl), timeout);
        assert_renewed(&world, builder(), ttl, every);
    }
}

/// Rules T2, H4.
#[test]
fn the_drift_and_the_safety_margin_are_what_was_set() {
    let world = World::new(3);
    let builder = || world.builder().ttl(10 * SECOND);
    let drift = builder().drift(Drift::new(100_000, 50 * MS));
    let bare = builder().safety_margin(Duration::ZERO);
    for (builder, drift, valid, margin) in
        [(drift, 1_050 * MS, 8_450.0, 500.0), (bare, 102 * MS, 9_898.0, 0.0)]
    {
        let seen = lease(&world, builder, drift);
        assert_about("the validity", seen[0], valid);
        assert_about("the margin", seen[1], margin);
    }
}

/// So that a slow node leaves time for another try, and a renewal for a second.
#[test]
fn what_was_set_is_cut_for_a_request_with_a_shorter_ttl() {
    let world = World::new(3);
    let builder = || world.builder().ttl(20 * SECOND);
    let timeout = node_timeout(&world, builder().node_timeout(3 * SECOND), SECOND);
    assert_about("half of the validity", timeout, 444.0);
    assert_renewed(&world, builder().renew_interval(5 * SECOND), SECOND, 888.0 - 2.0 * 100.0);
}

#[test]
fn t3_settings_that_cannot_hold_a_lock_are_refused() {
    let build = |ttl: Duration| World::new(3).builder().ttl(ttl).build().err();
    for ttl in [Duration::ZERO, MS, 2 * MS, 3 * MS] {
        let short = BuildError::Ttl(InvalidTtl::TooShort { ttl, least: 4 * MS });
        assert_eq!(build(ttl), Some(short));
    }
    assert_eq!(build(4 * MS), None);
    // Without drift and margin, a validity of 1 ms is left.
    let bare = World::new(3).builder().drift(Drift::new(0, Duration::ZERO));
    assert!(bare.safety_margin(Duration::ZERO).ttl(MS).build().is_ok());
    // No ttl is long enough.
    let wild = World::new(3).builder().safety_margin(Ttl::MAX).ttl(Ttl::MAX).build();
    let short = InvalidTtl::TooShort { ttl: Ttl::MAX, least: Duration::MAX };
    assert_eq!(wild.err(), Some(BuildError::Ttl(short)));
    let endless = BuildError::Ttl(InvalidTtl::TooLong { ttl: Duration::MAX });
    assert_eq!(build(Duration::MAX), Some(endless));
    for count in [0, 65] {
        let nodes = MemoryNode::cluster(count, Sim::new(0));
        let built = LockManager::builder(nodes).runtime(Sim::new(0)).build();
        assert_eq!(built.err(), Some(BuildError::NodeCount { nodes: count }));
    }
}

#[test]
fn t3_a_ttl_of_a_request_that_is_not_over_the_safety_margin_is_refused() {
    let world = World::new(3);
    let manager = world.builder().ttl(20 * SECOND).safety_margin(2 * SECOND).build().unwrap();
    let failed = world.run(manager.lock("r").ttl(SECOND)).unwrap_err();
    let LockError::Invalid(InvalidRequest::Ttl(InvalidTtl::TooShort { least, .. })) = failed else {
        panic!("{failed}");
    };
    assert!(world.log.calls().is_empty());
    assert!(world.run(manager.lock("r").ttl(least - MS)).is_err());
    assert!(world.run(manager.lock("r").ttl(least)).is_ok());
}

/// A lease of a few milliseconds is lost as soon as its process is busy for that long.
#[test]
fn t3_a_lease_that_is_renewed_has_a_ttl_of_50_ms_at_least() {
    let least = 50 * MS;
    for ttl in [4 * MS, 49 * MS] {
        let world = World::new(3);
        let short = InvalidTtl::TooShortToRenew { ttl, least };
        let is_refused = |failed: &LockError| matches!(failed, LockError::Invalid(InvalidRequest::Ttl(error)) if *error == short);
        let manager = world.builder().ttl(ttl).build().unwrap();
        assert!(is_refused(&world.run(manager.lock("r").auto_renew()).unwrap_err()));
        assert!(is_refused(&world.run(manager.lead("r", async |_| ())).unwrap_err()));
        let done = world.run(manager.with("r", async |_| ()));
        assert!(matches!(&done, Err(WithError::Lock(failed)) if is_refused(failed)));
        let once = world.run(manager.once_per("r", SECOND, async |_| Ok::<_, ()>(())));
        assert!(once.unwrap_err().to_string().contains("too short to be renewed"));
        assert!(world.log.calls().is_empty(), "{ttl:?}");
        assert!(world.run(manager.lock("r").ttl(least).auto_renew()).is_ok());
        world.catch_up();
        assert!(world.run(manager.lock("s")).is_ok(), "and one that is not renewed is held");
    }
}

#[test]
fn t3_what_is_set_may_be_as_much_as_the_error_says() {
    let world = World::new(3);
    let (tiny, long) = (Duration::from_nanos(1), Duration::from_secs(60));
    let builder = || world.builder();
    type Set = fn(LockManagerBuilder, Duration) -> LockManagerBuilder;
    // A renewal leaves time for a second try.
    let settings: [(&str, Set, Duration, Duration); 3] = [
        ("node_timeout", LockManagerBuilder::node_timeout, long, 4_699 * MS),
        ("renew_interval", LockManagerBuilder::renew_interval, long, 8_398 * MS),
        ("hold_limit", LockManagerBuilder::hold_limit, Duration::ZERO, Duration::MAX),
    ];
    for (name, set, wrong, longest) in settings {
        let build = |value| set(builder(), value).build().err();
        for wrong in [wrong, Duration::ZERO] {
            let refused = build(wrong);
            let Some(BuildError::OutOfRange { setting, value, least, most }) = refused else {
                panic!("{name}: {refused:?}");
            };
            assert_eq!((setting, value, most), (name, wrong, longest));
            assert_eq!((build(least), build(most)), (None, None), "{name}");
            assert!(build(least - tiny).is_some(), "{name}");
            assert!(most == Duration::MAX || build(most + tiny).is_some(), "{name}");
        }
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
    let shortest = build(MS, MS).unwrap();
    assert!(world.run(shortest.lock("r").timeout(20 * MS)).is_err());
}
