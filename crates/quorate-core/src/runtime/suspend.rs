//! How long the machine was suspended, so that a lease runs on while a laptop or a VM sleeps.

use std::time::Duration;

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

#[cfg(target_os = "linux")]
mod imp {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicI64, Ordering};
    use std::time::Duration;

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
    use std::time::Duration;

    pub(super) const fn time_suspended() -> Duration {
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
}
