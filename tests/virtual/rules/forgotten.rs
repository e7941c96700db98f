//! Guards that are forgotten, wins that nobody hears of, and tokio's paused clock.

use std::future::IntoFuture;
use std::sync::Mutex;
use std::time::Duration;

use futures_util::FutureExt;
use quorate_core::runtime::TokioRuntime;
use quorate_core::{LockManager, Runtime};
use quorate_memory::{MemoryNode, Sim, Value};

#[test]
fn a1_a_forgotten_guard_leaves_the_lock_to_its_ttl() {
    let sim = Sim::new(1);
    let nodes = MemoryNode::cluster(3, sim.clone());
    let manager = LockManager::builder(nodes.clone()).runtime(sim.clone()).build().unwrap();
    std::mem::forget(sim.block_on(manager.lock("r")).unwrap());
    sim.advance(Duration::from_secs(9));
    assert_eq!(nodes[0].keys().len(), 1);
    sim.advance(Duration::from_secs(1));
    assert!(nodes.iter().all(|node| node.keys().is_empty()));
}

#[test]
fn a1_a_forgotten_guard_that_is_kept_alive_is_held_to_its_limit() {
    const LIMIT: Duration = Duration::from_secs(60);
    let sim = Sim::new(1);
    let nodes = MemoryNode::cluster(3, sim.clone());
    let manager = LockManager::builder(nodes.clone()).runtime(sim.clone()).build().unwrap();
    let guard = sim.block_on(manager.lock("r").hold_limit(LIMIT)).unwrap();
    guard.auto_renew();
    std::mem::forget(guard);
    sim.advance(LIMIT - Duration::from_secs(1));
    assert!(nodes.iter().all(|node| node.keys().len() == 1));
    // The renewal ends with the lease. The release follows after the safety margin.
    sim.advance(Duration::from_secs(1));
    assert!(nodes.iter().all(|node| node.keys().len() == 1));
    sim.advance(Duration::from_millis(500));
    assert!(nodes.iter().all(|node| node.keys().is_empty()));
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
