//! H7: when leases are renewed, and for how long.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorate_core::error::InvalidRequest;
use quorate_core::{LeaseEnd, LockBackend, LockError, LockGuard, LockManager, Runtime};
use quorate_memory::{Effect, Fault, Rule};

use crate::backends::Odd;
use crate::world::{HOUR, MS, SECOND, World};

#[test]
fn h7_a_hold_limit_ends_the_lease_however_often_it_is_extended() {
    let world = World::new(3);
    let manager = world.manager();
    let guard = world.run(manager.lock("r").hold_limit(60 * SECOND)).unwrap();
    guard.auto_renew();
    let start = world.sim.now();
    world.advance(58 * SECOND);
    assert!(guard.is_valid());
    world.run(guard.extend_to(HOUR)).unwrap();
    assert_eq!(guard.valid_until(), start + 60 * SECOND);
    assert!(matches!(world.run(guard.lost()), LeaseEnd::HoldLimit(_)));
    assert_eq!(world.sim.now(), start + 60 * SECOND);

    let none = world.run(manager.lock("s").hold_limit(Duration::ZERO));
    assert!(matches!(none, Err(LockError::Invalid(InvalidRequest::HoldLimit))), "{none:?}");
}

/// The manager waits for the lock that it adopts, so that its queue has a place for the waiter only.
/// Its future lives, and is not polled: it has the lock for a ttl, and no longer.
#[test]
fn h7_a_win_that_nobody_takes_is_not_renewed() {
    let world = World::new(3);
    world.inject(.., Fault::Slow(10 * MS));
    let (manager, other) = (world.manager(), world.manager());
    let unpolled = world.begun(manager.lock("r").auto_renew());
    world.advance(9 * SECOND);
    assert_eq!(world.holders("r"), 3);
    let start = world.sim.now();
    let guard = world.run(other.lock("r").timeout(HOUR)).unwrap();
    assert!(world.sim.now() < start + 2 * SECOND);
    drop((unpolled, guard));
}

/// A longer one than that of the manager, too.
#[test]
fn h7_a_request_has_the_hold_limit_of_its_manager_or_one_of_its_own() {
    for (own, held) in [(None, 10), (Some(5), 5), (Some(20), 20)] {
        let world = World::new(3);
        let manager = world.builder().hold_limit(10 * SECOND).build().unwrap();
        let request = manager.lock("r").auto_renew();
        let request = match own {
            Some(seconds) => request.hold_limit(seconds * SECOND),
            None => request,
        };
        let guard = world.run(request).unwrap();
        let start = world.sim.now();
        assert!(matches!(world.run(guard.lost()), LeaseEnd::HoldLimit(_)));
        assert_eq!(world.sim.now() - start, held * SECOND, "{own:?}");
    }
}

#[test]
fn h7_an_adopted_lock_is_released_at_its_hold_limit() {
    let world = World::complete(3);
    let record = world.run(world.manager().lock("r").ttl(60 * SECOND)).unwrap();
    let record = record.detach().unwrap();
    let taker = world.builder().hold_limit(2 * SECOND).build().unwrap();
    let had = hold(&world, &taker, "r", false);
    world.advance(100 * MS);
    let guard = world.run(taker.adopt(&record)).unwrap();
    world.advance(4 * SECOND);
    assert!(!guard.is_valid() && had.lock().unwrap().is_some());
}

/// Waits for the lock in the background, and keeps it.
fn hold(world: &World, manager: &LockManager, name: &str, renews: bool) -> Held {
    let (request, held) = (manager.lock(name), Held::default());
    let kept = Arc::clone(&held);
    world.sim.spawn(Box::pin(async move {
        let guard = request.await.unwrap();
        if renews {
            guard.auto_renew();
        }
        *kept.lock().unwrap() = Some(guard);
    }));
    held
}

type Held = Arc<Mutex<Option<LockGuard>>>;

fn valid(held: &[Held]) -> usize {
    let is_valid =
        |held: &&Held| held.lock().unwrap().as_ref().is_some_and(|guard| guard.is_valid());
    held.iter().filter(is_valid).count()
}

