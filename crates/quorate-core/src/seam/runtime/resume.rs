//! Long sleeps, which notice that the machine was suspended: clocks went on meanwhile, and timers
//! stood still (T4).
//!
//! One thread for the whole process looks at the time suspended while a long sleep exists. It wakes
//! them all when that time has grown. So a long sleep has no timer of its own for that, and a short
//! one costs no more than its timer. It is no task of a runtime: a test may have paused the clock
//! of that.

use std::thread;
use std::time::{Duration, Instant};

use event_listener::{Event, EventListener};
use futures_util::future::{Either, select};

use super::sync::{Mutex, lock};
use super::{Runtime, time_suspended};

/// How often the thread looks.
const LOOK: Duration = Duration::from_millis(250);

/// After how many looks the sleepers are woken in any case. A task with nothing left to wait for
/// then ends its sleep.
const EVERY: usize = 40;

/// How late a sleep may end after a suspend. One that is not longer needs no look.
const LATE: Duration = Duration::from_millis(500);

/// The long sleeps of this process.
pub(super) static SLEEPS: LongSleeps = LongSleeps::new(time_suspended);

/// What a suspend wakes.
#[derive(Debug)]
pub(super) struct LongSleeps {
    pub(super) suspended: fn() -> Duration,
    resumed: Event,
    /// The time suspended at the last look, while the thread runs.
    seen: Mutex<Option<Duration>>,
}

impl LongSleeps {
    pub(super) const fn new(suspended: fn() -> Duration) -> Self {
        Self { suspended, resumed: Event::new(), seen: Mutex::new(None) }
    }

    /// Waits until `deadline` on the clock of `runtime`.
    pub(super) async fn sleep(&'static self, runtime: impl Runtime, deadline: Instant) {
        while deadline.saturating_duration_since(runtime.now()) > LATE {
            // Before the timer begins, so that no suspend is missed.
            let resumed = self.resumed();
            if let Either::Left(_) = select(runtime.sleep_until(deadline), resumed).await {
                return;
            }
        }
        runtime.sleep_until(deadline).await;
    }

    /// Resolves when the thread has seen that the machine was suspended. Without the thread it
    /// never does, and the timer has to do.
    fn resumed(&'static self) -> EventListener {
        let resumed = self.resumed.listen();
        let mut seen = lock(&self.seen);
        // Elsewhere the time suspended is unknown.
        if cfg!(target_os = "linux") && seen.is_none() {
            let thread = thread::Builder::new().name("quorate-resume".into());
            let looks = (1..).take_while(|number| self.look(*number));
            let look = || looks.for_each(|_| thread::sleep(LOOK));
            *seen = thread.spawn(look).is_ok().then(self.suspended);
        }
        resumed
    }

    /// Wakes the sleepers if the machine was suspended since the last look. Returns whether there
    /// are any.
    fn look(&self, number: usize) -> bool {
        let mut seen = lock(&self.seen);
        let suspended = (self.suspended)();
        let is_needed = self.resumed.total_listeners() > 0;
        let before = std::mem::replace(&mut *seen, is_needed.then_some(suspended));
        drop(seen);
        if before != Some(suspended) || number.is_multiple_of(EVERY) {
            self.resumed.notify(usize::MAX);
        }
        is_needed
    }
}

#[cfg(feature = "tokio")]
#[cfg(test)]
mod tests {
    use std::future::IntoFuture as _;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
    use std::task::{Context, Poll, Wake, Waker};

    use tokio::runtime::Builder;
    use tokio::task::yield_now;
    #[cfg(target_os = "linux")]
    use tokio::time::timeout;

    use super::*;
    use crate::error::LeaseEnd;
    use crate::seam::backend::{
        AcquireOptions, BackendError, Claim, ExtendOptions, ReleaseOptions, Reply, Vote,
        async_trait,
    };
    use crate::seam::runtime::TokioRuntime;
    use crate::{LockBackend, LockManager};

    const HOUR: Duration = Duration::from_secs(3600);

    /// A machine for each test, which is suspended by hand.
    #[derive(Clone, Copy)]
    struct Machine<const TEST: usize>;

    static SUSPENDED_HOURS: [AtomicU32; 5] = [const { AtomicU32::new(0) }; 5];

    static SLEEPS: [LongSleeps; 5] = [
        LongSleeps::new(Machine::<0>::suspended),
        LongSleeps::new(Machine::<1>::suspended),
        LongSleeps::new(Machine::<2>::suspended),
        LongSleeps::new(Machine::<3>::suspended),
        LongSleeps::new(Machine::<4>::suspended),
    ];

    impl<const TEST: usize> Machine<TEST> {
        fn suspended() -> Duration {
            HOUR * SUSPENDED_HOURS[TEST].load(Ordering::Relaxed)
        }

        fn suspend(self, hours: u32) {
            SUSPENDED_HOURS[TEST].fetch_add(hours, Ordering::Relaxed);
        }

        /// Without the thread, where the test itself looks.
        fn by_hand(self) -> &'static LongSleeps {
            *lock(&SLEEPS[TEST].seen) = Some(Self::suspended());
            &SLEEPS[TEST]
        }

