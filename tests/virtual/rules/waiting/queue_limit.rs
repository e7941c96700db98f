//! How many tasks of a manager may be queued for one key.

use quorate_core::{LockError, LockManager, Runtime};

use crate::telling::{of, told};
use crate::world::{SECOND, Waits, World};

fn limited(world: World, most: usize) -> (World, LockManager) {
    let manager = world.builder().max_waiters(most).build().unwrap();
    (world, manager)
}

/// The key and the limit that the error of a request names.
fn refused(world: &World, waits: Waits) -> (String, usize) {
    match world.run(waits) {
        Err(LockError::TooManyWaiters { key, most }) => (key.to_string(), most),
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_waiter_too_many_fails_at_once_and_sends_nothing() {
    for new in World::KINDS {
        for most in [0, 1, 3] {
            let (world, manager) = limited(new(3), most);
            let guard = world.lock(&manager);
            let queued: Vec<Waits> = (0..most).map(|_| world.begun(manager.lock("r"))).collect();
            let (start, sent) = (world.sim.now(), world.log.count("acquire"));
            for request in [manager.lock("r"), manager.lock("r").wait_forever()] {
                let refuses = || refused(&world, request.into_future());
                let told = told(|| assert_eq!(refuses(), ("r".to_owned(), most)));
                assert_eq!(of("not acquired", &told)[0].field("reason"), "too_many_waiters");
            }
            assert_eq!((world.sim.now(), world.log.count("acquire")), (start, sent));
            // The queue is as it was: each of its tasks gets the lock.
            drop(guard);
            for waits in queued {
                drop(world.run(waits).unwrap());
            }
            assert!(world.run(manager.lock("r")).is_ok(), "the queue is empty again");
        }
    }
}

#[test]
fn a_waiter_that_goes_away_makes_room_and_other_keys_have_room() {
    let (world, manager) = limited(World::complete(3), 1);
    let (_r, s) = (world.lock(&manager), world.run(manager.lock("s")).unwrap());
    let queued = world.begun(manager.lock("r"));
    let other = world.begun(manager.lock("s"));
    // Behind the queue of one of its keys, and the ticket of the first is given on.
    let both = manager.lock(["q", "r"]).into_future();
    assert_eq!(refused(&world, both), ("r".to_owned(), 1));
    drop(world.run(manager.lock("q").no_wait()).unwrap());
    drop(queued);
    let _queued = world.begun(manager.lock("r"));
    drop(s);
    drop(world.run(other).unwrap());
}

/// The tasks that want one of several names queue in one place, whose key no user knows.
#[test]
fn one_too_many_for_one_of_several_names_is_told_a_name() {
    let (world, manager) = limited(World::complete(3), 0);
    let held = ["q", "r"].map(|name| world.run(manager.lock(name)).unwrap());
    let first = world.begun(manager.lock_any(["q", "r"]));
    let (name, most) = refused(&world, manager.lock_any(["r", "q"]).into_future());
    assert!(["q", "r"].contains(&&*name) && most == 0, "{name}");
    drop(held);
    drop(world.run(first).unwrap());
}

/// A release is no holder, and a request that waits for none is never queued behind one.
#[test]
fn a_request_that_waits_for_no_holder_is_not_one_too_many() {
    let (world, manager) = limited(World::new(3), 0);
    let guard = world.lock(&manager);
    assert!(world.run(manager.try_lock("r")).unwrap().is_none());
    drop(guard);
    assert!(world.run(manager.try_lock("r")).unwrap().is_some(), "the release was waited for");
    world.advance(SECOND);
    assert!(world.run(manager.lock("r")).is_ok());
}

/// Another process holds the lock, and the task in front of the queue competes for it.
/// Readers take no turn in the manager: each of them competes at the nodes.
#[test]
fn a_reader_that_waits_is_not_one_too_many() {
    let (world, manager) = limited(World::complete(3), 0);
    let guard = world.lock(&manager);
    let waiting: Vec<Waits> = (0..3).map(|_| world.begun(manager.read("r"))).collect();
    world.advance(SECOND);
    drop(guard);
    let reading: Vec<_> = waiting.into_iter().map(|waits| world.run(waits).unwrap()).collect();
    assert!(reading.iter().all(|guard| guard.is_valid()));
}
