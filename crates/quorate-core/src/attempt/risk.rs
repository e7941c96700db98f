//! Whether a lease that is still valid is at risk, since an extension of it has failed.

use std::sync::Arc;
use std::time::Duration;

use super::{Attempt, State};
use crate::error::LeaseEnd;

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
}

impl State {
    /// Whether the latest extension failed, or could not begin in time, and none has succeeded since.
    fn is_at_risk(&self) -> bool {
        let has_failed = self.failed.as_ref().is_some_and(|failed| Some(failed.0) > self.extended);
        has_failed || self.renewal.as_ref().is_some_and(|renewal| renewal.is_late)
    }
}
