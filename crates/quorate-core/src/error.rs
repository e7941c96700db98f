//! Why an operation failed, and what each node said.
//!
//! *Held by somebody* and *could not reach the nodes* are never the same variant.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::algorithm::lease::InvalidTtl;
use crate::algorithm::quorum::{NodeCount, Vote};
use crate::backend::BackendError;
use crate::resource::InvalidResource;
use crate::runtime::EntropyError;

/// Why a lock was not taken. Whatever had been taken on single nodes is given back.
///
/// After several rounds, the error is that of the last round which was not cut short.
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
    #[error("locked by somebody else{}", votes.or(", with the same manager"))]
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
    #[error("{node} cannot fence")]
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

/// Why a lease was not extended. It stays as it was: valid until it was valid before.
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
    /// So many nodes said that they no longer have our keys that no quorum can have them.
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
    /// The ttl of the record does not fit this manager's drift, or its restart guard.
    #[error(transparent)]
    Ttl(#[from] InvalidTtl),
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

/// How a lock was when it was released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "complete by definition: held, not held, not known")]
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

/// What the nodes said in one round.
#[derive(Clone, Debug)]
pub struct Votes {
    nodes: Arc<[NodeVote]>,
}

impl Votes {
    pub(crate) fn new(nodes: impl IntoIterator<Item = NodeVote>) -> Self {
        Self { nodes: nodes.into_iter().collect() }
    }

    /// The nodes in the order they are configured.
    pub fn iter(&self) -> std::slice::Iter<'_, NodeVote> {
        self.nodes.iter()
    }

    /// What goes behind a reason: the votes, or this `otherwise` if nobody was asked.
    fn or(&self, otherwise: &str) -> String {
        if self.nodes.is_empty() { otherwise.to_owned() } else { format!(": {self}") }
    }

    /// How many nodes granted.
    #[must_use]
    pub fn granted(&self) -> usize {
        self.iter().filter(|node| matches!(node.said, Said::Granted)).count()
    }
}

impl<'a> IntoIterator for &'a Votes {
    type Item = &'a NodeVote;
    type IntoIter = std::slice::Iter<'a, NodeVote>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Prints the count, and each node that did not grant with its reason.
impl fmt::Display for Votes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(count) = NodeCount::new(self.nodes.len()) else {
            return f.write_str("no node was asked");
        };
        let granted = self.granted();
        write!(f, "{granted} of {} nodes granted, {} needed", count.get(), count.quorum())?;
        for node in self.iter().filter(|node| !matches!(node.said, Said::Granted)) {
            write!(f, "; {}: {}", node.name, node.said)?;
        }
        Ok(())
    }
}

/// What one node said.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeVote {
    /// The node: its address, without a password.
    pub name: Arc<str>,
    /// Its answer, or the lack of one.
    pub said: Said,
}

impl NodeVote {
    pub(crate) const fn new(name: Arc<str>, said: Said) -> Self {
        Self { name, said }
    }
}

/// A node's answer, or the lack of one.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Said {
    /// It granted.
    Granted,
    /// It refused: the key is somebody else's, or (asked to extend or release) not ours.
    Refused,
    /// Its vote is unknown for this reason.
    Failed(BackendError),
    /// It did not answer in time.
    Silent {
        /// How long the round waited.
        after: Duration,
    },
    /// The round was certain before it answered.
    Unheard,
}

impl Said {
    pub(crate) const fn of(vote: Vote) -> Self {
        match vote {
            Vote::Granted => Self::Granted,
            Vote::Refused => Self::Refused,
        }
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted => f.write_str("granted"),
            Self::Refused => f.write_str("refused"),
            Self::Failed(error) => error.fmt(f),
            Self::Silent { after } => write!(f, "no answer within {after:.1?}"),
            Self::Unheard => f.write_str("not waited for"),
        }
    }
}
