//! Tasks, runtimes, guards and callers that go away at the wrong moment: A1, and the objects kept alive.

use std::future::{IntoFuture, poll_fn};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures_util::FutureExt;
use quorate_core::runtime::TokioRuntime;
use quorate_core::{LockManager, ReleaseError, Runtime};
use quorate_memory::{Fault, MemoryNode, Value};

use crate::backends::Odd;
use crate::telling::{Acts, acting};
use crate::world::{Client, MARGIN, MS, SECOND, World};

#[test]
fn a_lease_is_renewed_though_the_runtime_that_renewed_it_has_ended() {
    let world = World::complete(3);
    let runtime = Client::new(&world.sim);
    let manager = world.builder().runtime(runtime.clone()).build().unwrap();
    let guard = world.run(manager.lock("r").auto_renew()).unwrap();
    for _ in 0..3 {
        world.advance(SECOND);
        let _ = runtime.end();
        world.advance(60 * SECOND);
        assert!(guard.is_valid());
        assert_eq!(world.holders("r"), 3);
    }
}

#[test]
fn a1_a_release_ends_though_the_runtime_drops_it() {
    let world = World::complete(3);
    let runtime = Client::new(&world.sim);
    let nodes = world.nodes.iter().map(Odd::new);
    let manager = LockManager::builder(nodes).runtime(runtime.clone()).build().unwrap();
    let guard = world.lock(&manager);
    runtime.is_over.store(true, Ordering::Relaxed);
    let released = world.run(guard.release());
    assert!(matches!(released, Err(ReleaseError::Unconfirmed(_))), "{released:?}");
}

/// One that is kept alive is held to its hold limit. The release follows after the safety margin.
#[test]
fn a1_a_forgotten_guard_leaves_the_lock_to_its_ttl() {
    for (limit, kept, gone) in
        [(None, 9 * SECOND, SECOND), (Some(60 * SECOND), 60 * SECOND, MARGIN)]
    {
        let world = World::complete(3);
        let request = world.manager().lock("r");
        let request = match limit {
            Some(limit) => request.hold_limit(limit).auto_renew(),
            None => request,
        };
        std::mem::forget(world.run(request).unwrap());
        world.advance(kept);
        assert_eq!(world.keys_left(), 3);
        world.advance(gone);
        assert_eq!(world.keys_left(), 0);
    }
}

/// A recorder that panics at one figure.
#[test]
fn a1_a_lock_is_released_though_the_recorder_panics() {
    for figure in ["quorate_hold_seconds", "quorate_releases_total", "quorate_node_votes_total"] {
        for awaited in [true, false] {
            let (world, guard) = World::new(3).held();
            let panics = Acts(move |name: &str| assert!(name != figure, "on purpose"));
            metrics::with_local_recorder(&panics, || {
                match awaited {
                    true => world.run(guard.release()).unwrap(),
                    false => drop(guard),
                }
                world.catch_up();
            });
            assert_eq!(world.keys_left(), 0, "{figure}, awaited: {awaited}");
        }
    }
}

/// Before the first poll, or in the middle, a subscriber begins to panic. A lock is taken and given
/// back all the same, and a cancelled acquisition leaves nothing behind.
#[test]
fn a1_a_subscriber_that_panics_keeps_no_lock() {
    for at in ["enabled", "new_span", "enter", "exit", "event", "try_close"] {
        for polls in 0..4 {
            let armed = Arc::<AtomicBool>::default();
            let is_armed = Arc::clone(&armed);
            let upset = move |method: &str| {
                assert!(!(is_armed.load(Ordering::SeqCst) && method == at), "on purpose");
            };
            acting(upset, || {
                let world = World::new(3);
                world.inject(.., Fault::Slow(10 * MS));
                let mut request = Box::pin(world.manager().lock("r").into_future());
                let cancelled = world.sim.block_on_for(&mut request, polls);
                armed.store(true, Ordering::SeqCst);
                drop((request, cancelled));
                world.sim.settle();
                assert_eq!(world.keys_left(), 0, "cancelled after {polls} polls, at {at}");

                world.run(world.lock(&world.manager()).release()).unwrap();
                world.sim.settle();
                assert_eq!(world.keys_left(), 0, "{at}");
            });
        }
    }
}

/// The nodes keep the waker of each call. A request, a guard and its futures keep no task alive: without a manager
/// nothing is left.
#[test]
fn a_manager_without_guards_is_dropped_with_its_nodes() {
    for is_renewed in [false, true] {
        let (world, alive) = (World::new(3), Arc::new(()));
        let keeps = |node: &MemoryNode| {
            let kept = (Arc::clone(&alive), Arc::<Mutex<Option<Waker>>>::default());
            Odd::new(node).before(move |_| {
                let waker = Arc::clone(&kept.1);
                let _alive = &kept.0;
                Box::pin(poll_fn(move |context| {
                    *waker.lock().unwrap() = Some(context.waker().clone());
                    Poll::Ready(Ok(()))
                }))
            })
        };
        let manager = world.over(world.nodes.iter().map(keeps));
        let guard = world.lock(&manager);
        if is_renewed {
            guard.auto_renew();
            let lost = guard.lost();
            drop((manager, guard));
            world.run(lost);
            world.sim.settle();
        } else {
            world.run(guard.release()).unwrap();
            world.sim.settle();
            drop(manager);
            world.sim.end();
        }
        assert_eq!(Arc::strong_count(&alive), 1, "its nodes are still there");
    }
}

/// A task looks at the end of a lease, or waits for one of several names, each time with another
/// future, and more than once. Another future waits beside it.
#[test]
fn a_future_that_is_dropped_keeps_no_task_alive() {
    struct Task;
    impl Wake for Task {
        fn wake(self: Arc<Self>) {}
    }
    let (world, manager) = World::complete(3).and_manager();
    let [first, _second] = ["a", "b"].map(|name| world.run(manager.lock(name)).unwrap());
    let any = || manager.lock_any(["a", "b"]).into_future().map(drop).boxed();
    let end = || first.lost().map(drop).boxed();
    for (what, [mut other, mut future]) in [("the end", [end(), end()]), ("a name", [any(), any()])]
    {
        let task = Arc::new(Task);
        let waker = Waker::from(Arc::clone(&task));
        for _ in 0..2 {
            assert!(other.poll_unpin(&mut Context::from_waker(Waker::noop())).is_pending());
            assert!(future.poll_unpin(&mut Context::from_waker(&waker)).is_pending());
        }
        drop((waker, future));
        assert_eq!(Arc::strong_count(&task), 1, "{what}");
    }
}

/// Tokio's paused clock drives locks, too: half a minute of waiting takes no time.
#[tokio::test(start_paused = true)]
async fn a_paused_tokio_clock_is_the_clock_of_the_locks() {
    let runtime = TokioRuntime::new();
    let nodes = MemoryNode::cluster(3, runtime.clone());
    nodes.iter().for_each(|node| node.put("r", Value::String(b"x".to_vec())));
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
