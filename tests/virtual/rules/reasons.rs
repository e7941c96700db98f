//! A4: which error a caller gets, and what it says of each node.

use quorate_core::error::{Answer, NodeAnswer, QuorumFailure};
use quorate_core::{BackendError, BackendErrorKind, LockError, ReleaseError, WithError};
use quorate_memory::{Fault, MemoryNode, Value};
use quorate_protocol::error_of_reply;

use crate::world::{MS, SECOND, World};

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
            assert!(matches!(failed, LockError::Unreachable(_)), "{failed}");
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
                assert!(!is_locked && matches!(lost, LockError::Unreachable(_)), "{lost}");
                assert!(!lost.is_permanent() && world.sim.elapsed() >= 30 * SECOND, "{lost}");
            }
        }
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
                let LockError::Unreachable(failure) = &failed else {
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
    LockError::Unreachable(QuorumFailure::new(kinds.iter().map(answer), MS))
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
