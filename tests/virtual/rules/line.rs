//! The local queue: the tasks of one manager that want the same key, and what their waits return.

use std::future::IntoFuture;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{join, join_all};
use quorate_core::error::{Answer, QuorumFailure};
use quorate_core::{LockError, LockManager, Runtime};
use quorate_memory::{Effect, Fault, MemoryNode, Operation, Rule};

use crate::waiting::processes::Scene;
use crate::world::{MS, SECOND, World};

#[test]
fn tasks_of_one_manager_have_the_lock_in_the_order_in_which_they_came() {
    // With passing on, without it, and over pools.
    for world in [World::complete(5), World::in_order(5), World::new(5)] {
        let manager = world.manager();
        let held = world.sim.block_on(manager.lock("r")).unwrap();
        let served: Arc<Mutex<Vec<u32>>> = Arc::default();
        for number in 0..20 {
            let (manager, served, sim) = (manager.clone(), Arc::clone(&served), world.sim.clone());
            world.sim.spawn(Box::pin(async move {
                let guard = manager.lock("r").await.unwrap();
                served.lock().unwrap().push(number);
                sim.sleep(10 * MS).await;
                guard.release().await.unwrap();
            }));
            world.catch_up();
        }
        let before = world.log.operations().len();
        world.sim.advance(SECOND);
        assert_eq!(world.log.operations().len(), before, "a task behind a guard sends nothing");
        world.sim.block_on(held.release()).unwrap();
        world.sim.advance(SECOND);
        assert_eq!(*served.lock().unwrap(), (0..20).collect::<Vec<_>>());
        assert_eq!(world.keys_left(), 0);
    }
}

/// Requests that want the same keys, named in another order, and some of one key.
#[test]
fn a_request_enters_the_queues_of_all_its_keys_in_one_step() {
    for world in [World::complete(3), World::new(3)] {
        let (manager, sim) = (world.manager(), &world.sim);
        let work = |names: Vec<&'static str>| {
            let manager = manager.clone();
            async move {
                for _ in 0..20 {
                    let guard = manager.lock(names.clone()).await.unwrap();
                    sim.sleep(MS).await;
                    guard.release().await.unwrap();
                }
            }
        };
        let all =
            [vec!["a", "b"], vec!["b", "a"], vec!["a"], vec!["b"], vec!["b", "c"], vec!["c", "a"]];
        sim.block_on(join_all(all.map(work)));
        assert!(sim.elapsed() < SECOND, "{:?}", sim.elapsed());
    }
}

#[test]
fn a_request_for_several_keys_has_its_turn_when_it_is_first_for_each() {
    let world = World::complete(3);
    let (manager, sim) = (world.manager(), &world.sim);
    let [a, b] = ["a", "b"].map(|name| sim.block_on(manager.lock(name)).unwrap());
    let mut both = Box::pin(manager.lock(["a", "b"]).into_future());
    assert!(sim.block_on_for(both.as_mut(), 1).is_none());
    // It came later for one of them.
    let mut behind = Box::pin(manager.lock("a").into_future());
    assert!(sim.block_on_for(behind.as_mut(), 1).is_none());
    drop(a);
    world.catch_up();
    assert!(sim.block_on_for(both.as_mut(), 1).is_none(), "it is not first for b");
    assert!(sim.block_on_for(behind.as_mut(), 1).is_none(), "it is behind the other for a");
    drop(b);
    let guard = sim.block_on(both).unwrap();
    assert!(sim.block_on_for(behind.as_mut(), 1).is_none());
    drop(guard);
    assert!(sim.block_on(behind).unwrap().is_valid());
    assert_eq!(sim.elapsed(), Duration::ZERO);
}

/// The nodes' answers in the error, if there are any.
fn failure(error: &LockError) -> &QuorumFailure {
    error.failure().unwrap_or_else(|| panic!("{error}"))
}

