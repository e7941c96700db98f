//! S3 and S4: what a full semaphore costs, and which names are refused.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use quorate_core::resource::Resource;
use quorate_core::{InvalidRequest, InvalidResource, LockError, LockGuard, LockManager, Runtime};
use quorate_memory::{Fault, Operation, Sim};

use super::{Board, hand_over, name_of};
use crate::waiting::processes::{Quirk, Scene};
use crate::world::{HOUR, MS, SECOND, World, failing};

#[test]
fn s3_a_full_semaphore_costs_three_rounds_and_then_a_wait() {
    for permits in [2_u16, 5, 16, 100] {
        let (scene, [holder, waiter]) = Scene::new(3).and_processes();
        let take = |_| scene.run(holder.permit(permits).ttl(HOUR)).unwrap();
        let _guards: Vec<LockGuard> = (0..permits).map(take).collect();
        scene.forget_sent();
        let _waits = waiter.waits(permits);
        scene.advance(SECOND);
        let rounds = scene.count(Operation::Acquire) / 3;
        assert_eq!(rounds, usize::from(permits).min(3), "{permits} permits");
        let watched = scene.count(Operation::Watch);
        assert_eq!(watched, usize::from(permits).min(16), "{permits} permits");
        scene.forget_sent();
        scene.advance(10 * SECOND);
        assert!(scene.sent_by(&waiter) <= 21, "{permits} permits: {}", scene.sent_by(&waiter));
        assert_eq!(scene.count(Operation::Acquire), 0, "{permits} permits");
    }
}

/// Extensions are pushes. They cost at most two commands a second and name.
#[test]
fn s3_holders_that_renew_do_not_make_a_waiter_spin() {
    let (scene, [holder, waiter]) = Scene::new(3).and_processes();
    let take = |_| scene.run(holder.permit(8).ttl(3 * SECOND).auto_renew()).unwrap();
    let _guards: Vec<LockGuard> = (0..8).map(take).collect();
    let _waits = waiter.waits(8);
    scene.advance(5 * SECOND);
    scene.forget_sent();
    scene.advance(10 * SECOND);
    assert!(scene.sent_by(&waiter) <= 8 * 2 * 10, "{}", scene.sent_by(&waiter));
}

#[test]
fn s3_a_name_that_this_manager_holds_is_not_asked_for() {
    let (scene, [process]) = Scene::new(3).and_processes();
    let mut guards: Vec<_> = (0..5).map(|_| scene.run(process.permit(5)).unwrap()).collect();
    scene.advance(SECOND);
    scene.forget_sent();
    let waits = process.waits(5);
    scene.advance(10 * SECOND);
    let error = scene.run(process.permit(5).no_wait()).unwrap_err();
    assert!(matches!(&error, LockError::Held(answers) if answers.is_local()), "{error}");
    assert_eq!(scene.sent().len(), 0);
    let guard = guards.pop().unwrap();
    let name = name_of(&guard);
    assert_eq!(hand_over(&scene, guard, &waits).0, name);
    assert_eq!(scene.count(Operation::Acquire), 3, "one round");
}

#[test]
fn s3_the_permit_that_was_held_last_is_tried_first() {
    let mut names = BTreeSet::new();
    for seed in 0..5 {
        let (scene, [process]) = Scene::with(3, Sim::new(seed), Quirk::default()).and_processes();
        let guard = scene.run(process.permit(128)).unwrap();
        let name = name_of(&guard);
        scene.run(guard.release()).unwrap();
        assert_eq!(name_of(&scene.run(process.permit(128)).unwrap()), name);
        names.insert(name);
    }
    assert!(names.len() > 1, "the first one is random");
}

/// Of ten permits nine are held. The gate says which is free.
#[test]
fn s3_a_request_that_waits_for_no_holder_finds_the_free_permit() {
    for free in 0..10 {
        let (scene, [holder, process]) = Scene::new(3).and_processes();
        let mut guards: Vec<_> = (0..10).map(|_| scene.run(holder.permit(10)).unwrap()).collect();
        let guard = guards.remove(free);
        let name = name_of(&guard);
        scene.run(guard.release()).unwrap();
        let had = scene.run(process.permit(10).no_wait()).unwrap();
        assert_eq!(name_of(&had), name);
        let from = scene.sim.now();
        let error = scene.run(process.permit(10).no_wait()).unwrap_err();
        assert!(error.is_held(), "{error}");
        assert!(scene.sim.now() - from <= 20 * MS);
        scene.advance(MS);
        assert!(scene.keys().iter().all(|key| key.starts_with("p#")), "{:?}", scene.keys());
    }
    let scene = Scene::new(3);
    let board = Board::default();
    let process = scene.process();
    for _ in 0..50 {
        let board = board.clone();
        let request = process.permit(5).no_wait();
        process.spawn(async move {
            if let Ok(guard) = request.await {
                board.0.lock().unwrap().most += 1;
                std::mem::forget(guard);
            }
        });
    }
    scene.advance(SECOND);
    assert_eq!(board.0.lock().unwrap().most, 5, "of 50 tasks that try at the same moment");
}

