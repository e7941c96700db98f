//! Cases that were found from outside, each as a test of its name.

use quorate_core::error::{Answer, NodeAnswer, QuorumFailure};
use quorate_core::{BackendError, BackendErrorKind, LockError, ReleaseError, WithError};
use quorate_memory::Fault;
use quorate_protocol::error_of_reply;

use crate::world::{MS, SECOND, World};

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

/// A node hangs while its lock is dropped. Every other node is clean, and the report names this one.
#[test]
fn close_waits_for_no_node_that_hangs() {
    for world in [World::new(3), World::in_order(3), World::complete(3)] {
        let manager = world.manager();
        let guard = world.sim.block_on(manager.lock("r")).unwrap();
        world.catch_up();
        world.nodes[0].inject(Fault::Hung);
        drop(guard);
        let report = world.sim.block_on(manager.close(60 * SECOND));
        assert_eq!(world.sim.elapsed(), 500 * MS, "one node timeout");
        assert_eq!(report.to_string(), "all released; memory-1 did not answer");
        assert_eq!(report.nodes().collect::<Vec<_>>(), ["memory-1"]);
        assert!(!report.is_clean());
        assert_eq!(world.keys_left(), 1);
        world.nodes[0].heal();
        world.catch_up();
        assert_eq!(world.keys_left(), 0, "its release was sent");
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
