//! The state of a lease: its end, its lost signal, its renewal.
//!
//! A lease ends by the clock at `valid_until`, whether or not a task has run (H4). Nothing here does
//! I/O, but for [`LeaseState::extend`].

pub(crate) mod renewal;
mod run;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::select;

pub use self::run::Run;
use crate::algorithm::fence::FencingToken;
use crate::algorithm::lease::{Ttl, saturating_add};
use crate::attempt::Attempt;
use crate::error::{ExtendError, Lost};
use crate::resource::Key;
use crate::telemetry;

/// The lease of one holder. When a lock is passed on, the next holder has a lease of its own.
pub(crate) struct LeaseState {
    attempt: Arc<Attempt>,
    start: Instant,
    hold_until: Option<Instant>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Why the lease has ended, and when: at its end, or earlier.
    end: Option<(Lost, Instant)>,
    is_renewed: bool,
}

impl LeaseState {
    pub(crate) fn new(attempt: Arc<Attempt>, hold_limit: Option<Duration>) -> Arc<Self> {
        let start = attempt.cluster.now();
        let hold_limit = hold_limit.filter(|_| !planted!("hold_limit_is_ignored"));
        let hold_until = hold_limit.map(|limit| saturating_add(start, limit));
        Arc::new(Self { attempt, start, hold_until, state: Mutex::default() })
    }

    pub(crate) const fn attempt(&self) -> &Arc<Attempt> {
        &self.attempt
    }

    pub(crate) fn keys(&self) -> &[Key] {
        self.attempt.claim.keys()
    }

    /// The end of the lease; if it has ended, why. The first call that finds it ended reports it.
    pub(crate) fn check(&self) -> Result<Instant, Lost> {
        let now = self.attempt.cluster.now();
        let mut state = self.state();
        if let Some((lost, _)) = &state.end
            && !planted!("valid_after_it_was_lost")
        {
            return Err(lost.clone());
        }
        let is_over = self.hold_until.is_some_and(|until| now >= until);
        let lost = match self.attempt.lease_end(now) {
            _ if is_over => Lost::HoldLimit,
            Ok(end) => return Ok(self.hold_until.map_or(end, |until| end.min(until))),
            Err(lost) => lost,
        };
        let until = self.hold_until.map_or(now, |until| until.min(now));
        let end = until.min(self.attempt.last_end());
        state.end = Some((lost.clone(), end));
        drop(state);
        if let Some(reason) = lost.reason() {
            telemetry::lost(self.keys(), reason, self.held(end), &lost);
        }
        self.attempt.notify();
        Err(lost)
    }

    /// Ends the lease, because its holder or the manager does. An error if it has ended before.
    pub(crate) fn end(&self, lost: Lost) -> Result<(), Lost> {
        self.check()?;
        let now = self.attempt.cluster.now();
        self.state().end.get_or_insert((lost, now));
        self.attempt.notify();
        Ok(())
    }

    /// The end of the lease, or the moment at which it was ended, if that is earlier.
    pub(crate) fn valid_until(&self) -> Instant {
        self.check().unwrap_or_else(|_| {
            let end = self.attempt.last_end();
            let end = self.hold_until.map_or(end, |until| end.min(until));
            self.state().end.as_ref().map_or(end, |(_, at)| end.min(*at))
        })
    }

    pub(crate) fn remaining(&self) -> Duration {
        let now = self.attempt.cluster.now();
        self.check().map_or(Duration::ZERO, |end| end.saturating_duration_since(now))
    }

    pub(crate) fn held(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.start)
    }

    /// Resolves when the lease has ended: by a local timer, whatever the network does.
    pub(crate) async fn lost(&self) -> Lost {
        loop {
            // Before the check, so that no change is missed.
            let changed = self.attempt.changed();
            match self.check() {
                Ok(_) if planted!("lost_waits_for_the_nodes") => changed.await,
                Ok(end) => {
                    select(changed, self.attempt.cluster.runtime.sleep_until(end)).await;
                }
                Err(lost) => return lost,
            }
        }
    }

    /// Extends the lease to `ttl` from now, and returns its end.
    pub(crate) async fn extend(&self, ttl: Ttl) -> Result<Instant, ExtendError> {
        if !planted!("expired_lease_is_extended") {
            self.check()?;
        }
        let start = self.attempt.cluster.now();
        let result = self.attempt.extend(ttl, false).await;
        let took = self.attempt.cluster.now().saturating_duration_since(start);
        // What is over stays over, however the round ended.
        let end = self.check()?;
        let left = self.remaining();
        match result {
            Ok(_) => telemetry::extended(self.keys(), took, left),
            Err(ref error) => telemetry::not_extended(self.keys(), took, left, error),
        }
        result.map(|_| end)
    }

    /// Whether this is the first call.
    fn begins_renewal(&self) -> bool {
        !std::mem::replace(&mut self.state().is_renewed, true)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for LeaseState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseState").field("keys", &self.keys()).finish_non_exhaustive()
    }
}

/// A view of a lease, for other tasks. Cheap to clone; it does not keep the lock.
#[derive(Clone)]
pub struct Lease {
    state: Arc<LeaseState>,
}

impl Lease {
    pub(crate) const fn new(state: Arc<LeaseState>) -> Self {
        Self { state }
    }

    /// The end of the lease, on the clock of the manager's runtime. No I/O.
    #[must_use]
    pub fn valid_until(&self) -> Instant {
        self.state.valid_until()
    }

    /// Whether the lease is valid. No I/O.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.state.check().is_ok()
    }

    /// What is left of the lease; zero if it has ended. No I/O.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.state.remaining()
    }

    /// The keys that the nodes store for this lock.
    #[must_use]
    pub fn keys(&self) -> &[Key] {
        self.state.keys()
    }

    /// The lock's fencing token, if one was asked for.
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.state.attempt.fencing_token()
    }

    /// Resolves when the lease has ended, and says why. See [`LockGuard::lost`](crate::LockGuard::lost).
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time.
    pub fn lost(&self) -> impl Future<Output = Lost> + Send + 'static + use<> {
        let state = Arc::clone(&self.state);
        async move { state.lost().await }
    }

    /// Runs `future` until the lease ends. See [`LockGuard::run`](crate::LockGuard::run).
    ///
    /// # Cancel safety
    ///
    /// As `future`'s: dropping this drops it.
    pub fn run<F: Future>(&self, future: F) -> Run<F> {
        Run::new(Arc::clone(&self.state), Box::pin(self.lost()), future)
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("keys", &self.keys())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
