//! What follows from an input: calls begin, decisions are kept, tickets are given on.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::calls::{FIRST_HINT, ask_gate};
use super::end::lost;
use super::{Attempt, Effects, Failed, Renewing, State};
use crate::algorithm::attempt::{AttemptMachine, Decision, End, NodeSet, RoundId};
use crate::algorithm::lease::saturating_add;
use crate::algorithm::quorum::NodeId;
use crate::error::{LeaseEnd, QuorumFailure, ReleaseError};
use crate::seam::backend::{BackendError, Holder};
use crate::telemetry;
use crate::turns::tickets::{Progress, Turn};

impl State {
    pub(super) fn new(machine: AttemptMachine<BackendError, Option<Holder>>, turn: Turn) -> Self {
        Self {
            machine,
            first: None,
            is_taken: false,
            extended: None,
            failed: None,
            lost: None,
            revoked: None,
            released: None,
            is_undone: false,
            is_cleared: false,
            is_left: false,
            is_closed: false,
            renewal: None,
            turn,
            is_counted: false,
            background_since: None,
        }
    }

    pub(super) fn decided(
        &mut self,
        attempt: &Arc<Attempt>,
        decision: Decision,
        now: Instant,
        effects: &mut Effects,
    ) {
        match decision {
            Decision::Won { valid_until, token } => {
                self.first = Some(Ok(()));
                attempt.end.publish(valid_until, self.machine.is_limited());
                let _ = attempt.won.set((now, token));
                self.turn.won(now, &mut effects.given_on);
            }
            Decision::NotWon(loss) => {
                self.first = Some(Err(loss));
                self.background_since = Some(now);
            }
            Decision::Undone => self.is_undone = true,
            Decision::Cleared => self.is_cleared = true,
            Decision::Extended(round) => {
                self.extended = Some(round);
                self.extension_decided(attempt, round, None, now, effects);
            }
            Decision::ExtendFailed(round) => {
                let (failure, end) = (self.failure(attempt), attempt.end.valid_until());
                self.failed = Some(Box::new(Failed { round, failure: failure.clone(), end }));
                self.extension_decided(attempt, round, Some(failure), now, effects);
            }
            Decision::Revoked => self.note_revoked(attempt, now, effects),
            Decision::LeaseLost(end) => self.lease_lost(attempt, end, now, effects),
            Decision::Released => self.release_decided(Ok(()), now),
            Decision::LostBefore => {
                let lost = self.lost.as_deref().cloned();
                let lost = lost.unwrap_or_else(|| LeaseEnd::NotHeld(self.failure(attempt)));
                self.release_decided(Err(ReleaseError::Lost(lost)), now);
            }
            Decision::Unconfirmed => {
                let failure = self.failure(attempt);
                self.release_decided(Err(ReleaseError::Unconfirmed(failure)), now);
            }
        }
    }

    fn extension_decided(
        &mut self,
        attempt: &Arc<Attempt>,
        round: RoundId,
        failure: Option<QuorumFailure>,
        now: Instant,
        effects: &mut Effects,
    ) {
        self.renewal_decided(attempt, round, failure.is_none(), now, effects);
        let took = self.machine.waited();
        let left = attempt.end.valid_until().saturating_duration_since(now);
        effects.tell(move |attempt| match failure {
            None => telemetry::extended(attempt.claim.keys(), took, left),
            Some(failure) => telemetry::not_extended(attempt.claim.keys(), took, left, &failure),
        });
    }

    /// A due time may have come.
    pub(super) fn handle_time(&mut self, attempt: &Attempt, now: Instant, effects: &mut Effects) {
        let [queued, left_late] = [&attempt.queued, &attempt.left_late]
            .map(|nodes| NodeSet::of_bits(nodes.load(Ordering::Relaxed)));
        // The queue of a node that does not answer may never move.
        let (nodes, node_timeout) = (&attempt.cluster().nodes, attempt.node_timeout);
        let moves = |node: &NodeId| nodes.silence(*node, node_timeout, now).is_none();
        let queued = queued.iter().filter(moves).collect();
        self.machine.note_queued(queued, left_late);
        self.machine.handle_timeout(now);
        if let Some(Renewing { at: Some(at), .. }) = self.renewal
            && now >= at
        {
            self.renew(attempt, now, effects);
        }
    }

    fn release_decided(&mut self, result: Result<(), ReleaseError>, now: Instant) {
        self.background_since = Some(now);
        self.released.get_or_insert(result);
    }

    fn lease_lost(&mut self, attempt: &Attempt, why: End, now: Instant, effects: &mut Effects) {
        let at = now.min(attempt.end.valid_until());
        attempt.end.end(why, at);
        // Another writer may have been first.
        let (why, at) = attempt.end.ended().unwrap_or((why, at));
        let told = lost(why, attempt.claim.keys(), self.revoked_by(), || self.answers(attempt));
        self.lost = Some(Box::new(told.clone()));
        effects.tell(move |attempt| {
            let (keys, held) = (attempt.claim.keys(), attempt.held(at));
            match told.reason() {
                _ if why == End::Closed => telemetry::closed(keys, held),
                Some(reason) => telemetry::lost(keys, reason, held, &told),
                None => {}
            }
        });
    }

    /// Gives the turn on once the releases have been handed to their nodes. Not before the request has heard of its round:
    /// from a lost one, or an expired win, it takes the turn back.
    pub(super) fn give_turn_on(
        &mut self,
        attempt: &Arc<Attempt>,
        now: Instant,
        effects: &mut Effects,
    ) {
        let is_result_to_come =
            self.first.is_some() && !self.is_taken && !self.is_left && !self.is_closed;
        if self.turn.is_over() || is_result_to_come {
            return;
        }
        let is_over = self.machine.is_quiescent();
        if !(is_over || self.machine.is_releasing()) {
            return;
        }
        let was_held = attempt.won.get().is_some();
        if !self.turn.has_releases() {
            let times = (now, saturating_add(now, attempt.node_timeout));
            self.turn.begin_releases(attempt.slot, was_held, times, |at, key| {
                ask_gate(attempt, key, FIRST_HINT - at, now)
            });
        }
        let is_ordered = attempt.cluster().nodes.all_ordered();
        let is_decided = self.released.is_some() || self.is_cleared || self.is_undone;
        let progress = Progress { is_ordered, was_held, is_decided, is_over };
        self.turn.give_on(progress, now, &mut effects.given_on);
    }

    /// What each node answered in the last round that was decided, or after it if that is a first round that was lost.
    pub(super) fn answers(&self, attempt: &Attempt) -> QuorumFailure {
        attempt.cluster().nodes.failure(self.machine.votes(), self.machine.waited())
    }

    /// The same for the holder, with its keys.
    fn failure(&self, attempt: &Attempt) -> QuorumFailure {
        self.answers(attempt).of(attempt.claim.keys())
    }
}
