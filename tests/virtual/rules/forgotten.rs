//! Guards that are forgotten, and tokio's paused clock.

use std::future::IntoFuture;
use std::sync::Mutex;
use std::time::Duration;

use futures_util::FutureExt;
use quorate_core::runtime::TokioRuntime;
use quorate_core::{LockManager, Runtime};
use quorate_memory::{MemoryNode, Value};

use crate::world::{MS, SECOND, World};

#[test]
fn a1_a_forgotten_guard_leaves_the_lock_to_its_ttl() {
    let (world, guard) = World::complete(3).held();
    std::mem::forget(guard);
    world.sim.advance(9 * SECOND);
    assert_eq!(world.keys_left(), 3);
    world.sim.advance(SECOND);
    assert_eq!(world.keys_left(), 0);
}

#[test]
fn a1_a_forgotten_guard_that_is_kept_alive_is_held_to_its_limit() {
    let world = World::complete(3);
    let request = world.manager().lock("r").hold_limit(60 * SECOND);
    std::mem::forget(world.sim.block_on(request.auto_renew()).unwrap());
    world.sim.advance(59 * SECOND);
    assert_eq!(world.keys_left(), 3);
    // The renewal ends with the lease. The release follows after the safety margin.
    world.sim.advance(SECOND);
    assert_eq!(world.keys_left(), 3);
    world.sim.advance(500 * MS);
    assert_eq!(world.keys_left(), 0);
}

#[test]
fn a_forgotten_guard_is_released_by_a_close() {
    for is_renewed in [false, true] {
        let world = World::complete(3);
        let manager = world.manager();
        let guard = world.sim.block_on(manager.lock("r")).unwrap();
        if is_renewed {
            guard.auto_renew();
        }
        std::mem::forget(guard);
        let report = world.sim.block_on(manager.close(2 * SECOND));
        assert!(report.is_clean(), "{report}");
        assert_eq!(world.keys_left(), 0);
    }
}

/// Tokio's paused clock drives locks, too: half a minute of waiting takes no time.
#[tokio::test(start_paused = true)]
async fn a_paused_tokio_clock_is_the_clock_of_the_locks() {
    let runtime = TokioRuntime::new();
    let nodes = MemoryNode::cluster(3, runtime.clone());
    for node in &nodes {
        node.put("r", Value::String(b"x".to_vec()));
    }
    let clock = runtime.clone();
    let manager = LockManager::builder(nodes).runtime(runtime).build().unwrap();
    // In the order of that clock, whatever the time of the machine.
    let ended = Mutex::new(Vec::new());
    let note = |what| ended.lock().unwrap().push(what);
    let passes = |seconds, what| {
        let until = clock.now() + Duration::from_secs(seconds);
        clock.sleep_until(until).map(move |()| note(what))
    };
    let locks = manager.lock("r").into_future().map(|lock| {
        assert!(lock.is_err());
        note("the wait");
    });
    tokio::join!(passes(15, "15 s"), passes(60, "a minute"), locks);
    assert_eq!(*ended.lock().unwrap(), ["15 s", "the wait", "a minute"]);
}
