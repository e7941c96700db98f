//! A lease that is extended in the background, again and again (H7).

use std::time::Instant;

use super::{Attempt, Effects, Renewing, State};
use crate::algorithm::attempt::{End, RoundId};

impl State {
    /// Renews the lease from now on, until it ends.
    pub(super) fn begin_renewal(&mut self, attempt: &Attempt, now: Instant) {
        if self.renewal.is_none() && !self.machine.has_ended() {
            self.renewal = Some(Renewing::default());
            self.plan_renewal(attempt, true, now);
        }
    }

    /// A round of extensions is decided: gives its slot back, and plans the next.
    pub(super) fn renewal_decided(
        &mut self,
        attempt: &Attempt,
        round: RoundId,
        is_won: bool,
        now: Instant,
        effects: &mut Effects,
    ) {
        if let Some(renewal) = &mut self.renewal {
            if is_won {
                (renewal.is_parked, renewal.is_late) = (false, false);
            }
            if renewal.round.take_if(|ours| *ours <= round).is_some() {
                effects.wake.merge(attempt.cluster().attempts.renewal_over());
            }
        }
        self.plan_renewal(attempt, is_won, now);
    }

    /// Ends the renewal with the lease.
    pub(super) fn end_renewal(&mut self, attempt: &Attempt, effects: &mut Effects) {
        if (self.machine.has_ended() || attempt.end.is_revoked())
            && self.renewal.take().is_some_and(|renewal| renewal.round.is_some())
        {
            effects.wake.merge(attempt.cluster().attempts.renewal_over());
        }
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
                true => times.next(valid_until, random, cluster.attempts.origin()),
                false => times.retry(now, valid_until, random),
            };
            let is_limited = self.machine.end_by_time() == End::HoldLimit;
            renewal.at = Some(at).filter(|at| *at < valid_until && !is_limited);
        }
    }

    /// Begins an extension, if it may have a round in flight. Else the timekeeper calls again, in
    /// the last third of the lease at the latest.
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
            effects.is_changed = true;
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
}
