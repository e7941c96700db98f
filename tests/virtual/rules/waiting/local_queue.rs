//! The local queue: the tasks of one manager that want the same key, and what their waits return.

use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{join, join_all};
use quorate_core::backend::Operation as Asked;
use quorate_core::{BackendError, BackendErrorKind, LockError};
use quorate_memory::Fault;

use crate::backends::begin;
use crate::world::{MS, SECOND, World, spawned};

#[test]
fn tasks_of_one_manager_have_the_lock_in_the_order_in_which_they_came() {
    for (world, manager) in World::kinds(5).map(World::and_manager) {
        let held = world.lock(&manager);
        let tasks = [(); 20].map(|()| {
            let (request, sim) = (manager.lock("r"), world.sim.clone());
            let task = spawned(&world.sim, async move {
                let (guard, from) = (request.await.unwrap(), sim.elapsed());
                sim.sleep(10 * MS).await;
                guard.release().await.unwrap();
                from
            });
            world.catch_up();
            task
        });
        let before = world.log.operations().len();
        world.advance(SECOND);
        assert_eq!(world.log.operations().len(), before, "a task behind a guard sends nothing");
        world.run(held.release()).unwrap();
        world.advance(SECOND);
        assert!(tasks.map(|task| task.lock().unwrap().expect("it was served")).is_sorted());
        assert_eq!(world.keys_left(), 0);
    }
}

/// Requests that want the same keys, named in another order, and some of one key.
#[test]
fn requests_for_the_same_names_in_any_order_wait_in_no_circle() {
    for world in World::kinds(3) {
        let (manager, sim) = (world.manager(), &world.sim);
        let work = |names: &'static [&'static str]| {
            let manager = manager.clone();
            async move {
                for _ in 0..20 {
                    let guard = manager.lock(names).await.unwrap();
                    sim.sleep(MS).await;
                    guard.release().await.unwrap();
                }
            }
        };
        let all: [&[&str]; 6] =
            [&["a", "b"], &["b", "a"], &["a"], &["b"], &["b", "c"], &["c", "a"]];
        world.run(join_all(all.map(work)));
        assert!(sim.elapsed() < SECOND, "{:?}", sim.elapsed());
    }
}

#[test]
fn a_request_for_several_keys_has_its_turn_when_it_is_first_for_each() {
    let world = World::complete(3);
    let (manager, sim) = (world.manager(), &world.sim);
    let [a, b] = ["a", "b"].map(|name| world.run(manager.lock(name)).unwrap());
    let mut both = world.begun(manager.lock(["a", "b"]));
    // It came later for one of them.
    let mut behind = world.begun(manager.lock("a"));
    drop(a);
    world.catch_up();
    assert!(sim.block_on_for(both.as_mut(), 1).is_none(), "it is not first for b");
    assert!(sim.block_on_for(behind.as_mut(), 1).is_none(), "it is behind the other for a");
    drop(b);
    let guard = world.run(both).unwrap();
    assert!(sim.block_on_for(behind.as_mut(), 1).is_none());
    drop(guard);
    assert!(world.run(behind).unwrap().is_valid());
    assert_eq!(sim.elapsed(), Duration::ZERO);
}

fn assert_local(error: &LockError) {
    assert!(error.is_held() && error.failure().unwrap().is_local(), "{error}");
    let why = ": held by another guard or waiter of this manager";
    assert!(error.to_string().ends_with(why), "{error}");
}

/// Rule A4.
#[test]
fn no_wait_fails_at_once_where_a_guard_or_a_waiter_of_this_manager_is_in_the_way() {
    for is_held_here in [true, false] {
        let world = World::complete(3);
        let (manager, sim) = (world.manager(), &world.sim);
        let other = if is_held_here { manager.clone() } else { world.manager() };
        let _held = world.run(other.lock("a").ttl(60 * SECOND)).unwrap();
        let _waits = (!is_held_here).then(|| world.begun(manager.lock("a")));
        world.inject(.., Fault::Slow(100 * MS));
        let (before, start) = (world.log.operations().len(), sim.elapsed());
        for names in [&["a"][..], &["b", "a"]] {
            assert_local(&world.run(manager.lock(names).no_wait()).unwrap_err());
        }
        assert_eq!((world.log.operations().len(), sim.elapsed()), (before, start));
    }
}

