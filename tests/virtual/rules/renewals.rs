//! Leases that live long: repair over an hour of restarts, and ten thousand renewed at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorate_core::{LockBackend, LockGuard, LockManager, Runtime};
use quorate_memory::{Effect, MemoryNode, Rule, Sim};

use crate::backends::Odd;
use crate::world::{MS, SECOND, World};

/// A vote for an extension backs the lease to its end, though a shorter ttl was asked for: else a node
/// that was repaired for the short one would count for the long one.
#[test]
fn h3_an_extension_for_less_still_backs_the_whole_lease() {
    let world = World::new(3);
    let guard = world.sim.block_on(world.manager().lock("r").ttl(60 * SECOND)).unwrap();
    world.catch_up();
    for node in &world.nodes[..2] {
        node.flush();
        world.sim.block_on(guard.extend_to(SECOND)).unwrap();
        world.sim.advance(MS);
    }
    world.sim.advance(50 * SECOND);
    assert!(guard.is_valid());
    assert_eq!(world.holders("r"), 3);
    assert!(world.sim.block_on(world.manager().lock("r").no_wait()).is_err());
}

/// A ttl for which the node timeout of the manager leaves no interval.
#[test]
fn h7_a_lease_that_is_short_for_its_manager_is_not_renewed_all_the_time() {
    let world = World::new(3);
    let manager = world.builder().node_timeout(4 * SECOND).build().unwrap();
    let guard = world.sim.block_on(manager.lock("r").ttl(SECOND)).unwrap();
    guard.auto_renew();
    world.sim.advance(10 * SECOND);
    assert!(guard.is_valid());
    let renewals = world.log.operations().iter().filter(|call| **call == "extend").count() / 3;
    assert!(renewals <= 150, "{renewals} in ten seconds");
}

/// One node at a time loses its data, all five in turn.
#[test]
fn h3_a_lease_of_an_hour_outlives_rolling_restarts() {
    let (world, guard) = World::new(5).held();
    guard.auto_renew();
    for (restarts, node) in world.nodes.iter().cycle().take(514).enumerate() {
        // Two renewals at least.
        world.sim.advance(7 * SECOND);
        assert!(guard.is_valid(), "after {restarts} restarts");
        node.restart();
    }
    drop(guard);
    world.catch_up();
    assert_eq!(world.keys_left(), 0, "nothing of it stays");
}

/// Acquired at the same instant, ten thousand leases are renewed at different times.
#[test]
fn h7_ten_thousand_leases_do_not_renew_at_once() {
    const LEASES: usize = 10_000;
    let sim = Sim::new(7);
    let extended: Arc<Mutex<Vec<Duration>>> = Arc::default();
    let (clock, seen) = (sim.clone(), Arc::clone(&extended));
    let first = Odd::new(&MemoryNode::new("first", sim.clone())).noting(move |method| {
        if method == "extend" {
            seen.lock().unwrap().push(clock.elapsed());
        }
    });
    let mut nodes: Vec<Arc<dyn LockBackend>> = vec![Arc::new(first)];
    for node in MemoryNode::cluster(2, sim.clone()) {
        nodes.push(Arc::new(node));
    }
    let every = 3 * SECOND;
    let manager =
        LockManager::builder(nodes).runtime(sim.clone()).renew_interval(every).build().unwrap();
    let guards: Arc<Mutex<Vec<LockGuard>>> = Arc::default();
    for lease in 0..LEASES {
        let (manager, guards) = (manager.clone(), Arc::clone(&guards));
        sim.spawn(Box::pin(async move {
            let guard = manager.lock(format!("r{lease}")).no_wait().await.unwrap();
            guard.auto_renew();
            guards.lock().unwrap().push(guard);
        }));
    }
    sim.advance(6 * every);
    assert_eq!(guards.lock().unwrap().iter().filter(|guard| guard.is_valid()).count(), LEASES);

    let times = extended.lock().unwrap().clone();
    // The first renewals: one of each lease, in the last three tenths of the interval.
    let first = &times[..LEASES];
    assert!(first[0] >= every * 7 / 10 && first[0] < every * 71 / 100, "{:?}", first[0]);
    assert!(first[LEASES - 1] > every * 99 / 100 && first[LEASES - 1] <= every);
    assert!(times[LEASES] >= every * 14 / 10, "a second one comes later: {:?}", times[LEASES]);
    let even = LEASES as u128 / (every * 3 / 10).as_millis();
    assert!(
        peak(first, Duration::ZERO, every) <= 3 * even,
        "{}",
        peak(first, Duration::ZERO, every)
    );

    // Later ones: a renewal every 0.85 of the interval, evenly spread.
    let even = LEASES as u128 / (every * 85 / 100).as_millis();
    for (period, most) in [(1, 8), (2, 8), (3, 7), (4, 6), (5, 6)] {
        let peak = peak(&times, every * period, every * (period + 1));
        assert!(peak <= most * even, "{peak} in a millisecond of period {period}, {even} if even");
    }
}

/// The most in any one millisecond from a moment up to another.
fn peak(times: &[Duration], from: Duration, to: Duration) -> u128 {
    let mut buckets: BTreeMap<u128, u128> = BTreeMap::new();
    for time in times.iter().filter(|time| **time >= from && **time < to) {
        *buckets.entry(time.as_millis()).or_default() += 1;
    }
    buckets.into_values().max().unwrap_or(0)
}

#[test]
fn a_second_auto_renew_changes_nothing() {
    let (mut renewed, ttl) = (Vec::new(), 10 * SECOND);
    for times in [1, 2] {
        let (world, guard) = World::new(3).held();
        (0..times).for_each(|_| guard.auto_renew());
        world.sim.advance(10 * ttl);
        renewed.push(world.log.operations().iter().filter(|done| **done == "extend").count());
        assert!(guard.is_valid());
    }
    assert_eq!(renewed[0], renewed[1], "the same seed, the same moments");
}

/// On slow nodes 1,024 rounds at a time are fewer than five thousand leases need.
#[test]
fn h7_a_renewal_in_the_last_third_of_its_lease_does_not_wait_for_others() {
    let world = World::new(3);
    let builder =
        world.builder().ttl(30 * SECOND).node_timeout(12 * SECOND).wait_timeout(60 * SECOND);
    let manager = builder.build().unwrap();
    let guards: Arc<Mutex<Vec<LockGuard>>> = Arc::default();
    for lease in 0..5_000 {
        let (request, guards) =
            (manager.lock(format!("r:{lease}")).auto_renew(), Arc::clone(&guards));
        world.sim.spawn(Box::pin(async move {
            let guard = request.await.unwrap();
            guards.lock().unwrap().push(guard);
        }));
    }
    world.sim.advance(SECOND);
    assert_eq!(guards.lock().unwrap().len(), 5_000);
    let way = 4 * SECOND;
    for node in &world.nodes {
        node.add_rule(Rule::new(Effect::Delay { least: way, most: way }));
    }
    world.sim.advance(100 * SECOND);
    let lost = guards.lock().unwrap().iter().filter(|guard| !guard.is_valid()).count();
    assert_eq!(lost, 0);
}
