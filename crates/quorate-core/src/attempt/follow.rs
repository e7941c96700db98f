//! What follows from an input: calls begin, decisions are kept, tickets are given on.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::calls::{FIRST_HINT, ask_gate};
use super::{Attempt, Effects, Renewing, State, Why};
use crate::algorithm::attempt::{
    Action, AttemptMachine, Decision, End, NodeSet, RoundId, RoundVote,
};
use crate::algorithm::lease::saturating_add;
use crate::algorithm::quorum::NodeId;
use crate::cluster::shell::waiting::Awaited as _;
use crate::cluster::shell::wakers::Wakers;
use crate::error::{ExtendError, LeaseEnd, QuorumFailure, ReleaseError};
use crate::seam::backend::{BackendError, Holder};
use crate::telemetry;
use crate::turns::tickets::{Progress, Turn};

impl State {
    pub(super) fn new(machine: AttemptMachine<BackendError>, turn: Turn) -> Self {
        Self {
            machine,
            first: None,
            is_taken: false,
            late: Vec::new(),
            holders: Vec::new(),
            extended: None,
            failed: None,
            lost: None,
            released: None,
            keeping: None,
            kept: None,
            is_undone: false,
            is_cleared: false,
            is_left: false,
            is_closed: false,
            renewal: None,
            turn,
            wakers: Wakers::default(),
            is_counted: false,
            background_since: None,
            served: None,
        }
    }

    /// Begins the machine's calls, keeps its decisions, gives tickets on, and ends an attempt that is quiescent.
    pub(super) fn follow(&mut self, attempt: &Arc<Attempt>, now: Instant, effects: &mut Effects) {
        // A look may have found the end before the machine has heard of it.
        let is_held = !self.machine.has_ended() && self.keeping.is_none();
        if attempt.won.get().is_some() && is_held && attempt.end.ended().is_some() {
            self.machine.close(Duration::MAX, now);
        }
        loop {
            while let Some((node, action)) = self.machine.poll_send() {
                match action {
                    Action::Send(id, message) => {
                        self.begin_call(attempt, id, message, now, effects)
                    }
                    Action::GiveUp(_) => self.give_up(attempt, node, now, effects),
                }
            }
            let Some(decision) = self.machine.poll_decision() else { break };
            self.decided(attempt, decision, now, effects);
            self.wakers.move_into(&mut effects.wakers);
        }
        if self.machine.has_ended()
            && self.renewal.take().is_some_and(|renewal| renewal.round.is_some())
        {
            effects.wake.merge(attempt.cluster().attempts.renewal_over());
        }
        if telemetry::IS_ON {
            let is_held = attempt.won.get().is_some() && attempt.end.ended().is_none();
            if std::mem::replace(&mut self.is_counted, is_held) != is_held {
                effects.tell(move |_| telemetry::held(is_held));
            }
        }
        self.give_turn_on(attempt, now, effects);
        for node in self.machine.awaits_back().iter() {
            attempt.cluster().nodes.await_back(node, attempt.slot);
        }
        if self.machine.is_quiescent() {
            self.end(attempt, now, effects);
        } else if let Some(due) = self.due()
            && self.served.is_none_or(|served| due < served)
        {
            self.served = Some(due);
            effects.wake.merge(attempt.cluster().attempts.serve(attempt.slot, due));
        }
    }

    fn decided(
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
            Decision::Extended { round, valid_until } => {
                self.extended = Some(round);
                attempt.end.publish(valid_until, self.machine.is_limited());
                self.extension_decided(attempt, round, None, now, effects);
                self.keep_decided(round, || Ok(()), now, effects);
            }
            Decision::ExtendFailed { round } => {
                let failure = self.failure(attempt);
                self.failed = Some(Box::new((round, failure.clone())));
                self.extension_decided(attempt, round, Some(failure.clone()), now, effects);
                let error = || Err(ExtendError::NoQuorum(failure));
                self.keep_decided(round, error, now, effects);
            }
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
        if let (Some(renewal), None) = (&mut self.renewal, &failure) {
            (renewal.is_parked, renewal.is_late) = (false, false);
        }
        if let Some(renewal) = &mut self.renewal
            && renewal.round.take_if(|ours| *ours <= round).is_some()
        {
            effects.wake.merge(attempt.cluster().attempts.renewal_over());
        }
        self.plan_renewal(attempt, failure.is_none(), now);
        let took = self.machine.waited();
        let left = attempt.end.valid_until().saturating_duration_since(now);
        effects.tell(move |attempt| match failure {
            None => telemetry::extended(attempt.claim.keys(), took, left),
            Some(failure) => telemetry::not_extended(attempt.claim.keys(), took, left, &failure),
        });
    }

    /// Plans the next extension of a lease that is renewed, after a round that was won or that failed. Plans none for
    /// the end of the lease or later, and none once the lease ends at its hold limit.
    pub(super) fn plan_renewal(&mut self, attempt: &Attempt, is_won: bool, now: Instant) {
        let (Some(renewal), Some(valid_until)) = (&mut self.renewal, self.machine.valid_until())
        else {
            return;
        };
        if renewal.round.is_none() {
            let (ttl, random) = (attempt.claim.ttl(), attempt.cluster().random());
            let times = attempt.cluster().config.renewal(ttl);
            let at = match is_won {
                true => times.next(valid_until, random),
                false => times.retry(now, valid_until, random),
            };
            renewal.at = Some(at).filter(|at| *at < valid_until && !self.machine.is_limited());
        }
    }

