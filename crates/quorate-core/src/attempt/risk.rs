//! Whether a lease that is still valid is at risk: an extension of it has failed, or the lock was
//! revoked.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Attempt, Effects, State};
use crate::error::{LeaseEnd, QuorumFailure};
use crate::resource::Label;
use crate::telemetry;

impl Attempt {
    /// Resolves when the lease is at risk, with the time that is left; an error when it has ended.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time.
    pub(crate) async fn at_risk(self: &Arc<Self>) -> Result<Duration, LeaseEnd> {
        let at_risk = self.wait(|state| {
            let now = self.cluster().now();
            match self.end.check(now) {
                Ok(end) => self.is_risky(state).then(|| Ok(end.saturating_duration_since(now))),
                Err(why) => Some(Err(why)),
            }
        });
        at_risk.await.map_err(|_| self.lost())
    }

    /// Resolves when a revoke has taken effect, with the label of the process that did it; an error
    /// when the lease has ended before.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time.
    pub(crate) async fn revoked(self: &Arc<Self>) -> Result<Option<Label>, LeaseEnd> {
        let revoked = self.wait(|state| match self.end.check(self.cluster().now()) {
            _ if self.end.is_revoked() => Some(Ok(state.revoked_by())),
            Ok(_) => None,
            Err(why) => Some(Err(why)),
        });
        revoked.await.map_err(|_| self.lost())
    }

    /// Whether the lock was revoked, or an extension failed and the end has not moved on since.
    fn is_risky(&self, state: &State) -> bool {
        self.end.is_revoked() || state.told.is_failing
    }

    /// Whether the lease is valid and at risk.
    pub(crate) fn is_at_risk(self: &Arc<Self>) -> bool {
        self.end.check(self.cluster().now()).is_ok() && self.look(|state| self.is_risky(state))
    }

    /// What the nodes answered to the latest extension that failed, if the end has not moved on
    /// since.
    pub(crate) fn failed_extension(self: &Arc<Self>) -> Option<QuorumFailure> {
        self.look(|state| state.told.is_failing.then(|| state.failure(self)))
    }
}

impl State {
    /// The votes of an extension that failed have come late, and have moved the end on.
    pub(super) fn moved_on_late(&mut self, attempt: &Attempt, now: Instant, effects: &mut Effects) {
        self.plan_renewal(attempt, true, now);
        let left = attempt.end.valid_until().saturating_duration_since(now);
        effects.tell(move |attempt| telemetry::extended_late(attempt.claim.keys(), left));
    }

    /// The label of the process that revoked the lock.
    pub(super) fn revoked_by(&self) -> Option<Label> {
        self.revoked.as_deref().cloned().flatten()
    }
}