/// Acquired at the same instant, ten thousand leases are renewed at different times.
#[test]
fn h7_ten_thousand_leases_do_not_renew_at_once() {
    const LEASES: usize = 10_000;
    let world = World::in_order(3);
    let extended: Arc<Mutex<Vec<Duration>>> = Arc::default();
    let (clock, seen) = (world.sim.clone(), Arc::clone(&extended));
    let first = Odd::new(&world.nodes[0]).noting(move |method| {
        if method == "extend" {
            seen.lock().unwrap().push(clock.elapsed());
        }
    });
    let mut nodes: Vec<Arc<dyn LockBackend>> = vec![Arc::new(first.named("first"))];
    nodes.extend(world.nodes[1..].iter().map(|node| Arc::new(node.clone()) as _));
    let every = 3 * SECOND;
    let builder = LockManager::builder(nodes).runtime(world.sim.clone());
    let manager = builder.renew_interval(every).build().unwrap();
    let leases: Vec<_> =
        (0..LEASES).map(|lease| hold(&world, &manager, &format!("r{lease}"), true)).collect();
    world.advance(6 * every);
    assert_eq!(valid(&leases), LEASES);

    let times = extended.lock().unwrap().clone();
    // The first renewals: one of each lease, in the last three tenths of the interval.
    let first = &times[..LEASES];
    assert!(first[0] >= every * 7 / 10 && first[0] < every * 71 / 100, "{:?}", first[0]);
    assert!(first[LEASES - 1] > every * 99 / 100 && first[LEASES - 1] <= every);
    assert!(times[LEASES] >= every * 14 / 10, "a second one comes later: {:?}", times[LEASES]);
    let even = LEASES as u128 / in_steps(every * 3 / 10);
    let most = peak(first, Duration::ZERO, every);
    assert!(most <= 3 * even, "{most}");

    // Later ones: a renewal every 0.85 of the interval, evenly spread.
    let even = LEASES as u128 / in_steps(every * 85 / 100);
    for (period, most) in [(1, 8), (2, 8), (3, 7), (4, 6), (5, 6)] {
        let peak = peak(&times, every * period, every * (period + 1));
        assert!(peak <= most * even, "{peak} in a step of period {period}, {even} if even");
    }
}

/// Renewals begin in steps of ten milliseconds.
fn in_steps(time: Duration) -> u128 {
    time.as_millis() / 10
}

/// The most in any one step from a moment up to another.
fn peak(times: &[Duration], from: Duration, to: Duration) -> u128 {
    let mut buckets: BTreeMap<u128, u128> = BTreeMap::new();
    for time in times.iter().filter(|time| **time >= from && **time < to) {
        *buckets.entry(in_steps(*time)).or_default() += 1;
    }
    buckets.into_values().max().unwrap_or(0)
}

#[test]
fn h7_five_thousand_leases_are_renewed_on_slow_nodes() {
    let world = World::new(3);
    let builder =
        world.builder().ttl(30 * SECOND).node_timeout(12 * SECOND).wait_timeout(60 * SECOND);
    let manager = builder.build().unwrap();
    let leases: Vec<_> =
        (0..5_000).map(|lease| hold(&world, &manager, &format!("r:{lease}"), true)).collect();
    world.advance(SECOND);
    assert_eq!(valid(&leases), 5_000);
    let way = 4 * SECOND;
    for node in &world.nodes {
        node.add_rule(Rule::new(Effect::Delay { least: way, most: way }));
    }
    world.advance(100 * SECOND);
    assert_eq!(valid(&leases), 5_000);
}

#[test]
fn the_smallest_validity_does_not_spin() {
    let world = World::new(3);
    let manager = world.builder().ttl(4 * MS).build().unwrap();
    let guard = world.run(manager.lock("r")).unwrap();
    guard.auto_renew();
    world.advance(SECOND);
    assert!(guard.is_valid());
    let extended = world.log.count("extend") / 3;
    // Four in a validity of 1.56 ms.
    assert!(extended < 2_600, "{extended} rounds in a second");
    // And while no node answers.
    world.inject(.., Fault::Hung);
    world.advance(SECOND);
    assert!(!guard.is_valid());
    assert!(world.log.operations().len() < 3 * 2_600 + 100);
}
