//! Why an operation failed: one error type per operation.
//!
//! *Held by another client* and *too few nodes reachable* are never the same variant. Where nodes
//! were asked, the error carries a [`QuorumFailure`]: what each node answered, and how long was
//! waited.
//!
//! What to do with an error is asked of the error: [`LockError::is_held`],
//! [`LockError::is_permanent`], [`LockError::is_closed`]. Of any error, [`lost()`] and [`closed()`]
//! ask.

mod build;
mod closed;
mod names;
mod quorum_failure;
#[cfg(test)]
mod tests;
mod with;

use std::error::Error;
use std::fmt;
use std::iter::successors;
use std::sync::Arc;
use std::time::Duration;

pub use self::build::BuildError;
pub use self::closed::{Closed, closed};
pub use self::names::Of;
pub(crate) use self::quorum_failure::Writer;
pub use self::quorum_failure::{Answer, NodeAnswer, QuorumFailure};
pub use self::with::{OnceError, Stopped, WithError};
use crate::algorithm::lease::InvalidTtl;
use crate::resource::{InvalidLabel, InvalidResource, Key, Label};
use crate::seam::runtime::EntropyError;

/// Shows an error that `main` may return as people read it.
macro_rules! debug_as_display {
    ($($error:ident),+) => {$(
        impl fmt::Debug for $error {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    )+};
}

debug_as_display!(
    LockError,
    InvalidRequest,
    ExtendError,
    ReleaseError,
    AdoptError,
    LeaseEnd,
    BuildError,
    Stopped,
    WithError
);

/// The keys of the lock that an error is about, and what its nodes answered: some of its variants
/// have a part that knows both.
macro_rules! about_a_lock {
    ($($error:ident: $($variant:ident)|+),+) => {$(
        #[allow(unreachable_patterns, reason = "some errors are always about a lock")]
        impl $error {
            /// The keys of the lock; empty where the error is about no lock.
            #[must_use]
            pub fn names(&self) -> &[Key] {
                match self {
                    $(Self::$variant(part) => part.names(),)+
                    _ => &[],
                }
            }

            /// What each node answered, where nodes were asked.
            #[must_use]
            pub const fn failure(&self) -> Option<&QuorumFailure> {
                match self {
                    $(Self::$variant(part) => part.failure(),)+
                    _ => None,
                }
            }
        }
    )+};
}

about_a_lock!(
    ExtendError: Lost | NoQuorum,
    ReleaseError: Lost | Unconfirmed,
    AdoptError: Lost | Lock,
    WithError: Lock | Lost
);

/// How the lease ended, if an error says or comes from that a lock was lost.
///
/// Looks through the [sources](Error::source) of an error, also of one that was wrapped by other
/// libraries. A wrapper that is *transparent* to a [`LeaseEnd`] itself hides it. Where the holder
/// ended the lease, it is found as well.
///
/// ```
/// use std::error::Error;
///
/// use quorate_core::LeaseEnd;
/// use quorate_core::error::{lost, ReleaseError};
///
/// let error: Box<dyn Error> = ReleaseError::Lost(LeaseEnd::HoldLimit([].into())).into();
/// assert!(lost(&*error).is_some());
/// ```
#[must_use]
pub fn lost<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a LeaseEnd> {
    sources(error).find_map(|error| error.downcast_ref())
}

/// An error, and what it comes from.
fn sources<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    successors(Some(error), |&error| error.source())
}

