//! Hearing when a key has changed.

use std::fmt;

use async_trait::async_trait;

use super::{BackendError, Holder};
use crate::resource::Key;
use crate::runtime::BoxFuture;

/// A node that tells when a key has changed, so that whoever waits for it need not ask and ask.
///
/// What it says is a hint: when to try, never that the lock is free. That only votes decide.
///
/// # Contract
///
/// - *From the look on.* What is seen is what was there when the node heard of the look, or of an
///   earlier one, if nothing was told of the key since. What is told from then on is that the key
///   was set, was deleted, has expired, or changed in any other way: an extension is a change, too.
///   Whoever changed it: another Redlock library, an operator.
/// - *Too often, never too seldom.* A wake-up for nothing is allowed. A change that is not told is
///   not, until the connection breaks.
/// - *Expiry* is told when the node notices it, which may be later than it happens; and some nodes
///   never tell it. A waiter keeps a timer of its own for the time left of the key.
/// - *No silent death.* When the connection of a watch breaks, so that nothing more can be told on
///   it, the watch ends with an `Err` as soon as the client sees it. A connection that hangs is a
///   watch that hangs: the waiter's timer is behind that, too.
/// - *Read only.* A watch changes nothing on the node, and needs no right to write.
/// - *Apart.* A watch neither waits for the calls of [`LockBackend`](super::LockBackend) nor holds them up, however
///   long it lasts.
/// - *Drop.* Dropping a look, or what it gave, ends the watch, leaves nothing of it behind in the
///   client, and disturbs no other watch or call. Any number of watches may be on one key.
#[async_trait]
pub trait Watch: Send + Sync {
    /// Looks at who has `key`, and watches it from then on.
    ///
    /// # Errors
    ///
    /// `BackendError` if the node cannot tell. Its kind says whether to try again: after
    /// [`Connection`](super::BackendErrorKind::Connection), [`Loading`](super::BackendErrorKind::Loading) or
    /// [`TimedOut`](super::BackendErrorKind::TimedOut) a new watch dials anew, and the key may have become
    /// free in between; whereas [`Script`](super::BackendErrorKind::Script) (the node is too old to watch),
    /// [`Permission`](super::BackendErrorKind::Permission), [`Auth`](super::BackendErrorKind::Auth) and
    /// [`Protocol`](super::BackendErrorKind::Protocol) (it does not speak RESP3, or is no Redis) stay
    /// until somebody changes the node. [`WrongType`](super::BackendErrorKind::WrongType): what is at the
    /// key is no lock.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future at any point is safe.
    async fn look(&self, key: &Key) -> Result<Watched, BackendError>;

    /// Waits until `key` may be free: what there is to know then, an acquire finds out.
    ///
    /// Ends at once if nobody has the key, else when that may have changed. There is no deadline in
    /// it: a watch of a key that is kept for good lasts for good.
    ///
    /// # Errors
    ///
    /// As [`look`](Self::look), or if the node can no longer tell.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future at any point is safe. A watch that is begun again begins with a look, so
    /// nothing is missed in between.
    async fn watch(&self, key: &Key) -> Result<(), BackendError> {
        let seen = self.look(key).await?;
        if seen.holder().is_none() { Ok(()) } else { seen.changed().await }
    }
}

/// A key that is [watched](Watch): who had it, and when that may have changed.
#[must_use = "dropping it ends the watch"]
pub struct Watched {
    holder: Option<Holder>,
    changed: BoxFuture<'static, Result<(), BackendError>>,
}

impl Watched {
    /// A key that `holder` had; `changed` ends when that may have changed, or can no longer be told.
    pub fn new(
        holder: Option<Holder>,
        changed: impl Future<Output = Result<(), BackendError>> + Send + 'static,
    ) -> Self {
        Self { holder, changed: Box::pin(changed) }
    }

    /// Who had the key; `None` if it was free.
    #[must_use]
    pub const fn holder(&self) -> Option<&Holder> {
        self.holder.as_ref()
    }

    /// Waits until somebody else may have the key, or nobody.
    ///
    /// # Errors
    ///
    /// `BackendError` if the node can no longer tell.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the watch.
    pub async fn changed(self) -> Result<(), BackendError> {
        self.changed.await
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").field("holder", &self.holder).finish_non_exhaustive()
    }
}
