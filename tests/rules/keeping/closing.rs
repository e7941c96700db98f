//! A manager that closes.

use super::*;

#[test]
fn close_releases_what_is_held_and_ends_who_waits() {
    let world = World::new(3);
    let manager = world.manager();
    let kept = world.sim.block_on(manager.lock("kept")).unwrap();
    kept.auto_renew();
    let held = world.sim.block_on(manager.lock("held")).unwrap();
    std::mem::forget(world.sim.block_on(manager.lock("forgotten")).unwrap());
    let lost = kept.lost();
    let waits = manager.lock("held").retry(Patient);
    let close = async {
        world.sim.sleep_until(world.sim.now() + SECOND).await;
        manager.close(5 * SECOND).await
    };
    let (waited, left) = world.sim.block_on(join(waits.into_future(), close));
    assert!(matches!(waited, Err(LockError::Closed)), "{waited:?}");
    assert_eq!(left, 0);
    assert_eq!(world.sim.elapsed(), SECOND + MARGIN, "the forgotten one has its margin");
    assert_eq!(world.keys_left(), 0, "at the moment that close returns");
    assert!(matches!(world.sim.block_on(lost), Lost::Closed));
    assert!(!held.is_valid());
    assert!(matches!(world.sim.block_on(held.extend()), Err(ExtendError::Ended(Lost::Closed))));
    assert_eq!(world.sim.block_on(held.release()).unwrap(), Released::Unsure);
    drop(kept);
    for failed in [
        world.sim.block_on(manager.lock("r")).unwrap_err(),
        world.sim.block_on(manager.clone().lock("r").no_wait()).unwrap_err(),
    ] {
        assert!(matches!(failed, LockError::Closed));
    }
    assert_eq!(world.sim.block_on(manager.close(SECOND)), 0, "twice is no harm");
    world.sim.advance(HOUR);
    assert_eq!(world.keys_left(), 0);
}

#[test]
fn close_ends_who_waits_for_another_process_at_once() {
    let world = World::new(3);
    let _held = world.sim.block_on(world.manager().lock("r").ttl(HOUR)).unwrap();
    let manager = world.manager();
    let waits = manager.lock("r").retry(Patient).into_future();
    let waits = waits.map(|waited| (waited, world.sim.elapsed()));
    let close = async {
        world.sim.sleep_until(world.sim.now() + SECOND).await;
        manager.close(5 * SECOND).await
    };
    let ((waited, at), left) = world.sim.block_on(join(waits, close));
    assert!(matches!(waited, Err(LockError::Closed)), "{waited:?}");
    assert_eq!((at, left), (SECOND, 0));
}

/// The manager closes while the nodes are asked, and not while there is a pause.
#[test]
fn close_ends_who_is_refused_after_it_at_once() {
    let world = World::new(3);
    let _held = world.sim.block_on(world.manager().lock("r").ttl(HOUR)).unwrap();
    for node in &world.nodes {
        node.inject(Fault::Late(100 * MS));
    }
    let manager = world.manager();
    let waits = manager.lock("r").retry(Patient).into_future();
    let waits = waits.map(|waited| (waited, world.sim.elapsed()));
    let close = async {
        world.sim.sleep_until(world.sim.now() + 50 * MS).await;
        manager.close(60 * SECOND).await
    };
    let ((waited, at), left) = world.sim.block_on(join(waits, close));
    assert!(matches!(waited, Err(LockError::Closed)), "{waited:?}");
    assert!(at <= 200 * MS, "after {at:?}");
    assert_eq!(left, 0);
}

/// H4: as with any other loss.
#[test]
fn h4_work_under_a_lock_has_the_margin_to_stop_when_the_manager_closes() {
    for (work, bound, freed) in [
        (100 * MS, 5 * SECOND, 100 * MS),
        (2 * SECOND, 5 * SECOND, MARGIN),
        (2 * SECOND, 400 * MS, 200 * MS),
    ] {
        let world = World::new(3);
        let (manager, other, sim) = (world.manager(), world.manager(), world.sim.clone());
        let guard = world.sim.block_on(manager.lock("r")).unwrap();
        let lost = guard.lost();
        let worker = async {
            assert!(matches!(lost.await, Lost::Closed));
            assert!(sim.elapsed().is_zero(), "it is told at once");
            assert!(!guard.is_valid());
            sim.sleep_until(sim.now() + work).await;
            drop(guard);
        };
        let next = async {
            let guard = other.lock("r").await.unwrap();
            let at = sim.elapsed();
            let _ = guard.release().await.unwrap();
            at
        };
        let closes = async { (manager.close(bound).await, sim.elapsed()) };
        let ((), at, (left, closed)) = world.sim.block_on(join3(worker, next, closes));
        assert_eq!((left, closed), (0, freed), "{work:?}, {bound:?}");
        assert!(at >= freed, "another had it after {at:?}, not {freed:?}");
    }
}