/// Why a lock was not acquired. What single nodes had granted is released.
///
/// After several rounds, it is the error of the last round that the timeout did not cut short.
///
/// ```
/// use quorate_core::{LockGuard, LockManager};
///
/// async fn guard(locks: &LockManager) -> Option<LockGuard> {
///     let error = match locks.lock("orders:42").await {
///         Ok(guard) => return Some(guard),
///         Err(error) => error,
///     };
///     println!("{}", if error.is_held() { "another process does it" } else { "not locked" });
///     for node in error.failure().into_iter().flat_map(|failure| failure.failed_nodes()) {
///         println!("{node}");
///     }
///     None
/// }
/// ```
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Refusals left no quorum, or a guard or an earlier waiter of this manager is in the way. The
    /// text names the holder by its label if a quorum of nodes did, and says *done by* of a
    /// [mark](crate::LockGuard::keep).
    #[error("{}{}", Of(.0.names()), .0.held())]
    Held(QuorumFailure),
    /// No quorum granted in time, and not because of refusals alone: nodes failed or did not reply,
    /// the votes came too late, or no fencing token was agreed on. Whether the lock is held is
    /// unknown.
    #[error("{}no quorum: {}", Of(.0.names()), .0)]
    NoQuorum(QuorumFailure),
    /// Two configured nodes are one server, which would vote twice (Q6).
    #[error("the nodes {first} and {second} are one server")]
    SameServer {
        /// The name of one node.
        first: String,
        /// The name of the other.
        second: String,
    },
    /// As many tasks of this manager as [may](crate::LockManagerBuilder::max_waiters) are queued
    /// for one of the keys. Nothing was sent.
    #[error("{key}: as many tasks of this manager wait for it as may: {most}")]
    TooManyWaiters {
        /// The first such key, in sorted order.
        key: Key,
        /// How many may be queued.
        most: usize,
    },
    /// The request is invalid. Nothing was sent in this round.
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
    /// There is no randomness for a token. Nothing was sent in this round.
    #[error(transparent)]
    Entropy(#[from] EntropyError),
    /// The manager is drained or closed. [`closed()`] finds it.
    #[error("the lock manager is closed")]
    Closed(#[from] Closed),
}

impl LockError {
    /// Whether another client or another task of this manager has the lock, or is in front. Then
    /// waiting helps.
    #[must_use]
    pub const fn is_held(&self) -> bool {
        matches!(self, Self::Held(_))
    }

    /// The label of the holder that the most nodes named, if it has one. With `Some`, the lock is
    /// held or was wanted by that holder; how many nodes named it says [`QuorumFailure::holder`]. A
    /// reader that gives way to a writer has the label of a writer of its own manager that waits.
    /// For one of another process there is none: the wait queue keeps random names, and to look for
    /// its label would cost each such request a command.
    #[must_use]
    pub fn held_by(&self) -> Option<&str> {
        match self {
            Self::Held(failure) => failure.writer_label().or_else(|| failure.holder()?.0.label()),
            _ => None,
        }
    }

    /// Whether the manager is drained or closed.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        matches!(self, Self::Closed(_))
    }

    /// Whether asking again is pointless until a setting, a request or a node is changed.
    ///
    /// True for an invalid request, for one server under two names, and for a closed manager. Also
    /// true if so many nodes fail for a lasting reason, such as a wrong password, that the others
    /// are no quorum.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use quorate_core::{LockError, LockManager};
    /// # async fn work() {}
    /// /// Works whenever the lock is free, until the manager is closed.
    /// async fn work_for_ever(locks: &LockManager) -> Result<(), LockError> {
    ///     loop {
    ///         match locks.lock("orders:42").timeout(Duration::from_secs(60)).await {
    ///             Ok(guard) => {
    ///                 guard.run(work()).await.ok();
    ///             }
    ///             Err(error) if error.is_closed() || error.is_permanent() => return Err(error),
    ///             // Held, or too few nodes: `lock` has waited for a minute.
    ///             Err(error) => eprintln!("{error}"),
    ///         }
    ///     }
    /// }
    /// ```
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Closed(_) | Self::Invalid(_) | Self::SameServer { .. } => true,
            Self::NoQuorum(failure) => failure.is_permanent(),
            Self::Entropy(_) | Self::Held(_) | Self::TooManyWaiters { .. } => false,
        }
    }

    /// What each node answered, where nodes were asked.
    #[must_use]
    pub const fn failure(&self) -> Option<&QuorumFailure> {
        match self {
            Self::Held(failure) | Self::NoQuorum(failure) => Some(failure),
            _ => None,
        }
    }

    /// The keys of the lock that was asked for; empty where the error is about no lock.
    #[must_use]
    pub fn names(&self) -> &[Key] {
        match self {
            Self::Held(failure) | Self::NoQuorum(failure) => failure.names(),
            Self::TooManyWaiters { key, .. } => std::slice::from_ref(key),
            _ => &[],
        }
    }

    /// The same about these keys.
    pub(crate) fn of(self, keys: &Arc<[Key]>) -> Self {
        match self {
            Self::Held(failure) => Self::Held(failure.of(Arc::clone(keys))),
            Self::NoQuorum(failure) => Self::NoQuorum(failure.of(Arc::clone(keys))),
            other => other,
        }
    }

    /// The label of metrics and events.
    pub(crate) const fn reason(&self) -> &'static str {
        match self {
            Self::Held(_) => "held",
            Self::NoQuorum(_) => "no_quorum",
            Self::SameServer { .. } => "same_server",
            Self::TooManyWaiters { .. } => "too_many_waiters",
            Self::Invalid(_) => "invalid",
            Self::Entropy(_) => "entropy",
            Self::Closed(_) => "closed",
        }
    }
}

