//! Locks that one process detaches and another adopts.

use quorate_core::{AdoptError, DetachedLock, LeaseEnd, LockError, ReleaseError};
use quorate_memory::Fault;

use crate::world::{MS, SECOND, World, spawned};

#[test]
fn a_lock_is_detached_and_its_validity_counts_from_the_adoption() {
    let world = World::new(5);
    let (giver, taker) = (world.manager(), world.manager());
    let guard = world.run(giver.lock(["a", "b"])).unwrap();
    guard.auto_renew();
    let lease = guard.lease();
    world.advance(2 * SECOND);
    let text = guard.detach().unwrap().encode();
    assert!(!lease.is_valid());
    assert!(matches!(world.run(lease.lost()), LeaseEnd::Detached(_)));
    assert_eq!(world.holders("a"), 5, "nothing is released");

    world.advance(5 * SECOND);
    let record: DetachedLock = text.parse().unwrap();
    let adopted = world.run(taker.adopt(&record)).unwrap();
    assert_eq!(adopted.remaining(), 9398 * MS, "from now, by an extension");
    assert_eq!(adopted.keys().len(), 2);
    assert!(world.run(giver.lock("a").no_wait()).is_err());
    world.run(adopted.release()).unwrap();
    world.catch_up();
    assert_eq!(world.keys_left(), 0);
}

#[test]
fn a_lease_that_has_ended_is_not_detached_and_the_error_says_why() {
    let (world, guard) = World::new(3).held();
    world.advance(10 * SECOND);
    let failed = guard.detach();
    assert!(matches!(failed, Err(LeaseEnd::Expired { .. })), "{failed:?}");
    world.catch_up();
    assert_eq!(world.keys_left(), 0, "the guard releases");
}

/// In one round, and later on the nodes that were away.
#[test]
fn a_record_is_released_without_an_adoption() {
    let world = World::new(3);
    let (record, taker) = (world.detached(), world.manager());
    world.catch_up();
    world.inject(2.., Fault::Hung);
    world.run(taker.release(&record)).unwrap();
    assert_eq!(world.keys_left(), 1);
    world.heal();
    world.catch_up();
    assert_eq!(world.keys_left(), 0);
    let gone = world.run(taker.release(&record));
    assert!(matches!(gone, Err(ReleaseError::Lost(LeaseEnd::NotHeld(_)))), "{gone:?}");

    let record = world.detached();
    world.inject(1.., Fault::Hung);
    let unknown = world.run(taker.release(&record));
    assert!(matches!(unknown, Err(ReleaseError::Unconfirmed(_))), "{unknown:?}");
    let _ = world.run(taker.close(SECOND));
    let closed = world.run(taker.release(&record));
    assert!(matches!(closed, Err(ReleaseError::Lost(LeaseEnd::Closed(_)))), "{closed:?}");
}

#[test]
fn a_closed_manager_adopts_nothing() {
    let world = World::new(3);
    let (record, taker) = (world.detached(), world.manager());
    assert!(world.run(taker.close(SECOND)).is_clean());
    let before = world.log.calls().len();
    let failed = world.run(taker.adopt(&record));
    assert!(matches!(failed, Err(AdoptError::Lock(LockError::Closed(_)))), "{failed:?}");
    assert_eq!(world.log.calls().len(), before, "nothing was sent");
    assert!(world.run(world.manager().adopt(&record)).unwrap().is_valid(), "others can");
}

/// This process does not learn of the release of a lock that it detached. So no task here waits for that.
#[test]
fn a_detached_lock_is_in_no_ones_way_in_its_first_process() {
    for waits_before in [false, true] {
        let world = World::new(3);
        let (giver, taker) = (world.manager(), world.manager());
        let guard = world.lock(&giver);
        let _lease = guard.lease();
        let waits = || {
            let (request, sim) = (giver.lock("r"), world.sim.clone());
            let had = spawned(&world.sim, async move {
                let _guard = request.await.unwrap();
                sim.elapsed()
            });
            world.catch_up();
            had
        };
        let before = waits_before.then(waits);
        let record = guard.detach().unwrap();
        let adopted = world.run(taker.adopt(&record)).unwrap();
        world.run(adopted.release()).unwrap();
        let free = world.sim.elapsed();
        let had = before.unwrap_or_else(waits);
        world.advance(SECOND);
        let waited = had.lock().unwrap().map(|had| had - free);
        assert!(waited.is_some_and(|waited| waited < 50 * MS), "{waited:?}");
    }
}

/// A manager with other nodes does not know whether the lock is held.
#[test]
fn an_adopted_lock_survives_an_adoption_over_other_nodes() {
    let world = World::new(6);
    let over = |which: &[usize]| world.over(which.iter().map(|at| world.nodes[*at].clone()));
    let record = world.lock(&over(&[0, 1, 2])).detach().unwrap();
    let guard = world.run(over(&[0, 1, 2]).adopt(&record)).unwrap();
    let failed = world.run(over(&[0, 1, 3, 4, 5]).adopt(&record));
    assert!(matches!(failed, Err(AdoptError::Lost(_))), "{failed:?}");
    world.advance(5 * SECOND);
    assert!(guard.is_valid());
    let other = world.try_lock(&over(&[0, 1, 2]));
    assert!(other.is_err(), "two hold it: {other:?}");
}

/// In the middle of its round, whose replies come later.
#[test]
fn an_adoption_that_is_dropped_leaves_the_lock_to_the_next_adopter() {
    for world in World::KINDS {
        let world = world(3);
        let (record, taker) = (world.detached(), world.manager());
        world.inject(.., Fault::Late(100 * MS));
        assert!(world.sim.block_on_for(taker.adopt(&record), 1).is_none());
        // Longer than the safety margin.
        world.advance(5 * SECOND);
        assert_eq!(world.holders("r"), 3);
        let guard = world.run(world.manager().adopt(&record)).unwrap();
        world.advance(7 * SECOND);
        assert!(guard.is_valid() && world.holders("r") == 3);
    }
}
