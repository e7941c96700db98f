//! The one clock that all processes of a machine share.

#![expect(clippy::disallowed_methods, reason = "it reads a clock")]

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds on `CLOCK_MONOTONIC`.
pub type Nanos = u64;

/// Converts moments of this process to the clock that all share.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    instant: Instant,
    nanos: Nanos,
}

impl Clock {
    /// Reads both clocks at one moment, or nearly: the closest of several tries.
    pub fn start() -> Self {
        let one = || {
            let (before, instant, after) = (now(), Instant::now(), now());
            (after - before, Self { instant, nanos: before.midpoint(after) })
        };
        let tries = (0..100).map(|_| one()).min_by_key(|(apart, _)| *apart);
        tries.map_or_else(|| one().1, |(_, clock)| clock)
    }

    /// A moment on the clock that all share, which begins with the machine.
    pub fn at(&self, moment: Instant) -> Nanos {
        let later = nanos(moment.saturating_duration_since(self.instant));
        self.nanos + later - nanos(self.instant.saturating_duration_since(moment))
    }
}

/// The present.
pub fn now() -> Nanos {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

fn nanos(time: Duration) -> Nanos {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
