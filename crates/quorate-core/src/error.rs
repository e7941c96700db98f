//! Why an operation failed, and what each node said.
//!
//! *Held by somebody* and *could not reach the nodes* are never the same variant.

mod votes;

use std::time::Duration;

pub(crate) use self::votes::silent;
pub use self::votes::{NodeVote, Said, Votes};
use crate::algorithm::lease::InvalidTtl;
use crate::resource::InvalidResource;
use crate::runtime::EntropyError;

/// Why a lock was not taken. Whatever had been taken on single nodes is given back.
///
/// After several rounds, the error is that of the last round which was not cut short.
///
/// ```
/// use quorate_core::{LockGuard, LockManager};
///
/// async fn guard(manager: &LockManager) -> Option<LockGuard> {
///     let error = match manager.lock("orders:42").await {
///         Ok(guard) => return Some(guard),
///         Err(error) => error,
///     };
///     println!("{}", if error.is_held() { "another is at it" } else { "not locked" });
///     for node in error.votes().into_iter().flat_map(|votes| votes.failures()) {
///         println!("{} failed: {}", node.name, node.said);
///     }
///     None
/// }
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// The manager was closed.
    #[error("the lock manager is closed")]
    Closed,
    /// There is no randomness for a token.
    #[error(transparent)]
    Entropy(#[from] EntropyError),
    /// A quorum granted too late: nothing was left of the validity.
    #[error("the votes came too late: {votes}")]
    Expired {
        /// What the nodes said.
        votes: Votes,
    },
    /// The wall clock, from which fencing tokens go on after a loss of data, gives no hint: it is
    /// beyond [`FenceHint::MAX`](crate::FenceHint::MAX), the year 2112.
    #[error("{hint} is no hint for fencing tokens: a wall clock is far ahead")]
    FenceHint {
        /// The microseconds since 1970 that it gave.
        hint: u64,
    },
    /// The cap asked for on the time of holding leaves nothing to hold.
    #[error("a hold limit of {limit:?} is too short, it must be over {least:?}")]
    HoldLimit {
        /// The limit given.
        limit: Duration,
        /// The margin, which it must exceed.
        least: Duration,
    },
    /// Nodes refused, and the failing ones alone do not account for the missing quorum. Or another
    /// guard of this manager has it: locks are not reentrant.
    #[error("locked by {}", by_whom(votes))]
    Held {
        /// What the nodes said; nothing if they were not asked, since it is held here.
        votes: Votes,
    },
    /// So many nodes failed or stayed silent that no quorum was left.
    #[error("no quorum: {votes}")]
    NoQuorum {
        /// What the nodes said.
        votes: Votes,
    },
    /// A quorum granted, but not one of the numbers for a
    /// [fencing token](crate::LockRequest::fenced): keys were lost in the middle of it, or locks that
    /// share a counter were taken at the same moment. Nobody else need hold the lock; another round
    /// may well succeed.
    #[error("granted, but without a fencing token: {votes}")]
    NoToken {
        /// What the nodes said when they were asked for the number.
        votes: Votes,
    },
    /// A [fencing token](crate::LockRequest::fenced) was asked for, and a node cannot keep numbers.
    /// Nothing was sent.
    #[error("{node} keeps no numbers for fencing tokens")]
    NotFenced {
        /// The first of those that cannot.
        node: String,
    },
    /// A name cannot be locked.
    #[error(transparent)]
    Resource(#[from] InvalidResource),
    /// Two configured nodes are one server: it would vote twice, and the quorum would be void.
    #[error("the nodes {first} and {second} are one server")]
    SameServer {
        /// The one.
        first: String,
        /// The other.
        second: String,
    },
    /// The ttl asked for is too short or too long.
    #[error(transparent)]
    Ttl(#[from] InvalidTtl),
}

/// Who has a lock that was refused, as an error says it.
fn by_whom(votes: &Votes) -> String {
    match votes.or("") {
        here if here.is_empty() => "another guard of the same manager".to_owned(),
        said => format!("somebody else{said}"),
    }
}

impl LockError {
    /// Another guard of the same manager has it.
    pub(crate) fn held_here() -> Self {
        Self::Held { votes: Votes::default() }
    }

    /// Whether somebody else has the lock: then it is no trouble, and waiting helps.
    #[must_use]
    pub const fn is_held(&self) -> bool {
        matches!(self, Self::Held { .. })
    }

    /// Whether the manager was closed.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        matches!(self, Self::Closed)
    }

    /// Whether asking again is pointless until somebody changes a setting, a request or a node.
    ///
    /// True for an invalid request, for one server under two names, and where more nodes than a
    /// quorum can spare fail for such a reason, for example a wrong password.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use quorate_core::{LockError, LockManager};
    /// # async fn work() {}
    /// /// Works whenever the lock is free, until the manager is closed.
    /// async fn for_ever(manager: &LockManager) -> Result<(), LockError> {
    ///     loop {
    ///         match manager.lock("orders:42").wait(Duration::from_secs(60)).await {
    ///             Ok(guard) => {
    ///                 guard.run(work()).await.ok();
    ///             }
    ///             Err(error) if error.is_closed() || error.is_permanent() => return Err(error),
    ///             // Held, or too few nodes: `lock` has waited before it said so.
    ///             Err(error) => eprintln!("{error}"),
    ///         }
    ///     }
    /// }
    /// ```
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Closed
            | Self::FenceHint { .. }
            | Self::HoldLimit { .. }
            | Self::NotFenced { .. }
            | Self::Resource(_)
            | Self::SameServer { .. }
            | Self::Ttl(_) => true,
            Self::NoQuorum { votes } => votes.are_permanent(),
            Self::Entropy(_) | Self::Expired { .. } | Self::Held { .. } | Self::NoToken { .. } => {
                false
            }
        }
    }

    /// What the nodes said, where they were asked.
    #[must_use]
    pub const fn votes(&self) -> Option<&Votes> {
        match self {
            Self::Expired { votes }
            | Self::Held { votes }
            | Self::NoQuorum { votes }
            | Self::NoToken { votes } => Some(votes),
            _ => None,
        }
    }
}

