//! A request that waits already is not one too many.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use quorate_core::{LockManager, Runtime};

use super::name_of;
use crate::waiting::processes::{Process, Scene};
use crate::world::{HOUR, MS, SECOND, World};

/// A process in which one task may be queued for a key.
fn limited(scene: &Scene) -> Process {
    let client = scene.sim.client(0);
    let nodes = scene.nodes.iter().map(|node| node.seen_by(&client));
    let builder = LockManager::builder(nodes).runtime(client.clone());
    Process { locks: builder.max_waiters(1).build().unwrap(), client }
}

/// Requests a permit in the background. Returns the name or the error.
fn ends(process: &Process) -> Arc<Mutex<Option<String>>> {
    let (ends, request) = (Arc::<Mutex<_>>::default(), process.permit(2));
    let told = Arc::clone(&ends);
    process.spawn(async move {
        let end = match request.await {
            Ok(guard) => {
                let name = name_of(&guard);
                std::mem::forget(guard);
                name
            }
            Err(error) => error.to_string(),
        };
        *told.lock().unwrap() = Some(end);
    });
    ends
}

/// The gate names a permit for which as many tasks as may are queued here.
/// Rule S2.
#[test]
fn a_request_that_waits_at_the_gate_is_not_one_too_many() {
    let scene = Scene::new(3);
    let (process, other) = (limited(&scene), scene.process());
    let one = scene.run(process.lock("p#1").ttl(HOUR)).unwrap();
    let _two = scene.run(other.lock("p#2").ttl(HOUR)).unwrap();
    let alone = process.hold_once("p#1", 50 * MS);
    scene.advance(5 * MS);
    let any = ends(&process);
    scene.advance(SECOND);
    assert_eq!(*any.lock().unwrap(), None);
    process.spawn(one.release().map(drop));
    scene.advance(5 * SECOND);
    assert_eq!(any.lock().unwrap().as_deref(), Some("p#1"));
    assert!(alone.lock().unwrap().is_some());
}

/// The first request waits for tasks here alone. Then others have the turn, and it loses its round.
/// Rule S2.
#[test]
fn a_request_that_takes_its_turn_again_is_not_one_too_many() {
    let scene = Scene::new(3);
    let (process, other) = (limited(&scene), scene.process());
    let one = scene.run(process.lock("p#1").ttl(HOUR)).unwrap();
    let _two = scene.run(process.lock("p#2").ttl(HOUR)).unwrap();
    let first = ends(&process);
    let _second = ends(&process);
    scene.advance(5 * MS);
    scene.nodes.iter().for_each(|node| node.expire("p#1"));
    let held = scene.run(other.lock("p#1").ttl(HOUR)).unwrap();
    process.spawn(one.release().map(drop));
    for _ in 0..60 {
        scene.advance(Duration::from_micros(20));
        let _ends = ends(&process);
    }
    scene.advance(SECOND);
    assert_eq!(*first.lock().unwrap(), None);
    scene.run(held.release()).unwrap();
    scene.advance(5 * SECOND);
    assert_eq!(first.lock().unwrap().as_deref(), Some("p#1"));
}

/// Without a gate. All names are held by others, and by the time of the next round by tasks here.
#[test]
fn a_request_that_has_lost_a_round_is_not_one_too_many() {
    let world = World::new(3);
    let other = world.manager();
    let locks = world.builder().max_waiters(0).backoff(SECOND, SECOND).build().unwrap();
    let held = ["a", "b"].map(|name| world.run(other.lock(name)).unwrap());
    let told = Arc::<Mutex<Option<String>>>::default();
    let (request, tells) = (locks.lock_any(["a", "b"]).into_future(), Arc::clone(&told));
    world.sim.spawn(Box::pin(async move {
        let had = request.await;
        *tells.lock().unwrap() =
            Some(had.map_or_else(|error| error.to_string(), |it| name_of(&it)));
    }));
    world.advance(100 * MS);
    held.into_iter().for_each(|guard| world.run(guard.release()).unwrap());
    let [a, _b] = ["a", "b"].map(|name| world.run(locks.lock(name)).unwrap());
    world.advance(5 * SECOND);
    assert_eq!(*told.lock().unwrap(), None);
    world.run(a.release()).unwrap();
    world.advance(SECOND);
    assert_eq!(told.lock().unwrap().as_deref(), Some("a"));
}
