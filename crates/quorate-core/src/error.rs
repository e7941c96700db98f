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
    /// There is no randomness for a token.
    #[error(transparent)]
    Entropy(#[from] EntropyError),
    /// A quorum granted too late: nothing was left of the validity.
    #[error("the votes came too late: {votes}")]
    Expired {
        /// What the nodes said.
        votes: Votes,
    },
    /// Nodes refused, and the failing ones alone do not account for the missing quorum.
    #[error("locked by somebody else: {votes}")]
    Held {
        /// What the nodes said.
        votes: Votes,
    },
    /// So many nodes failed or stayed silent that no quorum was left.
    #[error("no quorum: {votes}")]
    NoQuorum {
        /// What the nodes said.
        votes: Votes,
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
    /// The lease ran out before a quorum had extended it.
    #[error("the lease had expired: {votes}")]
    Expired {
        /// What the nodes said; nothing if the lease had run out before they were asked.
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
    /// It is free now, but too few nodes answered to tell whether it had been held to the end.
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
