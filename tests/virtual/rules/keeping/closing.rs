//! A manager that closes.

use std::sync::Mutex;

use quorate_memory::{MemoryNode, Sim};
use quorate_protocol::error_of_reply;

use super::*;
use crate::backends::Odd;

#[test]
fn close_releases_what_is_held_and_ends_every_wait() {
    let world = World::new(3);
    let manager = patient(&world);
    let kept = world.sim.block_on(manager.lock("kept")).unwrap();
    kept.auto_renew();
    let held = world.sim.block_on(manager.lock("held")).unwrap();
    std::mem::forget(world.sim.block_on(manager.lock("forgotten")).unwrap());
    let lost = kept.lost();
    let close = async {
        world.sim.sleep_until(world.sim.now() + SECOND).await;
        let report = manager.close(5 * SECOND).await;
        (report.is_clean(), world.sim.elapsed(), world.keys_left())
    };
    let waits = manager.lock("held").into_future();
    let (waited, (is_clean, elapsed, left)) = world.sim.block_on(join(waits, close));
    assert!(matches!(waited, Err(LockError::Closed)), "{waited:?}");
    assert!(is_clean);
    assert_eq!(elapsed, SECOND + MARGIN, "the work has the safety margin to stop");
    assert_eq!(left, 0, "when close returns");
    assert!(matches!(world.sim.block_on(lost), LeaseEnd::Closed));
    assert!(!held.is_valid());
    assert!(matches!(world.sim.block_on(held.extend()), Err(ExtendError::Lost(LeaseEnd::Closed))));
    let released = world.sim.block_on(held.release());
    assert!(matches!(released, Err(ReleaseError::Lost(LeaseEnd::Closed))), "{released:?}");
    drop(kept);
    for failed in [
        world.sim.block_on(manager.lock("r")).unwrap_err(),
        world.sim.block_on(manager.clone().lock("r").no_wait()).unwrap_err(),
    ] {
        assert!(matches!(failed, LockError::Closed));
    }
    assert!(world.sim.block_on(manager.close(SECOND)).is_clean(), "twice does no harm");
    world.sim.advance(HOUR);
    assert_eq!(world.keys_left(), 0);
}

/// In the delay between two rounds, and while a round is open.
#[test]
fn close_ends_a_request_between_rounds_and_in_mid_round() {
    for (late, closes, ends) in [(Duration::ZERO, SECOND, SECOND), (100 * MS, 50 * MS, 200 * MS)] {
        let world = World::new(3);
        let _held = world.sim.block_on(world.manager().lock("r").ttl(HOUR)).unwrap();
        world.inject(.., Fault::Late(late));
        let manager = patient(&world);
        let waits = manager.lock("r").into_future();
        let waits = waits.map(|waited| (waited, world.sim.elapsed()));
        let close = async {
            world.sim.sleep_until(world.sim.now() + closes).await;
            manager.close(60 * SECOND).await
        };
        let ((waited, at), report) = world.sim.block_on(join(waits, close));
        assert!(matches!(waited, Err(LockError::Closed)), "{waited:?}");
        assert!(at >= closes && at <= ends, "after {at:?}");
        assert!(report.is_clean(), "{report}");
    }
}

/// The next round of a waiter is due, and the waiter is polled only after the close.
#[test]
fn c8_a_closed_manager_sends_no_acquire() {
    let world = World::new(3);
    let _held = world.sim.block_on(world.manager().lock("r").ttl(HOUR)).unwrap();
    let manager = world.builder().build().unwrap();
    let mut waits = manager.lock("r").timeout(HOUR).into_future();
    let late = world.sim.block_on_for(&mut waits, 20);
    assert!(late.is_none(), "it waits for its next round");
    world.sim.advance(60 * SECOND);
    assert!(world.sim.block_on(manager.close(SECOND)).is_clean());
    let sent = world.log.operations().len();
    assert!(matches!(world.sim.block_on(waits), Err(LockError::Closed)));
    world.sim.advance(60 * SECOND);
    assert_eq!(world.log.operations()[sent..], [] as [&str; 0]);
}