/// For a node timeout at most.
#[test]
fn no_wait_waits_for_a_release_in_flight() {
    for (world, is_polled) in
        World::KINDS.into_iter().flat_map(|world| [(world, false), (world, true)])
    {
        let world = world(3);
        let (manager, sim) = (world.manager(), &world.sim);
        let held = world.lock(&manager);
        world.inject(.., Fault::Slow(100 * MS));
        // A release goes on when its future is dropped.
        match is_polled {
            true => assert!(sim.block_on_for(held.release(), 1).is_none()),
            false => drop(held),
        }
        let next = world.try_lock(&manager).unwrap();
        assert!(next.is_valid());
        assert!(sim.elapsed() <= 300 * MS, "{:?}", sim.elapsed());
        world.inject(.., Fault::Hung);
        drop(next);
        let start = sim.elapsed();
        let error = world.try_lock(&manager).unwrap_err();
        assert!(matches!(error, LockError::NoQuorum(_)), "{error}");
        // The release, its own round, and the answers to the undo.
        let took = sim.elapsed() - start;
        assert!(took >= 500 * MS && took <= 1_500 * MS, "{took:?}");
    }
}

#[test]
fn a_waiter_in_the_local_queue_keeps_its_deadline() {
    let (world, manager) = World::complete(3).and_manager();
    let _held = world.lock(&manager);
    let waits = (1..=3).map(|n| manager.lock("r").timeout(n * 100 * MS).into_future());
    let timed = waits.map(|wait| wait.map(|lost| (lost, world.sim.elapsed())));
    for (number, (lost, at)) in (1..).zip(world.run(join_all(timed))) {
        assert_local(&lost.unwrap_err());
        assert_eq!(at, number * 100 * MS);
    }
}

#[test]
fn an_outage_is_reported_to_a_waiter_whose_turn_comes_late() {
    let (world, manager) = World::complete(3).and_manager();
    let _guard = world.lock(&manager);
    let nodes = world.nodes.clone();
    world.later(5 * SECOND, move || nodes.iter().for_each(|node| node.inject(Fault::Down)));
    let waited = world.run(manager.lock("r").timeout(20 * SECOND));
    assert!(matches!(waited, Err(LockError::NoQuorum(_))), "{waited:?}");
    // Its only round ends at its deadline, and takes a node timeout. Before it, the release took as long.
    for (world, manager) in World::kinds(3).map(World::and_manager) {
        let guard = world.lock(&manager);
        let waits = world.begun(manager.lock("r").timeout(6 * SECOND));
        world.advance(5 * SECOND);
        world.inject(.., Fault::Hung);
        drop(guard);
        let waited = world.run(waits);
        assert!(matches!(waited, Err(LockError::NoQuorum(_))), "{waited:?}");
    }
}

/// Its end is seen in the queue of one of its keys only, and is one release all the same.
#[test]
fn an_expired_lock_of_several_keys_is_outlived_by_a_task_that_wants_any_of_them() {
    for (wanted, other) in [("a", "b"), ("b", "a")] {
        let (world, manager) = World::complete(3).and_manager();
        std::mem::forget(world.run(manager.lock(["a", "b"]).ttl(2 * SECOND)).unwrap());
        let refused = world.run(manager.lock(wanted).timeout(1_700 * MS)).unwrap_err();
        assert!(refused.is_held(), "{refused}");
        let guard = world.run(manager.lock(wanted)).unwrap();
        assert!(guard.is_valid());
        let elapsed = world.sim.elapsed();
        assert!(elapsed <= 2 * SECOND + MS, "{wanted}: {elapsed:?}");
        drop(world.run(manager.lock(other).no_wait()).unwrap());
        world.catch_up();
        let releases = world.log.count("release");
        assert_eq!(releases, 6, "one for {other} as well, and one for both before");
    }
}

/// A lock that this manager adopted takes no ticket: another process may have it any time.
#[test]
fn a_lock_that_was_adopted_is_waited_for_at_the_nodes() {
    let world = World::complete(3);
    let record = world.detached();
    let manager = world.manager();
    let adopted = world.run(manager.adopt(&record)).unwrap();
    let lost = world.run(manager.lock("r").timeout(SECOND)).unwrap_err();
    assert!(lost.is_held() && !lost.failure().unwrap().is_local(), "{lost}");
    let next = manager.lock("r").timeout(SECOND).into_future();
    let (next, released) = world.run(join(next, adopted.release()));
    assert!(next.is_ok() && released.is_ok());
}