#[test]
fn no_wait_fails_at_once_where_a_guard_or_a_waiter_of_this_manager_is_in_the_way() {
    for is_held_here in [true, false] {
        let world = World::complete(3);
        let (manager, sim) = (world.manager(), &world.sim);
        let other = if is_held_here { manager.clone() } else { world.manager() };
        let held = sim.block_on(other.lock("a").ttl(60 * SECOND)).unwrap();
        let mut waits = Box::pin(manager.lock("a").into_future());
        if !is_held_here {
            assert!(sim.block_on_for(waits.as_mut(), 1).is_none());
        }
        world.inject(.., Fault::Slow(100 * MS));
        let (before, start) = (world.log.operations().len(), sim.elapsed());
        for names in [vec!["a"], vec!["b", "a"]] {
            let error = sim.block_on(manager.lock(names).no_wait()).unwrap_err();
            assert!(error.is_held() && failure(&error).is_local(), "{error}");
            assert_eq!(error.to_string(), "held by another guard or waiter of this manager");
        }
        assert_eq!((world.log.operations().len(), sim.elapsed()), (before, start));
        drop((held, waits));
    }
}

#[test]
fn no_wait_waits_for_a_release_in_flight() {
    let worlds: [fn(usize) -> World; 3] = [World::complete, World::in_order, World::new];
    for (world, is_polled) in worlds.into_iter().flat_map(|world| [(world, false), (world, true)]) {
        let world = world(3);
        let (manager, sim) = (world.manager(), &world.sim);
        let held = sim.block_on(manager.lock("r")).unwrap();
        world.inject(.., Fault::Slow(100 * MS));
        // A release goes on when its future is dropped.
        match is_polled {
            true => assert!(sim.block_on_for(held.release(), 1).is_none()),
            false => drop(held),
        }
        assert!(sim.block_on(manager.lock("r").no_wait()).unwrap().is_valid());
        assert!(sim.elapsed() <= 300 * MS, "{:?}", sim.elapsed());
    }
}

#[test]
fn no_wait_waits_for_a_release_in_flight_at_most_a_node_timeout() {
    for world in [World::complete(3), World::in_order(3), World::new(3)] {
        let (manager, sim) = (world.manager(), &world.sim);
        drop(sim.block_on(manager.lock("r")).unwrap());
        sim.advance(20 * SECOND);
        let held = sim.block_on(manager.lock("r")).unwrap();
        world.inject(.., Fault::Hung);
        drop(held);
        let start = sim.elapsed();
        let error = sim.block_on(manager.lock("r").no_wait()).unwrap_err();
        assert!(matches!(error, LockError::NoQuorum(_)), "{error}");
        // The release, its own round, and the answers to the undo.
        let took = sim.elapsed() - start;
        assert!(took >= 500 * MS && took <= 1_500 * MS, "{took:?}");
    }
}

#[test]
fn a_waiter_in_the_local_queue_keeps_its_deadline() {
    let world = World::complete(3);
    let manager = world.manager();
    let _held = world.sim.block_on(manager.lock("r")).unwrap();
    let waits = (1..=3).map(|n| manager.lock("r").timeout(n * 100 * MS).into_future());
    let timed = waits.map(|wait| wait.map(|lost| (lost, world.sim.elapsed())));
    let lost = world.sim.block_on(join_all(timed));
    for (number, (lost, at)) in (1..).zip(lost) {
        let error = lost.unwrap_err();
        assert!(error.is_held() && failure(&error).is_local(), "{error}");
        assert_eq!(error.to_string(), "held by another guard or waiter of this manager");
        assert_eq!(at, number * 100 * MS);
    }
}

#[test]
fn a4_an_earlier_waiter_of_this_manager_in_the_way_is_held_and_the_first_one_says_what_the_nodes_do()
 {
    for fault in [Fault::Down, Fault::Hung] {
        let world = World::complete(3);
        world.inject(.., fault.clone());
        let manager = world.manager();
        let waits =
            [30, 5, 5, 1].map(|wait| manager.lock("r").timeout(wait * SECOND).into_future());
        let errors = world.sim.block_on(join_all(waits));
        let errors: Vec<_> = errors.into_iter().map(Result::unwrap_err).collect();
        let (first, rest) = errors.split_first().unwrap();
        assert!(matches!(first, LockError::NoQuorum(_)), "{fault:?}: {first}");
        assert_eq!(failure(first).failed_nodes().count(), 3, "{first}");
        for error in rest {
            assert!(error.is_held() && failure(error).is_local(), "{fault:?}: {error}");
        }
    }
}

