//! H7: when leases are renewed, and for how long.

use std::time::Duration;

use quorate_core::error::InvalidRequest;
use quorate_core::{LeaseEnd, LockError, LockGuard, Runtime};
use quorate_memory::Fault;

use crate::world::{HOUR, MS, SECOND, World, slow};

#[test]
fn h7_a_hold_limit_ends_the_lease_however_often_it_is_extended() {
    let (world, manager) = World::new(3).and_manager();
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
fn h7_five_thousand_leases_are_renewed_on_slow_nodes() {
    let world = World::new(3);
    let builder =
        world.builder().ttl(30 * SECOND).node_timeout(12 * SECOND).wait_timeout(60 * SECOND);
    let manager = builder.build().unwrap();
    let hold = |lease| world.run(manager.lock(format!("r:{lease}")).auto_renew()).unwrap();
    let leases: Vec<LockGuard> = (0..5_000).map(hold).collect();
    world.add_rule(.., slow(4 * SECOND));
    world.advance(100 * SECOND);
    assert!(leases.iter().all(|guard| guard.is_valid()));
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
