//! The time for which the machine was suspended, so that a lease expires also during a suspend.

use std::time::Duration;
#[cfg(any(feature = "smol", feature = "tokio"))]
use std::time::Instant;

/// How long the machine has been suspended since the first call in this process, in whole
/// milliseconds.
///
/// On Linux, `std::time::Instant` stands still during a suspend, while the clocks of the nodes
/// advance. A [`Runtime`](crate::Runtime) that adds this time to its monotonic clock sees that a
/// lease expired during the suspend. The time never decreases. It is zero on other systems: on
/// Windows `Instant` includes the suspend, and on the rest the time is unknown.
#[must_use]
pub fn time_suspended() -> Duration {
    #[cfg(target_os = "linux")]
    return linux::time_suspended();
    #[cfg(not(target_os = "linux"))]
    return Duration::ZERO;
}

/// Sleeps until `deadline`, in steps: timers stand still while the machine is suspended, and clocks
/// do not. So it ends at most one step after a suspend (T4). On a clock that a test has paused a
/// step takes no time: the rest is one sleep there.
#[cfg(any(feature = "smol", feature = "tokio"))]
pub(super) async fn sleep_in_steps(runtime: impl super::Runtime, deadline: Instant) {
    /// Elsewhere the time suspended is unknown.
    const STEP: Duration =
        if cfg!(target_os = "linux") { Duration::from_millis(400) } else { Duration::MAX };
    loop {
        let (now, start) = (runtime.now(), Instant::now());
        let step = deadline.saturating_duration_since(now).min(STEP);
        runtime.sleep_until(now + step).await;
        if step < STEP {
            return;
        }
        if start.elapsed() < STEP / 2 {
            return runtime.sleep_until(deadline).await;
        }
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicI64, Ordering};
    use std::time::Duration;

    use rustix::time::{ClockId, Timespec, clock_gettime};

    pub(super) fn time_suspended() -> Duration {
        static SUSPENDS: Suspends = Suspends::new();
        SUSPENDS.look(|| {
            let boottime = clock_gettime(ClockId::Boottime);
            lead(boottime, clock_gettime(ClockId::Monotonic))
        })
    }

    /// How far `boottime` is ahead, in nanoseconds.
    pub(super) const fn lead(boottime: Timespec, monotonic: Timespec) -> i64 {
        let seconds = boottime.tv_sec - monotonic.tv_sec;
        seconds * 1_000_000_000 + (boottime.tv_nsec - monotonic.tv_nsec)
    }

    /// How far boottime, which advances during a suspend, is ahead of monotonic, which does not. In
    /// nanoseconds.
    pub(super) struct Suspends {
        at_first: OnceLock<i64>,
        most: AtomicI64,
    }

    impl Suspends {
        pub(super) const fn new() -> Self {
            Self { at_first: OnceLock::new(), most: AtomicI64::new(i64::MIN) }
        }

        /// The time suspended, by the largest lead so far. What is below a millisecond is noise.
        ///
        /// An interrupt between the two reads of a lead makes it too small, never too large. So the
        /// first one is the largest of eight.
        pub(super) fn look(&self, lead: impl Fn() -> i64) -> Duration {
            let at_first = || (0..8).map(|_| lead()).fold(i64::MIN, i64::max);
            let at_first = *self.at_first.get_or_init(at_first);
            let lead = lead();
            let most = self.most.fetch_max(lead, Ordering::Relaxed).max(lead);
            let since = most.saturating_sub(at_first) / 1_000_000;
            Duration::from_millis(u64::try_from(since).unwrap_or(0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_counted_while_the_machine_runs() {
        for _ in 0..10_000 {
            assert_eq!(time_suspended(), Duration::ZERO);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn boottime_is_ahead_by_seconds_and_nanoseconds() {
        let time = |tv_sec, tv_nsec| rustix::time::Timespec { tv_sec, tv_nsec };
        for (boottime, monotonic, ahead) in [
            (time(9, 7), time(9, 7), 0),
            (time(9, 7), time(4, 3), 5_000_000_004),
            (time(9, 3), time(4, 7), 4_999_999_996),
        ] {
            assert_eq!(linux::lead(boottime, monotonic), ahead);
        }
    }

    /// Rule T4.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_suspend_is_counted_from_the_first_look_after_it() {
        const HOUR: i64 = 3_600_000_000_000;
        let suspends = linux::Suspends::new();
        let hours = |count: u64| Duration::from_secs(3600 * count);
        assert_eq!(suspends.look(|| 300), Duration::ZERO, "earlier suspends do not count");
        assert_eq!(suspends.look(|| 999_999), Duration::ZERO, "noise");
        assert_eq!(suspends.look(|| HOUR + 400), hours(1));
        assert_eq!(suspends.look(|| 2 * HOUR + 300), hours(2));
        assert_eq!(suspends.look(|| HOUR), hours(2), "never less");
    }
}
