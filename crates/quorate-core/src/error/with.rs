//! Why work under a lock did not end as it should.

use super::names::Of;
use super::{LeaseEnd, LockError, QuorumFailure};
use crate::resource::Key;

/// The lease ended before the work under it, which was dropped, or what it returned was.
///
/// Another client may have held the lock meanwhile. Work whose value counts all the same puts it
/// into a variable of its caller.
#[derive(Clone, thiserror::Error)]
#[error("{}the work was stopped: {}", Of(.reason.names()), .reason.why())]
#[expect(clippy::exhaustive_structs, reason = "complete by definition: why the lease ended")]
pub struct Stopped {
    /// Why the lease ended.
    #[source]
    pub reason: LeaseEnd,
}

impl Stopped {
    pub(super) fn names(&self) -> &[Key] {
        self.reason.names()
    }

    pub(super) const fn failure(&self) -> Option<&QuorumFailure> {
        self.reason.failure()
    }
}

/// Why work under a lock did not end as it should. See [`with`](crate::LockManager::with).
///
/// Where the work returns a `Result`, `.await??` passes on its error as well.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum WithError {
    /// The lock was not acquired, and the work not begun.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The lock was lost during the work.
    #[error(transparent)]
    Lost(#[from] Stopped),
}

/// Why work that is done once per period did not end as it should. See
/// [`once_per`](crate::LockManager::once_per).
///
/// It is never *held*: that means that another process does the work.
pub type OnceError = WithError;

impl WithError {
    /// Whether the lock is held by another client or task, so that the work was not begun.
    #[must_use]
    pub const fn is_held(&self) -> bool {
        matches!(self, Self::Lock(error) if error.is_held())
    }

    /// Whether the manager is drained or closed, so that the work was not begun.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        matches!(self, Self::Lock(error) if error.is_closed())
    }

    /// Whether asking again is pointless. See [`LockError::is_permanent`].
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        matches!(self, Self::Lock(error) if error.is_permanent())
    }
}
