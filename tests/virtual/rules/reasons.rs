//! A4: which error a caller gets, and what it says of each node.

use std::future::IntoFuture;

use quorate_core::error::{Answer, NodeAnswer, QuorumFailure};
use quorate_core::{BackendError, BackendErrorKind, LockError, ReleaseError, Runtime, WithError};
use quorate_memory::{Fault, MemoryNode, Value};
use quorate_protocol::error_of_reply;

use crate::world::{MS, Paused, SECOND, World};

#[test]
fn a4_permanent_errors_end_a_lock_at_once() {
    for reply in [
        "NOAUTH Authentication required.",
        "WRONGPASS invalid username-password pair",
        "WRONGTYPE",
        "NOPERM this user has no permissions to run the 'set' command",
        "ERR unknown command 'EVALSHA'",
    ] {
        let error = error_of_reply(reply);
        for world in [World::complete(5), World::in_order(5), World::new(5)] {
            world.inject(..3, Fault::Failing(error.clone()));
            let failed = world.sim.block_on(world.manager().lock("r")).unwrap_err();
            assert!(matches!(failed, LockError::NoQuorum(_)), "{failed}");
            assert!(failed.is_permanent() && !failed.is_held(), "{failed}");
            assert!(world.sim.elapsed() <= 2 * MS, "{reply}: {:?}", world.sim.elapsed());
        }
    }
    // On no more nodes than a quorum can spare they end nothing, and a node that is gone may come back.
    for (third, is_locked) in [(None, true), (Some(Fault::Dead), false)] {
        let world = World::complete(5);
        world.inject(..2, Fault::Failing(error_of_reply("NOAUTH Authentication required.")));
        third.into_iter().for_each(|fault| world.nodes[2].inject(fault));
        match world.sim.block_on(world.manager().lock("r")) {
            Ok(_) => assert!(is_locked),
            Err(lost) => {
                assert!(!is_locked && matches!(lost, LockError::NoQuorum(_)), "{lost}");
                assert!(!lost.is_permanent() && world.sim.elapsed() >= 30 * SECOND, "{lost}");
            }
        }
    }
}

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
        for timeout in [MS, 700 * MS, 3 * SECOND] {
            let start = world.sim.elapsed();
            let lost = world.sim.block_on(manager.lock("other").timeout(timeout));
            assert!(matches!(lost, Err(LockError::NoQuorum(_))), "{timeout:?}: {lost:?}");
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
        assert!(matches!(lost, LockError::NoQuorum(_)) && lost.is_permanent(), "{lost}");
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
        assert!(matches!(lost, LockError::NoQuorum(_)) && lost.is_permanent(), "{shift}: {lost}");
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
fn an_error_says_what_each_node_answered() {
    let world = World::new(5);
    world.nodes[0].inject(Fault::Dead);
    world.nodes[1].inject(Fault::Hung);
    world.nodes[2].inject(Fault::Failing(error_of_reply("LOADING")));
    world.nodes[3].put("r", Value::String(b"another client's".to_vec()));
    let manager = world.builder().node_timeout(70 * MS).build().unwrap();
    let failed = world.sim.block_on(manager.lock("r").no_wait()).unwrap_err();
    assert_eq!(
        failed.to_string(),
        "held by another client: 1 of 5 nodes granted, 3 needed; memory-1: connection refused; \
         memory-2: no reply yet when the quorum had become impossible; memory-3: LOADING; \
         memory-4: refused"
    );
    world.nodes[0..4].iter().for_each(MemoryNode::heal);
    world.sim.advance(SECOND);
    assert_eq!(world.keys_left(), 1, "only the other client's");
}

/// Two of three nodes do not answer a release. No client holds the lock any more.
#[test]
fn unreachable_nodes_are_never_reported_as_held() {
    let loading = Fault::Failing(error_of_reply("LOADING"));
    for fault in [Fault::Hung, Fault::Down, loading] {
        for timeout in [1, 100, 299, 301, 499, 500, 501, 900].map(|millis| millis * MS) {
            for world in [World::new(3), World::in_order(3), World::complete(3)] {
                let manager = world.manager();
                let guard = world.sim.block_on(manager.lock("r")).unwrap();
                world.catch_up();
                world.inject(..2, fault.clone());
                let released = world.sim.block_on(guard.release());
                assert!(matches!(released, Err(ReleaseError::Unconfirmed(_))), "{released:?}");
                let failed = world.sim.block_on(manager.lock("r").timeout(timeout)).unwrap_err();
                let LockError::NoQuorum(failure) = &failed else {
                    panic!("{fault:?}, {timeout:?}: {failed}");
                };
                let silent = ["memory-1", "memory-2"];
                let named = |name: &str| failure.nodes().iter().any(|node| *node.name == *name);
                assert!(silent.into_iter().all(named), "{fault:?}, {timeout:?}: {failed}");
            }
        }
    }
}

/// The error of a round in which the nodes failed in these ways.
fn no_quorum(kinds: &[BackendErrorKind]) -> LockError {
    let answer = |kind: &BackendErrorKind| {
        NodeAnswer::new("node", Answer::Failed(BackendError::new(*kind, "reason")))
    };
    LockError::NoQuorum(QuorumFailure::new(kinds.iter().map(answer), MS))
}

#[test]
fn a_retry_loop_can_tell_permanent_errors() {
    use BackendErrorKind::{Auth, Connection, Loading, Permission};
    assert!(no_quorum(&[Auth, Auth, Connection]).is_permanent());
    assert!(no_quorum(&[Auth, Connection, Permission]).is_permanent());
    assert!(!no_quorum(&[Auth, Connection, Loading]).is_permanent(), "two nodes may come back");
    assert!(!no_quorum(&[Connection; 3]).is_permanent());
    let (first, second) = ("a".to_owned(), "b".to_owned());
    assert!(LockError::SameServer { first, second }.is_permanent());
    assert!(LockError::Closed.is_closed() && LockError::Closed.is_permanent());
    assert!(!LockError::Held(QuorumFailure::default()).is_permanent());
    let with: WithError<()> = no_quorum(&[Auth; 3]).into();
    assert!(with.is_permanent() && !with.is_closed());
}
