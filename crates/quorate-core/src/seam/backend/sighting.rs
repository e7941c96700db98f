//! The reply of a node to an inspection.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::resource::{Label, Token, is_mark, is_revoked, label_of, ran_of};

/// A key that a node keeps: its holder, and how long.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sighting {
    /// The holder of the key.
    pub holder: Holder,
    /// How long the node keeps the key from now on.
    ///
    /// `None` for a key without a ttl. Another program wrote it, since a lock always has one.
    pub time_left: Option<Duration>,
    /// The readers, if it is a key of readers. Then `holder` is empty.
    pub readers: Vec<Reader>,
}

/// One of the readers of a key, and how long the node counts it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a member of a set, with its score")]
pub struct Reader {
    /// The reader, as a holder.
    pub holder: Holder,
    /// How long the node counts the reader from now on.
    pub time_left: Duration,
}

impl Sighting {
    /// Creates the reply for a key of `holder` that the node keeps for `time_left`.
    #[must_use]
    pub const fn new(holder: Holder, time_left: Option<Duration>) -> Self {
        Self { holder, time_left, readers: Vec::new() }
    }

    /// Creates the reply for a key that these readers hold.
    #[must_use]
    pub fn of_readers(readers: Vec<Reader>) -> Self {
        let time_left = readers.iter().map(|reader| reader.time_left).max();
        Self { holder: Holder::new(Vec::new()), time_left, readers }
    }

    /// The holder, or each reader.
    pub(crate) fn holders(&self) -> impl Iterator<Item = &Holder> {
        let holder = self.readers.is_empty().then_some(&self.holder);
        holder.into_iter().chain(self.readers.iter().map(|one| &one.holder))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l1_a_holder_can_be_compared_and_only_its_label_read() {
        let (one, other) = (Holder::new(*b"s3cret"), Holder::new(*b"another"));
        assert_eq!(one, Holder::new(b"s3cret".to_vec()));
        assert_ne!(one, other);
        assert_eq!(format!("{one:?}"), "Holder(..)");
        let sighting = Sighting::new(one, None);
        assert!(!format!("{sighting:?}").contains("s3cret"));
        let labelled = Holder::new([&b"ab".repeat(20)[..], b" web-3"].concat());
        assert_eq!(labelled.label(), Some("web-3"));
        assert_eq!(format!("{labelled:?}"), "Holder(\"web-3\", ..)");
    }
}
