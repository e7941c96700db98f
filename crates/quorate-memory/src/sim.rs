//! A simulated world with a virtual clock: one thread, no sleeping, one run for each seed.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use quorate_core::Runtime;
use quorate_core::runtime::{BoxFuture, EntropyError};

use crate::client::SimClient;
use crate::clock::Clock;
use crate::rng::below;
use crate::world::{World, after};

/// After this many timers, `settle` takes it that there is no end.
const MOST_TIMERS: u32 = 100_000;

/// A simulated world: a virtual clock, an executor and a source of randomness.
///
/// Time stands still while anything can run, and then jumps to the next timer: ten minutes of
/// waiting take no time. Clones are handles of the same world, and each is the [`Runtime`] to build
/// a manager with. [`client`](Self::client) makes a process with a clock of its own.
///
/// Everything runs on the thread that calls [`block_on`](Self::block_on), [`settle`](Self::settle)
/// or [`advance`](Self::advance). Call them from one thread at a time.
#[derive(Clone)]
pub struct Sim {
    world: Arc<World>,
}

impl Sim {
    /// A world in which all randomness follows from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { world: Arc::new(World::new(seed, false)) }
    }

    /// The same with a scheduler that draws the next ready task at random.
    ///
    /// The order follows from `seed` as well. Some tasks are drawn rarely, and so run last. Timers
    /// of the same time wake their tasks together.
    #[must_use]
    pub fn shuffled(seed: u64) -> Self {
        Self { world: Arc::new(World::new(seed, true)) }
    }

    /// How long the world has lasted.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.now() - self.world.origin
    }

    /// Another process in the world, whose clock gains `parts_per_million` on the world's.
    #[must_use]
    pub fn client(&self, parts_per_million: i32) -> SimClient {
        SimClient::new(Arc::clone(&self.world), parts_per_million)
    }

    /// Waits until `time` has passed since this call, on the world's clock.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time.
    #[must_use = "time passes only if it is awaited"]
    pub fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        self.sleep_until(after(self.now(), time))
    }

    /// Runs `future`, and all spawned tasks, until `future` is done.
    ///
    /// Tasks that are not done by then go on in the next call; [`settle`](Self::settle) runs them
    /// to their end. To run several futures at once, join them: they need be neither `Send` nor
    /// `'static`.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use futures_util::future::join_all;
    /// use quorate_memory::Sim;
    ///
    /// let sim = Sim::new(7);
    /// let workers = (1..=5).map(|number| {
    ///     let sim = sim.clone();
    ///     async move {
    ///         sim.sleep(Duration::from_secs(60 * number)).await;
    ///         number
    ///     }
    /// });
    /// assert_eq!(sim.block_on(join_all(workers)), [1, 2, 3, 4, 5]);
    /// assert_eq!(sim.elapsed(), Duration::from_secs(300));
    /// ```
    ///
    /// # Panics
    ///
    /// If `future` is not done, no task can run and no timer is set: it would wait for ever.
    #[expect(clippy::panic, reason = "a deadlock in a test's world is the test's failure")]
    pub fn block_on<F: IntoFuture>(&self, future: F) -> F::Output {
        let mut future = pin!(future.into_future());
        let flag = Arc::new(WakeFlag(AtomicBool::new(true)));
        let waker = Waker::from(Arc::clone(&flag));
        loop {
            if flag.0.swap(false, Ordering::Relaxed)
                && let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker))
            {
                return output;
            }
            // Tasks go first, one at a time: the future may be waiting for them.
            let goes_on =
                self.world.run_one() || flag.0.load(Ordering::Relaxed) || self.world.jump(None);
            if !goes_on {
                panic!("deadlock: the future is not done, and nothing will ever wake it");
            }
        }
    }

    /// Polls `future` until it is done or was polled `polls` times, then drops it.
    ///
    /// With `polls` from 0 up until it is done, a test cancels it at every point.
    pub fn block_on_for<F: IntoFuture>(&self, future: F, polls: usize) -> Option<F::Output> {
        let mut future = Box::pin(future.into_future());
        let mut polled = 0;
        self.block_on(poll_fn(move |context| {
            if polled < polls {
                polled += 1;
                if let Poll::Ready(output) = future.as_mut().poll(context) {
                    return Poll::Ready(Some(output));
                }
            }
            if polled < polls { Poll::Pending } else { Poll::Ready(None) }
        }))
    }

    /// Runs until no task can run and no timer is set.
    ///
    /// A lease that is renewed, or a task that does something every minute, never ends: use
    /// [`advance`](Self::advance) there.
    ///
    /// # Panics
    ///
    /// If there is no end after 100 000 timers.
    pub fn settle(&self) {
        let mut timers = 0;
        loop {
            while self.world.run_one() {}
            if !self.world.jump(None) {
                return;
            }
            timers += 1;
            assert!(
                timers < MOST_TIMERS,
                "no end after {timers} timers: is a lease renewed? use `advance`"
            );
        }
    }

    /// Lets `time` pass, with all that happens in it.
    pub fn advance(&self, time: Duration) {
        let now = self.now();
        self.world.run_until(now.checked_add(time).unwrap_or(now));
    }

    /// Ends the world: drops every task and every timer.
    ///
    /// Tasks hold handles of their world. So a world with a task that never ends is kept in memory
    /// until this is called.
    pub fn end(&self) {
        self.world.end();
    }

    /// The next number of the world's randomness.
    pub fn random(&self) -> u64 {
        self.world.random()
    }

    /// A random number below `bound`; 0 if there is none.
    pub fn random_below(&self, bound: u64) -> u64 {
        below(self.random(), bound)
    }
}

