//! What goes into the wait machine and comes out of it.

use std::sync::Arc;

use super::super::quorum::NodeId;

/// The name of one wait in a wait queue: random, and new for each wait.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry(Arc<[u8]>);

impl Entry {
    /// The entry with this name.
    #[must_use]
    pub fn new(name: impl Into<Arc<[u8]>>) -> Self {
        Self(name.into())
    }

    /// Makes a printable name from random bytes.
    ///
    /// `is_pushed`: the process gets pushes, and the name is 32 hex digits. Without pushes the name
    /// is `p` and 31 hex digits.
    #[must_use]
    pub fn draw(random: [u8; 16], is_pushed: bool) -> Self {
        let mut name = format!("{:032x}", u128::from_be_bytes(random)).into_bytes();
        if let (false, Some(first)) = (is_pushed, name.first_mut()) {
            *first = POLLING;
        }
        Self::new(name)
    }

    /// The same name, marked as one of readers: its second letter is `r`.
    #[must_use]
    pub fn of_readers(self) -> Self {
        let mut name = self.0.to_vec();
        if let Some(second) = name.get_mut(1) {
            *second = READERS;
        }
        Self::new(name)
    }

    /// Whether readers wait under this name. Those enter together, whatever the order of their
    /// entries.
    #[must_use]
    pub fn is_of_readers(&self) -> bool {
        self.0.get(1) == Some(&READERS)
    }

    /// The bytes of the name.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether the process of this entry gets no pushes.
    #[must_use]
    pub fn is_polling(&self) -> bool {
        self.0.first() == Some(&POLLING)
    }
}

/// The first letter of an entry whose process gets no pushes. It is no hex digit.
const POLLING: u8 = b'p';

/// The second letter of an entry of readers. It is no hex digit, and older processes see a name
/// like all others.
const READERS: u8 = b'r';

/// A key that a waiter watches at the gate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum WatchedKey {
    /// The lock's key; of several keys, the one with this index.
    Lock(usize),
    /// The key of the predecessor's entry.
    Predecessor(Entry),
}

/// What the shell of a wait does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitAction {
    /// Make one attempt to acquire the lock.
    Attempt,
    /// Keep the entry alive at this node. An entry that is not in the queue there joins it.
    Refresh(NodeId),
    /// Watch a key at this node.
    Watch(NodeId, WatchedKey),
    /// Remove the entry at a node, after a refresh that is in flight there.
    Leave {
        /// The node that has the entry, or may have it.
        gate: NodeId,
        /// The first entry of the queue, if this wait won out of turn: it is removed too.
        also: Option<Entry>,
    },
    /// Skip this node as a gate for 1 s, in all waits.
    Skip(NodeId),
}

/// The gate's reply to a refresh.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "the reply of one script")]
pub struct Refreshed {
    /// The entry before ours; `None` if ours is the first.
    pub predecessor: Option<Entry>,
    /// The first entry of the queue.
    pub first: Entry,
    /// The index of a lock key that is held; `None` if the lock is free. Where one of several keys
    /// is wanted, they are free if one of them is.
    pub held: Option<usize>,
    /// The index of a free lock key, where one of several keys is wanted.
    pub free: Option<usize>,
    /// Whether the key that is held is one of readers.
    pub is_read: bool,
    /// The number of entries before ours.
    pub place: usize,
}
