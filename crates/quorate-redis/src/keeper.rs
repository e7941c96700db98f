//! What a pool of ours keeps.
//!
//! A pool that fails to connect tells none of those who wait for it: they hang until its timeout.
//! So for the pool connecting never fails. What it keeps is a connection, *or the reason why there
//! is none*, which it hands out until the next attempt is due.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bb8::{ManageConnection, Pool};
use quorate_core::BackendError;
use quorate_core::protocol::Watches;

use crate::dial::Dial;
use crate::error;
use crate::pool::Live;

/// What the pool of a lane keeps.
pub(crate) enum Link {
    Live(Arc<Live>),
    Dead(Dead),
}

/// An attempt that failed.
pub(crate) struct Dead {
    pub(crate) reason: BackendError,
    /// When the next attempt is due.
    until: Instant,
}

/// What dials for a pool.
#[derive(Clone)]
pub(crate) struct Keeper {
    dial: Arc<Dial>,
    failures: Arc<Mutex<Failures>>,
    /// Of the pool that this is the manager of.
    patience: Arc<Patience>,
}

/// Attempts that failed since the last that did not.
#[derive(Default)]
struct Failures {
    count: u32,
    /// Why the last of them failed.
    reason: Option<BackendError>,
}

impl Keeper {
    pub(crate) fn new(dial: Arc<Dial>) -> Self {
        Self { dial, failures: Arc::default(), patience: Arc::default() }
    }

    /// A new pool.
    pub(crate) fn keeping(&self) -> Keeping {
        let patience = Arc::new(Patience::default());
        let keeper = Self { patience: Arc::clone(&patience), ..self.clone() };
        Keeping { pool: Arc::new(keeper.pool()), patience }
    }

    /// Longer than an attempt, whose own reason shall be told.
    pub(crate) fn longest(&self) -> Duration {
        self.dial.timeout().saturating_add(Duration::from_secs(1))
    }

    /// Why there is no connection, where there is none.
    pub(crate) fn obstacle(&self) -> BackendError {
        self.failures().reason.clone().unwrap_or_else(error::not_yet)
    }

    fn failures(&self) -> MutexGuard<'_, Failures> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pool(self) -> Pool<Self> {
        Pool::builder()
            .max_size(1)
            .connection_timeout(self.longest())
            .retry_connection(false)
            // These two would need a runtime here and now.
            .idle_timeout(None)
            .max_lifetime(None)
            .test_on_check_out(true)
            .build_unchecked(self)
    }
}

/// The error of [`Keeper`]: what was kept is to be replaced.
#[derive(Debug)]
pub(crate) struct Stale;

impl ManageConnection for Keeper {
    type Connection = Link;
    type Error = Stale;

    async fn connect(&self) -> Result<Link, Stale> {
        let watches = Watches::new();
        let outcome = self.dial.attempt(&watches).await;
        // Who waited for it may be gone.
        self.patience.ends();
        Ok(match outcome {
            Ok(connection) => {
                *self.failures() = Failures::default();
                Link::Live(Arc::new(Live::new(connection, watches)))
            }
            Err(reason) => {
                let mut failures = self.failures();
                let until = Instant::now() + pause_after(failures.count);
                failures.count = failures.count.saturating_add(1);
                failures.reason = Some(reason.clone());
                Link::Dead(Dead { reason, until })
            }
        })
    }

    async fn is_valid(&self, link: &mut Link) -> Result<(), Stale> {
        let is_valid = match link {
            Link::Live(live) => live.is_usable(),
            Link::Dead(dead) => Instant::now() < dead.until,
        };
        if is_valid { Ok(()) } else { Err(Stale) }
    }

    /// Never: `is_valid` is asked before each use.
    fn has_broken(&self, _: &mut Link) -> bool {
        false
    }
}

/// How long a failure holds after `earlier` failures in a row.
fn pause_after(earlier: u32) -> Duration {
    const FIRST: Duration = Duration::from_millis(50);
    const LONGEST: Duration = Duration::from_secs(1);
    FIRST.saturating_mul(2u32.saturating_pow(earlier)).min(LONGEST)
}

/// A pool, and since when somebody waits for it.
#[derive(Clone)]
pub(crate) struct Keeping {
    pub(crate) pool: Arc<Pool<Keeper>>,
    pub(crate) patience: Arc<Patience>,
}

/// Since when the pool has been asked for what it has not got.
#[derive(Default)]
pub(crate) struct Patience(Mutex<Option<tokio::time::Instant>>);

impl Patience {
    /// Somebody asks. What began earlier goes on.
    pub(crate) fn begins(&self) {
        self.since().get_or_insert_with(tokio::time::Instant::now);
    }

    pub(crate) fn has_run_out(&self, longest: Duration) -> bool {
        self.since().is_some_and(|since| since.elapsed() > longest)
    }

    /// The pool has something.
    pub(crate) fn ends(&self) {
        *self.since() = None;
    }

    fn since(&self) -> MutexGuard<'_, Option<tokio::time::Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_between_attempts_doubles_up_to_a_second() {
        let millis: Vec<_> = (0..7).map(|n| pause_after(n).as_millis()).collect();
        assert_eq!(millis, [50, 100, 200, 400, 800, 1000, 1000]);
        assert_eq!(pause_after(u32::MAX), Duration::from_secs(1));
    }
}