/// The guard is gone, and nothing is in the way but nodes that do not answer.
#[test]
fn a4_without_a_round_an_unanswered_release_is_unreachable_with_its_nodes() {
    // Behind a release on ordered connections it makes a round, and waits as long for its undo (C8).
    for (world, took) in
        [(World::complete(3), 200), (World::in_order(3), 200), (World::new(3), 100)]
    {
        let (manager, sim) = (world.manager(), &world.sim);
        let held = sim.block_on(manager.lock("r")).unwrap();
        world.catch_up();
        world.inject(.., Fault::Hung);
        drop(held);
        let error = sim.block_on(manager.lock("r").timeout(100 * MS)).unwrap_err();
        let LockError::NoQuorum(failure) = &error else { panic!("{error}") };
        assert!(!error.is_held() && !failure.is_local(), "{error}");
        let silent =
            failure.nodes().iter().filter(|node| matches!(node.answer, Answer::NoReply { .. }));
        assert_eq!(silent.count(), 3, "{error}");
        assert_eq!(sim.elapsed(), took * MS);
    }
}

#[test]
fn an_outage_is_reported_to_a_waiter_whose_turn_comes_late() {
    let world = World::complete(3);
    let manager = world.manager();
    let guard = world.sim.block_on(manager.lock("r")).unwrap();
    let fails = async {
        world.sim.sleep(5 * SECOND).await;
        world.inject(.., Fault::Down);
    };
    let waits = manager.lock("r").timeout(20 * SECOND).into_future();
    let (waited, ()) = world.sim.block_on(join(waits, fails));
    assert!(matches!(waited, Err(LockError::NoQuorum(_))), "{waited:?}");
    drop(guard);
}

/// Its end is seen in the queue of one of its keys only, and is one release all the same.
#[test]
fn an_expired_lock_of_several_keys_is_outlived_by_a_task_that_wants_any_of_them() {
    for (wanted, other) in [("a", "b"), ("b", "a")] {
        let world = World::complete(3);
        let manager = world.manager();
        std::mem::forget(world.sim.block_on(manager.lock(["a", "b"]).ttl(2 * SECOND)).unwrap());
        let refused = world.sim.block_on(manager.lock(wanted).timeout(1_700 * MS)).unwrap_err();
        assert!(refused.is_held(), "{refused}");
        let guard = world.sim.block_on(manager.lock(wanted)).unwrap();
        assert!(guard.is_valid());
        let elapsed = world.sim.elapsed();
        assert!(elapsed <= 2 * SECOND + MS, "{wanted}: {elapsed:?}");
        drop(world.sim.block_on(manager.lock(other).no_wait()).unwrap());
        world.catch_up();
        let releases = world.log.operations().into_iter().filter(|name| *name == "release");
        assert_eq!(releases.count(), 6, "one for {other} as well, and one for both before");
    }
}

#[test]
fn w3_a_request_that_gives_up_has_left_the_wait_queue_when_its_error_is_returned() {
    let world = World::complete(3);
    let (holder, waiter, sim) = (world.manager(), world.manager(), &world.sim);
    let _held = sim.block_on(holder.lock("r").ttl(60 * SECOND)).unwrap();
    let entries = || {
        let keys = world.nodes.iter().flat_map(MemoryNode::keys);
        keys.filter(|key| String::from_utf8_lossy(key).contains(":quorate:")).count()
    };
    let looks = async {
        sim.sleep(2 * SECOND).await;
        entries()
    };
    let waits = async {
        let refused = waiter.lock("r").timeout(5 * SECOND).await;
        (refused.is_err(), entries())
    };
    let (waiting, after) = sim.block_on(join(looks, waits));
    assert!(waiting > 0, "it waits in the queue");
    assert_eq!(after, (true, 0));
}

/// W1: it began to wait while no task had the lease, so there was nothing to watch.
#[test]
fn w1_a_task_that_came_while_another_competed_outlives_its_lease() {
    for world in [World::complete(3), World::new(3)] {
        let (manager, sim) = (world.manager(), &world.sim);
        world.inject(.., Fault::Slow(100 * MS));
        let mut first = Box::pin(manager.lock("r").ttl(2 * SECOND).into_future());
        let mut second = Box::pin(manager.lock("r").into_future());
        assert!(sim.block_on_for(first.as_mut(), 1).is_none());
        assert!(sim.block_on_for(second.as_mut(), 1).is_none());
        std::mem::forget(sim.block_on(first).unwrap());
        assert!(sim.block_on(second).unwrap().is_valid());
        assert!(sim.elapsed() <= 3 * SECOND, "{:?}", sim.elapsed());
    }
}

