//! What follows from an input: the end is published, results are told, tickets are handed over.

use std::sync::Arc;
use std::time::Instant;

use super::{Attempt, Effects, Machine, Noted, State};
use crate::algorithm::attempt::{End, Results};
use crate::algorithm::lease::saturating_add;
use crate::algorithm::quorum::NodeId;
use crate::error::QuorumFailure;
use crate::seam::runtime::lock;
use crate::telemetry;
use crate::turns::tickets::Turn;

impl State {
    pub(super) fn new(machine: Machine, turn: Turn) -> Self {
        Self {
            machine,
            told: Results::default(),
            is_answered: false,
            is_closed: false,
            revoked: None,
            is_renewed: false,
            renew_at: None,
            voted: Vec::new(),
            turn,
            is_counted: false,
            background_since: None,
        }
    }

    /// Publishes the end of the lease, and why it ends. Returns whether it has moved back.
    pub(super) fn publish_end(&self, attempt: &Attempt, now: Instant) -> bool {
        let end = self.machine.valid_until();
        let why = || self.machine.end_by_time();
        let is_earlier = end.is_some_and(|end| attempt.end.publish(end, why()));
        if let Some(why) = self.machine.lost() {
            attempt.end.end(why, now.min(attempt.end.valid_until()));
        }
        is_earlier
    }

    /// Tells what was decided since `before`.
    pub(super) fn tell(
        &mut self,
        attempt: &Arc<Attempt>,
        before: &Results,
        now: Instant,
        effects: &mut Effects,
    ) {
        let results = self.told;
        match results.first {
            Some(Ok(())) if before.first.is_none() => {
                let _ = attempt.won.set((now, self.machine.fencing_token()));
            }
            Some(Err(_)) if before.first.is_none() => self.background_since = Some(now),
            _ => {}
        }
        if results.extended > before.extended {
            self.extension_decided(attempt, None, now, effects);
        } else if before.is_failing && !results.is_failing && self.machine.valid_until().is_some() {
            // The votes of an extension that failed have come late, and have moved the end on.
            self.plan_renewal(attempt, true, now);
            let left = attempt.end.valid_until().saturating_duration_since(now);
            effects.tell(move |attempt| telemetry::extended_late(attempt.claim.keys(), left));
        }
        if results.failed != before.failed {
            self.extension_decided(attempt, Some(self.failure(attempt)), now, effects);
        }
        if results.is_revoked && !before.is_revoked {
            let (by, left) = (self.revoked_by(), attempt.end.valid_until());
            let left = left.saturating_duration_since(now);
            effects.tell(move |attempt| {
                telemetry::revoked(attempt.claim.keys(), by.as_ref(), left);
            });
        }
        if results.lost.is_some() && before.lost.is_none() {
            self.tell_lost(attempt, effects);
        }
        if results.released.is_some() && before.released.is_none() {
            self.background_since = Some(now);
        }
    }

    fn extension_decided(
        &mut self,
        attempt: &Arc<Attempt>,
        failure: Option<QuorumFailure>,
        now: Instant,
        effects: &mut Effects,
    ) {
        self.plan_renewal(attempt, failure.is_none(), now);
        let took = self.machine.waited();
        let left = attempt.end.valid_until().saturating_duration_since(now);
        effects.tell(move |attempt| match failure {
            None => telemetry::extended(attempt.claim.keys(), took, left),
            Some(failure) => telemetry::not_extended(attempt.claim.keys(), took, left, &failure),
        });
    }

    /// A due time may have come.
    pub(super) fn handle_time(&mut self, attempt: &Attempt, now: Instant) {
        let Noted { queued, left_late, .. } = *lock(&attempt.noted);
        // The queue of a node that does not answer may never move.
        let (nodes, node_timeout) = (&attempt.cluster().nodes, attempt.node_timeout);
        let moves = |node: &NodeId| nodes.health(*node).silence(node_timeout, now).is_none();
        let queued = queued.iter().filter(moves).collect();
        self.machine.note_queued(queued, left_late);
        self.machine.handle_timeout(now);
        if self.renew_at.take_if(|at| now >= *at).is_some() {
            self.machine.extend(attempt.claim.ttl(), now);
        }
    }

    /// The lease has ended before its release.
    fn tell_lost(&self, attempt: &Attempt, effects: &mut Effects) {
        // Another writer may have been first.
        let Some((why, at)) = attempt.end.ended() else { return };
        let told = self.lost(attempt);
        effects.tell(move |attempt| {
            let (keys, held) = (attempt.claim.keys(), attempt.held(at));
            match told.reason() {
                _ if why == End::Closed => telemetry::closed(keys, held),
                Some(reason) => telemetry::lost(keys, reason, held, &told),
                None => {}
            }
        });
    }

    /// The turn hears that the releases begin. Not before the request has heard of its round: from
    /// a lost one, or an expired win, it takes the turn back.
    pub(super) fn begin_releases(&mut self, attempt: &Attempt, now: Instant) -> bool {
        let is_result_to_come = !self.is_answered && !self.is_closed;
        if self.turn.is_empty() || is_result_to_come {
            return false;
        }
        if self.turn.due().is_none() {
            let times = (now, saturating_add(now, attempt.node_timeout));
            let was_held = attempt.won.get().is_some();
            self.turn.begin_releases(attempt.slot, was_held, self.machine.owing(), times);
        }
        true
    }

    /// Hands the turn over once the releases have been handed to their nodes.
    pub(super) fn hand_turn_over(
        &mut self,
        attempt: &Attempt,
        now: Instant,
        effects: &mut Effects,
    ) {
        let is_over = self.machine.is_quiescent() || self.turn.due().is_some_and(|due| now >= due);
        if !(is_over || self.machine.is_releasing()) || !self.begin_releases(attempt, now) {
            return;
        }
        if is_over {
            return self.turn.end(&mut effects.handed_over);
        }
        let is_ordered = attempt.cluster().nodes.all_ordered();
        let Results { released, is_cleared, is_undone, .. } = self.told;
        let is_decided = released.is_some() || is_cleared || is_undone;
        self.turn.hand_over(is_ordered, is_decided, now, &mut effects.handed_over);
    }

    /// What each node answered in the last round that was decided, or after it if that is a first
    /// round that was lost.
    pub(super) fn failure(&self, attempt: &Attempt) -> QuorumFailure {
        let failure = attempt.cluster().nodes.failure(self.machine.votes(), self.machine.waited());
        failure.of(Arc::clone(attempt.claim.shared_keys()))
    }
}
