//! The time for which the machine was suspended, so that a lease expires also during a suspend.

use std::time::{Duration, Instant};

/// How long the machine has been suspended since the first call in this process.
///
/// On Linux, `std::time::Instant` stands still during a suspend, while the clocks of the nodes
/// advance. A [`Runtime`](crate::Runtime) that adds this time to its monotonic clock sees that a lease
/// expired during the suspend. The time never decreases. It is zero on other systems: on Windows
/// `Instant` includes the suspend, and on the rest the time is unknown.
#[must_use]
pub fn time_suspended() -> Duration {
    imp::time_suspended()
}

/// Adds the time for which the machine was suspended to a reading of the monotonic clock made now.
///
/// Cheaper than [`time_suspended`]: reads one other clock, unless the reading shows a new suspend.
#[must_use]
pub fn with_time_suspended(monotonic: Instant) -> Instant {
    monotonic + imp::time_suspended_at(monotonic)
}

/// The last result of the functions above, without reading a clock.
#[cfg(feature = "tokio")]
pub(super) fn last_known() -> Duration {
    imp::last_known()
}

#[cfg(target_os = "linux")]
mod imp {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicI64, Ordering};
    use std::time::{Duration, Instant};

    use rustix::time::{ClockId, Timespec, clock_gettime};

    static SUSPENDS: Suspends = Suspends::new();

    pub(super) fn time_suspended() -> Duration {
        SUSPENDS.time(&System)
    }

    pub(super) fn time_suspended_at(monotonic: Instant) -> Duration {
        SUSPENDS.time_at(monotonic, &System)
    }

    #[cfg(feature = "tokio")]
    pub(super) fn last_known() -> Duration {
        SUSPENDS.last_known()
    }

    /// Two clocks of the system, in nanoseconds. Boottime advances during a suspend, monotonic does not.
    pub(super) trait Clocks {
        fn boottime(&self) -> i64;
        fn monotonic(&self) -> i64;
    }

    struct System;

    impl Clocks for System {
        fn boottime(&self) -> i64 {
            nanos(clock_gettime(ClockId::Boottime))
        }

        fn monotonic(&self) -> i64 {
            nanos(clock_gettime(ClockId::Monotonic))
        }
    }

    const fn nanos(time: Timespec) -> i64 {
        time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
    }

    /// A smaller difference between two readings is noise. Every suspend is longer than 0.1 ms.
    const NOTICEABLE: i64 = 100_000;

    pub(super) struct Suspends {
        /// How far boottime was ahead of monotonic at the first reading.
        at_first: OnceLock<i64>,
        /// The largest increase of that since.
        since: AtomicI64,
        /// A reading of `Instant`, and boottime at the same time.
        base: OnceLock<(Instant, i64)>,
    }

    impl Suspends {
        pub(super) const fn new() -> Self {
            Self { at_first: OnceLock::new(), since: AtomicI64::new(0), base: OnceLock::new() }
        }

        pub(super) fn time(&self, clocks: &impl Clocks) -> Duration {
            // An interrupt between the two reads makes the lead too small, so the largest of eight leads
            // is the most exact.
            let at_first = || (0..8).map(|_| ahead(clocks)).fold(i64::MIN, i64::max);
            let since = ahead(clocks).saturating_sub(*self.at_first.get_or_init(at_first));
            self.since.fetch_max(since, Ordering::Relaxed);
            self.last_known()
        }

        /// The caller's clock may be tokio's, which tests pause and move. Its difference to boottime is
        /// therefore only a hint that a suspend may have happened. The system's own clocks decide.
        pub(super) fn time_at(&self, monotonic: Instant, clocks: &impl Clocks) -> Duration {
            let (base, boottime) = *self.base.get_or_init(|| {
                let base = (Instant::now(), clocks.boottime());
                let _ = self.time(clocks);
                base
            });
            let passed = clocks.boottime().saturating_sub(boottime);
            let seen = monotonic.saturating_duration_since(base);
            let seen = i64::try_from(seen.as_secs())
                .unwrap_or(i64::MAX)
                .saturating_mul(1_000_000_000)
                .saturating_add(i64::from(seen.subsec_nanos()));
            let known = self.since.load(Ordering::Relaxed);
            if passed.saturating_sub(seen).saturating_sub(known).saturating_abs() < NOTICEABLE {
                return self.last_known();
            }
            self.time(clocks)
        }

        pub(super) fn last_known(&self) -> Duration {
            if planted!("clock_stands_still_in_suspend") {
                return Duration::ZERO;
            }
            let since = self.since.load(Ordering::Relaxed);
            Duration::from_nanos(u64::try_from(since).unwrap_or(0))
        }
    }

    /// How far boottime is ahead of monotonic. Boottime is read first, so an interrupt between the two
    /// reads makes the lead too small, never too large.
    fn ahead(clocks: &impl Clocks) -> i64 {
        let boottime = clocks.boottime();
        boottime.saturating_sub(clocks.monotonic())
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    use std::time::{Duration, Instant};

    pub(super) const fn time_suspended() -> Duration {
        Duration::ZERO
    }

    pub(super) const fn time_suspended_at(_: Instant) -> Duration {
        Duration::ZERO
    }

    #[cfg(feature = "tokio")]
    pub(super) const fn last_known() -> Duration {
        Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only a suspend counts, not the noise between two reads of a clock.
    #[test]
    fn nothing_is_counted_while_the_machine_runs() {
        let before = time_suspended();
        for _ in 0..10_000 {
            let now = time_suspended();
            assert!(now >= before);
            assert!(now - before < Duration::from_millis(1), "{now:?}");
        }
    }

    /// Clocks with fixed readings: boottime, monotonic.
    #[cfg(target_os = "linux")]
    struct Set(i64, i64);

    #[cfg(target_os = "linux")]
    impl imp::Clocks for Set {
        fn boottime(&self) -> i64 {
            self.0
        }

        fn monotonic(&self) -> i64 {
            self.1
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_suspend_is_counted_from_the_first_look_after_it() {
        const SECOND: i64 = 1_000_000_000;
        let hours = |count: u64| Duration::from_secs(3600 * count);
        let (suspends, start) = (imp::Suspends::new(), Instant::now());
        let read = |seconds: i64, suspended: i64| {
            let clocks = Set((1_000 + seconds + suspended) * SECOND, (700 + seconds) * SECOND);
            let monotonic = start + Duration::from_secs(seconds.unsigned_abs());
            suspends.time_at(monotonic, &clocks)
        };
        assert_eq!(read(0, 0), Duration::ZERO, "a suspend before the first reading does not count");
        assert_eq!(read(5, 0), Duration::ZERO);
        assert_eq!(read(6, 3600), hours(1));
        assert_eq!(suspends.last_known(), hours(1));
        assert_eq!(read(7, 3600), hours(1));
        assert_eq!(read(8, 2 * 3600), hours(2));
        assert_eq!(suspends.time(&Set(1_000 * SECOND, 700 * SECOND)), hours(2), "never less");
    }

    #[test]
    fn a_clock_that_a_test_moves_shows_no_suspend() {
        let base = Instant::now();
        for moved in [Duration::ZERO, Duration::from_secs(1), Duration::from_secs(3600)] {
            let moved = base + moved;
            let read = with_time_suspended(moved);
            assert!(read >= moved && read - moved < Duration::from_millis(1), "{moved:?}");
        }
    }
}