impl Runtime for Sim {
    fn now(&self) -> Instant {
        self.world.now()
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        self.world.sleep(Clock::new(self.world.origin, 0), deadline)
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.world.spawn(0, task);
    }

    fn fill_random(&self, bytes: &mut [u8]) -> Result<(), EntropyError> {
        self.world.fill_random(bytes);
        Ok(())
    }

    /// The world began on 1 January 2025.
    fn unix_micros(&self) -> u64 {
        self.world.unix_micros(self.now())
    }
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sim").field("elapsed", &self.elapsed()).finish_non_exhaustive()
    }
}

/// Whether the future of `block_on` was woken since its last poll. At first it counts as woken.
struct WakeFlag(AtomicBool);

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Runs six tasks that sleep a little, and returns in which order they end.
    fn order(sim: &Sim) -> Vec<u64> {
        let ended = Arc::new(Mutex::new(Vec::new()));
        for number in 0..6 {
            let (world, ended) = (sim.clone(), Arc::clone(&ended));
            sim.spawn(Box::pin(async move {
                world.sleep(SECOND).await;
                ended.lock().unwrap().push(number);
            }));
        }
        sim.settle();
        ended.lock().unwrap().clone()
    }

    #[test]
    fn a_seed_is_one_run_and_a_shuffled_world_runs_tasks_in_many_orders() {
        assert_eq!(order(&Sim::new(1)), [0, 1, 2, 3, 4, 5]);
        let orders: Vec<_> = (0..20).map(|seed| order(&Sim::shuffled(seed))).collect();
        assert!(orders.iter().any(|order| *order != orders[0]));
        for (seed, seen) in (0..20).zip(&orders) {
            assert_eq!(order(&Sim::shuffled(seed)), *seen);
        }
        let drawn = |seed| [(); 3].map(|()| Sim::new(seed).random());
        assert_eq!(drawn(1), drawn(1));
        assert_ne!(drawn(1), drawn(2));
    }

    #[test]
    #[should_panic = "deadlock"]
    fn a_future_that_nothing_can_wake_is_a_panic() {
        Sim::new(1).block_on(std::future::pending::<()>());
    }

    #[test]
    fn the_end_of_a_world_drops_its_tasks_and_stops_its_timers() {
        let (sim, held) = (Sim::new(1), Arc::new(()));
        let (world, kept) = (sim.clone(), Arc::clone(&held));
        sim.spawn(Box::pin(async move {
            loop {
                world.sleep(SECOND).await;
                let _ = &kept;
            }
        }));
        sim.advance(3 * SECOND);
        assert_eq!(Arc::strong_count(&held), 2);
        sim.end();
        assert_eq!(Arc::strong_count(&held), 1);
        sim.settle();
        assert_eq!(sim.elapsed(), 3 * SECOND);
    }

    #[test]
    fn a_future_is_dropped_after_the_polls_that_it_is_given() {
        let sim = Sim::new(1);
        let polls = |count| sim.block_on_for(async { sim.sleep(SECOND).await }, count).is_some();
        assert!(!polls(0) && !polls(1) && polls(2));
        assert_eq!(sim.elapsed(), SECOND);
    }
}
