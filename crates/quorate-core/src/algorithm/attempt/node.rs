//! What an attempt knows of one node.

use super::super::fence::FencingToken;
use super::messages::{CallId, Operation, Outcome};

/// What is known of the keys at a node, its calls in flight, and its vote.
#[derive(Clone, Debug)]
pub struct Node {
    pub(super) is_ordered: bool,
    pub(super) know: Knowledge,
    /// The call in flight, unless it is a release.
    pub(super) call: Option<Call>,
    /// The release in flight: alone, or on an ordered connection behind `call`.
    pub(super) release: Option<CallId>,
    pub(super) vote: Vote,
    /// The fencing number that the node granted.
    pub(super) number: Option<FencingToken>,
    pub(super) has_failed_release: bool,
}

/// What is known of the keys at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "complete by definition: the states of knowledge")]
pub enum Knowledge {
    /// Nothing that sets the keys has left for this node.
    Blank,
    /// Something that may set the keys has left, and no reply says whether it did.
    Maybe,
    /// The node said that the keys are ours.
    Ours,
    /// The node said that the keys are not ours.
    NotOurs,
    /// The node answered a release, or failed one and had said that the keys are not ours.
    Freed,
}

/// The vote of a node in the open round; after it, in the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "complete by definition: all that a vote can be")]
pub enum Vote {
    /// The node has not answered.
    Open,
    /// The node granted.
    For,
    /// The node refused.
    Against,
    /// The node failed, or did not answer in time (Q4).
    Unknown,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) id: CallId,
    pub(super) kind: CallKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum CallKind {
    Acquire,
    Extend,
    /// An extension of an earlier round: its reply is no vote (Q3).
    OldExtend,
    Raise,
    Repair,
    Release,
}

impl Node {
    pub(super) const fn new(is_ordered: bool) -> Self {
        Self {
            is_ordered,
            know: Knowledge::Blank,
            call: None,
            release: None,
            vote: Vote::Open,
            number: None,
            has_failed_release: false,
        }
    }

    /// What is known of the keys.
    #[must_use]
    pub const fn knowledge(&self) -> Knowledge {
        self.know
    }

    /// The vote in the open round; after it, in the last one.
    #[must_use]
    pub const fn vote(&self) -> Vote {
        self.vote
    }

    /// Whether a call is in flight.
    #[must_use]
    pub const fn is_busy(&self) -> bool {
        self.call.is_some() || self.release.is_some()
    }

    /// Whether something may be left here that no release has answered for (C2). A node that refused may have
    /// the key: where an acquire arrives twice, a `SET NX` refuses its own token.
    #[must_use]
    pub fn owes_release(&self) -> bool {
        match self.know {
            Knowledge::Blank | Knowledge::Freed => false,
            Knowledge::Maybe => !planted!("undo_skips_silent_nodes"),
            Knowledge::Ours | Knowledge::NotOurs => true,
        }
    }

    /// Whether the undo needs no more waiting: nothing is left here, or a release failed (C8).
    #[must_use]
    pub const fn has_answered_undo(&self) -> bool {
        matches!(self.know, Knowledge::Blank | Knowledge::NotOurs | Knowledge::Freed)
            || self.has_failed_release
    }

    /// Whether a release may leave now: it never overtakes the call before it (C3).
    pub(super) fn takes_release(&self) -> bool {
        self.is_ordered || !self.is_busy() || planted!("release_overtakes")
    }

    /// A round begins: the node has not voted, and a call of an earlier round does not vote (Q3).
    pub(super) fn open_vote(&mut self) {
        self.vote = Vote::Open;
        if let Some(call) = &mut self.call
            && call.kind == CallKind::Extend
            && !planted!("old_reply_votes")
        {
            call.kind = CallKind::OldExtend;
        }
    }

    pub(super) const fn record_sent(&mut self, id: CallId, operation: Operation) {
        let kind = match operation {
            Operation::Acquire { .. } => CallKind::Acquire,
            Operation::Extend { .. } => CallKind::Extend,
            Operation::Raise { .. } => CallKind::Raise,
            Operation::Repair { .. } => CallKind::Repair,
            Operation::Release { .. } => {
                self.release = Some(id);
                return;
            }
        };
        if matches!(kind, CallKind::Acquire | CallKind::Repair) {
            self.know = Knowledge::Maybe;
        }
        self.call = Some(Call { id, kind });
    }

    /// Removes a call that settled; `None` if it was not in flight.
    pub(super) fn settle(&mut self, id: CallId) -> Option<CallKind> {
        if self.release == Some(id) {
            self.release = None;
            return Some(CallKind::Release);
        }
        self.call.take_if(|call| call.id == id).map(|call| call.kind)
    }

    /// Learns from a reply, in whatever phase and round it comes (C4).
    pub(super) fn learn(&mut self, kind: CallKind, outcome: Outcome) {
        use CallKind::{Acquire, Extend, OldExtend, Raise, Release, Repair};
        use Outcome::{Failed, Granted, NotSent, Refused};

        self.know = match (kind, outcome) {
            (Acquire | Repair | Extend | OldExtend, Granted(_)) => Knowledge::Ours,
            (Acquire | Repair | Extend | OldExtend, Refused) => Knowledge::NotOurs,
            (Acquire, NotSent) => Knowledge::Blank,
            (Repair, NotSent) => Knowledge::NotOurs,
            (Release, Granted(_) | Refused) => Knowledge::Freed,
            (Release, Failed | NotSent) if self.know == Knowledge::NotOurs => Knowledge::Freed,
            (Release, Failed | NotSent) if planted!("release_is_sent_once") => Knowledge::Freed,
            (Acquire | Repair, Failed) | (Extend | OldExtend, Failed | NotSent) => self.know,
            (Release, Failed | NotSent) | (Raise, _) => self.know,
        };
        match (kind, outcome) {
            (Acquire, Granted(number)) => self.number = number,
            (Release, Failed | NotSent) => self.has_failed_release = true,
            _ => {}
        }
    }
}
