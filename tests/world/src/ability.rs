//! What the nodes of a world can do.

use quorate_memory::MemoryNode;

/// What the nodes can do for waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a part of the tests")]
pub enum Ability {
    /// They keep the wait queue, and push when a key has changed.
    Queue,
    /// They push when a key has changed.
    Watch,
    /// Neither.
    Nothing,
}

impl Ability {
    /// The same node, with these abilities and no others.
    #[must_use]
    pub fn of(self, node: MemoryNode) -> MemoryNode {
        match self {
            Self::Queue => node,
            Self::Watch => node.without_queue(),
            Self::Nothing => node.without_watching(),
        }
    }
}