/// H4: as with any other loss.
#[test]
fn h4_work_under_a_lock_has_the_margin_to_stop_when_the_manager_closes() {
    for (work, limit, freed, is_renewed) in [
        (100 * MS, 5 * SECOND, 100 * MS, false),
        (2 * SECOND, 5 * SECOND, MARGIN, false),
        (2 * SECOND, 5 * SECOND, MARGIN, true),
        (2 * SECOND, 400 * MS, 200 * MS, false),
    ] {
        let world = World::new(3);
        let (manager, other, sim) = (world.manager(), world.manager(), world.sim.clone());
        let guard = world.sim.block_on(manager.lock("r")).unwrap();
        if is_renewed {
            guard.auto_renew();
        }
        let lost = guard.lost();
        let worker = async {
            assert!(matches!(lost.await, LeaseEnd::Closed));
            assert!(sim.elapsed().is_zero(), "at once");
            assert!(!guard.is_valid());
            sim.sleep_until(sim.now() + work).await;
            drop(guard);
        };
        let next = async {
            let guard = other.lock("r").await.unwrap();
            let at = sim.elapsed();
            guard.release().await.unwrap();
            at
        };
        let closes = async { (manager.close(limit).await.is_clean(), sim.elapsed()) };
        let ((), at, closed) = world.sim.block_on(join3(worker, next, closes));
        assert_eq!(closed, (true, freed), "{work:?}, {limit:?}");
        assert!(at >= freed, "another had it after {at:?}, not {freed:?}");
    }
}

#[test]
fn a_second_close_does_not_put_off_the_first() {
    let world = World::new(3);
    let manager = world.manager();
    let guard = world.sim.block_on(manager.lock("r")).unwrap();
    let again = async {
        world.sim.sleep_until(world.sim.now() + 100 * MS).await;
        manager.close(60 * SECOND).await.is_clean()
    };
    let first = async {
        let report = manager.close(400 * MS).await;
        (report.is_clean(), world.sim.elapsed(), world.keys_left())
    };
    let (first, again) = world.sim.block_on(join(first, again));
    assert_eq!(first, (true, 200 * MS, 0), "released after half of the limit");
    assert!(again);
    drop(guard);
}

#[test]
fn close_waits_for_a_release_in_flight() {
    let world = World::new(3);
    world.inject(.., Fault::Slow(100 * MS));
    let manager = world.manager();
    let guard = world.sim.block_on(manager.lock("r")).unwrap();
    let mut release = Box::pin(guard.release());
    assert!(world.sim.block_on_for(release.as_mut(), 1).is_none());
    let close = async { (manager.close(5 * SECOND).await.is_clean(), world.keys_left()) };
    let (_, left) = world.sim.block_on(join(release, close));
    assert_eq!(left, (true, 0), "when close returns");
}

/// C8: every node that answers is clean, or the limit has passed.
#[test]
fn c8_close_keeps_to_its_limit_and_goes_on_in_the_background() {
    for (limit, expected, reason) in [
        (5 * SECOND, MARGIN + 500 * MS, "did not answer"),
        (300 * MS, 300 * MS, "was not clean in time"),
    ] {
        let world = World::new(3);
        let manager = world.manager();
        let _guard = world.sim.block_on(manager.lock("r")).unwrap();
        world.inject(..3, Fault::Hung);
        let report = world.sim.block_on(manager.close(limit));
        assert_eq!(world.sim.elapsed(), expected);
        assert_eq!(report.nodes().collect::<Vec<_>>(), ["memory-1", "memory-2", "memory-3"]);
        assert!(report.to_string().contains(&format!("; memory-2 {reason}")), "{report}");
        world.heal();
        world.catch_up();
        assert_eq!(world.keys_left(), 0);
    }
}

/// C8: a node that fails is named with its error, and not waited for.
#[test]
fn c8_close_names_a_node_whose_release_failed() {
    for fault in [Fault::Down, Fault::Failing(error_of_reply("READONLY a replica"))] {
        let world = World::new(3);
        let manager = world.manager();
        let guard = world.sim.block_on(manager.lock("r")).unwrap();
        world.nodes[1].inject(fault.clone());
        drop(guard);
        let report = world.sim.block_on(manager.close(5 * SECOND));
        assert_eq!(world.sim.elapsed(), Duration::ZERO, "{fault:?}");
        assert_eq!(report.nodes().collect::<Vec<_>>(), ["memory-2"]);
        assert!(report.to_string().starts_with("all released; memory-2 failed: "), "{report}");
        assert_eq!(world.keys_left(), 1);
    }
}

/// C8: the cleanup gave a call up, as after a stop longer than its bound. A key that the call may have set is named
/// until it cannot be there any more.
#[test]
fn c8_close_says_what_it_left() {
    let world = World::new(3);
    let manager = world.builder().ttl(20 * SECOND).cleanup_bound(2 * SECOND).build().unwrap();
    world.inject(..1, Fault::Hung);
    let guard = world.sim.block_on(manager.lock("r")).unwrap();
    world.sim.block_on(guard.release()).unwrap();
    world.sim.advance(10 * SECOND);
    let report = world.sim.block_on(manager.close(5 * SECOND));
    assert_eq!(report.nodes().collect::<Vec<_>>(), ["memory-1"]);
    let named = "all released; memory-1 may keep a key whose call was given up";
    assert_eq!(report.to_string(), named);
    world.sim.advance(20 * SECOND);
    let report = world.sim.block_on(manager.close(5 * SECOND));
    assert!(report.is_clean(), "{report}");
}

