//! What happens at a node, for tests that observe it.

use quorate_core::backend::Claim;

use crate::rule::Operation;

/// Something that happened at a [`MemoryNode`](crate::MemoryNode).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Observed<'a> {
    /// A client sent a request, which may be lost.
    Sent {
        /// Which operation.
        operation: Operation,
        /// The [`SimClient`](crate::SimClient) that sent it, if it came through
        /// [`seen_by`](crate::MemoryNode::seen_by).
        client: Option<usize>,
    },
    /// The node set keys that were free: it granted an acquire, or was repaired.
    Set(&'a Claim),
    /// The node lost its data.
    LostData,
}

/// The callback of a test.
pub(crate) type Observer = Box<dyn Fn(Observed<'_>) + Send + Sync>;