        /// Runs a test in tokio, with a runtime on this machine. An hour passes in no test.
        fn run<T>(self, test: impl AsyncFnOnce(TokioRuntime) -> T) -> T {
            let tokio = Builder::new_current_thread().enable_time().build().unwrap();
            tokio.block_on(async {
                let mut runtime = TokioRuntime::new();
                runtime.sleeps = &SLEEPS[TEST];
                test(runtime).await
            })
        }
    }

    /// Counts how often a future wakes its task.
    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Wakes {
        fn poll<F: Future + Unpin>(self: &Arc<Self>, future: &mut F) -> Poll<F::Output> {
            let waker = Waker::from(Arc::clone(self));
            Pin::new(future).poll(&mut Context::from_waker(&waker))
        }

        fn count(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn t4_a_long_sleep_ends_at_the_first_look_after_a_suspend() {
        let machine = Machine::<0>;
        machine.run(async |runtime| {
            let sleeps = machine.by_hand();
            let deadline = runtime.now() + 2 * HOUR;
            let (wakes, mut sleep) = (Arc::<Wakes>::default(), runtime.long_sleep_until(deadline));
            assert!(wakes.poll(&mut sleep).is_pending());
            for (hours, woken) in [(0, 0), (0, 0), (1, 1), (0, 1), (0, 1), (1, 2)] {
                assert!(wakes.poll(&mut sleep).is_pending(), "never early");
                machine.suspend(hours);
                assert!(sleeps.look(1));
                assert_eq!(wakes.count(), woken, "only a suspend wakes");
            }
            sleep.await;
            assert!(runtime.now() >= deadline);
            assert!(!sleeps.look(1), "nobody sleeps");
            assert!(LOOK < LATE && LATE <= Duration::from_millis(500));
        });
    }

    /// Rule T4.
    #[test]
    fn nothing_is_looked_at_for_a_short_sleep_nor_for_one_that_was_dropped() {
        let machine = Machine::<1>;
        machine.run(async |runtime| {
            let wakes = Arc::<Wakes>::default();
            for (length, is_looked_for) in [(LATE, false), (HOUR, true)] {
                let sleeps = machine.by_hand();
                let mut sleep = runtime.long_sleep_until(runtime.now() + length);
                assert!(wakes.poll(&mut sleep).is_pending());
                assert_eq!(sleeps.look(1), is_looked_for);
                drop(sleep);
                assert!(!sleeps.look(1));
            }
        });
    }

    /// Where it is known that a machine was suspended.
    /// Rule T4.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_thread_looks_until_the_last_long_sleep_has_ended() {
        /// No machine is as slow as that.
        const LIMIT: Duration = Duration::from_secs(60);
        let machine = Machine::<2>;
        let twice = machine.run(async |runtime| {
            let twice = async {
                for _ in 0..2 {
                    let mut sleep = runtime.long_sleep_until(runtime.now() + HOUR);
                    assert!(Arc::<Wakes>::default().poll(&mut sleep).is_pending());
                    machine.suspend(1);
                    sleep.await;
                    while lock(&runtime.sleeps.seen).is_some() {
                        yield_now().await;
                    }
                }
            };
            timeout(LIMIT, twice).await
        });
        assert!(twice.is_ok());
    }

    /// A node that grants all.
    #[derive(Debug)]
    struct Granting;

    #[async_trait]
    impl LockBackend for Granting {
        async fn acquire(&self, _: &Claim, _: AcquireOptions) -> Result<Reply, BackendError> {
            Ok(Reply::new(Vote::Granted))
        }

        async fn extend(&self, _: &Claim, _: ExtendOptions) -> Result<Reply, BackendError> {
            Ok(Reply::new(Vote::Granted))
        }

        async fn release(&self, _: &Claim, _: ReleaseOptions) -> Result<Reply, BackendError> {
            Ok(Reply::new(Vote::Granted))
        }
    }

    /// One node, and a node timeout that makes each sleep a long one.
    fn manager(runtime: TokioRuntime) -> LockManager {
        let builder = LockManager::builder([Granting]).runtime(runtime);
        builder.ttl(5 * HOUR).node_timeout(HOUR).build().unwrap()
    }

    /// More polls than any task needs.
    async fn settle() {
        for _ in 0..100 {
            yield_now().await;
        }
    }

    /// With and without a renewal, and however many callers wait: the manager has one long sleep.
    #[test]
    fn h4_lost_resolves_at_the_first_look_after_a_suspend() {
        let machine = Machine::<3>;
        machine.run(async |runtime| {
            let sleeps = machine.by_hand();
            let manager = manager(runtime);
            let plain = manager.lock("plain").into_future().await.unwrap();
            let renewed = manager.lock("renewed").auto_renew().into_future().await.unwrap();
            let wakes = Arc::<Wakes>::default();
            let mut lost: Vec<_> =
                [plain.lost(), plain.lost(), renewed.lost()].map(Box::pin).into();
            assert!(lost.iter_mut().all(|lost| wakes.poll(lost).is_pending()));
            settle().await;
            assert!(sleeps.look(1));
            assert_eq!(sleeps.resumed.total_listeners(), 1, "that of the timekeeper");
            let before = wakes.count();

            machine.suspend(6);
            settle().await;
            assert_eq!(wakes.count(), before, "all timers stand still");
            sleeps.look(1);
            settle().await;
            assert!(wakes.count() >= before + lost.len());
            for lost in &mut lost {
                assert!(matches!(wakes.poll(lost), Poll::Ready(LeaseEnd::Expired { .. })));
            }
        });
    }

    /// Rule T4.
    #[test]
    fn nothing_is_looked_at_for_a_manager_without_locks() {
        let machine = Machine::<4>;
        machine.run(async |runtime| {
            let (sleeps, manager) = (machine.by_hand(), manager(runtime));
            manager.lock("r").into_future().await.unwrap().release().await.unwrap();
            settle().await;
            assert!(sleeps.look(1), "the timekeeper does not know it yet");
            sleeps.look(EVERY);
            settle().await;
            assert!(!sleeps.look(1));
        });
    }
}