    /// Begins an extension, if it may have a round in flight. Else the timekeeper calls again, in the last third of the
    /// lease at the latest.
    pub(super) fn renew(&mut self, attempt: &Attempt, now: Instant, effects: &mut Effects) {
        let (Some(Renewing { at, round: round @ None, is_parked, is_late }), Some(valid_until)) =
            (&mut self.renewal, self.machine.valid_until())
        else {
            return;
        };
        let (ttl, cluster) = (attempt.claim.ttl(), attempt.cluster());
        let urgent_at = valid_until.checked_sub(cluster.config.validity(ttl) / 3);
        let is_urgent = urgent_at.is_none_or(|urgent_at| now >= urgent_at);
        *at = urgent_at;
        if *is_parked && is_urgent {
            *is_late = true;
            self.wakers.move_into(&mut effects.wakers);
        }
        *is_parked = !cluster.attempts.may_renew(attempt.slot, valid_until, is_urgent);
        if !*is_parked {
            *at = None;
            *round = self.machine.extend(ttl, now);
            if round.is_none() {
                effects.wake.merge(cluster.attempts.renewal_over());
            }
        }
    }

    /// A due time may have come.
    pub(super) fn handle_time(&mut self, attempt: &Attempt, now: Instant, effects: &mut Effects) {
        self.served = None;
        let [queued, left_late] = [&attempt.queued, &attempt.left_late]
            .map(|nodes| NodeSet::of_bits(nodes.load(Ordering::Relaxed)));
        // The queue of a node that does not answer may never move.
        let (nodes, node_timeout) = (&attempt.cluster().nodes, attempt.node_timeout());
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

    /// The request or the guard is gone: cancels, and releases.
    pub(super) fn leave(&mut self, attempt: &Attempt, now: Instant) {
        self.is_left = true;
        self.background_since.get_or_insert(now);
        attempt.end_lease(Why::Released, now);
        self.machine.cancel(now);
    }

    fn release_decided(&mut self, result: Result<(), ReleaseError>, now: Instant) {
        self.background_since = Some(now);
        self.released.get_or_insert(result);
    }

    fn lease_lost(&mut self, attempt: &Attempt, end: End, now: Instant, effects: &mut Effects) {
        let why = match end {
            End::Expired => Why::Expired,
            End::HoldLimit => Why::HoldLimit,
            End::NotOurs => Why::NotOurs,
            End::Closed => Why::Closed,
        };
        let at = now.min(attempt.end.valid_until());
        attempt.end.end(why, at);
        self.keep_lost(|state| why.lost(|| state.failure(attempt)), now, effects);
        // Another writer may have been first.
        let (why, at) = attempt.end.ended().unwrap_or((why, at));
        let lost = why.lost(|| self.failure(attempt));
        self.lost = Some(Box::new(lost.clone()));
        effects.tell(move |attempt| {
            let (keys, held) = (attempt.claim.keys(), attempt.held(at));
            match lost.reason() {
                _ if why == Why::Closed => telemetry::closed(keys, held),
                Some(reason) => telemetry::lost(keys, reason, held, &lost),
                None => {}
            }
        });
    }

    /// Gives the turn on once the releases have been handed to their nodes. Not before the request has heard of its round:
    /// from a lost one, or an expired win, it takes the turn back.
    fn give_turn_on(&mut self, attempt: &Arc<Attempt>, now: Instant, effects: &mut Effects) {
        let is_result_to_come =
            self.first.is_some() && !self.is_taken && !self.is_left && !self.is_closed;
        let is_over = self.machine.is_quiescent();
        if self.turn.is_over() || is_result_to_come || !(is_over || self.machine.is_releasing()) {
            return;
        }
        let was_held = attempt.won.get().is_some();
        if !self.turn.has_releases() {
            let times = (now, saturating_add(now, attempt.node_timeout()));
            self.turn.begin_releases(attempt.slot, was_held, times, |at, key| {
                ask_gate(attempt, key, FIRST_HINT - at, now)
            });
        }
        let is_ordered = attempt.cluster().nodes.all_ordered();
        let is_decided = self.released.is_some() || self.is_cleared || self.is_undone;
        let progress = Progress { is_ordered, was_held, is_decided, is_over };
        self.turn.give_on(progress, now, &mut effects.given_on);
    }

    /// Nothing is left to await or to send.
    fn end(&mut self, attempt: &Attempt, now: Instant, effects: &mut Effects) {
        if attempt.is_over.swap(true, Ordering::SeqCst) {
            return;
        }
        effects.is_over = true;
        effects.givers.append(&mut attempt.givers.take());
        self.wakers.move_into(&mut effects.wakers);
        let unsettled = self.machine.unsettled();
        unsettled.iter().for_each(|node| self.note_may_hold(attempt, node, now));
        if let Some(since) = self.background_since {
            let took = now.saturating_duration_since(since);
            effects.tell(move |attempt| {
                telemetry::cleaned_up(attempt.claim.keys(), took, unsettled.iter().count());
            });
        }
    }

    /// What each node answered in the last round that was decided, or after it if that is the first round.
    pub(super) fn failure(&self, attempt: &Attempt) -> QuorumFailure {
        let (nodes, waited) = (&attempt.cluster().nodes, self.machine.waited());
        if self.late.is_empty() {
            return nodes.failure(self.machine.votes(), self.holders(attempt), waited);
        }
        let mut votes = self.machine.votes().to_vec();
        for (node, outcome) in &self.late {
            if let Some(vote @ RoundVote::Open) = votes.get_mut(node.index()) {
                *vote = outcome.clone().into();
            }
        }
        nodes.failure(&votes, self.holders(attempt), waited)
    }

    /// The holders that refused the first round, if it was lost. A later refusal names none.
    fn holders(&self, attempt: &Attempt) -> &[(NodeId, Holder)] {
        if attempt.won.get().is_none() { &self.holders } else { &[] }
    }
}
