//! What the messages of the machine are at the seam to a backend.

use super::identity::Identity;
use crate::algorithm::attempt::Message;
use crate::algorithm::lease::Ttl;
use crate::algorithm::quorum::NodeId;
use crate::backend::{
    AcquireOptions, CallKind, Capabilities, ExtendOptions, Operation, ReleaseOptions,
};

/// The operation of a message to a node.
pub(super) fn operation(
    attempt: &Identity,
    node: NodeId,
    message: Message,
) -> (Operation, CallKind) {
    let claim = |ttl: Ttl| attempt.claim.with_ttl(ttl);
    match message {
        Message::Acquire { ttl } => {
            (Operation::Acquire(claim(ttl), attempt.options), CallKind::SetsTtl("acquire"))
        }
        // No fencing number, and no guard: the votes of the others prove who the holder is.
        Message::Repair { ttl } => {
            (Operation::Acquire(claim(ttl), AcquireOptions::default()), CallKind::Other("repair"))
        }
        Message::Extend { ttl } => {
            (Operation::Extend(claim(ttl), ExtendOptions::default()), CallKind::SetsTtl("extend"))
        }
        Message::Raise { token } => {
            (Operation::Raise(attempt.claim.clone(), token), CallKind::Other("raise"))
        }
        Message::Release { highest } => {
            // An adopted lock has a token also where a node keeps no numbers.
            let can_raise = attempt.cluster().nodes.can(node, Capabilities::FENCING);
            let options = ReleaseOptions { raise_to: highest.filter(|_| can_raise) };
            (Operation::Release(attempt.claim.clone(), options), CallKind::Release)
        }
    }
}
