//! Looking at a key without taking it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::BackendError;
use crate::places::Place;
use crate::resource::Key;

/// A node that can be looked at: who keeps a key there, and for how long still.
///
/// # Contract
///
/// - *Read only.* A look changes nothing on the node, and needs no right to write.
/// - *Atomic.* Holder and time left are those of one moment.
/// - *Any holder.* What another Redlock library wrote is a holder like ours.
/// - *Drop.* As in [`LockBackend`](super::LockBackend): dropping a look disturbs no other call.
#[async_trait]
pub trait Inspect: Send + Sync {
    /// What is at `key`; `None` if it is free.
    ///
    /// # Errors
    ///
    /// `BackendError` if the node cannot be asked, or what is there is no lock
    /// ([`WrongType`](super::BackendErrorKind::WrongType)).
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time: it only reads, and no other call is disturbed.
    async fn inspect(&self, key: &Key) -> Result<Option<Sighting>, BackendError>;
}

/// What a node keeps at a key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sighting {
    /// Whose key it is.
    pub holder: Holder,
    /// How long the node still keeps it. `None` is for good.
    ///
    /// No lock of ours is without an end: another program wrote it.
    pub time_left: Option<Duration>,
}

impl Sighting {
    /// A key of `holder` that is kept for `time_left`.
    #[must_use]
    pub const fn new(holder: Holder, time_left: Option<Duration>) -> Self {
        Self { holder, time_left }
    }
}

/// Whose key it is: what is stored there, of which only sameness can be told.
///
/// Two holders are equal if the bytes are. The bytes themselves are a secret of the holder, since
/// whoever knows them can release the lock: they cannot be read, and `Debug` does not show them.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Holder(Arc<[u8]>);

impl Holder {
    /// The holder who stored `value`: a token, or what another program wrote.
    #[must_use]
    pub fn new(value: impl Into<Arc<[u8]>>) -> Self {
        Self(value.into())
    }

    /// The place that is named there; nobody's secret.
    pub(crate) fn as_place(&self) -> Option<Place> {
        Place::parse(&self.0)
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Holder(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a6_a_holder_can_be_told_from_another_and_not_read() {
        let (one, other) = (Holder::new(*b"s3cret"), Holder::new(*b"another"));
        assert_eq!(one, Holder::new(b"s3cret".to_vec()));
        assert_ne!(one, other);
        assert_eq!(format!("{one:?}"), "Holder(..)");
        let sighting = Sighting::new(one, None);
        assert!(!format!("{sighting:?}").contains("s3cret"));
    }
}
