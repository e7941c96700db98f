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

    /// What `CLOCK_BOOTTIME` was ahead of `CLOCK_MONOTONIC` at first, in nanoseconds.
    static AT_FIRST: OnceLock<i64> = OnceLock::new();
    static SINCE: AtomicI64 = AtomicI64::new(0);

    pub(super) fn time_suspended() -> Duration {
        // One undisturbed read is enough, and the largest is the least disturbed.
        let at_first = || (0..8).map(|_| boottime_ahead()).fold(i64::MIN, i64::max);
        let since = boottime_ahead().saturating_sub(*AT_FIRST.get_or_init(at_first));
        let most = SINCE.fetch_max(since, Ordering::Relaxed).max(since);
        Duration::from_nanos(u64::try_from(most).unwrap_or(0))
    }

    /// An hour without a suspend is told apart from one by far less than this.
    const NOTICEABLE: i64 = 100_000;

    /// Both clocks at one moment.
    static BASE: OnceLock<(Instant, i64)> = OnceLock::new();

    /// A clock that somebody has paused or moved looks like a suspend, or hides one; so what is
    /// noticed is looked at again, and only the difference of the system's own clocks counts.
    pub(super) fn time_suspended_at(monotonic: Instant) -> Duration {
        let (base, boottime) = *BASE.get_or_init(|| {
            let base = (Instant::now(), nanos(clock_gettime(ClockId::Boottime)));
            let _ = time_suspended();
            base
        });
        let passed = nanos(clock_gettime(ClockId::Boottime)).saturating_sub(boottime);
        let seen = monotonic.saturating_duration_since(base);
        let seen = i64::try_from(seen.as_secs())
            .unwrap_or(i64::MAX)
            .saturating_mul(1_000_000_000)
            .saturating_add(i64::from(seen.subsec_nanos()));
        let known = SINCE.load(Ordering::Relaxed);
        if passed.saturating_sub(seen).saturating_sub(known).saturating_abs() < NOTICEABLE {
            return last_known();
        }
        time_suspended()
    }

    pub(super) fn last_known() -> Duration {
        Duration::from_nanos(u64::try_from(SINCE.load(Ordering::Relaxed)).unwrap_or(0))
    }

    /// Read in this order, a thread that is interrupted in between sees too small a lead, which
    /// the maxima above forget, and never too large a one.
    fn boottime_ahead() -> i64 {
        let boottime = nanos(clock_gettime(ClockId::Boottime));
        let monotonic = nanos(clock_gettime(ClockId::Monotonic));
        boottime.saturating_sub(monotonic)
    }

    const fn nanos(time: Timespec) -> i64 {
        time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
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