/// C8: a slow node is one that answers, and one whose release failed long ago has voted since.
#[test]
fn c8_close_waits_for_a_node_that_answers_slowly() {
    for has_failed in [false, true] {
        let world = World::new(3);
        let manager = world.manager();
        if has_failed {
            let guard = world.sim.block_on(manager.lock("r")).unwrap();
            world.nodes[1].inject(Fault::Down);
            drop(guard);
            world.sim.advance(60 * SECOND);
            world.nodes[1].heal();
        }
        let guard = world.sim.block_on(manager.lock("r")).unwrap();
        world.catch_up();
        world.nodes[1].inject(Fault::Slow(400 * MS));
        let start = world.sim.elapsed();
        drop(guard);
        let report = world.sim.block_on(manager.close(5 * SECOND));
        assert!(report.is_clean(), "{report}");
        assert_eq!((world.sim.elapsed() - start, world.keys_left()), (400 * MS, 0));
    }
}

/// C8: the votes are there, and the close is polled before the acquire.
#[test]
fn c8_a_close_that_comes_before_the_win_is_seen_leaves_no_lock() {
    for (is_ordered, waits) in [(true, true), (true, false), (false, true), (false, false)] {
        let world = if is_ordered { World::complete(3) } else { World::new(3) };
        world.inject(.., Fault::Late(100 * MS));
        let manager = world.manager();
        let request = manager.lock("r");
        let request = if waits { request } else { request.no_wait() };
        let mut acquiring = request.into_future().boxed();
        assert!(world.sim.block_on_for(acquiring.as_mut(), 1).is_none());
        world.sim.advance(100 * MS);
        let (report, acquired) = world.sim.block_on(join(manager.close(5 * SECOND), acquiring));
        assert!(matches!(acquired, Err(LockError::Closed)), "{acquired:?}");
        assert!(report.is_clean(), "{report}");
        world.sim.advance(SECOND);
        assert_eq!(world.keys_left(), 0);
    }
}

/// C8: behind a pool, a waiter leaves only after its refresh was answered. Each call has its own time.
#[test]
fn c8_close_waits_for_a_node_that_answers_a_refresh_and_then_the_leave() {
    for moment in 0..30 {
        let world = World::complete(1);
        let world = World { nodes: vec![world.nodes[0].unordered()], ..world };
        let _held = world.sim.block_on(world.manager().lock("r").ttl(HOUR)).unwrap();
        world.nodes[0].inject(Fault::Slow(400 * MS));
        let manager = patient(&world);
        let mut waits = manager.lock("r").into_future().boxed();
        let moment = world.sim.now() + moment * 100 * MS;
        let stopped = async { select(waits.as_mut(), world.sim.sleep_until(moment)).await };
        assert!(matches!(world.sim.block_on(stopped), Either::Right(_)), "{moment:?}");
        drop(waits);
        let report = world.sim.block_on(manager.close(5 * SECOND));
        assert!(report.is_clean(), "{moment:?}: {report}");
    }
}

/// A round that is open while the manager closes wins nothing.
#[test]
fn close_leaves_no_lock_that_is_being_acquired() {
    for (polls, tries) in (0..8).flat_map(|polls| [(polls, false), (polls, true)]) {
        let world = World::new(3);
        world.inject(.., Fault::Late(100 * MS));
        let manager = world.manager();
        let mut acquiring = match tries {
            true => manager.lock("r").no_wait().into_future().boxed(),
            false => manager.lock("r").into_future().boxed(),
        };
        for _ in 0..polls {
            let _ = world.sim.block_on_for(acquiring.as_mut(), 1);
        }
        let close = async { (manager.close(5 * SECOND).await.is_clean(), world.keys_left()) };
        let (acquired, left) = world.sim.block_on(join(acquiring, close));
        assert_eq!(left, (true, 0), "when close returns");
        assert!(acquired.is_ok() || matches!(acquired, Err(LockError::Closed)));
        assert!(acquired.is_err() || !acquired.as_ref().unwrap().is_valid());
        drop(acquired);
        world.sim.advance(SECOND);
        assert_eq!(world.keys_left(), 0, "after {polls} polls");
    }
}