/// For the release of this manager, the gate decides, and over pools each node.
#[test]
fn the_next_task_acquires_once_the_gate_has_answered_the_release() {
    // Where no gate can say that others wait, the acquire leaves right behind the release.
    for (world, least) in World::kinds(5).into_iter().zip([10, 5, 10]) {
        let manager = world.manager();
        let held = world.lock(&manager);
        world.inject(.., Fault::Slow(5 * MS));
        let next = world.begun(manager.lock("r"));
        drop(held);
        assert!(world.run(next).unwrap().is_valid());
        let took = world.sim.elapsed();
        assert!(took >= least * MS && took < least * MS + MS / 10, "{took:?} for {least} ms");
    }
}

/// The client of the gate has no room for the release, and says so at once. Or it had none for the acquire, so nothing is
/// released there, and another node hangs.
#[test]
fn the_next_task_does_not_wait_for_a_gate_that_is_sent_no_release() {
    for is_acquired in [true, false] {
        let world = World::complete(5);
        let (gate, is_full) =
            (Arc::new(AtomicUsize::new(usize::MAX)), Arc::<AtomicBool>::default());
        let (asked, has_filled) = (Arc::clone(&gate), Arc::clone(&is_full));
        let manager = world.over(world.begins(move |at, node, call, runtime| {
            let has_no_room = match call.operation() {
                Asked::Release(_, options) if options.asks.is_some() => {
                    asked.store(at, Ordering::Relaxed);
                    is_acquired
                }
                Asked::Acquire(..) => !is_acquired && asked.load(Ordering::Relaxed) == at,
                _ => false,
            };
            if has_no_room && has_filled.load(Ordering::Relaxed) {
                let full = BackendError::new(BackendErrorKind::Other, "full");
                return Err(call.not_sent(full));
            }
            begin(node, call, runtime)
        }));
        for is_known in [false, true] {
            is_full.store(is_known, Ordering::Relaxed);
            let held = world.lock(&manager);
            let next = world.begun(manager.lock("r"));
            if is_known && !is_acquired {
                let other = (gate.load(Ordering::Relaxed) + 1) % 5;
                world.inject(other..=other, Fault::Hung);
            }
            let before = world.sim.elapsed();
            drop(held);
            assert!(world.run(next).unwrap().is_valid());
            let took = world.sim.elapsed() - before;
            assert!(took < 10 * MS, "{took:?}");
            assert!(gate.load(Ordering::Relaxed) < 5, "it was asked");
            world.advance(SECOND);
        }
    }
}

/// A process that locks a name again asks the gate with a release whether others wait, at most once in 100 ms. One that
/// locks a name once does not.
#[test]
fn a_process_alone_seldom_asks_the_gate() {
    for (pause, others, questions) in
        [(2 * SECOND, 0, 9), (200 * MS, 0, 9), (50 * MS, 0, 4), (5 * MS, 0, 0), (50 * MS, 300, 4)]
    {
        let world = World::complete(3);
        let asked = Arc::<AtomicUsize>::default();
        let seen = Arc::clone(&asked);
        let manager = world.over(world.begins(move |_, node, call, runtime| {
            if let Asked::Release(_, options) = call.operation() {
                seen.fetch_add(options.asks.is_some().into(), Ordering::Relaxed);
            }
            begin(node, call, runtime)
        }));
        for round in 0..10 {
            world.run(world.lock(&manager).release()).unwrap();
            world.advance(pause);
            for number in 0..others {
                let once = world.run(manager.lock(format!("{round} {number}"))).unwrap();
                world.run(once.release()).unwrap();
            }
        }
        assert_eq!(asked.load(Ordering::Relaxed), questions, "every {pause:?}, {others} others");
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
    let ended = world.run(join_all(locks));
    let had = ended.iter().filter(|ended| ended.is_ok()).count();
    assert!(had > 100 && had < 960, "some had it, some had not: {had}");
    let asked = world.log.count("acquire") / 3;
    assert!(asked <= had + 2, "{asked} rounds for {had} locks");
    for error in ended.into_iter().filter_map(Result::err) {
        assert!(error.is_held(), "{error}");
    }
}