/// Why a request is invalid.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidRequest {
    /// A name cannot be locked.
    #[error(transparent)]
    Resource(#[from] InvalidResource),
    /// The ttl is too short or too long.
    #[error(transparent)]
    Ttl(#[from] InvalidTtl),
    /// The label cannot be stored.
    #[error(transparent)]
    Label(#[from] InvalidLabel),
    /// A blocking call in a tokio task, which would hold up the other tasks of its thread.
    #[error("a blocking call in an async task: await the request instead")]
    Blocking,
    /// A hold limit of zero leaves nothing to hold.
    #[error("a hold limit of zero leaves nothing to hold")]
    HoldLimit,
    /// The period of work that is done once per period is under 1 s or over a day (O6). For more
    /// than a day there are [`Period::Week`](crate::Period::Week) and
    /// [`Period::Month`](crate::Period::Month).
    #[error(
        "a period of {period:?} is not between 1 s and 1 day: longer ones are a week or a month of \
         the calendar"
    )]
    Period {
        /// The period given.
        period: Duration,
    },
    /// Fencing was asked for, and a node keeps no fencing numbers.
    #[error("{node} keeps no fencing numbers")]
    Fencing {
        /// The first such node.
        node: String,
    },
    /// A lock for reading was asked for, and a node keeps no readers.
    #[error("{node} keeps no readers")]
    Readers {
        /// The first such node.
        node: String,
    },
    /// A lock for reading was to be fenced, to be led under, or to be for work that is done once
    /// per period.
    #[error("a lock for reading cannot be {what}: several readers hold it at the same time")]
    Shared {
        /// What it cannot be.
        what: &'static str,
    },
    /// The wall clock, from which fencing numbers go on after a loss of data, is beyond
    /// [`FenceHint::MAX`](crate::backend::FenceHint::MAX), the year 2112.
    #[error("{hint} is no fencing hint: the wall clock is far ahead")]
    FencingHint {
        /// The microseconds since 1970 that the clock gave.
        hint: u64,
    },
}

