//! What follows from a round that was lost: its error, another round later, or the end of the
//! request.

use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;

use super::{LostRound, Round, Rounds};
use crate::algorithm::attempt::Loss;
use crate::attempt::{Attempt, NotWon};
use crate::cluster::Cluster;
use crate::error::{LockError, QuorumFailure};
use crate::telemetry;
use crate::turns::remote_wait::RemoteWait;

/// How long an error may wait for the answers to an undo, however short its round was (C8).
const LEAST_UNDO: Duration = Duration::from_millis(2);

impl Rounds<'_> {
    /// Takes the turn back from a lost round.
    pub(super) fn note_lost(&mut self, lost: NotWon) -> Round {
        let at = self.cluster().now();
        self.turn = lost.turn;
        if let (Some(attempt), Loss::Expired) = (&self.attempt, lost.loss) {
            // It may have been won, and have expired before this task heard of it (T2).
            attempt.leave();
        }
        let (took, is_held) = (lost.failure.waited(), lost.loss == Loss::Held);
        telemetry::round_lost(&self.request.keys, reason(lost.loss), took, &lost.failure);
        let is_over = self.deadline.is_some_and(|deadline| at >= deadline);
        self.lost += 1;
        let failure = self.replicas.note(lost.failure, at);
        // A round that the deadline cut short says less than the one before it, or than the guard
        // that was in the way until then (A4).
        let is_cut_short = is_over && !is_held && took < self.node_timeout;
        let behind = || self.was_behind_others.then(|| LockError::Held(QuorumFailure::default()));
        let earlier = self.last.take().map(|last| last.error).or_else(behind);
        let earlier = earlier.filter(|_| is_cut_short);
        let error = earlier.unwrap_or_else(|| error_of(self.cluster(), lost.loss, failure));
        let is_permanent = error.is_permanent();
        self.last =
            Some(LostRound { loss: lost.loss, took, at, error, undo: self.undo_limit(took) });
        match is_over || is_permanent || self.request.settings.needs_quorum && !is_held {
            true => Round::Final,
            false => Round::Lost,
        }
    }

    /// Gives a round back that was won.
    pub(in super::super) fn give_back(&mut self, loss: Loss) {
        let Some(attempt) = &self.attempt else { return };
        let at = self.cluster().now();
        attempt.leave();
        let failure = attempt.answers();
        let took = failure.waited();
        telemetry::round_lost(&self.request.keys, reason(loss), took, &failure);
        let error = error_of(self.cluster(), loss, failure);
        // The gate may have been awaited behind the deadline: both together take no longer.
        let late = self.deadline.map_or(Duration::ZERO, |end| at.saturating_duration_since(end));
        let undo = self.undo_limit(took).saturating_sub(late);
        self.last = Some(LostRound { loss, took, at, error, undo });
    }

    /// Whether the answers that came after the lost round make another one pointless. Then they are
    /// in the error: the order in which the nodes answer does not matter (A4).
    pub(super) fn late_answers_are_final(&mut self) -> bool {
        let (Some(attempt), Some(last)) = (&self.attempt, &mut self.last) else { return false };
        let failure = self.replicas.note(attempt.answers(), last.at);
        let error = error_of(&self.manager.cluster, last.loss, failure);
        let is_permanent = error.is_permanent();
        if is_permanent {
            last.error = error;
        }
        is_permanent
    }

    /// Ends the request: its latest attempt takes the turn, and the error waits for the answers to
    /// the undo and to the LEAVE of `leaving`, for as long as the last round took (C8). `unasked`
    /// is the error if no round was made.
    pub(in super::super) async fn give_up(
        &mut self,
        unasked: LockError,
        leaving: Option<Arc<RemoteWait>>,
    ) -> LockError {
        let turn = take(&mut self.turn);
        match &self.attempt {
            Some(attempt) => attempt.leave_with(turn),
            None => drop(turn),
        }
        let limit = self.last.as_ref().map_or(LEAST_UNDO, |last| last.undo);
        let undone = async {
            if let Some(attempt) = &self.attempt {
                attempt.undone(limit).await;
            }
        };
        let left = async {
            if let Some(wait) = &leaving {
                self.cluster().within(limit, wait.left()).await;
            }
        };
        join(undone, left).await;
        self.late_answers_are_final();
        self.attempt = None;
        self.last.take().map_or(unasked, |last| last.error)
    }

    /// The error of a request that made no round (Q4, A4). An earlier task was in the way, the gate
    /// has said that the lock is held, or a release of this manager is not answered.
    pub(in super::super) fn unasked(&self, wait: Option<&Arc<RemoteWait>>) -> LockError {
        if self.was_behind_others {
            return LockError::Held(QuorumFailure::default());
        }
        let none_asked = self.cluster().nodes.none_asked();
        if wait.is_some_and(RemoteWait::has_answer) {
            return LockError::Held(none_asked);
        }
        let releasing =
            |key| Attempt::release_failure(self.cluster(), self.manager.releasing(key)?);
        let releasing = self.request.keys.iter().find_map(releasing);
        LockError::NoQuorum(releasing.unwrap_or(none_asked))
    }

    /// The process may have been stopped in the round.
    fn undo_limit(&self, took: Duration) -> Duration {
        took.min(self.node_timeout).max(LEAST_UNDO)
    }
}

pub(super) fn error_of(cluster: &Cluster, loss: Loss, failure: QuorumFailure) -> LockError {
    cluster.nodes.same_server().unwrap_or_else(|| match loss {
        // The round was decided before the last of these errors came (A4).
        Loss::Held if !failure.is_permanent() => LockError::Held(failure),
        _ => LockError::NoQuorum(failure),
    })
}

const fn reason(loss: Loss) -> &'static str {
    match loss {
        Loss::Held => "held",
        Loss::NoQuorum | Loss::NoToken => "no_quorum",
        Loss::Expired => "expired",
    }
}