/// C8: their entries are gone, so that no other process waits for an entry without an owner.
#[test]
fn c8_close_waits_until_the_waiters_have_left_the_wait_queue() {
    let scene = Scene::new(3);
    let _held = scene.sim.block_on(scene.process().lock("r").ttl(60 * SECOND)).unwrap();
    let waiter = scene.process();
    let request = waiter.lock("r");
    waiter.spawn(async move {
        assert!(matches!(request.await, Err(LockError::Closed)));
    });
    scene.sim.advance(SECOND);
    assert!(scene.keys().iter().any(|key| key.contains(":quorate:")), "it waits in the queue");
    assert!(scene.sim.block_on(waiter.locks.close(5 * SECOND)).is_clean());
    assert!(!scene.keys().iter().any(|key| key.contains(":quorate:")), "{:?}", scene.keys());
}

#[test]
fn a_closing_manager_says_closed_of_a_lock_that_it_has() {
    let world = World::complete(3);
    let manager = world.manager();
    let _guard = world.sim.block_on(manager.lock("r")).unwrap();
    let mut close = Box::pin(manager.close(5 * SECOND));
    assert!(world.sim.block_on_for(close.as_mut(), 1).is_none(), "the work has time to stop");
    let refused = world.sim.block_on(manager.lock("r").no_wait());
    assert!(matches!(refused, Err(LockError::Closed)), "{refused:?}");
}

/// C8: it has more to do than fits into a node timeout, and answers all the time.
#[test]
fn c8_close_waits_for_a_node_that_is_busy() {
    let sim = Sim::new(7);
    let nodes = MemoryNode::cluster(3, sim.clone());
    // Each executes one release after the other, for 20 ms each.
    let busy = |node: &MemoryNode| {
        let (clock, free_at) = (sim.clone(), Mutex::new(sim.now()));
        Odd::new(node).before(move |method| {
            let (mut free_at, clock) = (free_at.lock().unwrap(), clock.clone());
            if method == "release" {
                *free_at = (*free_at).max(clock.now()) + 20 * MS;
            }
            let executed = if method == "release" { *free_at } else { clock.now() };
            Box::pin(async move {
                clock.sleep_until(executed).await;
                Ok(())
            })
        })
    };
    let manager =
        LockManager::builder(nodes.iter().map(busy)).runtime(sim.clone()).build().unwrap();
    let names = (0..200).map(|number| format!("r{number}"));
    let held: Vec<_> = names.map(|name| sim.block_on(manager.lock(name)).unwrap()).collect();
    let report = sim.block_on(manager.close(60 * SECOND));
    assert!(report.is_clean(), "{report}");
    assert_eq!(nodes.iter().map(|node| node.keys().len()).sum::<usize>(), 0, "when close returns");
    drop(held);
}

/// C8: the answers may be there, unread.
#[test]
fn c8_a_process_that_was_stopped_while_it_closed_names_no_node() {
    let world = World::new(3);
    let client = Paused::new(&world.sim);
    let manager = world.builder().runtime(client.clone()).build().unwrap();
    let held = world.sim.block_on(manager.lock("r")).unwrap();
    world.inject(.., Fault::Late(30 * MS));
    drop(held);
    world.sim.advance(MS);
    let mut closing = Box::pin(manager.close(60 * SECOND));
    assert!(world.sim.block_on_for(closing.as_mut(), 1).is_none());
    client.pause(5 * SECOND);
    assert!(world.sim.block_on_for(closing.as_mut(), 1).is_none(), "it looks again");
    let report = world.sim.block_on(closing);
    assert!(report.is_clean(), "{report}");
    assert_eq!(world.keys_left(), 0);
}

/// A node hangs while its lock is dropped. Every other node is clean, and the report names this one.
#[test]
fn close_waits_for_no_node_that_hangs() {
    for world in [World::new(3), World::in_order(3), World::complete(3)] {
        let manager = world.manager();
        let guard = world.sim.block_on(manager.lock("r")).unwrap();
        world.catch_up();
        world.nodes[0].inject(Fault::Hung);
        drop(guard);
        let report = world.sim.block_on(manager.close(60 * SECOND));
        assert_eq!(world.sim.elapsed(), 500 * MS, "one node timeout");
        assert_eq!(report.to_string(), "all released; memory-1 did not answer");
        assert_eq!(report.nodes().collect::<Vec<_>>(), ["memory-1"]);
        assert!(!report.is_clean());
        assert_eq!(world.keys_left(), 1);
        world.nodes[0].heal();
        world.catch_up();
        assert_eq!(world.keys_left(), 0, "its release was sent");
    }
}
