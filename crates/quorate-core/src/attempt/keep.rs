//! The end of a lease whose lock stays on the nodes: one extension, after which nothing is sent.

use std::mem::replace;
use std::sync::Arc;
use std::time::Instant;

use super::{Attempt, Effects, Input, State, Why};
use crate::algorithm::attempt::RoundId;
use crate::algorithm::lease::Ttl;
use crate::cluster::shell::late::Actor as _;
use crate::error::{ExtendError, LeaseEnd};
use crate::telemetry;

impl Attempt {
    /// Ends the lease, and leaves the lock on the nodes for `ttl` from now. If the lease is lost before a quorum
    /// has extended, the lock is released; if no quorum extends, the nodes keep what they have.
    ///
    /// # Cancel safety
    ///
    /// From the first poll on, it goes on when the future is dropped.
    pub(crate) async fn keep(self: &Arc<Self>, ttl: Ttl) -> Result<(), ExtendError> {
        let mut is_begun = false;
        self.wait(move |state, effects| {
            if !replace(&mut is_begun, true) {
                state.handle(self, (Input::Keep(ttl), None), effects);
                if state.keeping.is_none() {
                    // The lease had ended (O7).
                    state.set_kept(Err(state.lost(self).into()), effects);
                }
            }
            state.kept.clone()
        })
        .await
    }
}

impl State {
    /// Begins the extension, or releases if the lease has ended.
    pub(super) fn keep(&mut self, attempt: &Attempt, ttl: Ttl, now: Instant) {
        self.is_left = true;
        let is_held = attempt.end.check(now).is_ok();
        self.keeping = is_held.then(|| self.machine.extend(ttl, now)).flatten();
        match self.keeping {
            Some(_) => attempt.end.end(Why::Detached, now),
            None => {
                self.background_since.get_or_insert(now);
                self.machine.cancel(now);
            }
        }
    }

    /// A round of extensions is decided. If it is the one that keeps the lock, the keys stay as they are.
    pub(super) fn keep_decided(
        &mut self,
        round: RoundId,
        result: impl FnOnce() -> Result<(), ExtendError>,
        now: Instant,
        effects: &mut Effects,
    ) {
        if self.kept.is_none() && self.keeping.is_some_and(|keeping| keeping <= round) {
            self.machine.abandon(now);
            self.turn.end(&mut effects.given_on);
            self.set_kept(result(), effects);
        }
    }

    /// The lease was lost. If that is before the extension was decided, nothing is kept.
    pub(super) fn keep_lost(
        &mut self,
        why: impl FnOnce(&Self) -> LeaseEnd,
        now: Instant,
        effects: &mut Effects,
    ) {
        if self.kept.is_none() && self.keeping.is_some() {
            let lost = why(self);
            self.machine.cancel(now);
            self.set_kept(Err(lost.into()), effects);
        }
    }

    fn set_kept(&mut self, result: Result<(), ExtendError>, effects: &mut Effects) {
        self.kept = Some(result.clone());
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
