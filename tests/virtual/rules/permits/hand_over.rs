//! S2: a free permit goes to a waiter.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use quorate_core::LockGuard;
use quorate_memory::{Fault, Operation, Sim};

use super::{Board, hand_over, name_of};
use crate::waiting::processes::{Process, Quirk, REFRESH, ROUND_TRIP, SECOND_LOOK, Scene};
use crate::world::{HOUR, MS, SECOND, World, failing, slow, spawned};

/// All permits are held by one process. Others wait, one after the other, and one permit after the other is released.
#[test]
fn s2_a_released_permit_goes_to_the_next_waiter_whichever_it_is() {
    for (permits, lost) in [(2, false), (5, false), (16, false), (40, false), (5, true)] {
        let mut quirk = Quirk::default();
        if lost {
            quirk.loses_pushes = Arc::new(true.into());
        }
        let (scene, [holder]) = Scene::with(5, Sim::new(7), quirk).and_processes();
        let take = |_| scene.run(holder.permit(permits)).unwrap();
        let guards: Vec<LockGuard> = (0..permits).map(take).collect();
        for (number, guard) in guards.into_iter().enumerate() {
            let (waiter, name) = (scene.process(), name_of(&guard));
            let waits = waiter.waits(permits);
            scene.advance(SECOND);
            let (had, took) = hand_over(&scene, guard, &waits);
            assert_eq!(had, name, "{number} of {permits}");
            // A release, a push and an acquire. No more than 16 names are watched.
            let most = match permits > 16 || lost {
                true => REFRESH + 4 * ROUND_TRIP,
                false => 3 * ROUND_TRIP,
            };
            assert!(took <= most, "{number} of {permits}: {took:?}");
        }
    }
}

#[test]
fn s2_permits_that_are_released_together_are_had_by_all_that_wait() {
    for (processes, tasks) in [(5, 1), (1, 5), (2, 5)] {
        let (scene, board) = (Scene::new(3), Board::default());
        let holder = scene.process();
        let guards: Vec<LockGuard> = (0..5).map(|_| scene.run(holder.permit(5)).unwrap()).collect();
        for _ in 0..processes {
            let process = scene.process();
            (0..tasks).for_each(|_| board.use_again(&process, |it| it.permit(5), 1, |_| SECOND));
        }
        scene.advance(2 * SECOND);
        drop(guards);
        scene.advance(100 * MS);
        let held = board.0.lock().unwrap().holders.len();
        assert_eq!(held, 5, "{processes} processes of {tasks} tasks");
        scene.advance(5 * SECOND);
        board.check(5, processes * tasks, "all");
    }
}

/// The permits of one manager are not serialised, and are handed over without the gate.
#[test]
fn s2_tasks_of_one_manager_hold_all_permits_at_once() {
    let (scene, board) = (Scene::new(3), Board::default());
    let process = scene.process();
    for _ in 0..50 {
        board.use_again(&process, |it| it.permit(5), 4, |_| 5 * MS);
    }
    // 200 holds of 5 ms, 5 at a time.
    scene.advance(200 * MS + 200 * MS / 5 * 3);
    board.check(5, 200, "50 tasks");
    assert_eq!(scene.count(Operation::Queue), 0, "no other process waits");
}

/// Tasks of one manager want two names alone, and go first. Those that want either of them have them as soon as no task
/// here wants one alone.
#[test]
fn s2_tasks_that_want_any_name_have_one_once_no_task_here_wants_it_alone() {
    for others in [0, 1] {
        let (scene, board) = (Scene::new(3), Board::default());
        let process = scene.process();
        for name in ["a", "b"] {
            for _ in 0..2 {
                board.use_again(&process, move |it| it.lock(name), 100, |_| 5 * MS);
            }
        }
        // The tasks above take a second.
        let any = |it: &Process| it.locks.lock_any(["a", "b"]).timeout(2 * SECOND);
        board.use_again(&process, any, 20, |_| 5 * MS);
        for _ in 0..others {
            board.use_again(&scene.process(), any, 20, |_| 5 * MS);
        }
        scene.advance(2 * SECOND);
        board.check(2, 4 * 100 + 20 * (1 + others), "names and any");
        assert!(scene.keys().is_empty(), "{:?}", scene.keys());
    }
}

/// A process waits for one of two names at the gate and wins it. Then it has that name again and again.
#[test]
fn s2_one_of_several_names_goes_to_another_process_that_waits() {
    let (scene, had) = (Scene::new(3), Arc::<Mutex<Vec<usize>>>::default());
    let holder = scene.process();
    let [released, _held] =
        ["a", "b"].map(|name| scene.run(holder.locks.lock(name).ttl(HOUR)).unwrap());
    for number in 0..2 {
        let (process, had) = (scene.process(), Arc::clone(&had));
        process.clone().spawn(async move {
            for _ in 0..10 {
                let guard = process.locks.lock_any(["a", "b"]).timeout(HOUR).await.unwrap();
                had.lock().unwrap().push(number);
                process.client.sleep(5 * MS).await;
                drop(guard);
            }
        });
        scene.advance(SECOND);
    }
    drop(released);
    scene.advance(SECOND);
    assert_eq!(*had.lock().unwrap(), [0, 1].repeat(10));
}

/// A name is being released when the request begins. A task here that wants it alone has it then.
#[test]
fn s2_a_request_that_waits_for_no_holder_waits_for_no_task_of_its_own_process() {
    let (world, manager) = World::pool().and_manager();
    let [released, _held] = ["a", "b"].map(|name| world.run(manager.lock(name)).unwrap());
    world.add_rule(.., slow(100 * MS).on(Operation::Release));
    drop(released);
    let any = manager.lock_any(["a", "b"]).no_wait().into_future();
    let error = spawned(&world.sim, any.map(Result::unwrap_err));
    world.advance(MS);
    let alone = world.run(manager.lock("a")).unwrap();
    world.advance(MS);
    let error = error.lock().unwrap().take().expect("it is answered once the release is over");
    assert!(error.is_held(), "{error}");
    drop(alone);
}

