//! What the callers of an attempt look at.

use std::time::Instant;

use super::identity::Owner;
use super::state::{Effects, State, lost_of};
use crate::algorithm::attempt::{Loss, RoundId};
use crate::algorithm::node_set::NodeSet;
use crate::error::{ExtendError, QuorumFailure, ReleaseError};
use crate::tickets::Ticket;

/// A first round that was lost.
pub(crate) struct NotWon {
    pub(crate) loss: Loss,
    pub(crate) failure: QuorumFailure,
    /// The tickets, for a request that goes on.
    pub(crate) tickets: Vec<Ticket>,
}

impl State {
    /// The result of the first round, and its tickets if it was lost.
    pub(super) fn take_first(
        &mut self,
        attempt: &dyn Owner,
        now: Instant,
        effects: &mut Effects,
    ) -> Option<Option<Result<(), NotWon>>> {
        if self.is_closed {
            return Some(None);
        }
        let loss = match self.first? {
            Ok(()) if attempt.end.check(now).is_ok() => {
                self.is_taken = true;
                return Some(Some(Ok(())));
            }
            // It has expired before the caller heard of it (T2).
            Ok(()) => Loss::Expired,
            Err(loss) => loss,
        };
        let (failure, tickets) = (self.failure(attempt), self.giving.take());
        if loss == Loss::Expired && !self.is_left {
            self.leave(attempt, now);
            self.follow(attempt, now, effects);
        }
        Some(Some(Err(NotWon { loss, failure, tickets })))
    }

    pub(super) fn extension(
        &self,
        attempt: &dyn Owner,
        round: RoundId,
        now: Instant,
    ) -> Option<Result<Instant, ExtendError>> {
        // What is over stays over, however the round ended.
        if let (Err(_), Some(lost)) = (attempt.end.check(now), &self.lost) {
            return Some(Err(lost.clone().into()));
        }
        let valid_until = match attempt.end.check(now) {
            Ok(valid_until) => valid_until,
            Err(why) => return Some(Err(lost_of(why).into())),
        };
        if self.extended.is_some_and(|extended| extended >= round) {
            return Some(Ok(valid_until));
        }
        match &self.failed {
            Some((failed, failure)) if *failed >= round => {
                Some(Err(ExtendError::Unreachable(failure.clone())))
            }
            _ => None,
        }
    }

    pub(super) fn released(&self) -> Option<Result<(), ReleaseError>> {
        self.released.clone()
    }

    /// Whether the undo needs no more waiting.
    pub(super) const fn is_undone(&self) -> bool {
        self.is_undone || self.is_over
    }

    /// What each node has answered to the releases by now.
    pub(super) fn release_failure(&self, attempt: &dyn Owner, now: Instant) -> QuorumFailure {
        let (votes, waited) = self.machine.release_votes(now);
        attempt.cluster().nodes.failure(&votes, waited)
    }

    pub(super) fn open_nodes(&self) -> NodeSet {
        self.machine.open_nodes()
    }
}
