//! Backends that keep a call until it is given up.

use std::future::pending;
use std::sync::Arc;

use quorate_core::LockManager;
use quorate_memory::MemoryNode;

use crate::backends::Odd;
use crate::world::{SECOND, World};

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
