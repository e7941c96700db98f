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

/// The clocks of a machine.
#[cfg(any(feature = "smol", feature = "tokio"))]
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine {
    pub(super) suspended: fn() -> Duration,
    /// The time for which it is awake, which no test pauses.
    awake: fn() -> Instant,
}

#[cfg(any(feature = "smol", feature = "tokio"))]
pub(super) const MACHINE: Machine = Machine { suspended: time_suspended, awake: Instant::now };

/// Sleeps until `deadline`, in steps: timers stand still while the machine is suspended, and clocks
/// do not. So it ends at most one step after a suspend (T4). On a clock that a test has paused, a
/// step takes no time: the rest is one sleep there.
#[cfg(any(feature = "smol", feature = "tokio"))]
pub(super) async fn sleep_in_steps(
    runtime: impl super::Runtime,
    machine: Machine,
    deadline: Instant,
) {
    /// Elsewhere the time suspended is unknown.
    const STEP: Duration =
        if cfg!(target_os = "linux") { Duration::from_millis(400) } else { Duration::MAX };
    loop {
        let (now, start) = (runtime.now(), (machine.awake)());
        let step = deadline.saturating_duration_since(now).min(STEP);
        runtime.sleep_until(now + step).await;
        if step < STEP {
            return;
        }
        if (machine.awake)().saturating_duration_since(start) < STEP / 2 {
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
        let boottime = clock_gettime(ClockId::Boottime);
        SUSPENDS.look(nanoseconds(boottime), || {
            let boottime = clock_gettime(ClockId::Boottime);
            nanoseconds(boottime) - nanoseconds(clock_gettime(ClockId::Monotonic))
        })
    }

    pub(super) const fn nanoseconds(time: Timespec) -> i64 {
        time.tv_sec * 1_000_000_000 + time.tv_nsec
    }

    /// What is shorter is noise.
    const MILLISECOND: i64 = 1_000_000;

    /// How far boottime, which advances during a suspend, is ahead of monotonic, which does not. In
    /// nanoseconds.
    pub(super) struct Suspends {
        at_first: OnceLock<i64>,
        most: AtomicI64,
        /// The boottime at which they were compared last.
        compared_at: AtomicI64,
    }

    impl Suspends {
        pub(super) const fn new() -> Self {
            let [most, compared_at] = [const { AtomicI64::new(i64::MIN) }; 2];
            Self { at_first: OnceLock::new(), most, compared_at }
        }

        /// The time suspended, by the largest lead so far, at this boottime.
        ///
        /// A suspend moves boottime on. So for a millisecond of boottime the clocks need not be
        /// compared again, and most looks read one clock.
        ///
        /// An interrupt between the two reads of a lead makes it too small, never too large. So the
        /// first one is the largest of eight.
        pub(super) fn look(&self, boottime: i64, lead: impl Fn() -> i64) -> Duration {
            let at_first = || (0..8).map(|_| lead()).fold(i64::MIN, i64::max);
            let at_first = *self.at_first.get_or_init(at_first);
            // Acquire and release: the lead that belongs to it is seen, too.
            if boottime.saturating_sub(self.compared_at.load(Ordering::Acquire)) >= MILLISECOND {
                self.most.fetch_max(lead(), Ordering::Relaxed);
                self.compared_at.store(boottime, Ordering::Release);
            }
            let since = self.most.load(Ordering::Relaxed).saturating_sub(at_first) / MILLISECOND;
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
    fn a_time_is_counted_in_nanoseconds() {
        let time = |tv_sec, tv_nsec| linux::nanoseconds(rustix::time::Timespec { tv_sec, tv_nsec });
        assert_eq!(time(9, 3) - time(4, 7), 4_999_999_996);
    }

    /// Rule T4.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_suspend_is_counted_from_the_first_look_after_it() {
        const HOUR: i64 = 3_600_000_000_000;
        const MS: i64 = 1_000_000;
        let suspends = linux::Suspends::new();
        let look = |boottime, lead: i64| suspends.look(boottime, || lead);
        let hours = |count: u64| Duration::from_secs(3600 * count);
        assert_eq!(look(0, 300), Duration::ZERO, "earlier suspends do not count");
        assert_eq!(look(MS, MS - 1), Duration::ZERO, "noise");
        assert_eq!(look(HOUR + MS, HOUR + 400), hours(1));
        assert_eq!(look(2 * HOUR + MS, 2 * HOUR + 300), hours(2));
        assert_eq!(look(2 * HOUR + 2 * MS, HOUR), hours(2), "never less");
        // The shortest suspend that counts, with no time awake.
        assert_eq!(
            look(2 * HOUR + 3 * MS, 2 * HOUR + MS + 300),
            hours(2) + Duration::from_millis(1)
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn within_a_millisecond_the_clocks_are_compared_once() {
        let (suspends, compared) = (linux::Suspends::new(), std::cell::Cell::new(0));
        let look = |boottime| {
            suspends.look(boottime, || {
                compared.set(compared.get() + 1);
                0
            })
        };
        for boottime in [5_000_000, 5_999_999, 4_000_000, 6_000_000, 6_999_999] {
            look(boottime);
        }
        // The first look makes eight more.
        assert_eq!(compared.get(), 8 + 2);
    }
}

/// Where it is known that a machine was suspended. The clock is paused, so no time passes.
#[cfg(test)]
#[cfg(all(feature = "tokio", target_os = "linux"))]
mod sleep_tests {
    use std::future::IntoFuture as _;
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures_util::future::join_all;
    use tokio::task::yield_now;
    use tokio::time;

    use super::*;
    use crate::error::LeaseEnd;
    use crate::seam::backend::Vote;
    use crate::seam::backend::tests::Votes;
    use crate::seam::runtime::TokioRuntime;
    use crate::{LockManager, Runtime as _};

    const HOUR: Duration = Duration::from_secs(3600);

    /// What T4 promises.
    const LATE: Duration = Duration::from_millis(500);

    fn on(machine: Machine) -> TokioRuntime {
        let mut runtime = TokioRuntime::new();
        runtime.machine = machine;
        runtime
    }

    /// A runtime on a machine that is suspended by hand.
    fn runtime(suspended: fn() -> Duration) -> TokioRuntime {
        on(Machine { suspended, awake: || time::Instant::now().into_std() })
    }

    #[tokio::test(start_paused = true)]
    async fn t4_a_long_sleep_ends_at_most_half_a_second_after_a_suspend() {
        static HOURS: AtomicU32 = AtomicU32::new(0);
        let runtime = runtime(|| HOUR * HOURS.load(Ordering::Relaxed));
        let deadline = runtime.now() + 2 * HOUR;
        let mut sleep = runtime.long_sleep_until(deadline);
        for _ in 0..2 {
            assert!(time::timeout(3 * LATE, &mut sleep).await.is_err(), "never early");
            HOURS.fetch_add(1, Ordering::Relaxed);
        }
        let resumed = time::Instant::now();
        sleep.await;
        assert!(runtime.now() >= deadline && resumed.elapsed() <= LATE);
    }

    /// With and without a renewal, and however many callers wait: the timekeeper notifies all.
    #[tokio::test(start_paused = true)]
    async fn h4_lost_resolves_at_most_half_a_second_after_a_suspend() {
        static HOURS: AtomicU32 = AtomicU32::new(0);
        let runtime = runtime(|| HOUR * HOURS.load(Ordering::Relaxed));
        // A node timeout that makes each sleep a long one.
        let builder = LockManager::builder([Votes(Some(Vote::Granted))]).runtime(runtime);
        let manager = builder.ttl(5 * HOUR).node_timeout(HOUR).build().unwrap();
        let plain = manager.lock("plain").into_future().await.unwrap();
        let renewed = manager.lock("renewed").auto_renew().into_future().await.unwrap();
        let lost = tokio::spawn(join_all([plain.lost(), plain.lost(), renewed.lost()]));
        for _ in 0..100 {
            yield_now().await;
        }
        HOURS.store(6, Ordering::Relaxed);
        let resumed = time::Instant::now();
        let lost = lost.await.unwrap();
        assert!(resumed.elapsed() <= LATE, "{:?}", resumed.elapsed());
        assert!(lost.iter().all(|end| matches!(end, LeaseEnd::Expired { .. })));
    }

    /// Else the tests of users step through their virtual days.
    #[tokio::test(start_paused = true)]
    async fn a_long_sleep_on_a_paused_clock_is_few_steps() {
        static LOOKS: AtomicU32 = AtomicU32::new(0);
        let suspended = || {
            LOOKS.fetch_add(1, Ordering::Relaxed);
            Duration::ZERO
        };
        let runtime = on(Machine { suspended, ..MACHINE });
        let deadline = runtime.now() + 30 * 24 * HOUR;
        runtime.long_sleep_until(deadline).await;
        assert!(runtime.now() >= deadline);
        assert!(LOOKS.load(Ordering::Relaxed) < 1_000, "a step for each 0.4 s is millions");
    }
}