/// Why a lease was not extended. It stays as it was, valid until it was valid before, but for
/// [`NotHeld`](Self::NotHeld), which ends it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExtendError {
    /// The lease had been given up, or its holder been told that it is lost.
    #[error("the lease had ended: {0}")]
    Ended(Lost),
    /// The lease ran out before a quorum had extended it.
    #[error("the lease had expired{}", votes.or(""))]
    Expired {
        /// What the nodes said when they were last asked; nothing if they were not.
        votes: Votes,
    },
    /// Nodes failed or stayed silent, so that no quorum extended it. Try again while it is valid.
    #[error("no quorum: {votes}")]
    NoQuorum {
        /// What the nodes said.
        votes: Votes,
    },
    /// So many nodes said that they no longer have our keys that no quorum can have them. The lease
    /// has ended.
    #[error("the lock is gone: {votes}")]
    NotHeld {
        /// What the nodes said.
        votes: Votes,
    },
    /// The ttl asked for is too short or too long.
    #[error(transparent)]
    Ttl(#[from] InvalidTtl),
}

impl ExtendError {
    /// What the nodes said, where they were asked.
    #[must_use]
    pub const fn votes(&self) -> Option<&Votes> {
        match self {
            Self::Expired { votes } | Self::NoQuorum { votes } | Self::NotHeld { votes } => {
                Some(votes)
            }
            Self::Ended(lost) => lost.votes(),
            Self::Ttl(_) => None,
        }
    }

    pub(crate) fn of(lost: Lost) -> Self {
        match lost {
            Lost::Expired { votes } => Self::Expired { votes },
            lost => Self::Ended(lost),
        }
    }
}

/// Why a lease is over.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Lost {
    /// The manager was closed, and released it.
    #[error("the lock manager was closed")]
    Closed,
    /// It was not extended in time.
    #[error("the lease ran out{}", votes.or(": nobody extended it"))]
    Expired {
        /// What the nodes said when an extension last failed; nothing if none did.
        votes: Votes,
    },
    /// It was handed over, and is somebody else's.
    #[error("the lease was handed over")]
    HandedOver,
    /// It was held for as long as its hold limit allows.
    #[error("the lease reached its hold limit")]
    HoldLimit,
    /// So many nodes said that they no longer have our keys that no quorum can have them.
    #[error("the lock is gone: {votes}")]
    NotHeld {
        /// What the nodes said.
        votes: Votes,
    },
    /// Its guard was released or dropped.
    #[error("the lease was released")]
    Released,
}

impl Lost {
    /// What the nodes said, where that is why it is over.
    #[must_use]
    pub const fn votes(&self) -> Option<&Votes> {
        match self {
            Self::Expired { votes } | Self::NotHeld { votes } => Some(votes),
            _ => None,
        }
    }
}

/// A lease was over before the work under it had ended in time.
#[derive(Clone, Debug, thiserror::Error)]
#[error("stopped: {reason}")]
#[expect(clippy::exhaustive_structs, reason = "complete by definition: why, and what is left")]
pub struct Stopped<T> {
    /// Why the lease is over.
    pub reason: Lost,
    /// What the work returned, if it ended by itself, though too late: somebody else may have held
    /// the lock while it went on. `None` if it was stopped.
    pub value: Option<T>,
}

impl<T> Stopped<T> {
    /// The same without the value, which an error that is passed on need not carry.
    #[must_use]
    pub fn without_value(self) -> Stopped<()> {
        Stopped { reason: self.reason, value: None }
    }
}

