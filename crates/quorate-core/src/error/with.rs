//! Why work under a lock did not end as it should.

use super::{LeaseEnd, LockError, QuorumFailure};

/// The lease ended before the work under it.
#[derive(thiserror::Error)]
#[error("the work was stopped: {reason}")]
#[expect(clippy::exhaustive_structs, reason = "complete by definition: why, and what is left")]
pub struct Stopped<T> {
    /// Why the lease ended.
    pub reason: LeaseEnd,
    /// What the work returned, if it was ready by then. Another client may have held the lock
    /// meanwhile. `None` if the work was dropped.
    pub value: Option<T>,
}

impl<T> Stopped<T> {
    /// The same without the value.
    #[must_use]
    pub fn without_value(self) -> Stopped<()> {
        Stopped { reason: self.reason, value: None }
    }
}

/// Why work under a lock did not end as it should. See [`with`](crate::LockManager::with).
///
/// It is an [`Error`](std::error::Error) for every `T: 'static`. Where the work returns a `Result`, `.await??` passes on
/// its error as well.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum WithError<T> {
    /// The lock was not acquired, and the work not begun.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The lock was lost during the work.
    #[error(transparent)]
    Lost(#[from] Stopped<T>),
}

/// Why work that is done once per period did not end as it should. See [`once_per`](crate::LockManager::once_per).
///
/// It is never *held*: that means that another process does the work.
pub type OnceError<T, E> = WithError<Result<T, E>>;

impl<T> WithError<T> {
    /// Whether the lock is held by another client or task, so that the work was not begun.
    #[must_use]
    pub const fn is_held(&self) -> bool {
        matches!(self, Self::Lock(error) if error.is_held())
    }

    /// Whether the manager is closed, so that the work was not begun.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        matches!(self, Self::Lock(error) if error.is_closed())
    }

    /// Whether asking again is pointless. See [`LockError::is_permanent`].
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        matches!(self, Self::Lock(error) if error.is_permanent())
    }

    /// What each node answered, where nodes were asked.
    #[must_use]
    pub const fn failure(&self) -> Option<&QuorumFailure> {
        match self {
            Self::Lock(error) => error.failure(),
            Self::Lost(stopped) => stopped.reason.failure(),
        }
    }

    /// The same without the value.
    #[must_use]
    pub fn without_value(self) -> WithError<()> {
        match self {
            Self::Lock(error) => WithError::Lock(error),
            Self::Lost(stopped) => WithError::Lost(stopped.without_value()),
        }
    }
}
