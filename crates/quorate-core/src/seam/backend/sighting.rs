//! The reply of a node to an inspection.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::error::BackendError;
use crate::resource::{Label, Token, is_mark, is_revoked, label_of, ran_of};

/// The state of a key on one node, or why it is unknown.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum KeyState {
    /// The node keeps no key.
    Free,
    /// The node keeps the key of a holder.
    Held {
        /// The holder: equal on all nodes that keep its key.
        holder: Holder,
        /// How long the node keeps the key: from its answer on, and in an inspection from the end
        /// of that. Zero if it expired before.
        ///
        /// `None` for a key without a ttl. Another program wrote it, since a lock always has one.
        time_left: Option<Duration>,
    },
    /// The node keeps a key of readers.
    Read {
        /// The readers, each with how long the node counts it, as for a holder.
        readers: Vec<Reader>,
    },
    /// The node or its backend failed. No reply within the node timeout is of the kind
    /// [`TimedOut`](crate::BackendErrorKind::TimedOut).
    Failed(BackendError),
}

/// One of the readers of a key, and how long the node counts it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a member of a set, with its score")]
pub struct Reader {
    /// The reader, as a holder.
    pub holder: Holder,
    /// How long the node counts the reader.
    pub time_left: Duration,
}

impl KeyState {
    /// How long the node keeps the key: that of readers for as long as the last of them.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        match self {
            Self::Held { time_left, .. } => *time_left,
            Self::Read { readers } => readers.iter().map(|one| one.time_left).max(),
            Self::Free | Self::Failed(_) => None,
        }
    }

    /// The holder, or each reader.
    pub(crate) fn holders(&self) -> impl Iterator<Item = &Holder> {
        let (holder, readers): (_, &[Reader]) = match self {
            Self::Held { holder, .. } => (Some(holder), &[]),
            Self::Read { readers } => (None, readers),
            Self::Free | Self::Failed(_) => (None, &[]),
        };
        holder.into_iter().chain(readers.iter().map(|one| &one.holder))
    }
}

/// The holder of a key, which can be compared. Only its label can be read.
///
/// Two holders are equal if the values stored at their keys are. The value is a secret of the
/// holder, since any client that knows it can release the lock. Therefore `Debug` shows nothing but
/// the label (A6).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Holder(Arc<[u8]>);

impl Holder {
    /// Creates the holder that stored `value`: a token, or the value of another program.
    #[must_use]
    pub fn new(value: impl Into<Arc<[u8]>>) -> Self {
        Self(value.into())
    }

    /// The label with which the holder acquired the lock. A lock of another library has none.
    #[must_use]
    pub fn label(&self) -> Option<&str> {
        label_of(&self.0)
    }

    /// Whether it holds nothing any more: the value that it left on the nodes
    /// [marks](crate::LockGuard::keep) its work as done.
    #[must_use]
    pub fn is_done(&self) -> bool {
        is_mark(&self.0)
    }

    /// From when to when the work ran that is [done](Self::is_done), in Unix time by the clock of
    /// its machine. `None` without a mark that says it.
    #[must_use]
    pub fn ran(&self) -> Option<Range<Duration>> {
        ran_of(&self.0)
    }

    /// Whether the holder was asked to leave: a revoke has put its mark in place of the value.
    #[must_use]
    pub fn is_revoked(&self) -> bool {
        is_revoked(&self.0)
    }

    /// The label of the process that revoked the lock.
    pub(crate) fn revoked_by(&self) -> Option<Label> {
        self.label().and_then(Label::in_revoked)
    }

    /// Whether the value has the form of a token of this library, or of a mark. Other libraries and
    /// programs write other values.
    #[must_use]
    pub fn is_of_quorate(&self) -> bool {
        self.is_done() || self.is_revoked() || Token::parse(&self.0).is_some()
    }

    /// The value that a node stores. Do not log it.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.label() {
            Some(label) => write!(f, "Holder({label:?}, ..)"),
            None => f.write_str("Holder(..)"),
        }
    }
}
