//! What goes into an attempt and comes out of it.

use std::time::Instant;

use super::super::fence::FencingToken;
use super::super::lease::Ttl;
use super::super::quorum::NodeId;

/// One call to one node. No two calls of an attempt have the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallId {
    pub(super) node: NodeId,
    pub(super) number: u64,
}

impl CallId {
    /// The node that is called.
    #[must_use]
    pub const fn node(self) -> NodeId {
        self.node
    }
}

/// What the driver has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "complete by definition: the driver acts on each")]
pub enum Action {
    /// Send this operation to the node.
    Call(CallId, Operation),
    /// Drop this call: the attempt no longer waits for its reply.
    GiveUp(CallId),
}

/// What a node is asked to do with the keys of the attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "complete by definition: the driver sends each")]
pub enum Operation {
    /// Set the keys if they are free.
    Acquire {
        /// How long the node keeps them.
        ttl: Ttl,
    },
    /// Let the keys live for at least the ttl, if they are ours.
    Extend {
        /// How long from now.
        ttl: Ttl,
    },
    /// Raise the node's fencing number to the token, if the keys are ours.
    Raise {
        /// The number on which a quorum has to agree.
        token: FencingToken,
    },
    /// Set the keys again on a node that lost them, without a fencing number.
    Repair {
        /// How long the node keeps them.
        ttl: Ttl,
    },
    /// Delete the keys if they are ours.
    Release {
        /// The highest fencing number that this attempt has heard.
        highest: Option<FencingToken>,
    },
}

impl Operation {
    /// The name in events and metrics.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Acquire { .. } => "acquire",
            Self::Extend { .. } => "extend",
            Self::Raise { .. } => "raise",
            Self::Repair { .. } => "repair",
            Self::Release { .. } => "release",
        }
    }
}

/// How a call settled. The driver keeps the reasons of failures by [`CallId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "complete by definition: the driver maps to each")]
pub enum Outcome {
    /// The node did it: granted, still owned, raised, or deleted. A fenced acquire brings its number.
    Granted(Option<FencingToken>),
    /// The node refused: the keys are not ours, or not there.
    Refused,
    /// The call may or may not have been executed: an error reply, or the end of the connection (Q4).
    Failed,
    /// The call certainly never left.
    NotSent,
}

/// What the caller has to learn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "complete by definition: the driver answers on each")]
pub enum Decision {
    /// A quorum granted: the lock is held.
    Won {
        /// The end of the lease.
        valid_until: Instant,
        /// The fencing token, with fencing.
        token: Option<FencingToken>,
    },
    /// The first round is lost, and its undo has begun.
    NotWon(Loss),
    /// A quorum still owned the keys.
    Extended {
        /// The round that was decided, and with it all earlier ones.
        round: RoundId,
        /// The end of the lease, not earlier than before (H2).
        valid_until: Instant,
    },
    /// No quorum extended. The lease stays as it was (H1).
    ExtendFailed {
        /// The round that was decided, and with it all earlier ones.
        round: RoundId,
    },
    /// The lease has ended before its release (H1, H4). Its cleanup has begun.
    LeaseLost,
    /// The release found the keys on a quorum.
    Released,
    /// The lock had been lost before its release.
    LostBefore,
    /// The release did not prove whether the lock had been held until then.
    Unconfirmed,
}

/// Why a first round was not won.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "complete by definition: each lost round is one of these"
)]
pub enum Loss {
    /// Refusals decided: without them the failures left a quorum possible.
    Held,
    /// Too many nodes failed or did not answer, or a fencing token found no quorum.
    Unreachable,
    /// The votes came when nothing was left of the validity (T2).
    Expired,
}

/// The number of a round: the first round is 1, each extension the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RoundId(pub(super) u64);

impl RoundId {
    pub(super) const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}
