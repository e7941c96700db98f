//! What a test can make wrong with a node.

use std::time::Duration;

use quorate_core::BackendError;

/// What is wrong with a node, until [`MemoryNode::heal`](crate::MemoryNode::heal).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// The process is gone, and its data with it. Calls fail at once, as not sent.
    Dead,
    /// The process is gone, and its data is on its disk. Calls fail at once, as not sent. Keys go
    /// on expiring.
    Down,
    /// The process is stopped. Calls stay pending and are executed in their order when it goes on,
    /// even if their futures were dropped. Keys go on expiring.
    Hung,
    /// Every request takes this long to arrive.
    Slow(Duration),
    /// Every request is executed at once, and its reply takes this long to come back.
    Late(Duration),
    /// Every call fails with this error, and nothing is executed. An error reply of a node is
    /// `Fault::Failing(BackendError::new(BackendErrorKind::ReadOnly, "READONLY a replica"))`.
    Failing(BackendError),
    /// The node is configured to evict keys when its memory is full. It is not full, so only the
    /// restart guard refuses the node.
    Evicting,
    /// The memory of the node is full, and it evicts no key: what stores something new fails. What
    /// is there is released, extended and revoked, as by Redis 7 and Valkey.
    Full,
    /// The user may not run `INFO`, so the server id and the restart guard are errors.
    NoInfo,
    /// One address, and two servers behind it that share their data and reply in turn.
    Flapping,
}
