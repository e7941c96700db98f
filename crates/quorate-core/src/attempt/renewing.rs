//! A lease that is extended in the background, again and again (H7).

use std::time::Instant;

use super::{Attempt, State};
use crate::algorithm::attempt::End;

impl State {
    /// Renews the lease from now on, until it ends.
    pub(super) fn begin_renewal(&mut self, attempt: &Attempt, now: Instant) {
        if !self.is_renewed && !self.machine.has_ended() {
            self.is_renewed = true;
            self.plan_renewal(attempt, true, now);
        }
    }

    /// Plans the next extension of a lease that is renewed, after a round that was won or that
    /// failed; while one is open, its decision does so. Plans none for the end of the lease or
    /// later, and none once the lease ends at its hold limit.
    pub(super) fn plan_renewal(&mut self, attempt: &Attempt, is_won: bool, now: Instant) {
        let Some(valid_until) = self.machine.valid_until() else { return };
        if self.is_renewed && !self.machine.is_extending() {
            let (ttl, cluster) = (attempt.claim.ttl(), attempt.cluster());
            let (times, random) = (cluster.config.renewal(ttl), cluster.random());
            let at = match is_won {
                true => times.next(valid_until, random, cluster.attempts.origin),
                false => times.retry(now, valid_until, random),
            };
            let is_limited = self.machine.end_by_time() == End::HoldLimit;
            self.renew_at = Some(at).filter(|at| *at < valid_until && !is_limited);
        }
    }
}
