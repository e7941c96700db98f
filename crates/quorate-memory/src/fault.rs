//! What can be wrong with a node.

use std::time::Duration;

use quorate_core::BackendError;

/// What is wrong with a node, until [`MemoryNode::heal`](crate::MemoryNode::heal).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// The process is gone: calls fail at once. What it had stored is gone with it.
    Dead,
    /// The process is gone, and what it had stored is on its disk: calls fail at once, and keys go
    /// on expiring.
    Down,
    /// The process is stopped: calls wait, and are carried out in their order when it wakes, also
    /// those that nobody waits for any more. Keys go on expiring.
    Hung,
    /// Every request takes this long to arrive.
    Slow(Duration),
    /// Every request is carried out at once, and its reply takes this long to come back.
    Late(Duration),
    /// Every call is answered with this error, and nothing is done. An error answer of a node is
    /// `Fault::Failing(BackendError::from_reply("READONLY You can't write against a replica."))`.
    Failing(BackendError),
    /// The node is configured to evict keys when its memory is full. It is not full, so that only the
    /// restart guard cares.
    Evicting,
    /// The user may not run `INFO`: the node does not tell who it is, and cannot be guarded.
    NoInfo,
    /// One address, and two servers behind it that share their data and answer in turn.
    Flapping,
}
