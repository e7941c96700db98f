//! What the nodes of a world can do, and what a process can use of it.

use quorate_core::backend::Capabilities;
use quorate_memory::MemoryNode;

/// What the nodes can do for waiters, or what a process can use of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ability {
    /// They keep the wait queue, and push when a key has changed.
    Queue,
    /// They keep the wait queue, and push nothing: a process that waits at them asks again and again.
    Polled,
    /// They push when a key has changed.
    Watch,
    /// Neither.
    Nothing,
}

impl Ability {
    /// The same node, with these abilities and no others.
    pub(crate) fn of(self, node: MemoryNode) -> MemoryNode {
        match self {
            Self::Queue => node,
            Self::Polled => node.without(Capabilities::WATCH),
            Self::Watch => node.without_queue(),
            Self::Nothing => node.without_watching(),
        }
    }
}