/// One refresh at the gate and one leave, whether it finds a free one or not.
#[test]
fn s3_a_request_that_waits_for_no_holder_asks_the_gate_once() {
    for free in [0, 1] {
        let (scene, [holder, process]) = Scene::new(3).and_processes();
        let mut guards: Vec<_> = (0..30).map(|_| scene.run(holder.permit(30)).unwrap()).collect();
        for guard in guards.drain(..free) {
            scene.run(guard.release()).unwrap();
        }
        // Now it knows the gate.
        let _other = scene.run(process.lock("other")).unwrap();
        scene.forget_sent();
        let had = scene.run(process.permit(30).no_wait());
        assert_eq!(had.is_ok(), free > 0);
        scene.advance(SECOND);
        let asked = scene.count(Operation::Queue);
        assert_eq!(asked, 2, "{free} are free");
        assert!(scene.count(Operation::Acquire) <= 3 * 4, "{free} are free");
    }
}

/// The gate names each of them another permit, as far as it goes by chance. With one order for all, 40 fail.
#[test]
fn s3_of_60_processes_that_try_for_90_permits_at_once_hardly_one_fails() {
    let failed = Arc::new(AtomicUsize::new(0));
    for seed in 0..10 {
        let scene = Scene::with(3, Sim::shuffled(seed), Quirk::default());
        for _ in 0..60 {
            let process = scene.process();
            let (request, failed) = (process.permit(90).no_wait(), Arc::clone(&failed));
            process.spawn(async move {
                match request.await {
                    Ok(guard) => std::mem::forget(guard),
                    Err(_) => drop(failed.fetch_add(1, Ordering::Relaxed)),
                }
            });
        }
        scene.advance(SECOND);
    }
    let failed = failed.load(Ordering::Relaxed);
    assert!(failed < 20, "{failed} of 600");
}

/// Backends that keep no queue: the request asks again after a delay.
#[test]
fn s3_without_a_wait_queue_a_request_waits_by_timers() {
    for world in [World::new(3), World::in_order(3)] {
        let (holder, waiter) = (world.manager(), world.manager());
        let request = |manager: &LockManager| manager.permit("p", 4);
        let guards: Vec<_> = (0..4).map(|_| world.run(request(&holder)).unwrap()).collect();
        let waits = world.begun(request(&waiter));
        world.later(3 * SECOND, move || drop(guards));
        let from = world.sim.elapsed();
        let _guard = world.run(waits).unwrap();
        let took = world.sim.elapsed() - from;
        assert!((3 * SECOND..=5 * SECOND).contains(&took), "{took:?}");
    }
}

#[test]
fn s3_too_few_nodes_are_no_quorum_and_a_permanent_error_ends_a_request() {
    let (world, manager) = World::complete(3).and_manager();
    world.inject(..2, Fault::Dead);
    let timeout = 2 * SECOND;
    let error = world.run(manager.permit("p", 5).timeout(timeout)).unwrap_err();
    assert!(matches!(error, LockError::NoQuorum(_)), "{error}");
    let error = world.run(manager.permit("p", 5).no_wait()).unwrap_err();
    assert!(matches!(error, LockError::NoQuorum(_)), "{error}");
    world.heal();
    world.inject(.., failing("NOAUTH Authentication required."));
    let from = world.sim.elapsed();
    let error = world.run(manager.permit("p", 5).timeout(HOUR)).unwrap_err();
    assert!(error.is_permanent() && world.sim.elapsed() - from < timeout, "{error}");
}

#[test]
fn s4_none_too_many_and_duplicate_names_are_refused() {
    let (world, manager) = World::complete(3).and_manager();
    let names = |count: usize| (0..count).map(|number| format!("n{number}"));
    let twice = names(5).chain(["n3".to_owned()]);
    for (request, expected) in [
        (manager.lock_any(names(0)), InvalidResource::Nothing),
        (manager.lock_any(twice), InvalidResource::Duplicate),
        (manager.lock_any(names(1025)), InvalidResource::TooMany),
        (manager.lock_any(["a", ""]), InvalidResource::Empty),
        (manager.lock_any(["a", "quorate:b"]), InvalidResource::Reserved),
        (manager.permit("p", 1025), InvalidResource::TooMany),
        (manager.permit("p", usize::MAX), InvalidResource::TooMany),
        (manager.permit("p", 0), InvalidResource::NoPermits),
        (
            manager.permit(vec![b'p'; Resource::MAX_LEN - 1], 10),
            InvalidResource::TooLong { len: Resource::MAX_LEN + 1 },
        ),
    ] {
        match world.run(request) {
            Err(LockError::Invalid(InvalidRequest::Resource(error))) => {
                assert_eq!(error, expected);
            }
            other => panic!("{expected:?}: {other:?}"),
        }
    }
    assert!(world.log.calls().is_empty(), "nothing was sent");
    let guard = world.run(manager.lock_any(names(1024)).no_wait()).unwrap();
    assert_eq!(guard.keys().len(), 1);
    assert_eq!(name_of(&world.run(manager.lock_any(["only"])).unwrap()), "only");
    assert_eq!(name_of(&world.run(manager.permit("one", 1)).unwrap()), "one#1");
    for name in ["quorate", "quorate-1", "r:quorate", "requorate:r"] {
        drop(world.run(manager.lock(name)).unwrap());
    }
}
