//! A4 to A6, as far as virtual time can show them. Real runtimes are in `runtimes.rs`, A2's docs in
//! `cancel_safety.rs`.

use std::future::{IntoFuture, poll_fn};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use quorate_core::{BuildError, LockError, LockManager, Runtime};
use quorate_memory::{Fault, MemoryNode, Sim, Value};
use quorate_protocol::error_of_reply;

use crate::backends::Odd;
use crate::world::{MS, Paused, SECOND, World};

#[test]
fn a4_a_lock_always_has_a_deadline() {
    for world in [World::complete(3), World::new(3)] {
        let manager = world.manager();
        world.occupy(..);
        let lost = world.sim.block_on(manager.lock("r"));
        assert!(matches!(lost, Err(LockError::Held(_))), "{lost:?}");
        let elapsed = world.sim.elapsed();
        assert!(elapsed >= 30 * SECOND && elapsed <= 30 * SECOND + 2 * MS, "{elapsed:?}");

        world.inject(.., Fault::Hung);
        for timeout in [Duration::ZERO, MS, 700 * MS, 3 * SECOND] {
            let start = world.sim.elapsed();
            let lost = world.sim.block_on(manager.lock("other").timeout(timeout));
            assert!(matches!(lost, Err(LockError::Unreachable(_))), "{timeout:?}: {lost:?}");
            let took = world.sim.elapsed() - start;
            // C8: the error waits for answers to its undo, as long as the round took or 2 ms.
            let undo = timeout.clamp(2 * MS, 500 * MS);
            assert!(took <= timeout + undo, "{took:?} of {timeout:?}");
        }
    }
}

/// The process is stopped between two attempts, until its caller waits no longer.
#[test]
fn a4_no_attempt_is_made_after_the_deadline() {
    let world = World::new(3);
    world.occupy(..);
    let client = Paused::new(&world.sim);
    let builder = world.builder().runtime(client.clone());
    let manager = builder.build().unwrap();
    let acquires = || world.log.operations().iter().filter(|name| **name == "acquire").count();
    let mut request = manager.lock("r").timeout(SECOND).into_future();
    assert!(world.sim.block_on_for(&mut request, 1).is_none());
    assert_eq!(acquires(), 3);
    client.pause(10 * SECOND);
    let lost = world.sim.block_on(request);
    assert!(matches!(lost, Err(LockError::Held(_))), "{lost:?}");
    assert_eq!(acquires(), 3);
}

#[test]
fn a4_a_transient_error_is_waited_for() {
    for reply in ["LOADING x", "READONLY x", "OOM x", "MISCONF x", "CLUSTERDOWN x", "ERR else"] {
        // A replica that stays one for a second is permanent.
        let (lasts, most) = match reply {
            "READONLY x" => (900 * MS, 2 * SECOND),
            _ => (2 * SECOND, 3 * SECOND),
        };
        for world in [World::complete(3), World::in_order(3), World::new(3)] {
            world.inject(.., Fault::Failing(error_of_reply(reply)));
            let (nodes, sim) = (world.nodes.clone(), world.sim.clone());
            world.sim.spawn(Box::pin(async move {
                sim.sleep(lasts).await;
                nodes.iter().for_each(MemoryNode::heal);
            }));
            let manager = world.builder().build().unwrap();
            assert!(world.sim.block_on(manager.lock("r")).is_ok(), "{reply}");
            let elapsed = world.sim.elapsed();
            assert!(elapsed <= most, "{reply}: {elapsed:?}");
        }
    }
}

/// A failover passes through READONLY, so one round says nothing.
#[test]
fn a4_a_replica_that_stays_one_ends_the_wait() {
    for world in [World::complete(3), World::in_order(3), World::new(3)] {
        world.inject(.., Fault::Failing(error_of_reply("READONLY x")));
        let lost = world.sim.block_on(world.manager().lock("r").no_wait()).unwrap_err();
        assert!(!lost.is_permanent(), "{lost}");
        let start = world.sim.elapsed();
        let lost = world.sim.block_on(world.manager().lock("r")).unwrap_err();
        assert!(matches!(lost, LockError::Unreachable(_)) && lost.is_permanent(), "{lost}");
        let took = world.sim.elapsed() - start;
        assert!(took >= SECOND && took <= 3 * SECOND, "{took:?}");
    }
}

/// The order in which the nodes answer changes neither the error nor the wait.
#[test]
fn a4_the_error_does_not_depend_on_which_node_answers_first() {
    for shift in 0..5 {
        let world = World::complete(5);
        let node = |place: usize| &world.nodes[(place + shift) % 5];
        node(0).inject(Fault::Dead);
        node(1).put("r", Value::String(b"another program's".to_vec()));
        for place in 2..5 {
            node(place).inject(Fault::Failing(error_of_reply("NOAUTH")));
        }
        let lost = world.sim.block_on(world.manager().lock("r")).unwrap_err();
        assert!(
            matches!(lost, LockError::Unreachable(_)) && lost.is_permanent(),
            "{shift}: {lost}"
        );
        assert!(world.sim.elapsed() <= 2 * MS, "{shift}");
    }
}

