//! C8: nodes that answer are clean when the caller gets its error, and when `close` returns.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt;
use futures_util::future::join;
use quorate_core::LockError;
use quorate_memory::Operation;
use quorate_protocol::error_of_reply;

use super::*;
use crate::backends::Odd;
use crate::telling::acting;
use crate::waiting::processes::Scene;
use crate::world::{HOUR, MARGIN};

/// Three nodes refuse. The other two grant, and answer their undo in less time than the round took.
#[test]
fn c8_a_failed_acquire_leaves_nothing_when_its_error_is_returned() {
    let ways: [fn(Duration) -> Fault; 2] = [Fault::Slow, Fault::Late];
    for (world, way) in World::KINDS.into_iter().flat_map(|world| ways.map(|way| (world, way))) {
        for waits in [false, true] {
            let world = world(5);
            world.occupy(2..);
            world.inject(..2, way(10 * MS));
            world.inject(2.., way(15 * MS));
            let request = world.manager().lock("r");
            let request = if waits { request.timeout(300 * MS) } else { request.no_wait() };
            let failed = world.run(request).unwrap_err();
            assert!(failed.is_held(), "{failed}");
            let left = world.nodes[..2].iter().filter(|node| node.get("r").is_some()).count();
            assert_eq!(left, 0, "{:?}, waits: {waits}", way(10 * MS));
        }
    }
}

#[test]
fn c8_a_hung_node_delays_the_error_by_no_more_than_the_round_or_2_ms() {
    for (round, limit) in [(Duration::ZERO, 2 * MS), (MS, 2 * MS), (30 * MS, 30 * MS)] {
        for world in World::kinds(3) {
            world.occupy(1..);
            world.inject(1.., Fault::Late(round));
            world.inject(..1, Fault::Hung);
            let failed = world.try_lock(&world.manager()).unwrap_err();
            assert!(failed.is_held(), "{failed}");
            // Replies on one connection are some nanoseconds apart.
            let waited = failed.failure().unwrap().waited();
            assert!(waited >= round && waited < round + MS / 10, "{waited:?}");
            let elapsed = world.sim.elapsed();
            assert!(elapsed >= round && elapsed < round + limit + MS / 10, "{elapsed:?}");
        }
    }
}

/// Also past the timeout of the caller.
#[test]
fn c8_the_undo_is_waited_for_past_the_timeout() {
    for world in World::kinds(3) {
        world.inject(.., Fault::Late(50 * MS));
        let failed = world.run(world.manager().lock("r").timeout(40 * MS)).unwrap_err();
        assert!(!failed.is_held(), "{failed}");
        assert!(world.sim.elapsed() <= 80 * MS, "{:?}", world.sim.elapsed());
        assert_eq!(world.keys_left(), 0, "after {:?}", world.sim.elapsed());
    }
}

/// On ordered connections a round that is followed by another does not wait for its undo: only the caller's error
/// does. Over pools its own key would refuse the next round.
#[test]
fn c8_a_round_that_is_followed_by_another_waits_for_no_undo() {
    let world = World::in_order(3);
    world.occupy(1..);
    world.inject(..1, Fault::Hung);
    world.inject(1.., Fault::Late(50 * MS));
    let manager = world.builder().backoff(MS, MS).build().unwrap();
    assert!(world.run(manager.lock("r").timeout(SECOND)).is_err());
    assert!(world.log.tokens().len() >= 18, "a round takes 50 ms");
}

/// The next round of a waiter is due, and the waiter is polled only after the close.
#[test]
fn c8_a_closed_manager_sends_no_acquire() {
    let world = World::new(3);
    let _held = world.run(world.manager().lock("r").ttl(HOUR)).unwrap();
    let manager = world.manager();
    let mut waits = manager.lock("r").timeout(HOUR).into_future();
    let late = world.sim.block_on_for(&mut waits, 20);
    assert!(late.is_none(), "it waits for its next round");
    world.advance(60 * SECOND);
    assert!(world.run(manager.close(SECOND)).is_clean());
    let sent = world.log.operations().len();
    assert!(matches!(world.run(waits), Err(LockError::Closed(_))));
    world.advance(60 * SECOND);
    assert_eq!(world.log.operations()[sent..], [] as [&str; 0]);
}

/// While the lock is held, or after its guard was dropped: every node that answers is clean, or the limit has passed.
/// A node that fails is named with its error, and not waited for.
#[test]
fn c8_close_keeps_to_its_limit_and_names_the_nodes_that_are_not_clean() {
    for (count, fault, is_held, limit, took, named) in [
        (3, Fault::Hung, true, 5 * SECOND, MARGIN + 500 * MS, "did not answer"),
        (3, Fault::Hung, true, 300 * MS, 300 * MS, "was not clean in time"),
        (1, Fault::Hung, false, 60 * SECOND, 500 * MS, "did not answer"),
        (1, Fault::Down, false, 5 * SECOND, Duration::ZERO, "failed: connection refused"),
        (1, failing("READONLY a"), false, 5 * SECOND, Duration::ZERO, "failed: READONLY a"),
    ] {
        for (world, manager) in World::kinds(3).map(World::and_manager) {
            let mut guard = Some(world.lock(&manager));
            world.catch_up();
            world.inject(..count, fault.clone());
            guard.take_if(|_| !is_held);
            let report = world.run(manager.close(limit));
            assert_eq!(world.sim.elapsed(), took, "{fault:?}");
            let names: Vec<String> = (1..=count).map(|n| format!("memory-{n}")).collect();
            assert_eq!(report.nodes().collect::<Vec<_>>(), names);
            assert!(report.to_string().contains(&format!("memory-1 {named}")), "{report}");
            assert_eq!(world.keys_left(), count);
            // The releases were sent, or are sent again.
            world.heal();
            world.advance(SECOND);
            assert_eq!(world.keys_left(), 0);
        }
    }
}

