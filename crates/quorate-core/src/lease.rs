//! A lease: its end, its lost signal, its renewal.
//!
//! A lease ends by the clock at `valid_until`, whether or not a task has run (H4). The lock of a lease that has
//! ended by itself is released by the first of these: a request of this manager for the same key, an extension
//! by the holder that finds it ended, the renewal in the background, the hold limit, the end of the guard, and a
//! close.

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
use crate::cluster::Cluster;
use crate::error::{ExtendError, Lost};
use crate::resource::Key;
use crate::telemetry;

/// A view of a lease, for other tasks. Cheap to clone; it does not keep the lock.
///
/// When a lock is passed on, the next holder has a lease of its own.
#[derive(Clone)]
pub struct Lease {
    state: Arc<LeaseState>,
}

struct LeaseState {
    attempt: Arc<Attempt>,
    start: Instant,
    hold_until: Option<Instant>,
    release: Release,
    history: Mutex<History>,
}

/// Begins the release of a lease that has ended by itself. Can be called again.
pub(crate) type Release = Box<dyn Fn() + Send + Sync>;

#[derive(Default)]
struct History {
    /// Why the lease has ended, and when: at its end, or earlier.
    end: Option<(Lost, Instant)>,
    is_renewed: bool,
}

impl Lease {
    pub(crate) fn new(
        attempt: Arc<Attempt>,
        hold_limit: Option<Duration>,
        release: Release,
    ) -> Self {
        let start = attempt.cluster.now();
        let hold_limit = hold_limit.filter(|_| !planted!("hold_limit_is_ignored"));
        let hold_until = hold_limit.map(|limit| saturating_add(start, limit));
        let history = Mutex::default();
        Self { state: Arc::new(LeaseState { attempt, start, hold_until, release, history }) }
    }

    /// The end of the lease, or the moment at which it was ended, if that is earlier. On the clock of the
    /// manager's runtime. No I/O.
    #[must_use]
    pub fn valid_until(&self) -> Instant {
        self.check().unwrap_or_else(|_| {
            let end = self.within_hold_limit(self.attempt().last_end());
            self.history().end.as_ref().map_or(end, |(_, at)| end.min(*at))
        })
    }

    /// Whether the lease is valid. No I/O.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.check().is_ok()
    }

    /// What is left of the lease; zero if it has ended. No I/O.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let now = self.cluster().now();
        self.check().map_or(Duration::ZERO, |end| end.saturating_duration_since(now))
    }

    /// The keys that the nodes store for this lock.
    #[must_use]
    pub fn keys(&self) -> &[Key] {
        self.attempt().claim.keys()
    }

    /// The lock's fencing token, if one was asked for.
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.attempt().fencing_token()
    }

    /// Resolves when the lease has ended, by a local timer, and says why. See
    /// [`LockGuard::lost`](crate::LockGuard::lost).
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time.
    pub fn lost(&self) -> impl Future<Output = Lost> + Send + 'static + use<> {
        let lease = self.clone();
        async move {
            loop {
                // Before the check, so that no change is missed.
                let changed = lease.attempt().changed();
                match lease.check() {
                    Ok(_) if planted!("lost_waits_for_the_nodes") => changed.await,
                    Ok(end) => {
                        select(changed, lease.cluster().runtime.sleep_until(end)).await;
                    }
                    Err(lost) => return lost,
                }
            }
        }
    }

    /// Runs `future` until the lease ends. See [`LockGuard::run`](crate::LockGuard::run).
    ///
    /// # Cancel safety
    ///
    /// As `future`'s: dropping this drops it.
    pub fn run<F: Future>(&self, future: F) -> Run<F> {
        Run::new(self.clone(), future)
    }

    pub(crate) fn attempt(&self) -> &Arc<Attempt> {
        &self.state.attempt
    }

    pub(crate) fn cluster(&self) -> &Arc<Cluster> {
        &self.state.attempt.cluster
    }

    /// The end of the lease; if it has ended, why. The first call that finds it ended reports it.
    pub(crate) fn check(&self) -> Result<Instant, Lost> {
        let now = self.cluster().now();
        let mut history = self.history();
        if let Some((lost, _)) = &history.end
            && !planted!("valid_after_it_was_lost")
        {
            return Err(lost.clone());
        }
        let hold_until = self.state.hold_until;
        let lost = match self.attempt().lease_end(now) {
            _ if hold_until.is_some_and(|until| now >= until) => Lost::HoldLimit,
            Ok(end) => return Ok(self.within_hold_limit(end)),
            Err(lost) => lost,
        };
        let end = self.within_hold_limit(self.attempt().last_end()).min(now);
        history.end = Some((lost.clone(), end));
        drop(history);
        if let Some(reason) = lost.reason() {
            telemetry::lost(self.keys(), reason, self.held(end), &lost);
        }
        self.attempt().notify();
        Err(lost)
    }

    /// Ends the lease, because its holder or the manager does. An error if it has ended before.
    pub(crate) fn end(&self, lost: Lost) -> Result<(), Lost> {
        self.check_and_release()?;
        let now = self.cluster().now();
        self.history().end.get_or_insert((lost, now));
        self.attempt().notify();
        Ok(())
    }

    /// Extends the lease to `ttl` from now, and returns its end.
    pub(crate) async fn extend(&self, ttl: Ttl) -> Result<Instant, ExtendError> {
        if !planted!("expired_lease_is_extended") {
            self.check()?;
        }
        let start = self.cluster().now();
        let result = self.attempt().extend(ttl, false).await;
        let took = self.cluster().now().saturating_duration_since(start);
        // What is over stays over, however the round ended.
        let end = self.check()?;
        let left = self.remaining();
        match result {
            Ok(_) => telemetry::extended(self.keys(), took, left),
            Err(ref error) => telemetry::not_extended(self.keys(), took, left, error),
        }
        result.map(|_| end)
    }

    /// Waits until the lease has ended, and begins the release if it has not begun.
    pub(crate) async fn release_at_its_end(self) {
        self.lost().await;
        self.check_and_release().ok();
    }

    /// How long the lease was held until `now`.
    pub(crate) fn held(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.state.start)
    }

    /// As [`check`](Self::check). Begins the release of a lease that has ended, unless the holder or the
    /// manager has ended it: they release the lock, or leave it to another process.
    pub(crate) fn check_and_release(&self) -> Result<Instant, Lost> {
        self.check().inspect_err(|lost| {
            if lost.reason().is_some() {
                (self.state.release)();
            }
        })
    }

    fn within_hold_limit(&self, end: Instant) -> Instant {
        self.state.hold_until.map_or(end, |until| end.min(until))
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.state.history.lock().unwrap_or_else(PoisonError::into_inner)
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