/// After a round that the deadline cut short, the error is that of the round before.
#[test]
fn a4_a_deadline_in_mid_round_does_not_hide_who_held_it() {
    for timeout in (50..900).step_by(7) {
        let world = World::new(3);
        world.occupy(..);
        world.inject(.., Fault::Slow(100 * MS));
        let lost = world.sim.block_on(world.manager().lock("r").timeout(timeout * MS)).unwrap_err();
        assert_eq!(lost.is_held(), timeout >= 100, "{timeout}: {lost}");
        let elapsed = world.sim.elapsed();
        // And the answers to the undo (C8).
        assert!(elapsed >= timeout.min(100) * MS && elapsed <= (timeout + 100) * MS, "{elapsed:?}");
    }
}

#[test]
fn t3_a_backoff_without_a_delay_is_refused() {
    let world = World::new(3);
    let build = |base, most| world.builder().backoff(base, most).build();
    for (base, most) in [(Duration::ZERO, Duration::ZERO), (MS / 2, SECOND), (2 * MS, MS)] {
        let error = build(base, most).unwrap_err();
        assert!(matches!(error, BuildError::OutOfRange { setting: "backoff", .. }), "{error}");
    }
    // The shortest one still lets time pass, on nodes without latency.
    world.occupy(..);
    let shortest = world.builder().backoff(MS, MS).build().unwrap();
    assert!(world.sim.block_on(shortest.lock("r").timeout(20 * MS)).is_err());
}

#[test]
fn a6_no_token_is_printed_anywhere() {
    let world = World::complete(5);
    let manager = world.manager();
    world.occupy(3..);
    let request = manager.lock("r");
    let mut printed = format!("{manager:?} {request:?} {:?}", manager.lock("r").no_wait());
    let guard = world.sim.block_on(request).unwrap();
    printed += &format!("{guard:?} {:?}", guard.lease());
    world.nodes[..3].iter().for_each(MemoryNode::restart);
    let error = world.sim.block_on(guard.extend()).unwrap_err();
    printed += &format!("{error} {error:?}");
    let error = world.sim.block_on(manager.lock(vec![0_u8; 9]).no_wait()).map(drop);
    printed += &format!("{error:?}");
    let record = world.sim.block_on(manager.lock("s")).unwrap().detach().unwrap();
    printed += &format!("{record:?}");
    let tokens = world.log.tokens();
    assert!(tokens.len() > 2);
    for token in tokens {
        let token = String::from_utf8(token).unwrap();
        assert!(!printed.contains(&token), "{printed}");
        assert!(!printed.contains(&token[..8]), "{printed}");
    }
}

/// The votes have come, and the task is polled late.
#[test]
fn t5_votes_that_are_there_count_before_the_clock() {
    let world = World::new(3);
    world.inject(.., Fault::Late(10 * MS));
    let mut context = Context::from_waker(Waker::noop());
    let mut request = Box::pin(world.manager().lock("r").no_wait().into_future());
    assert!(request.as_mut().poll(&mut context).is_pending());
    world.sim.advance(3 * SECOND);
    assert!(matches!(request.as_mut().poll(&mut context), Poll::Ready(Ok(_))));
}

/// A manager, and what its nodes keep alive. They keep the waker of each call as well.
fn kept_alive() -> (Sim, LockManager, Arc<()>) {
    let (sim, alive) = (Sim::new(7), Arc::new(()));
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
    let nodes: Vec<Odd> = MemoryNode::cluster(3, sim.clone()).iter().map(keeps).collect();
    let manager = LockManager::builder(nodes).runtime(sim.clone()).build().unwrap();
    (sim, manager, alive)
}

#[test]
fn a_waker_that_a_backend_keeps_does_not_keep_the_manager() {
    let (sim, manager, alive) = kept_alive();
    let guard = sim.block_on(manager.lock("r")).unwrap();
    sim.block_on(guard.release()).unwrap();
    sim.settle();
    drop(manager);
    sim.end();
    assert_eq!(Arc::strong_count(&alive), 1, "its nodes are still there");
}

/// A request, a guard and its futures keep no task alive: without a manager nothing is left.
#[test]
fn a_manager_without_guards_is_dropped_with_its_nodes() {
    let (sim, manager, alive) = kept_alive();
    let guard = sim.block_on(manager.lock("r")).unwrap();
    guard.auto_renew();
    let lost = guard.lost();
    drop(manager);
    drop(guard);
    sim.block_on(lost);
    sim.settle();
    assert_eq!(Arc::strong_count(&alive), 1, "its nodes are still there");
}
