//! A lease that is extended in the background, again and again (H7).

use std::time::Instant;

use super::{Attempt, Renewing, State};
use crate::algorithm::attempt::{End, RoundId};

impl State {
    /// Renews the lease from now on, until it ends.
    pub(super) fn begin_renewal(&mut self, attempt: &Attempt, now: Instant) {
        if self.renewal.is_none() && !self.machine.has_ended() {
            self.renewal = Some(Renewing::default());
            self.plan_renewal(attempt, true, now);
        }
    }

    /// A round of extensions is decided: plans the next.
    pub(super) fn renewal_decided(
        &mut self,
        attempt: &Attempt,
        round: RoundId,
        is_won: bool,
        now: Instant,
    ) {
        if let Some(renewal) = &mut self.renewal {
            renewal.round.take_if(|ours| *ours <= round);
        }
        self.plan_renewal(attempt, is_won, now);
    }

    /// Plans the next extension of a lease that is renewed, after a round that was won or that
    /// failed. Plans none for the end of the lease or later, and none once the lease ends at its
    /// hold limit.
    pub(super) fn plan_renewal(&mut self, attempt: &Attempt, is_won: bool, now: Instant) {
        let (Some(renewal), Some(valid_until)) = (&mut self.renewal, self.machine.valid_until())
        else {
            return;
        };
        if renewal.round.is_none() {
            let (ttl, cluster) = (attempt.claim.ttl(), attempt.cluster());
            let (times, random) = (cluster.config.renewal(ttl), cluster.random());
            let at = match is_won {
                true => times.next(valid_until, random, cluster.attempts.origin),
                false => times.retry(now, valid_until, random),
            };
            let is_limited = self.machine.end_by_time() == End::HoldLimit;
            renewal.at = Some(at).filter(|at| *at < valid_until && !is_limited);
        }
    }

    /// Begins an extension.
    pub(super) fn renew(&mut self, attempt: &Attempt, now: Instant) {
        if let Some(Renewing { at, round: round @ None }) = &mut self.renewal {
            *at = None;
            *round = self.machine.extend(attempt.claim.ttl(), now);
        }
    }
}
