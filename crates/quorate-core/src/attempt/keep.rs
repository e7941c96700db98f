//! The end of a lease whose lock stays on the nodes: an extension as all others, one for as long as it stays, then nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Attempt, Effects, Keeping, State, Wish};
use crate::algorithm::attempt::{End, RoundId};
use crate::algorithm::lease::Ttl;
use crate::cluster::shell::{Actor as _, Input};
use crate::error::{ExtendError, LeaseEnd};
use crate::telemetry;

/// For how long beyond the ttl of the lock a mark that was not set is released.
const CLEANUP: Duration = Duration::from_secs(60);

impl Keeping {
    /// The round that has still to be decided.
    fn awaited(&self) -> Option<RoundId> {
        self.round.filter(|_| self.result.is_none())
    }
}

impl Attempt {
    /// Ends the lease, and leaves the lock on the nodes for `ttl` from now. If the lease is lost before a quorum
    /// has extended, or no quorum extends, the lock is released.
    ///
    /// # Cancel safety
    ///
    /// From the first poll on, it goes on when the future is dropped.
    pub(crate) async fn keep(self: &Arc<Self>, ttl: Ttl) -> Result<(), ExtendError> {
        self.handle(Input::Wish(Wish::Keep(ttl)));
        self.wait(|state| state.keeping.as_ref()?.result.clone()).await
    }
}

impl State {
    /// Begins the extension, or releases if the lease has ended.
    pub(super) fn keep(
        &mut self,
        attempt: &Arc<Attempt>,
        ttl: Ttl,
        now: Instant,
        effects: &mut Effects,
    ) {
        let is_held = attempt.end.check(now).is_ok();
        // A node that sets the mark and is away then keeps it if this process ends: so a quorum has to answer first.
        let answering = attempt.claim.ttl();
        let round = is_held.then(|| self.machine.extend(answering, now)).flatten();
        self.keeping = Some(Box::new(Keeping { round, mark: Some(ttl), result: None }));
        match round {
            Some(_) => attempt.end.end(End::Detached, now),
            None => {
                self.background_since.get_or_insert(now);
                // If it is still valid, the lock was revoked.
                attempt.end_lease(End::Revoked, now);
                self.machine.cancel(now);
                // The lease had ended (O7), and the machine says why.
                self.follow(attempt, now, effects);
                self.set_kept(Err(self.lost(attempt).into()), effects);
            }
        }
    }

    /// A round of extensions is decided. If it is the one that keeps the lock, the keys stay as they are after a
    /// success, and are released after a failure.
    pub(super) fn keep_decided(
        &mut self,
        attempt: &Attempt,
        round: RoundId,
        result: impl FnOnce() -> Result<(), ExtendError>,
        now: Instant,
        effects: &mut Effects,
    ) {
        let Some(keeping) = &mut self.keeping else { return };
        if keeping.awaited().is_none_or(|awaited| awaited > round) {
            return;
        }
        let result = result();
        if result.is_ok()
            && let Some(ttl) = keeping.mark.take()
        {
            // Without a round, the lease is lost: that is a decision as well.
            keeping.round = self.machine.extend(ttl, now).or(keeping.round);
            return;
        }
        if result.is_ok() {
            self.machine.abandon(now);
        } else {
            self.release_mark(attempt, now);
        }
        self.set_kept(result, effects);
    }

    /// The lease was lost. If that is before the extension was decided, nothing is kept.
    pub(super) fn keep_lost(
        &mut self,
        attempt: &Attempt,
        why: impl FnOnce(&Self) -> LeaseEnd,
        now: Instant,
        effects: &mut Effects,
    ) {
        if self.keeping.as_ref().is_some_and(|keeping| keeping.awaited().is_some()) {
            let lost = why(self);
            self.release_mark(attempt, now);
            self.set_kept(Err(lost.into()), effects);
        }
    }

    /// Releases on all nodes: some may set the mark late.
    fn release_mark(&mut self, attempt: &Attempt, now: Instant) {
        self.background_since.get_or_insert(now);
        self.machine.limit_cleanup(attempt.claim.ttl().as_duration().saturating_add(CLEANUP));
        self.machine.cancel(now);
    }

    fn set_kept(&mut self, result: Result<(), ExtendError>, effects: &mut Effects) {
        if let Some(keeping) = &mut self.keeping {
            keeping.result = Some(result.clone());
        }
        effects.tell(move |attempt| {
            let keys = attempt.claim.keys();
            match (result, attempt.end.ended()) {
                (Ok(()), Some((_, at))) => telemetry::kept(keys, attempt.held(at)),
                (Err(error), _) => telemetry::not_kept(keys, &error),
                (Ok(()), None) => {}
            }
        });
    }
}
