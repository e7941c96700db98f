//! How long the machine was suspended, so that a lease runs on while a laptop or a VM sleeps.

use std::time::{Duration, Instant};

/// How long the machine has been suspended since this process first asked, as far as is known.
///
/// `std::time::Instant` stands still while Linux sleeps, but the nodes go on counting. A
/// [`Runtime`](crate::Runtime) that adds this to its monotonic clock does not believe in a lease
/// that ran out during the sleep. Never decreases. Zero on other systems: there the clock of
/// `Instant` counts the sleep itself (Windows), or there is no telling.
#[must_use]
pub fn time_suspended() -> Duration {
    imp::time_suspended()
}

/// The time that the machine was suspended, added to a reading of the monotonic clock made now.
///
/// Cheaper than [`time_suspended`]: one look at one other clock, unless that shows a suspend.
#[must_use]
pub fn with_time_suspended(monotonic: Instant) -> Instant {
    monotonic + imp::time_suspended_at(monotonic)
}

/// What was last found, without a look at any clock.
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

    /// The clocks of the system, in nanoseconds: one that goes on during a suspend, one that does not.
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

    /// Less than this between two readings is noise, and no suspend is so short.
    const NOTICEABLE: i64 = 100_000;

    pub(super) struct Suspends {
        /// How far boottime was ahead at first.
        at_first: OnceLock<i64>,
        /// How much farther it has been since.
        since: AtomicI64,
        /// A reading of the caller's clock, and boottime at that moment.
        base: OnceLock<(Instant, i64)>,
    }

    impl Suspends {
        pub(super) const fn new() -> Self {
            Self { at_first: OnceLock::new(), since: AtomicI64::new(0), base: OnceLock::new() }
        }

        pub(super) fn time(&self, clocks: &impl Clocks) -> Duration {
            // One undisturbed read is enough, and the largest is the least disturbed.
            let at_first = || (0..8).map(|_| ahead(clocks)).fold(i64::MIN, i64::max);
            let since = ahead(clocks).saturating_sub(*self.at_first.get_or_init(at_first));
            self.since.fetch_max(since, Ordering::Relaxed);
            self.last_known()
        }

        /// A clock that somebody has paused or moved looks like a suspend, or hides one; so what is
        /// noticed is looked at again, and only the difference of the system's own clocks counts.
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

    /// Read in this order, a thread that is interrupted in between sees too small a lead, which
    /// the maxima above forget, and never too large a one.
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

    /// Only a suspend may move it, not the noise between two reads of a clock.
    #[test]
    fn nothing_is_counted_while_the_machine_runs() {
        let before = time_suspended();
        for _ in 0..10_000 {
            let now = time_suspended();
            assert!(now >= before);
            assert!(now - before < Duration::from_millis(1), "{now:?}");
        }
    }

    /// Clocks that are set: boottime, monotonic.
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
        assert_eq!(read(0, 0), Duration::ZERO, "what was before counts for nothing");
        assert_eq!(read(5, 0), Duration::ZERO);
        assert_eq!(read(6, 3600), hours(1));
        assert_eq!(suspends.last_known(), hours(1));
        assert_eq!(read(7, 3600), hours(1));
        assert_eq!(read(8, 2 * 3600), hours(2));
        assert_eq!(suspends.time(&Set(1_000 * SECOND, 700 * SECOND)), hours(2), "never less");
    }

    #[test]
    fn a_clock_that_is_moved_by_hand_is_no_suspend() {
        let base = Instant::now();
        for moved in [Duration::ZERO, Duration::from_secs(1), Duration::from_secs(3600)] {
            let moved = base + moved;
            let read = with_time_suspended(moved);
            assert!(read >= moved && read - moved < Duration::from_millis(1), "{moved:?}");
        }
    }
}
