//! Backends that queue a call, or keep it until it is given up.

use std::future::pending;
use std::sync::Arc;

use futures_util::future::{Either, select};
use quorate_core::backend::{Call, Operation};
use quorate_core::{LockBackend, LockManager, Runtime};
use quorate_memory::{Fault, MemoryNode};

use super::inside_begin::manager;
use crate::backends::{Begins, Odd, begin};
use crate::world::{HOUR, MS, SECOND, World};

/// A release in a queue of this process is not silence of a node that answers other calls. If it leaves the queue late,
/// it has a node timeout more, of 500 ms.
#[test]
fn a_release_that_its_backend_queues_keeps_its_vote() {
    for (is_noted, is_late, executed, answers, is_released) in [
        (true, false, 900, true, true),
        (true, true, 900, true, true),
        (true, false, 1200, true, false),
        (true, true, 1200, true, true),
        (true, true, 900, false, false),
        (false, false, 900, true, false),
    ] {
        let world = World::new(3);
        let queues = move |node: &MemoryNode, call: Call, runtime: &dyn Runtime| {
            if !matches!(call.operation(), Operation::Release(..)) {
                return begin(node, call, runtime);
            }
            if is_noted {
                call.note_queued();
            }
            let at = [700, executed].map(|after| runtime.sleep_until(runtime.now() + after * MS));
            let ([left, sent], node) = (at, node.clone());
            runtime.spawn(Box::pin(async move {
                left.await;
                if is_noted {
                    call.note_left(is_late);
                }
                sent.await;
                let Operation::Release(claim, options) = call.operation() else { return };
                let released = node.release(claim, options.clone()).await;
                call.answer(released.map(Into::into));
            }));
            Ok(())
        };
        let manager = manager(&world, 3, queues);
        let guard = world.lock(&manager);
        let other = world.run(manager.lock("s").ttl(HOUR)).unwrap();
        if answers {
            let sim = world.sim.clone();
            world.sim.spawn(Box::pin(async move {
                while other.extend().await.is_ok() {
                    sim.sleep(200 * MS).await;
                }
            }));
        }
        let released = world.run(guard.release());
        let story = format!("{is_noted}, {is_late}, {executed} ms, {answers}: {released:?}");
        assert_eq!(released.is_ok(), is_released, "{story}");
        world.advance(SECOND);
        assert_eq!(world.holders("r"), 0);
    }
}

/// At the cleanup bound (C5) the acquires are given up, and their tasks end.
#[test]
fn a_call_that_is_given_up_is_dropped() {
    let (world, in_flight) = (World::new(3), Arc::new(()));
    let hangs = |node: &MemoryNode| {
        let in_flight = Arc::clone(&in_flight);
        Odd::new(node).before(move |method| {
            let call = Arc::clone(&in_flight);
            Box::pin(async move {
                if method == "acquire" {
                    pending::<()>().await;
                }
                drop(call);
                Ok(())
            })
        })
    };
    let builder = LockManager::builder(world.nodes.iter().map(hangs)).runtime(world.sim.clone());
    let manager = builder.ttl(4 * SECOND).build().unwrap();
    let idle = Arc::strong_count(&in_flight);
    assert!(world.try_lock(&manager).is_err());
    assert_eq!(Arc::strong_count(&in_flight), idle + 3);
    world.advance(4 * SECOND);
    assert_eq!(Arc::strong_count(&in_flight), idle);
}

/// A request that waits has one watch, and then none. A call whose answer is not awaited any more is given up as well.
#[test]
fn a_backend_may_wait_until_no_push_and_no_answer_is_awaited() {
    let (world, awaited) = (World::complete(3), Arc::new(()));
    let nodes = world.nodes.iter().map(|node| {
        let awaited = Arc::clone(&awaited);
        Begins::new(node, move |node, call, runtime| {
            let kept = Arc::clone(&awaited);
            assert_eq!(call.now(), Some(runtime.now()));
            match call.operation() {
                Operation::Watch { .. } => {
                    // From the beginning of the watch on.
                    let push = call.push();
                    runtime.spawn(Box::pin(async move {
                        push.given_up().await;
                        drop(kept);
                    }));
                }
                Operation::Leave { .. } => {
                    runtime.spawn(Box::pin(async move {
                        call.given_up().await;
                        drop(kept);
                    }));
                    return Ok(());
                }
                _ => {}
            }
            begin(node, call, runtime)
        })
    });
    let waiter = world.over(nodes.collect::<Vec<_>>());
    let idle = Arc::strong_count(&awaited);
    let held = world.lock(&world.manager());
    world.inject(.., Fault::Slow(MS));
    let mut waits = world.begun(waiter.lock("r"));
    for _ in 0..3 {
        let polled = select(waits.as_mut(), world.sim.sleep(300 * MS));
        assert!(matches!(world.run(polled), Either::Right(_)));
        assert_eq!(Arc::strong_count(&awaited), idle + 1, "one watch");
        world.run(held.extend()).unwrap();
    }
    drop(waits);
    world.advance(MS);
    assert_eq!(Arc::strong_count(&awaited), idle + 1, "one leave, which is never answered");
    world.advance(10 * SECOND);
    assert_eq!(Arc::strong_count(&awaited), idle);
}