/// Two calls, in both orders. The node is named for as long as the key that lives longest may be there.
#[test]
fn c8_close_names_a_node_until_the_last_key_of_all_calls_that_were_given_up_has_expired() {
    for ttls in [[20, 5], [5, 20]] {
        let (world, manager) = World::new(3).and_manager();
        world.inject(..1, Fault::Hung);
        for (name, ttl) in ["r", "s"].into_iter().zip(ttls) {
            let guard = world.run(manager.lock(name).ttl(ttl * SECOND)).unwrap();
            world.run(guard.release()).unwrap();
            world.advance(MS);
        }
        // Each was given up after its ttl, and its key may come until then.
        for (at, is_clean) in [(21, false), (30, false), (39, false), (42, true)] {
            world.advance((at * SECOND).saturating_sub(world.sim.elapsed()));
            let report = world.run(manager.close(5 * SECOND));
            assert_eq!(report.is_clean(), is_clean, "{ttls:?}, after {at} s: {report}");
            let named = "; memory-1 may keep a key whose call was given up";
            assert_eq!(report.to_string().contains(named), !is_clean, "{report}");
        }
    }
}

/// The votes are there, and the close is polled before the acquire.
#[test]
fn c8_a_close_that_comes_before_the_win_is_seen_leaves_no_lock() {
    for (world, waits) in World::KINDS.into_iter().flat_map(|new| [(new, true), (new, false)]) {
        let world = world(3);
        world.inject(.., Fault::Late(100 * MS));
        let manager = world.manager();
        let request = manager.lock("r");
        let request = if waits { request } else { request.no_wait() };
        let acquiring = world.begun(request);
        world.advance(100 * MS);
        let (report, acquired) = world.run(join(manager.close(5 * SECOND), acquiring));
        assert!(matches!(acquired, Err(LockError::Closed(_))), "{acquired:?}");
        assert!(report.is_clean(), "{report}");
        world.advance(SECOND);
        assert_eq!(world.keys_left(), 0);
    }
}

/// A subscriber closes the manager at an event of a lost round, or of its undo.
#[test]
fn c8_a_close_in_the_middle_of_a_request_ends_it_without_another_wait() {
    for event in 0..8 {
        let world = World::new(3);
        world.occupy(..);
        let manager = world.builder().backoff(HOUR, HOUR).build().unwrap();
        let (events, closed) = (AtomicUsize::new(0), manager.clone());
        let closes = move |method: &str| {
            if method == "event" && events.fetch_add(1, Ordering::Relaxed) == event {
                drop(closed.close(SECOND).now_or_never());
            }
        };
        acting(closes, || {
            let ended = world.run(manager.lock("r").timeout(HOUR));
            assert!(matches!(ended, Err(LockError::Closed(_))), "event {event}: {ended:?}");
            assert!(world.sim.elapsed() < SECOND, "event {event}: {:?}", world.sim.elapsed());
        });
    }
}

/// Behind a pool, a waiter leaves only after its refresh was answered. Each call has its own time.
#[test]
fn c8_close_waits_for_a_node_that_answers_a_refresh_and_then_the_leave() {
    for moment in 0..30 {
        let (world, _held, manager, waits) =
            World::waiting_over_a_pool(moment * 100 * MS, 500 * MS);
        drop(waits);
        let report = world.run(manager.close(5 * SECOND));
        assert!(report.is_clean(), "{moment:?}: {report}");
        assert_eq!(world.keys_left(), 1, "{moment:?}: the lock that is held");
    }
}

/// Their entries are gone, so that no other process waits for an entry without an owner.
#[test]
fn c8_close_waits_until_the_waiters_have_left_the_wait_queue() {
    // `false`: the task of the waiter is busy with something else.
    for is_polled in [true, false] {
        let (scene, _held, [_, waiter]) = Scene::new(3).held();
        let mut waits = waiter.lock("r").into_future().boxed();
        scene.keeps_waiting(&mut waits, 5 * MS);
        if is_polled {
            let closed = |got| assert!(matches!(got, Err(LockError::Closed(_))));
            waiter.spawn(waits.map(closed));
        }
        scene.advance(SECOND);
        assert!(scene.queued() > 0, "it waits in the queue");
        assert!(scene.run(waiter.locks.close(5 * SECOND)).is_clean());
        assert_eq!(scene.queued(), 0);
    }
}