/// W3: no node keeps a queue, and one never answers the undo.
#[test]
fn w3_a_task_that_came_while_another_competed_outlives_its_undo() {
    for world in [World::new(3), World::in_order(3)] {
        let (manager, sim) = (world.builder().build().unwrap(), &world.sim);
        world.inject(.., Fault::Slow(100 * MS));
        world.nodes[2].inject(Fault::Hung);
        let mut first = Box::pin(manager.lock("r").into_future());
        let mut second = Box::pin(manager.lock("r").into_future());
        assert!(sim.block_on_for(first.as_mut(), 1).is_none());
        assert!(sim.block_on_for(second.as_mut(), 1).is_none());
        drop(first);
        assert!(sim.block_on(second).unwrap().is_valid());
        assert!(sim.elapsed() <= SECOND, "{:?}", sim.elapsed());
    }
}

/// A lock that this manager adopted takes no ticket: another process may have it any time.
#[test]
fn a_lock_that_was_adopted_is_waited_for_at_the_nodes() {
    let world = World::complete(3);
    let record = world.sim.block_on(world.manager().lock("r")).unwrap().detach().unwrap();
    let manager = world.manager();
    let adopted = world.sim.block_on(manager.adopt(&record)).unwrap();
    let lost = world.sim.block_on(manager.lock("r").timeout(SECOND)).unwrap_err();
    assert!(lost.is_held() && !failure(&lost).is_local(), "{lost}");
    let next = manager.lock("r").timeout(SECOND).into_future();
    let (next, released) = world.sim.block_on(join(next, adopted.release()));
    assert!(next.is_ok() && released.is_ok());
}

#[test]
fn w3_a_waiter_that_is_cancelled_at_any_poll_hands_its_turn_on() {
    for world in [World::complete, World::in_order, World::new] {
        for polls in 1..10 {
            let world = world(3);
            world.inject(.., Fault::Slow(MS));
            let manager = world.manager();
            let held = world.sim.block_on(manager.lock("r")).unwrap();
            let mut first = Box::pin(manager.lock("r").into_future());
            assert!(world.sim.block_on_for(first.as_mut(), 1).is_none());
            let mut second = Box::pin(manager.lock("r").into_future());
            assert!(world.sim.block_on_for(second.as_mut(), 1).is_none());
            world.sim.block_on(held.release()).unwrap();
            let got = world.sim.block_on_for(first.as_mut(), polls);
            drop((got, first));
            let dropped = world.sim.elapsed();
            let guard = world.sim.block_on(second).unwrap();
            assert!(guard.is_valid(), "after {polls} polls");
            // The undo, and an acquire.
            assert!(world.sim.elapsed() - dropped <= 5 * MS, "after {polls} polls");
            drop(guard);
            world.sim.settle();
            assert_eq!(world.keys_left(), 0, "after {polls} polls");
        }
    }
}

#[test]
fn w3_waiters_that_gave_up_in_the_local_queue_hold_nobody_up() {
    for given_up in [&[0][..], &[1], &[0, 1], &[1, 2]] {
        let world = World::complete(3);
        let manager = world.manager();
        let held = world.sim.block_on(manager.lock("r")).unwrap();
        let wait = |number| {
            let timeout = if given_up.contains(&number) { SECOND } else { 60 * SECOND };
            let mut wait = Box::pin(manager.lock("r").timeout(timeout).into_future());
            assert!(world.sim.block_on_for(wait.as_mut(), 1).is_none());
            (number, wait)
        };
        let waiters: Vec<_> = (0..4).map(wait).collect();
        let kept = waiters.into_iter().filter(|(number, _)| !given_up.contains(number));
        let kept: Vec<_> = kept.map(|(_, wait)| wait).collect();
        world.sim.block_on(held.release()).unwrap();
        for waiter in kept {
            let guard = world.sim.block_on(waiter).unwrap();
            world.sim.block_on(guard.release()).unwrap();
        }
        assert_eq!(world.sim.elapsed(), Duration::ZERO, "{given_up:?}");
    }
}

/// For the release of this manager, the gate decides, and over pools each node.
#[test]
fn the_next_task_acquires_once_the_gate_has_answered_the_release() {
    // Where no gate can say that others wait, the acquire leaves right behind the release.
    for (world, least) in [(World::complete(5), 10), (World::in_order(5), 5), (World::new(5), 10)] {
        let manager = world.builder().build().unwrap();
        let held = world.sim.block_on(manager.lock("r")).unwrap();
        world.inject(.., Fault::Slow(5 * MS));
        let mut next = Box::pin(manager.lock("r").into_future());
        assert!(world.sim.block_on_for(next.as_mut(), 1).is_none());
        drop(held);
        assert!(world.sim.block_on(next).unwrap().is_valid());
        let took = world.sim.elapsed();
        assert!(took >= least * MS && took < least * MS + MS / 10, "{took:?} for {least} ms");
    }
}

