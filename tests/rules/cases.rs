//! Cases that were found from outside, each as a test of its name.

use quorate_core::{
    BackendError, BackendErrorKind, ExtendError, LockError, Lost, NodeVote, Said, Votes, WithError,
};

use crate::world::World;

#[test]
fn a_refused_extension_ends_the_guard() {
    let world = World::new(3);
    let manager = world.manager();
    let guard = world.sim.block_on(manager.lock("r")).unwrap();
    for node in &world.nodes[..2] {
        node.expire("r");
    }
    let refused = world.sim.block_on(guard.extend());
    assert!(matches!(refused, Err(ExtendError::NotHeld { .. })), "{refused:?}");
    assert!(!guard.is_valid());
    let lost = world.sim.block_on(guard.lost());
    assert!(matches!(lost, Lost::NotHeld { .. }), "{lost:?}");
    drop(guard);
    world.catch_up();
    assert_eq!(world.keys_left(), 0, "the key that was left is released");
}

/// The error of a round in which the nodes failed in these ways.
fn no_quorum(kinds: &[BackendErrorKind]) -> LockError {
    let vote = |kind: &BackendErrorKind| {
        NodeVote::new("node", Said::Failed(BackendError::new(*kind, "reason")))
    };
    LockError::NoQuorum { votes: kinds.iter().map(vote).collect() }
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
    assert!(!LockError::Held { votes: Votes::default() }.is_permanent());
    let with: WithError<()> = no_quorum(&[Auth; 3]).into();
    assert!(with.is_permanent() && !with.is_closed());
}