/// A task goes in the middle of a round on a pool, and its wait is left to the next one, whose votes are all split. It
/// leaves together with an undo, unless a third task goes on with it.
#[test]
fn c8_the_wait_of_a_task_that_is_gone_leaves_before_the_error_is_returned() {
    for (moment, is_wanted) in (0..8).flat_map(|moment| [(moment, false), (moment, true)]) {
        let scene = Scene::new(3);
        for (node, digit) in scene.nodes.iter().zip(["3", "4", "5"]) {
            node.put("r", Value::String(digit.repeat(40).into_bytes()));
        }
        let process = scene.process_on(|node| node.unordered());
        let mut waits = process.lock("r").into_future().boxed();
        scene.keeps_waiting(&mut waits, 100 * MS);
        scene.forget_sent();
        scene.nodes[scene.gate("r")].expire("r");
        while scene.count(Operation::Acquire) == 0 {
            scene.keeps_waiting(&mut waits, MS / 10);
        }
        scene.keeps_waiting(&mut waits, moment * MS / 10);
        drop(waits);
        let tries = process.locks.lock("r").no_wait().into_future();
        if is_wanted {
            let wanted = process.lock("r");
            process.spawn(async move { assert!(wanted.await.is_err(), "it is held for good") });
        }
        scene.forget_sent();
        let error = scene.run(tries).unwrap_err();
        assert!(error.is_held(), "{error}");
        let left = (scene.queued() > 0, scene.count(Operation::Queue));
        assert_eq!(left, if is_wanted { (true, 0) } else { (false, 1) }, "{moment} {is_wanted}");
    }
}

/// It has more to do than fits into a node timeout, and answers all the time.
#[test]
fn c8_close_waits_for_a_node_that_is_busy() {
    let world = World::new(3);
    // Each executes one release after the other, for 20 ms each.
    let busy = |node: &MemoryNode| {
        let (clock, free_at) = (world.sim.clone(), Mutex::new(world.sim.now()));
        Odd::new(node).before(move |method| {
            let (mut free_at, clock) = (free_at.lock().unwrap(), clock.clone());
            if method == "release" {
                *free_at = (*free_at).max(clock.now()) + 20 * MS;
            }
            let executed = if method == "release" { *free_at } else { clock.now() };
            clock.sleep_until(executed).map(Ok).boxed()
        })
    };
    let manager = world.over(world.nodes.iter().map(busy));
    let names = (0..200).map(|number| format!("r{number}"));
    let _held: Vec<_> = names.map(|name| world.run(manager.lock(name)).unwrap()).collect();
    let report = world.run(manager.close(60 * SECOND));
    assert!(report.is_clean(), "{report}");
    assert_eq!(world.keys_left(), 0, "when close returns");
}

/// The release is sent again until then, whether the node answers it or its next connection. A node that says so until the
/// limit is named, and not all is released.
#[test]
fn c8_close_releases_again_while_a_node_answers_that_it_cannot_now() {
    let replies = ["BUSY a script", "LOADING data", "MISCONF a disk", "TRYAGAIN later"];
    for (reply, is_sent) in replies.into_iter().flat_map(|reply| [(reply, true), (reply, false)]) {
        for (heals, limit) in [(true, 10 * SECOND), (false, 2 * SECOND)] {
            let (world, manager) = World::complete(3).and_manager();
            let guard = world.lock(&manager);
            world.catch_up();
            let error = error_of_reply(reply);
            let error = if is_sent { error } else { error.not_sent() };
            world.inject(1.., Fault::Failing(error));
            world.run(guard.release()).unwrap_err();
            let begun = world.sim.elapsed();
            let nodes = world.nodes.clone();
            if heals {
                world.later(3 * SECOND, move || nodes.iter().for_each(MemoryNode::heal));
            }
            let report = world.run(manager.close(limit)).to_string();
            let took = world.sim.elapsed() - begun;
            let left = world.holders("r");
            if heals {
                assert_eq!((report, left), ("all released".to_owned(), 0), "{reply}, {is_sent}");
                assert!((3 * SECOND..4 * SECOND).contains(&took), "{took:?}");
            } else {
                let named =
                    format!("not all released; memory-2 failed: {reply}; memory-3 failed: {reply}");
                assert_eq!((report, left, took), (named, 2, limit), "{is_sent}");
            }
        }
    }
}

/// The answers may be there, unread.
#[test]
fn c8_a_process_that_was_stopped_while_it_closed_names_no_node() {
    let world = World::new(3);
    let client = Client::new(&world.sim);
    let manager = world.builder().runtime(client.clone()).build().unwrap();
    let held = world.lock(&manager);
    world.inject(.., Fault::Late(30 * MS));
    drop(held);
    world.advance(MS);
    let mut closing = Box::pin(manager.close(60 * SECOND));
    assert!(world.sim.block_on_for(closing.as_mut(), 1).is_none());
    for _ in 0..2 {
        client.pause(5 * SECOND);
        assert!(world.sim.block_on_for(closing.as_mut(), 1).is_none(), "no other task has run");
    }
    let report = world.run(closing);
    assert!(report.is_clean(), "{report}");
    assert_eq!(world.keys_left(), 0);
}