/// Why work under a lock did not end as it should. See [`with`](crate::LockManager::with).
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WithError<T> {
    /// The lock was not taken, and the work not begun.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The lock was lost during the work.
    #[error(transparent)]
    Lost(#[from] Stopped<T>),
}

impl<T> WithError<T> {
    /// Whether somebody else has the lock, so that the work was not begun: then it is no trouble,
    /// and waiting helps.
    #[must_use]
    pub const fn is_held(&self) -> bool {
        matches!(self, Self::Lock(error) if error.is_held())
    }

    /// Whether the manager was closed, so that the work was not begun.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        matches!(self, Self::Lock(error) if error.is_closed())
    }

    /// Whether asking again is pointless. See [`LockError::is_permanent`].
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        matches!(self, Self::Lock(error) if error.is_permanent())
    }

    /// What the nodes said, where that is why the lock was not taken or was lost.
    #[must_use]
    pub const fn votes(&self) -> Option<&Votes> {
        match self {
            Self::Lock(error) => error.votes(),
            Self::Lost(stopped) => stopped.reason.votes(),
        }
    }

    /// The same without the value, which an error that is passed on need not carry: it may be
    /// borrowed, or bound to a thread.
    #[must_use]
    pub fn without_value(self) -> WithError<()> {
        match self {
            Self::Lock(error) => WithError::Lock(error),
            Self::Lost(stopped) => WithError::Lost(stopped.without_value()),
        }
    }
}

/// Why a lock that was handed over could not be adopted. It stays as it was, and adopting it may
/// be tried again.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdoptError {
    /// The manager was closed.
    #[error("the lock manager is closed")]
    Closed,
    /// A quorum voted too late: nothing was left of the validity.
    #[error("the votes came too late: {votes}")]
    Expired {
        /// What the nodes said.
        votes: Votes,
    },
    /// Nodes failed or stayed silent, so that nobody knows whether the lock is still held.
    #[error("no quorum: {votes}")]
    NoQuorum {
        /// What the nodes said.
        votes: Votes,
    },
    /// So many nodes do not have the keys that no quorum can have them: the lock expired, was
    /// released, or spans other nodes.
    #[error("the lock is gone: {votes}")]
    NotHeld {
        /// What the nodes said.
        votes: Votes,
    },
    /// Two configured nodes are one server.
    #[error("the nodes {first} and {second} are one server")]
    SameServer {
        /// The one.
        first: String,
        /// The other.
        second: String,
    },
    /// This manager's cap on the time of holding leaves nothing to hold of the record's ttl.
    #[error("a hold limit of {limit:?} is too short for the record, it must be over {least:?}")]
    HoldLimit {
        /// The limit of this manager.
        limit: Duration,
        /// The margin of the record's ttl, which it must exceed.
        least: Duration,
    },
    /// The ttl of the record does not fit this manager's drift, or its restart guard.
    #[error(transparent)]
    Ttl(#[from] InvalidTtl),
}

impl AdoptError {
    /// What the nodes said, where they were asked.
    #[must_use]
    pub const fn votes(&self) -> Option<&Votes> {
        match self {
            Self::Expired { votes } | Self::NoQuorum { votes } | Self::NotHeld { votes } => {
                Some(votes)
            }
            _ => None,
        }
    }
}

/// Why a release could not be confirmed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// So many nodes failed or stayed silent that the lock may be kept until its ttl is over.
    /// Cleanup goes on in the background for nodes that are merely slow.
    #[error("no quorum: {votes}")]
    NoQuorum {
        /// What the nodes said.
        votes: Votes,
    },
}

impl ReleaseError {
    /// What the nodes said.
    #[must_use]
    pub const fn votes(&self) -> &Votes {
        match self {
            Self::NoQuorum { votes } => votes,
        }
    }
}

/// How a lock was when it was released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "complete by definition: held, not held, not known")]
#[must_use = "it may tell that the lock had been lost"]
pub enum Released {
    /// It was held to the end: nobody else had it in between.
    Held,
    /// It had been lost before: its validity was over, or a majority of the nodes no longer had
    /// it. Somebody else may have held it while the work went on.
    Lost,
    /// It is free now, but nobody can tell whether it had been held to the end: too few nodes
    /// answered, or the manager was closed and had released it already.
    Unsure,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_work_under_a_lock_tells_what_that_of_the_lock_tells() {
        let granted = |votes: Option<&Votes>| votes.map(Votes::granted);
        let votes: Votes = [NodeVote::new("a", Said::Granted), NodeVote::new("b", Said::Refused)]
            .into_iter()
            .collect();
        let work = |reason| WithError::from(Stopped { reason, value: Some(5) });

        let held = WithError::<u8>::from(LockError::Held { votes: votes.clone() });
        assert!(held.is_held());
        assert_eq!(granted(held.votes()), Some(1));
        let no_quorum = WithError::<u8>::from(LockError::NoQuorum { votes: votes.clone() });
        assert!(!no_quorum.is_held());
        assert_eq!(granted(no_quorum.votes()), Some(1));
        let lost = work(Lost::NotHeld { votes });
        assert!(!lost.is_held(), "by us, until it was lost");
        assert_eq!(granted(lost.votes()), Some(1));
        assert!(work(Lost::HoldLimit).votes().is_none());
        assert!(WithError::<u8>::from(LockError::Closed).votes().is_none());
    }

    #[test]
    fn votes_of_more_nodes_than_a_manager_takes_are_counted_as_well() {
        let votes: Votes = (0..99).map(|_| NodeVote::new("node", Said::Granted)).collect();
        assert_eq!(votes.to_string(), "99 of 99 nodes granted, 50 needed");
        assert_eq!(Votes::default().to_string(), "no node was asked");
    }
}