/// Why a lease was not extended.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ExtendError {
    /// The lease has ended.
    #[error("{}not extended, since {}", Of(.0.names()), .0.why())]
    Lost(#[from] LeaseEnd),
    /// No quorum extended it. The lease stays as it was, and the next try may succeed (H1).
    #[error("{}not extended, no quorum: {}", Of(.0.names()), .0)]
    NoQuorum(QuorumFailure),
    /// The ttl is too short or too long. Nothing was sent.
    #[error(transparent)]
    Ttl(#[from] InvalidTtl),
}

/// Why a lease has ended. Each variant has the keys of the lock: see [`names`](Self::names).
///
/// It is a [source](Error::source) of [`ExtendError`], [`ReleaseError`], [`Stopped`] and
/// [`WithError`] where the lock was lost. [`lost`] finds it.
#[derive(Clone, thiserror::Error)]
#[error("{}{}", Of(self.names()), self.why())]
#[non_exhaustive]
pub enum LeaseEnd {
    /// It was not extended in time.
    Expired {
        /// What each node answered to the last extension, if that failed.
        last: QuorumFailure,
    },
    /// More nodes than a quorum can spare answered that the keys are not ours (H1).
    NotHeld(QuorumFailure),
    /// It was held for as long as its hold limit allows.
    HoldLimit(Arc<[Key]>),
    /// The lock was [revoked](crate::LockManager::revoke). As the reason of an extension that is
    /// refused, the lease may still be valid.
    Revoked {
        /// The keys of the lock.
        names: Arc<[Key]>,
        /// The label of the process that revoked it, if it has one.
        by: Option<Label>,
    },
    /// The manager is drained or closed.
    Closed(Arc<[Key]>),
    /// The guard was released or dropped.
    Released(Arc<[Key]>),
    /// The lock was detached, so that it may belong to another process, or it was kept.
    Detached(Arc<[Key]>),
}

impl LeaseEnd {
    /// The keys of the lock.
    #[must_use]
    pub fn names(&self) -> &[Key] {
        match self {
            Self::Expired { last: failure } | Self::NotHeld(failure) => failure.names(),
            Self::HoldLimit(names)
            | Self::Revoked { names, .. }
            | Self::Closed(names)
            | Self::Released(names)
            | Self::Detached(names) => names,
        }
    }

    /// The text without the keys.
    fn why(&self) -> String {
        match self {
            Self::Expired { last } => return format!("the lease expired{}", last.after_colon()),
            Self::NotHeld(failure) => return format!("the keys are gone: {failure}"),
            Self::HoldLimit(_) => "the lease reached its hold limit",
            Self::Revoked { by: Some(by), .. } => return format!("the lock was revoked by {by}"),
            Self::Revoked { by: None, .. } => "the lock was revoked",
            Self::Closed(_) => "the lock manager is closed",
            Self::Released(_) => "the lock was released",
            Self::Detached(_) => "the lock was detached",
        }
        .to_owned()
    }

    /// What each node answered, where that is why the lease has ended.
    #[must_use]
    pub const fn failure(&self) -> Option<&QuorumFailure> {
        match self {
            Self::Expired { last: failure } | Self::NotHeld(failure) => Some(failure),
            _ => None,
        }
    }

    /// The label of metrics and events; `None` where the holder or the manager ended the lease.
    pub(crate) const fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Expired { .. } => Some("expired"),
            Self::NotHeld(_) => Some("not_held"),
            Self::HoldLimit(_) => Some("hold_limit"),
            Self::Revoked { .. } => Some("revoked"),
            Self::Closed(_) | Self::Released(_) | Self::Detached(_) => None,
        }
    }
}

/// Why a release does not prove that the lock was held until then.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The lock had been lost before. Another client may have held it since.
    #[error("{}the lock had been lost: {}", Of(.0.names()), .0.why())]
    Lost(#[source] LeaseEnd),
    /// Too few nodes answered to prove whether it had been lost. The lock may stay on nodes that
    /// did not answer until its ttl has passed; the cleanup goes on in the background.
    #[error("{}the release is unconfirmed: {}", Of(.0.names()), .0)]
    Unconfirmed(QuorumFailure),
}

impl ReleaseError {
    /// Whether the lease had ended before its release. After a close that is so even if the keys
    /// were still there.
    #[must_use]
    pub const fn is_lost(&self) -> bool {
        matches!(self, Self::Lost(_))
    }
}

/// Why a detached lock was not adopted. The lock is as it was, and adopting may be tried again.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum AdoptError {
    /// More nodes than a quorum can spare answered that they do not have the keys: the lock
    /// expired, was released, or is on other nodes.
    #[error("{}the lock is gone: {}", Of(.0.names()), .0)]
    Lost(QuorumFailure),
    /// Whether the lock is still held is unknown: no quorum of nodes replied in time, or nothing
    /// was asked.
    #[error(transparent)]
    Lock(#[from] LockError),
}