#[test]
fn who_closes_again_does_not_put_off_what_was_closed() {
    let world = World::new(3);
    let manager = world.manager();
    let guard = world.sim.block_on(manager.lock("r")).unwrap();
    let again = async {
        world.sim.sleep_until(world.sim.now() + 100 * MS).await;
        manager.close(60 * SECOND).await
    };
    let first = async { (manager.close(400 * MS).await, world.keys_left()) };
    let (first, again) = world.sim.block_on(join(first, again));
    assert_eq!((first.1, again), (0, 0), "released after half of the bound");
    drop(guard);
}

#[test]
fn who_closes_again_is_told_of_nothing_that_is_done() {
    let world = World::new(3);
    let manager = world.manager();
    let guard = world.sim.block_on(manager.lock("r")).unwrap();
    assert_eq!(world.sim.block_on(manager.close(5 * SECOND)), 0);
    assert_eq!(world.keys_left(), 0);
    assert_eq!(world.sim.block_on(manager.settle(Duration::ZERO)), 0);
    assert_eq!(world.sim.block_on(manager.close(Duration::ZERO)), 0, "its guard is still about");
    drop(guard);
}

#[test]
fn a_release_in_time_after_close_tells_that_the_lock_was_held() {
    let world = World::new(3);
    let manager = world.manager();
    let guard = world.sim.block_on(manager.lock("r")).unwrap();
    let release = async {
        assert!(matches!(guard.lost().await, Lost::Closed));
        guard.release().await.unwrap()
    };
    let (released, left) = world.sim.block_on(join(release, manager.close(SECOND)));
    assert_eq!((released, left, world.keys_left()), (Released::Held, 0, 0));
}

#[test]
fn close_waits_for_a_release_that_is_under_way() {
    let world = World::new(3);
    for node in &world.nodes {
        node.inject(Fault::Slow(100 * MS));
    }
    let manager = world.manager();
    let guard = world.sim.block_on(manager.lock("r")).unwrap();
    let mut release = Box::pin(guard.release());
    assert!(world.sim.block_on_for(release.as_mut(), 1).is_none());
    let close = async { (manager.close(5 * SECOND).await, world.keys_left()) };
    let (_, left) = world.sim.block_on(join(release, close));
    assert_eq!(left, (0, 0), "at the moment that close returns");
}

#[test]
fn close_keeps_to_its_bound_and_goes_on_in_the_background() {
    let world = World::new(3);
    let manager = world.manager();
    let _guard = world.sim.block_on(manager.lock("r")).unwrap();
    hang(&world, 3);
    let start = world.sim.elapsed();
    assert_eq!(world.sim.block_on(manager.close(2 * SECOND)), 1);
    assert_eq!(world.sim.elapsed() - start, 2 * SECOND);
    heal(&world);
    world.catch_up();
    assert_eq!(world.keys_left(), 0);
}

/// A round that is open while the manager closes wins nothing.
#[test]
fn close_leaves_no_lock_that_was_just_being_taken() {
    for (polls, tries) in (0..8).flat_map(|polls| [(polls, false), (polls, true)]) {
        let world = World::new(3);
        for node in &world.nodes {
            node.inject(Fault::Late(100 * MS));
        }
        let manager = world.manager();
        let mut taking = match tries {
            true => manager.lock("r").no_wait().into_future().boxed(),
            false => manager.lock("r").into_future().boxed(),
        };
        for _ in 0..polls {
            let _ = world.sim.block_on_for(taking.as_mut(), 1);
        }
        let close = async { (manager.close(5 * SECOND).await, world.keys_left()) };
        let (taken, left) = world.sim.block_on(join(taking, close));
        assert_eq!(left, (0, 0), "at the moment that close returns");
        assert!(taken.is_ok() || matches!(taken, Err(LockError::Closed)));
        assert!(taken.is_err() || !taken.as_ref().unwrap().is_valid());
        drop(taken);
        world.sim.advance(SECOND);
        assert_eq!(world.keys_left(), 0, "after {polls} polls");
    }
}

#[test]
fn c7_a_lease_that_ran_out_is_told_as_lost_after_close_too() {
    let world = World::new(3);
    let manager = world.manager();
    let guard = world.sim.block_on(manager.lock("r")).unwrap();
    world.sim.advance(9_850 * MS);
    assert!(world.sim.block_on_for(manager.close(SECOND), 1).is_none());
    world.sim.advance(60 * MS);
    assert_eq!(world.holders("r"), 3, "the nodes still have it");
    assert_eq!(world.sim.block_on(guard.release()).unwrap(), Released::Lost);
}
