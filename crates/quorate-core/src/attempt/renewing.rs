//! Extends a lease in the background, again and again.

use std::time::Instant;

use super::identity::Identity;
use crate::algorithm::attempt::{AttemptMachine, RoundId};
use crate::algorithm::renewal::Renewal;
use crate::attempts::RenewalPermit;
use crate::backend::BackendError;

/// The plan of a lease that is renewed.
pub(super) struct Renewing {
    renewal: Renewal,
    /// When to extend next; `None` while a round is in flight, or waits for others.
    at: Option<Instant>,
    /// The round in flight, and the right to have it.
    round: Option<(RoundId, RenewalPermit)>,
}

type Machine = AttemptMachine<BackendError>;

impl Renewing {
    /// Renews from now on.
    pub(super) fn new(attempt: &Identity) -> Self {
        let renewal = attempt.cluster().config.renewal(attempt.claim.ttl());
        Self { renewal, at: None, round: None }
    }

    pub(super) const fn due(&self) -> Option<Instant> {
        self.at
    }

    /// Plans the next extension, after a round that was won or that failed. One that would come at the end of the
    /// lease, or after it, is left out; beyond the hold limit nothing is gained.
    pub(super) fn plan(
        &mut self,
        attempt: &Identity,
        machine: &Machine,
        is_won: bool,
        now: Instant,
    ) {
        let Some(valid_until) = machine.valid_until().filter(|_| self.round.is_none()) else {
            return;
        };
        let random = attempt.cluster().random();
        let at = match is_won {
            true => self.renewal.next(valid_until, random),
            false => self.renewal.retry(now, valid_until, random),
        };
        self.at = Some(at).filter(|at| *at < valid_until && !machine.is_limited());
    }

    /// Begins an extension if it is time.
    #[must_use = "a permit is given back without any mutex"]
    pub(super) fn begin_if_due(
        &mut self,
        attempt: &Identity,
        machine: &mut Machine,
        now: Instant,
    ) -> Option<RenewalPermit> {
        if self.at.is_none_or(|at| now < at) {
            return None;
        }
        self.at = None;
        self.begin(attempt, machine, now)
    }

    /// Begins an extension, if it may have a round in flight. Else the timekeeper calls again.
    #[must_use = "a permit is given back without any mutex"]
    pub(super) fn begin(
        &mut self,
        attempt: &Identity,
        machine: &mut Machine,
        now: Instant,
    ) -> Option<RenewalPermit> {
        let valid_until = machine.valid_until().filter(|_| self.round.is_none())?;
        let (ttl, cluster) = (attempt.claim.ttl(), attempt.cluster());
        let left = valid_until.saturating_duration_since(now);
        let is_urgent = left < cluster.config.validity(ttl) / 3;
        let permit = cluster.attempts.renewal_permit(attempt.slot, valid_until, is_urgent)?;
        match machine.extend(ttl, now) {
            Some(round) => {
                self.round = Some((round, permit));
                None
            }
            None => Some(permit),
        }
    }

    /// A round of extensions is decided.
    #[must_use = "a permit is given back without any mutex"]
    pub(super) fn handle_decided(
        &mut self,
        attempt: &Identity,
        machine: &Machine,
        (decided, is_won): (RoundId, bool),
        now: Instant,
    ) -> Option<RenewalPermit> {
        let ours = self.round.take_if(|(round, _)| *round <= decided);
        self.plan(attempt, machine, is_won, now);
        ours.map(|(_, permit)| permit)
    }

    /// The lease has ended.
    #[must_use = "a permit is given back without any mutex"]
    pub(super) fn stop(self) -> Option<RenewalPermit> {
        self.round.map(|(_, permit)| permit)
    }
}
