//! The places of those who wait for a lock in several processes, in the order in which they came.

use std::time::Duration;

use async_trait::async_trait;

use crate::backend::BackendError;
use crate::resource::{Key, Token};
use crate::runtime::EntropyError;

/// A place in the queue before a lock: a key of its own, which is there as long as somebody stands
/// at it, and holds the name of the place before it, or nothing if there was none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place(Key);

const PREFIX: &[u8] = b"quorate:place:";

impl Place {
    /// How long a node keeps a place. Whoever waits for longer may be overtaken.
    pub const TTL: Duration = Duration::from_secs(60);

    /// A new place, by a name drawn from `fill`.
    ///
    /// # Errors
    ///
    /// Whatever `fill` reports; there is no place then.
    pub fn draw(
        fill: impl FnOnce(&mut [u8]) -> Result<(), EntropyError>,
    ) -> Result<Self, EntropyError> {
        let name = Token::draw(fill)?;
        Ok(Self(Key::of([PREFIX, name.as_bytes()].concat())))
    }

    /// The place whose key a node knows by these bytes; `None` if they are not those of a place.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        bytes.starts_with(PREFIX).then(|| Self(Key::of(bytes.to_vec())))
    }

    /// The key, which can be [watched](crate::Watch): when it is gone, nobody stands there.
    #[must_use]
    pub const fn key(&self) -> &Key {
        &self.0
    }
}

/// A node that keeps those who wait for a key in the order in which they came.
///
/// Each watches the place before its own, as in ZooKeeper's recipe for locks, and the first the
/// lock; so the release of a lock that changes hands quickly wakes one waiter, however many there
/// are. The order is a hint: who has the lock, only votes decide.
///
/// # Contract
///
/// - *Atomic.* Who joins stands behind whoever joined last, at one moment.
/// - *Apart.* The queue of a key is no lock on it, and is none of those that `LockBackend` knows of.
/// - *From any place.* Whoever watches a place that is given up has seen the name of the place before
///   it, and can go on to that.
/// - *Nothing else is touched.* Where something stands that is no queue, nobody can join.
/// - *Nothing is left* on the node when all have left. A place that is never left is gone after
///   [`Place::TTL`].
#[async_trait]
pub trait Queue: Send + Sync {
    /// Joins the queue before `key` at `place`, and tells who stands right before it.
    ///
    /// `None` if nobody does; whoever is told may be gone already.
    ///
    /// # Errors
    ///
    /// `BackendError` if it is unknown whether the place was taken.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the place may or may not be taken, and no other call is disturbed. The caller
    /// [leaves](Self::leave) it; else those behind wait for it until [`Place::TTL`] is over.
    async fn join(&self, key: &Key, place: &Place) -> Result<Option<Place>, BackendError>;

    /// Leaves the queue, from any place in it. If it is the last, the one `before` it is the last
    /// again, if that is still there.
    ///
    /// # Errors
    ///
    /// `BackendError` if it is unknown whether the place was given up.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the place may or may not be given up, and no other call is disturbed. It can be sent
    /// again.
    async fn leave(
        &self,
        key: &Key,
        place: &Place,
        before: Option<&Place>,
    ) -> Result<(), BackendError>;
}
