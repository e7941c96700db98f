//! Whether a lease that is still valid is at risk, since an extension of it has failed.

use std::sync::Arc;
use std::time::Duration;

use super::{Attempt, State};
use crate::algorithm::attempt::RoundId;
use crate::error::{LeaseEnd, QuorumFailure};

impl Attempt {
    /// Resolves when the lease is at risk, with what is left of it; an error when it has ended.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time.
    pub(crate) async fn at_risk(self: &Arc<Self>) -> Result<Duration, LeaseEnd> {
        self.wait(|state, effects| {
            let now = effects.now(self);
            match self.end.check(now) {
                Ok(end) => state.is_at_risk().then(|| Ok(end.saturating_duration_since(now))),
                Err(_) => Some(Err(state.ended(self, effects))),
            }
        })
        .await
    }

    /// Whether the lease is valid and at risk.
    pub(crate) fn is_at_risk(self: &Arc<Self>) -> bool {
        self.end.check(self.cluster().now()).is_ok()
            && self.state.with(self, |state, _| state.is_at_risk())
    }

    /// What the nodes answered to the latest extension that failed, if none has succeeded since.
    pub(crate) fn failed_extension(self: &Arc<Self>) -> Option<QuorumFailure> {
        self.state.with(self, |state, _| state.failed().map(|failed| failed.1.clone()))
    }
}

impl State {
    /// The latest extension that failed, if none has succeeded since.
    fn failed(&self) -> Option<&(RoundId, QuorumFailure)> {
        self.failed.as_deref().filter(|failed| Some(failed.0) > self.extended)
    }

    /// Whether the latest extension failed, or could not begin in time, and none has succeeded since.
    fn is_at_risk(&self) -> bool {
        self.failed().is_some() || self.renewal.as_ref().is_some_and(|renewal| renewal.is_late)
    }
}
