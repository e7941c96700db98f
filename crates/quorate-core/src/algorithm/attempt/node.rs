//! What an attempt knows of one node.

use std::time::Instant;

use super::super::fence::FencingToken;
use super::look::Looking;
use super::messages::{CallId, Message, Outcome};

/// What is known of the keys at a node, its calls in flight, and its vote.
#[derive(Clone, Debug)]
pub struct Node<E, H = ()> {
    pub(super) know: Knowledge,
    /// The calls in flight, the oldest first: one, and on an ordered connection a release behind
    /// it, and a look.
    pub(super) calls: Vec<InFlight>,
    /// Until when the node has promised to keep the keys. `None`: it has not, or has said that they
    /// are not ours.
    pub(super) promise: Option<Instant>,
    pub(super) vote: RoundVote<E, H>,
    /// Why the node is a stranger to the others, if it is one (N3).
    pub(super) stranger: Option<E>,
    /// The fencing number that the node granted.
    pub(super) number: Option<FencingToken>,
    /// How the last release that failed did so.
    pub(super) failure: Option<FailedRelease<E>>,
    pub(super) looking: Looking,
}

/// What is known of the keys at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Knowledge {
    /// Nothing that sets the keys has left for this node.
    Blank,
    /// Something that may set the keys has left, and no reply says whether it did.
    Maybe,
    /// The node said that the keys are ours.
    Ours,
    /// The node said that the keys are not ours.
    NotOurs,
    /// The node said that a revoke has put its mark in place of our token.
    Marked,
    /// The node answered a release, or failed one and had said that the keys are not ours.
    Freed,
}

/// The vote of a node in a round. `E` is the reason of a node that failed, `H` is what its reply
/// says of the holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RoundVote<E, H = ()> {
    /// The node had not replied when the round was decided.
    Open,
    /// The node granted.
    For,
    /// The node refused.
    Against(H),
    /// The call failed with this reason (Q4).
    Unknown(E),
    /// The node had not replied at the round's deadline.
    Silent,
    /// The node said *not there* to a release, which proves nothing: an earlier release may have
    /// deleted the keys, or they may just have expired.
    Unclear,
    /// Nothing was ever sent to the node. In a release this counts as `Against`.
    NotAsked,
}

