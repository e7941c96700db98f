//! A manager that closes. That its nodes are clean then is rule C8, in `cleanup/undo.rs`.

use std::future::IntoFuture;

use futures_util::FutureExt;
use futures_util::future::join;
use quorate_core::{ExtendError, LeaseEnd, LockError, LockManager, ReleaseError};
use quorate_memory::Fault;

use crate::world::{HOUR, MARGIN, MS, SECOND, World, spawned};

/// A manager that waits long between two rounds.
fn patient(world: &World) -> LockManager {
    world.builder().backoff(HOUR, HOUR).build().unwrap()
}

#[test]
fn close_releases_what_is_held_and_ends_every_wait() {
    let world = World::new(3);
    let manager = patient(&world);
    let kept = world.run(manager.lock("kept")).unwrap();
    kept.auto_renew();
    let held = world.run(manager.lock("held")).unwrap();
    std::mem::forget(world.run(manager.lock("forgotten")).unwrap());
    let lost = kept.lost();
    let close = async {
        world.sim.sleep(SECOND).await;
        let report = manager.close(5 * SECOND).await;
        (report.is_clean(), world.sim.elapsed(), world.keys_left())
    };
    let waits = manager.lock("held").into_future();
    let (waited, (is_clean, elapsed, left)) = world.run(join(waits, close));
    assert!(matches!(waited, Err(LockError::Closed(_))), "{waited:?}");
    assert!(is_clean);
    assert_eq!(elapsed, SECOND + MARGIN, "the work has the safety margin to stop");
    assert_eq!(left, 0, "when close returns");
    assert!(matches!(world.run(lost), LeaseEnd::Closed(_)));
    assert!(!held.is_valid());
    assert!(matches!(world.run(held.extend()), Err(ExtendError::Lost(LeaseEnd::Closed(_)))));
    let released = world.run(held.release());
    assert!(matches!(released, Err(ReleaseError::Lost(LeaseEnd::Closed(_)))), "{released:?}");
    drop(kept);
    for request in [manager.lock("r"), manager.clone().lock("r").no_wait()] {
        assert!(matches!(world.run(request), Err(LockError::Closed(_))));
    }
    assert!(world.run(manager.close(SECOND)).is_clean(), "twice does no harm");
    world.advance(HOUR);
    assert_eq!(world.keys_left(), 0);
}

#[test]
fn a_second_close_does_not_put_off_the_first() {
    let (world, manager) = World::complete(3).and_manager();
    let _guard = world.lock(&manager);
    let again = async {
        world.sim.sleep(100 * MS).await;
        let refused = manager.lock("r").no_wait().await;
        assert!(matches!(refused, Err(LockError::Closed(_))), "of a lock that it has: {refused:?}");
        manager.close(60 * SECOND).await.is_clean()
    };
    let first = async {
        let report = manager.close(400 * MS).await;
        (report.is_clean(), world.sim.elapsed(), world.keys_left())
    };
    let (first, again) = world.run(join(first, again));
    assert_eq!(first, (true, 200 * MS, 0), "released after half of the limit");
    assert!(again);
}

#[test]
fn close_waits_for_a_release_in_flight() {
    let (world, manager) = World::new(3).and_manager();
    world.inject(.., Fault::Slow(100 * MS));
    let mut release = Box::pin(world.lock(&manager).release());
    assert!(world.sim.block_on_for(release.as_mut(), 1).is_none());
    let close = async { (manager.close(5 * SECOND).await.is_clean(), world.keys_left()) };
    let (_, left) = world.run(join(release, close));
    assert_eq!(left, (true, 0), "when close returns");
}

/// Guards that go are not waited for, guards that stay are held until the limit, and a request that waits ends at once.
/// It has a task of its own, which nothing else wakes.
#[test]
fn a_drain_ends_waits_at_once_and_lets_leases_live_until_their_guards_go() {
    let world = World::new(3);
    let manager = patient(&world);
    let [short, long, stays] =
        ["short", "long", "stays"].map(|name| world.run(manager.lock(name).auto_renew()).unwrap());
    let (request, sim) = (manager.lock("long").into_future(), world.sim.clone());
    let waits = spawned(&world.sim, request.map(move |waited| (waited, sim.elapsed())));
    world.catch_up();
    let begun = world.sim.elapsed();
    let work = async {
        short.draining().await;
        long.draining().await;
        assert_eq!(world.sim.elapsed(), begun, "they are told at once");
        short.release().await.unwrap();
        world.sim.sleep(30 * SECOND).await;
        assert!(long.is_valid() && stays.is_valid(), "they are renewed");
        assert!(matches!(manager.lock("new").await, Err(LockError::Closed(_))));
        long.release().await.unwrap();
        let end = stays.lost().await;
        (end, world.sim.elapsed() - begun)
    };
    let drain = async { (manager.drain(60 * SECOND).await, world.sim.elapsed() - begun) };
    let ((end, ended), (report, took)) = world.run(join(work, drain));
    let (waited, at) = waits.lock().unwrap().take().expect("it ends");
    assert!(matches!(waited, Err(LockError::Closed(_))) && at == begun, "{waited:?}");
    assert!(matches!(end, LeaseEnd::Closed(_)) && ended == 60 * SECOND, "{end}: {ended:?}");
    assert!(report.is_clean() && took == 60 * SECOND + MARGIN, "{report}: {took:?}");
    assert_eq!(world.keys_left(), 0);
}

#[test]
fn a_drain_that_is_dropped_goes_on_with_a_second_one() {
    let world = World::new(3);
    let manager = patient(&world);
    let guard = world.run(manager.lock("r")).unwrap();
    guard.auto_renew();
    assert!(world.sim.block_on_for(manager.drain(HOUR), 3).is_none());
    assert!(matches!(world.run(manager.lock("new")), Err(LockError::Closed(_))));
    world.advance(60 * SECOND);
    assert!(guard.is_valid() && guard.draining().now_or_never().is_some());
    let lease = guard.lease();
    let release = async { guard.release().await.unwrap() };
    let (report, ()) = world.run(join(manager.drain(HOUR), release));
    assert!(report.is_clean() && !lease.is_valid());
    assert!(world.sim.elapsed() < 61 * SECOND, "nothing else is waited for");
}

/// Also of a manager that holds nothing, and of each clone.
#[test]
fn a_manager_says_when_it_is_drained_or_closed() {
    for drains in [true, false] {
        let (world, manager) = World::new(3).and_manager();
        let draining = manager.draining().map(|()| world.sim.elapsed());
        assert!(manager.draining().now_or_never().is_none());
        let end = async {
            world.sim.sleep(SECOND).await;
            let other = manager.clone();
            let _ = match drains {
                true => other.drain(HOUR).await,
                false => other.close(HOUR).await,
            };
        };
        let (at, ()) = world.run(join(draining, end));
        assert_eq!(at, SECOND);
        assert!(manager.draining().now_or_never().is_some());
    }
}