/// The gate has said that others wait, and no task of this process has a permit.
#[test]
fn a_permit_is_held_by_this_process_or_by_what_nodes_have_said() {
    for are_loading in [false, true] {
        let (scene, [holder, first, second]) = Scene::new(3).and_processes();
        let guards = [0; 2].map(|_| scene.run(holder.permit(2)).unwrap());
        let waits = first.waits(2);
        scene.advance(SECOND);
        let others = second.waits(2);
        scene.advance(SECOND);
        let [guard, _kept] = guards;
        drop(guard);
        scene.advance(10 * ROUND_TRIP);
        let had = waits.lock().unwrap().take();
        drop(had.expect("the first one has it"));
        scene.advance(10 * ROUND_TRIP);
        assert!(others.lock().unwrap().is_some());
        if are_loading {
            scene.inject(.., failing("LOADING the data set"));
        }
        let error = scene.run(first.locks.permit("p", 2).no_wait()).unwrap_err();
        assert_eq!(error.is_held(), !are_loading, "{error}");
        assert!(!error.failure().unwrap().is_local(), "{error}");
    }
}

#[test]
fn s2_a_cancelled_wait_delays_no_other_and_leaves_nothing() {
    for moment in [-50_000_i64, -400, -200, 0, 200, 400, 600, 800] {
        let (scene, [holder, first, second]) = Scene::new(3).and_processes();
        let guards = [(); 3].map(|()| scene.run(holder.permit(3)).unwrap());
        let [one, ..] = guards;
        let left = Duration::from_micros(u64::try_from(2_000_000 + moment).unwrap());
        first.spawn(first.permit(3).timeout(left).into_future().map(drop));
        scene.advance(5 * MS);
        let board = Board::default();
        board.use_again(&second, |it| it.permit(3), 1, |_| MS);
        scene.advance(2 * SECOND - 5 * MS);
        holder.spawn(one.release().map(drop));
        scene.advance(10 * ROUND_TRIP + 5 * MS);
        let seen = board.0.lock().unwrap().had.len();
        assert_eq!(seen, 1, "left {moment} µs after the release");
        scene.advance(SECOND);
        let left: Vec<_> = scene.keys().into_iter().filter(|key| !key.starts_with("p#")).collect();
        let left = left.into_iter().chain(scene.keys().into_iter().filter(|key| key.contains(':')));
        assert_eq!(left.collect::<Vec<_>>(), [""; 0], "left {moment} µs after the release");
    }
}

/// The gate hangs. The waiter goes on at another one, and watches all names there.
#[test]
fn s2_all_names_are_watched_at_the_next_gate() {
    for released in 0..3 {
        let (scene, [holder, waiter]) = Scene::new(5).and_processes();
        let mut guards: Vec<_> = (0..3).map(|_| scene.run(holder.permit(3)).unwrap()).collect();
        let waits = waiter.waits(3);
        scene.advance(SECOND);
        scene.nodes[scene.gate("p#1")].inject(Fault::Hung);
        scene.advance(3 * SECOND);
        let (_, took) = hand_over(&scene, guards.remove(released), &waits);
        assert!(took <= 4 * ROUND_TRIP, "{released}: {took:?}");
    }
}

/// The gate names permits that others hold on the other nodes. The free one is found all the same, also without a push.
#[test]
fn s2_a_name_that_the_gate_takes_for_free_hides_no_other() {
    for free in 0..4 {
        let quirk = Quirk { loses_pushes: Arc::new(true.into()), ..Quirk::default() };
        let (scene, [holder, waiter]) = Scene::with(5, Sim::new(7), quirk).and_processes();
        let mut guards: Vec<_> = (0..4).map(|_| scene.run(holder.permit(4)).unwrap()).collect();
        let waits = waiter.waits(4);
        scene.advance(SECOND);
        let gate = &scene.nodes[scene.gate("p#1")];
        let released = guards.remove(free);
        guards.iter().for_each(|guard| gate.expire(name_of(guard)));
        let name = name_of(&released);
        let (had, took) = hand_over(&scene, released, &waits);
        assert_eq!(had, name);
        assert!(took <= 4 * REFRESH + SECOND_LOOK, "{took:?}");
    }
}

/// A task that wants one name alone gives up after its release, without a push. Another task here takes that name.
#[test]
fn s2_a_wait_for_a_name_ends_when_a_task_that_wants_any_has_it() {
    for more in [120, 320, 520] {
        let (scene, [process, other]) = Scene::new(3).and_processes();
        let one = scene.run(process.lock("p#1").ttl(HOUR)).unwrap();
        let _two = scene.run(process.lock("p#2").ttl(HOUR)).unwrap();
        let held = other.hold_once("p#1", 3 * SECOND);
        scene.advance(SECOND);
        let alone = process.locks.lock("p#1").timeout(3 * SECOND + more * MS);
        process.spawn(alone.into_future().map(drop));
        scene.advance(10 * MS);
        let any = process.waits(2);
        scene.advance(90 * MS);
        process.spawn(one.release().map(drop));
        scene.advance(SECOND);
        scene.quirk.loses_pushes.store(true, Ordering::Relaxed);
        scene.advance(4 * SECOND);
        assert!(held.lock().unwrap().is_some());
        assert_eq!(any.lock().unwrap().as_ref().map(|(guard, _)| name_of(guard)).unwrap(), "p#1");
        assert!(scene.keys().iter().all(|key| !key.contains(':')), "{more}: {:?}", scene.keys());
    }
}
