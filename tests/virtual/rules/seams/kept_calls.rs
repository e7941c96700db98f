//! Backends that queue a call, or keep it until it is given up.

use std::future::pending;
use std::sync::Arc;

use futures_util::future::{Either, select};
use quorate_core::LockManager;
use quorate_core::backend::Operation;
use quorate_memory::{Fault, MemoryNode};

use crate::backends::{Begins, Odd, begin};
use crate::world::{MS, SECOND, World};

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
