//! Why a request for one of several names ends without one.

use std::future::IntoFuture;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use quorate_core::LockError;
use quorate_memory::Operation;

use crate::waiting::processes::Scene;
use crate::world::{Client, HOUR, MS, SECOND, World, slow};

/// Two tasks have each lost a round to another process. One waits at the gate, the other behind it.
#[test]
fn each_task_that_waits_for_one_of_several_names_hears_of_a_close() {
    let (scene, [process, other]) = Scene::new(3).and_processes();
    let [released, _held] =
        ["a", "b"].map(|name| scene.run(process.locks.lock(name).ttl(HOUR)).unwrap());
    let errors = Arc::<Mutex<Vec<LockError>>>::default();
    for _ in 0..2 {
        let request = process.locks.lock_any(["a", "b"]).timeout(HOUR).into_future();
        let errors = Arc::clone(&errors);
        process.spawn(request.map(move |lost| errors.lock().unwrap().extend(lost.err())));
    }
    scene.advance(SECOND);
    scene.add_rule(.., slow(50 * MS).on(Operation::Acquire).client(&process.client));
    drop(released);
    let _kept = other.hold_once("a", HOUR);
    scene.advance(5 * SECOND);
    assert!(errors.lock().unwrap().is_empty(), "both wait");
    let locks = process.locks.clone();
    process.spawn(async move { drop(locks.close(SECOND).await) });
    scene.advance(SECOND);
    let errors = errors.lock().unwrap();
    assert_eq!(errors.len(), 2);
    assert!(errors.iter().all(LockError::is_closed), "{errors:?}");
}

/// No other client and no task has the names: this manager has released both, and the node has not answered yet.
#[test]
fn releases_that_are_not_answered_are_no_holder() {
    let (world, manager) = World::pool().and_manager();
    let held = ["a", "b"].map(|name| world.run(manager.lock(name)).unwrap());
    world.add_rule(.., slow(300 * MS).on(Operation::Release));
    drop(held);
    for request in [manager.lock("a"), manager.lock_any(["a", "b"])] {
        let error = world.run(request.timeout(100 * MS)).unwrap_err();
        assert!(matches!(error, LockError::NoQuorum(_)), "{error}");
        assert_eq!(error.failure().unwrap().nodes().len(), 1, "{error}");
    }
}

/// One name is being acquired by a task here. Another task takes the other one just when the request would.
#[test]
fn a_task_here_that_is_quicker_is_a_holder() {
    let world = World::complete(3);
    let runtime = Client::showing(&world.sim, || 0);
    let manager = world.builder().runtime(runtime.clone()).build().unwrap();
    world.add_rule(.., slow(100 * MS).on(Operation::Acquire));
    let _first = world.begun(manager.lock_any(["a", "b"]));
    let alone = ["a", "b"].map(|name| manager.lock(name).into_future());
    let alone = Arc::new(Mutex::new(alone));
    let others = Arc::clone(&alone);
    runtime.on_random(move || {
        for request in &mut *others.lock().unwrap() {
            assert!(request.now_or_never().is_none());
        }
    });
    let error = world.run(manager.lock_any(["a", "b"]).no_wait()).unwrap_err();
    assert!(error.is_held(), "{error}");
}
