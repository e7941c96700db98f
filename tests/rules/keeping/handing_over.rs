//! Locks that another process goes on with.

use super::*;

#[test]
fn a_lock_is_handed_over_and_measured_anew() {
    let world = World::new(5);
    let (giver, taker) = (world.manager(), world.manager());
    let guard = world.sim.block_on(giver.lock(["a", "b"])).unwrap();
    guard.keep_alive();
    let lease = guard.lease();
    world.sim.advance(2 * SECOND);
    let text = guard.hand_over().encode();
    assert!(!lease.is_valid());
    assert!(matches!(world.sim.block_on(lease.lost()), Lost::HandedOver));
    assert_eq!(world.holders("a"), 5, "nothing is released");

    world.sim.advance(5 * SECOND);
    let record = HandOver::decode(&text).unwrap();
    let adopted = world.sim.block_on(taker.adopt(&record)).unwrap();
    assert_eq!(adopted.remaining(), 9898 * MS, "from now, by an extension");
    assert_eq!(adopted.keys().len(), 2);
    assert!(world.sim.block_on(giver.try_lock("a")).is_err());
    assert_eq!(world.sim.block_on(adopted.release()).unwrap(), Released::Held);
    world.catch_up();
    assert_eq!(world.keys_left(), 0);
}

#[test]
fn adopting_what_is_over_is_a_typed_error() {
    let world = World::new(3);
    let (giver, taker) = (world.manager(), world.manager());
    let record = world.sim.block_on(giver.lock("r")).unwrap().hand_over();
    world.sim.advance(11 * SECOND);
    let failed = world.sim.block_on(taker.adopt(&record));
    assert!(matches!(failed, Err(AdoptError::NotHeld { .. })), "{failed:?}");
    assert_eq!(world.keys_left(), 0, "nothing came back");

    hang(&world, 2);
    let failed = world.sim.block_on(taker.adopt(&record));
    assert!(matches!(failed, Err(AdoptError::NoQuorum { .. })), "{failed:?}");
}

#[test]
fn a_record_that_could_not_be_adopted_can_be_tried_again() {
    let world = World::new(3);
    let manager = world.manager();
    let record = world.sim.block_on(manager.lock("r")).unwrap().hand_over();
    hang(&world, 2);
    assert!(world.sim.block_on(manager.adopt(&record)).is_err());
    heal(&world);
    let guard = world.sim.block_on(manager.adopt(&record)).unwrap();
    assert!(guard.is_valid());
}

#[test]
fn a_closed_manager_adopts_nothing() {
    let world = World::new(3);
    let (giver, taker) = (world.manager(), world.manager());
    let record = world.sim.block_on(giver.lock("r")).unwrap().hand_over();
    world.sim.block_on(taker.close(SECOND));
    let before = world.log.calls().len();
    let failed = world.sim.block_on(taker.adopt(&record));
    assert!(matches!(failed, Err(AdoptError::Closed)), "{failed:?}");
    assert_eq!(world.log.calls().len(), before, "nothing was sent");
    assert!(world.sim.block_on(giver.adopt(&record)).unwrap().is_valid(), "others can");
}

#[test]
fn h4_a_lock_is_not_adopted_for_no_time_and_the_record_goes_on() {
    let world = World::new(3);
    let record =
        world.sim.block_on(world.manager().lock("r").ttl(60 * SECOND)).unwrap().hand_over();
    let short = world.builder().ttl(SECOND).hold_limit(150 * MS).build().unwrap();
    let refused = world.sim.block_on(short.adopt(&record));
    assert!(matches!(refused, Err(AdoptError::HoldLimit { .. })), "{refused:?}");
    assert!(world.sim.block_on(world.manager().adopt(&record)).is_ok());
}
