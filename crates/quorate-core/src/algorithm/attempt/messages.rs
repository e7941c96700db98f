//! What goes into an attempt and comes out of it.

use std::time::Instant;

use super::super::fence::FencingToken;
use super::super::lease::Ttl;
use super::super::quorum::NodeId;

/// One call to one node. No two calls of an attempt have the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallId {
    /// The node that is called.
    pub node: NodeId,
    /// The number of the call. It starts at 1 and rises within an attempt. After 2^32 calls it
    /// starts again.
    pub number: u32,
}

/// What the shell has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send this message to the node.
    Send(CallId, Message),
    /// Drop this call: the attempt no longer waits for its reply.
    GiveUp(CallId),
}

/// What a node is asked to do with the keys of the attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
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
    /// Say what is at the keys.
    Look,
    /// Delete the keys if they are ours, or have the mark of a revoke in place of our token.
    Release {
        /// The highest fencing number that this attempt has received.
        highest: Option<FencingToken>,
    },
}

/// How a call settled. `E` is the reason of a node that did not vote, `H` is what a reply says of
/// the holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<E, H = ()> {
    /// The node did it: granted, still owned, raised, or deleted. A fenced acquire brings its
    /// number.
    Granted(Option<FencingToken>),
    /// The node refused: the keys are not ours, or not there.
    Refused(H),
    /// The node refused: a revoke has put its mark in place of our token.
    Marked(H),
    /// The node answered with an error (Q4).
    Failed(E),
    /// No answer: the connection ended, or the client timed out. The node may have executed the
    /// call.
    Lost(E),
    /// The call certainly never left.
    NotSent(E),
}

/// What an attempt has decided, for its callers. What happens in an input is the difference between
/// before and after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Results {
    /// The first round: the lock was won, or the undo has begun.
    pub first: Option<Result<(), Loss>>,
    /// The latest extension for which a quorum still owned the keys. It decides all earlier ones.
    pub extended: RoundId,
    /// The latest extension that no quorum granted in time, and the end of the lease then (H1). It
    /// decides all earlier ones.
    pub failed: Option<(RoundId, Instant)>,
    /// The latest extension has failed, and no late vote has moved the end of the lease on since.
    pub is_failing: bool,
    /// A revoke has taken effect: the lease goes on to its end, and no further.
    pub is_revoked: bool,
    /// Why the lease has ended before its release (H1, H4).
    pub lost: Option<End>,
    /// The answer to the caller of a release.
    pub released: Option<Released>,
    /// After a first round that was lost: each node has refused, has received nothing, or has
    /// answered or failed its undo (C8).
    pub is_undone: bool,
    /// Without a caller that waits for the release: a quorum of nodes owes none any more.
    pub is_cleared: bool,
}

/// What a release has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// The keys were ours on a quorum.
    Ours,
    /// The lock had been lost before.
    LostBefore,
    /// The votes do not prove whether the lock had been held until then.
    Unconfirmed,
}

/// Why a first round was not won.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Refusals decided: without them the failures left a quorum possible.
    Held,
    /// Too many nodes failed or did not answer.
    NoQuorum,
    /// A quorum granted, and no fencing token found one.
    NoToken,
    /// The votes came when nothing was left of the validity (T2).
    Expired,
}

/// Why a lease ended. [`Results::lost`] is none of the last two: its holder knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// What the nodes have promised is over.
    Expired,
    /// Its hold limit is over (H7).
    HoldLimit,
    /// A node said that the keys are not ours, and no quorum of promises is left (H1).
    NotOurs,
    /// It was revoked, and what the nodes have promised is over, or the marks are gone.
    Revoked,
    /// The manager was closed.
    Closed,
    /// Its holder released it.
    Released,
    /// Its holder left it to another process, or on the nodes.
    Detached,
}

/// The number of a round: the first round is 1, each extension the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RoundId(pub(super) u64);

impl RoundId {
    pub(super) const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}