impl<E, H> From<Outcome<E, H>> for RoundVote<E, H> {
    fn from(outcome: Outcome<E, H>) -> Self {
        match outcome {
            Outcome::Granted(_) => Self::For,
            Outcome::Refused(holder) | Outcome::Marked(holder) => Self::Against(holder),
            Outcome::Failed(reason) | Outcome::Lost(reason) | Outcome::NotSent(reason) => {
                Self::Unknown(reason)
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct InFlight {
    pub(super) id: CallId,
    pub(super) kind: Purpose,
    /// What a grant of this call promises. A repair promises nothing: only the next extension does
    /// (H3).
    pub(super) promise: Option<Instant>,
    /// Since it was made, a later call has said that the keys are not ours, or may have set or
    /// deleted them.
    pub(super) is_outdated: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Purpose {
    Acquire,
    Extend,
    /// An extension of an earlier round: its reply is no vote (Q3).
    OldExtend,
    Raise,
    Repair,
    Look,
    Release,
}

#[derive(Clone, Debug)]
pub(super) struct FailedRelease<E> {
    pub(super) reason: E,
    /// Whether the node answered, with an error.
    pub(super) is_answered: bool,
}

impl<E: Clone, H: Clone> Node<E, H> {
    pub(super) fn new() -> Self {
        Self {
            know: Knowledge::Blank,
            calls: Vec::new(),
            promise: None,
            vote: RoundVote::Open,
            stranger: None,
            number: None,
            failure: None,
            looking: Looking::default(),
        }
    }

    pub(super) const fn is_open(&self) -> bool {
        matches!(self.vote, RoundVote::Open)
    }

    /// The vote, or the failure of the release that leaves the vote open.
    pub(super) fn reported_vote(&self) -> RoundVote<E, H> {
        match &self.failure {
            Some(failure) if self.is_open() => RoundVote::Unknown(failure.reason.clone()),
            _ => self.vote.clone(),
        }
    }

    /// A vote of the node as it counts: that of a stranger is unknown (N3).
    pub(super) fn counted(&self, vote: RoundVote<E, H>) -> RoundVote<E, H> {
        use RoundVote::{Against, For, Unclear};

        match (&self.stranger, vote) {
            (Some(reason), For | Against(_) | Unclear) => RoundVote::Unknown(reason.clone()),
            (_, vote) => vote,
        }
    }

    /// A stranger promises nothing, and has not voted.
    pub(super) fn expel(&mut self) {
        if self.stranger.is_some() {
            self.promise = None;
            self.vote = self.counted(self.vote.clone());
        }
    }

    /// Whether a call is in flight. Nothing waits for a look.
    pub fn is_busy(&self) -> bool {
        self.calls.iter().any(|call| call.kind != Purpose::Look)
    }

    pub(super) fn awaits_look(&self) -> bool {
        self.awaits(Purpose::Look)
    }

    pub(super) fn awaits(&self, kind: Purpose) -> bool {
        self.calls.iter().any(|call| call.kind == kind)
    }

    /// Whether something may be left here that no release has answered for (C2). A node that
    /// refused may have the key: where an acquire arrives twice, a `SET NX` refuses its own token.
    pub const fn owes_release(&self) -> bool {
        !matches!(self.know, Knowledge::Blank | Knowledge::Freed)
    }

    /// Whether its release failed without an answer, and waits for the pause.
    pub(super) fn awaits_back(&self) -> bool {
        let is_silent = self.failure.as_ref().is_some_and(|failure| !failure.is_answered);
        is_silent && self.owes_release() && !self.is_busy()
    }

    /// Whether the undo needs no more waiting: nothing is left here, or a release failed (C8).
    pub(super) const fn has_answered_undo(&self) -> bool {
        !matches!(self.know, Knowledge::Maybe | Knowledge::Ours) || self.failure.is_some()
    }

    /// A round begins: the node has not voted, and a call of an earlier round does not vote (Q3).
    pub(super) fn open_vote(&mut self) {
        self.vote = RoundVote::Open;
        let extensions = self.calls.iter_mut().filter(|call| call.kind == Purpose::Extend);
        extensions.for_each(|call| call.kind = Purpose::OldExtend);
    }

    pub(super) fn record_sent(&mut self, id: CallId, message: Message, promise: Option<Instant>) {
        let kind = match message {
            Message::Acquire { .. } => Purpose::Acquire,
            Message::Extend { .. } => Purpose::Extend,
            Message::Raise { .. } => Purpose::Raise,
            Message::Repair { .. } => Purpose::Repair,
            Message::Look => Purpose::Look,
            Message::Release { .. } => Purpose::Release,
        };
        if matches!(kind, Purpose::Acquire | Purpose::Repair) {
            self.know = Knowledge::Maybe;
            self.calls.iter_mut().for_each(|call| call.is_outdated = true);
        }
        self.calls.push(InFlight { id, kind, promise, is_outdated: false });
    }

    /// Removes a call that settled, and learns from its reply, in whatever phase and round it comes
    /// (C4). What is out of date changes nothing, so the order in which a node's replies come does
    /// not matter. `None` if it was not in flight.
    pub(super) fn settle(
        &mut self,
        id: CallId,
        outcome: &Outcome<E, H>,
        now: Instant,
    ) -> Option<Purpose> {
        use Outcome::{Failed, Granted, Lost, Marked, NotSent, Refused};
        use Purpose::{Acquire, Look, Raise, Release, Repair};

        let at = self.calls.iter().position(|call| call.id == id)?;
        let InFlight { kind, promise, is_outdated, .. } = self.calls.remove(at);
        if let (Acquire, Granted(number)) = (kind, outcome) {
            self.number = *number;
        }
        if let (Release, Failed(reason) | Lost(reason) | NotSent(reason)) = (kind, outcome) {
            let is_answered = matches!(outcome, Failed(_));
            self.failure = Some(FailedRelease { reason: reason.clone(), is_answered });
        }
        if let (Look, Granted(_)) = (kind, outcome) {
            self.looking.note_ours(now);
        }
        self.know = match (kind, outcome) {
            _ if is_outdated => return Some(kind),
            (Release, Granted(_) | Refused(_) | Marked(_)) => Knowledge::Freed,
            (Release, _) if self.know == Knowledge::NotOurs => Knowledge::Freed,
            (Acquire, NotSent(_)) => Knowledge::Blank,
            (Repair, NotSent(_)) => Knowledge::NotOurs,
            (Raise | Release, _) | (_, Failed(_) | Lost(_) | NotSent(_)) => return Some(kind),
            (_, Granted(_)) => Knowledge::Ours,
            (_, Refused(_)) => Knowledge::NotOurs,
            // No other client gets a marked key before its ttl has passed.
            (_, Marked(_)) => Knowledge::Marked,
        };
        match self.know {
            // A later promise never shortens (H2).
            Knowledge::Ours => self.promise = self.promise.max(promise),
            // When it is over, the keys may just have expired.
            Knowledge::NotOurs => self.promise = self.promise.filter(|end| now >= *end),
            _ => {}
        }
        if self.know != Knowledge::Ours {
            self.calls[..at].iter_mut().for_each(|older| older.is_outdated = true);
        }
        Some(kind)
    }
}