#[test]
fn tasks_that_cannot_be_served_in_time_do_not_ask_the_nodes() {
    let world = World::in_order(3);
    world.inject(.., Fault::Slow(MS));
    let (manager, sim) = (world.manager(), &world.sim);
    let locks = (0..1000).map(|_| async {
        let guard = manager.lock("r").timeout(SECOND).await?;
        sim.sleep(MS).await;
        guard.release().await.ok();
        Ok::<_, LockError>(())
    });
    let ended = sim.block_on(join_all(locks));
    let had = ended.iter().filter(|ended| ended.is_ok()).count();
    assert!(had > 100 && had < 960, "some had it, some had not: {had}");
    let is_acquire = |operation: &&&str| **operation == "acquire";
    let asked = world.log.operations().iter().filter(is_acquire).count() / 3;
    assert!(asked <= had + 2, "{asked} rounds for {had} locks");
    for error in ended.into_iter().filter_map(Result::err) {
        assert!(error.is_held(), "{error}");
    }
}

#[test]
fn a_turn_that_comes_just_before_the_deadline_is_no_outage() {
    for (timeout, at) in (80..105).flat_map(|at| [(100, at), (2_000, 1_900 + at)]) {
        let world = World::complete(3);
        world.inject(.., Fault::Slow(3 * MS));
        let manager = world.manager();
        let guard = world.sim.block_on(manager.lock("r")).unwrap();
        world.sim.advance(10 * MS);
        let (sim, start) = (world.sim.clone(), world.sim.now());
        let releases = async {
            sim.sleep(at * MS).await;
            guard.release().await.unwrap();
        };
        let waits = async {
            let waited = manager.lock("r").timeout(timeout * MS).await;
            (waited, sim.now() - start)
        };
        let (_, (waited, took)) = world.sim.block_on(join(releases, waits));
        // The release and the acquire take 3 ms each.
        if at + 6 != timeout {
            assert_eq!(waited.is_ok(), at + 6 < timeout, "{at} ms of {timeout}: {waited:?}");
        }
        // And as long as its round for the undo (C8).
        assert!(took <= (timeout + 3) * MS, "{at}: {took:?} for {timeout} ms");
        if let Err(error) = waited {
            assert!(error.is_held(), "{at}: {error}");
        }
    }
}

/// A refusal of an earlier round says more than silence in one that the deadline cut short.
#[test]
fn q4_a_second_round_that_is_cut_short_hides_no_refusal() {
    let scene = Scene::new(3);
    let (holder, waiter) = (scene.process(), scene.process());
    let held = scene.sim.block_on(holder.lock("r")).unwrap();
    for node in &scene.nodes {
        node.add_rule(Rule::new(Effect::Delay { least: MS, most: MS }).on(Operation::Acquire));
    }
    for timeout in 5..12 {
        let refused = scene.sim.block_on(waiter.locks.lock("r").timeout(timeout * MS));
        assert!(refused.unwrap_err().is_held(), "{timeout}");
    }
    drop(held);
}

#[test]
fn a_lock_that_nobody_else_wants_is_had_however_often_and_however_short_the_timeout() {
    let scene = Scene::new(5);
    let locks: LockManager = scene.process().locks;
    for timeout in [2 * MS, 5 * MS, 30 * MS] {
        for time in 0..100 {
            let guard = scene.sim.block_on(locks.lock("r").timeout(timeout));
            let guard = guard.unwrap_or_else(|error| panic!("{timeout:?}, {time}: {error}"));
            scene.sim.block_on(guard.release()).unwrap();
        }
    }
    assert!(scene.nodes.iter().all(|node: &MemoryNode| node.get("r").is_none()));
}

#[test]
fn a_request_without_time_says_whether_it_is_held() {
    let world = World::complete(3);
    let lock = || world.sim.block_on(world.manager().lock("r").timeout(Duration::ZERO));
    assert!(lock().unwrap().is_valid());
    world.occupy(..);
    assert!(matches!(lock(), Err(LockError::Held(_))));
}
