//! A world with a clock of its own: one thread, no sleeping, the same run for the same seed.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use quorate_core::Runtime;
use quorate_core::runtime::{BoxFuture, EntropyError};

use crate::client::SimClient;
use crate::clock::Clock;
use crate::rng::SplitMix64;

/// With so many timers something goes on for ever.
const MOST_TIMERS: u32 = 100_000;

mod schedule;
mod wake;

use self::schedule::Scheduler;
use self::wake::{Alarm, Sleep, TaskWaker};

/// A simulated world: a virtual clock, an executor and a source of randomness.
///
/// Time stands still while anything can run, and then jumps to the next moment at which something
/// will: ten minutes of waiting take no time. Clones are handles of the same world, and each is the
/// [`Runtime`] to build a manager with. [`client`](Self::client) gives one with a clock of its own.
///
/// Everything is driven by the thread that calls [`block_on`](Self::block_on) and its like, one
/// at a time.
#[derive(Clone)]
pub struct Sim {
    world: Arc<World>,
}

struct World {
    origin: Instant,
    state: Mutex<State>,
}

struct State {
    now: Instant,
    rng: SplitMix64,
    next_id: u64,
    /// By moment, then in the order they were asked for.
    timers: BTreeMap<(Instant, u64), Waker>,
    ready: VecDeque<u64>,
    /// What draws the next task, where it is not the one that has been ready for the longest time.
    scheduler: Option<Scheduler>,
    tasks: HashMap<u64, Task>,
    /// Until when each client stands still. Client 0 is the world itself.
    paused: Vec<Pause>,
}

struct Task {
    /// Taken out while it is polled.
    future: Option<BoxFuture<'static, ()>>,
    waker: Waker,
    client: usize,
    is_queued: bool,
}

/// Whether the tasks of a client run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Pause {
    Until(Option<Instant>),
    Killed,
}

impl Sim {
    /// A world in which all that is random follows from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let origin = Instant::now();
        let state = State {
            now: origin,
            rng: SplitMix64::new(seed),
            next_id: 0,
            timers: BTreeMap::new(),
            ready: VecDeque::new(),
            scheduler: None,
            tasks: HashMap::new(),
            paused: vec![Pause::Until(None)],
        };
        Self { world: Arc::new(World { origin, state: Mutex::new(state) }) }
    }

    /// As [`new`](Self::new), but of the tasks that are ready the next one is drawn at random.
    ///
    /// The order follows from `seed` as well. Some tasks are drawn rarely, and so run last. Timers of
    /// the same moment wake their tasks together.
    #[must_use]
    pub fn shuffled(seed: u64) -> Self {
        let sim = Self::new(seed);
        sim.world.lock().scheduler = Some(Scheduler::new(seed));
        sim
    }

    /// How long the world has lasted.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        let state = self.world.lock();
        state.now - self.world.origin
    }

    /// Another process in the world, whose clock gains `parts_per_million` on the world's.
    #[must_use]
    pub fn client(&self, parts_per_million: i32) -> SimClient {
        let mut state = self.world.lock();
        state.paused.push(Pause::Until(None));
        let id = state.paused.len() - 1;
        SimClient::new(self.clone(), id, Clock::new(self.world.origin, parts_per_million))
    }

    /// Ends when `time` has passed since this call, on the world's clock.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time, and wakes nobody after that.
    #[must_use = "time passes only if it is awaited"]
    pub fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        self.sleep_until(after(self.now(), time))
    }

    /// Runs `future`, and whatever was spawned, until `future` is done.
    ///
    /// What else was spawned stays for the next call; [`settle`](Self::settle) runs it to the end.
    ///
    /// Many futures at once, and their values, are one future: `futures_util::future::join_all`
    /// takes turns with them on this thread, so that they need be neither `Send` nor `'static`.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use futures_util::future::join_all;
    /// use quorate_core::{LockManager, Ttl};
    /// use quorate_memory::{MemoryNode, Sim};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let sim = Sim::new(7);
    /// let nodes = MemoryNode::cluster(3, sim.clone());
    /// let manager = LockManager::builder(sim.clone(), nodes).build()?;
    ///
    /// let workers = (0..5).map(|n| {
    ///     let (manager, sim) = (&manager, &sim);
    ///     async move {
    ///         let guard = manager.lock("orders:42").await?;
    ///         sim.sleep(Duration::from_secs(1)).await;
    ///         let _ = guard.release().await;
    ///         Ok::<_, quorate_core::LockError>(n)
    ///     }
    /// });
    /// let done: Result<Vec<_>, _> = sim.block_on(join_all(workers)).into_iter().collect();
    /// assert_eq!(done?, [0, 1, 2, 3, 4]);
    /// assert!(sim.elapsed() >= Duration::from_secs(5));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If nothing can run, no timer is set and `future` is not done: it would wait for ever.
    #[expect(clippy::panic, reason = "a deadlock in a test's world is the test's failure")]
    pub fn block_on<F: IntoFuture>(&self, future: F) -> F::Output {
        let mut future = pin!(future.into_future());
        let alarm = Arc::new(Alarm::default());
        let waker = Waker::from(Arc::clone(&alarm));
        loop {
            if alarm.went_off()
                && let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker))
            {
                return output;
            }
            // Tasks go first, one at a time: the future may be waiting for them.
            if !self.run_one() && !alarm.is_ringing() && !self.jump(None) {
                panic!("deadlock: the future is not done, and nothing will ever wake it");
            }
        }
    }

    /// Polls `future` until it is done, or has been polled `polls` times; then drops it.
    ///
    /// With the number of polls from 0 up until it is done, this is every moment at which a caller
    /// can cancel.
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

    /// Runs until nothing is left that could run, at whatever time.
    ///
    /// What goes on for ever has no such end: a lease that is kept alive, a task that does something
    /// every minute. [`advance`](Self::advance) by some time there.
    ///
    /// # Panics
    ///
    /// If there is no end after a hundred thousand timers.
    pub fn settle(&self) {
        let mut timers = 0;
        loop {
            while self.run_one() {}
            if !self.jump(None) {
                return;
            }
            timers += 1;
            assert!(
                timers < MOST_TIMERS,
                "no end after {timers} timers: is a lease kept alive? use `advance`"
            );
        }
    }

    /// Lets `time` pass, with all that happens in it.
    pub fn advance(&self, time: Duration) {
        let now = self.now();
        let end = now.checked_add(time).unwrap_or(now);
        while self.run_one() || self.jump(Some(end)) {}
        let mut state = self.world.lock();
        state.now = state.now.max(end);
    }

    /// Ends the world: every task is dropped where it stands, and no timer rings again.
    ///
    /// Tasks hold handles of the world that they are in. So a world in which some never end is
    /// kept until it is ended like this.
    pub fn end(&self) {
        let mut state = self.world.lock();
        let tasks = std::mem::take(&mut state.tasks);
        let timers = std::mem::take(&mut state.timers);
        state.ready.clear();
        drop(state);
        drop((tasks, timers));
        // What the tasks spawned as they were dropped.
        let tasks = std::mem::take(&mut self.world.lock().tasks);
        drop(tasks);
    }

    /// The next number of the world's randomness.
    pub fn random(&self) -> u64 {
        self.world.lock().rng.next()
    }

    /// A random number below `bound`; zero if there is none.
    pub fn random_below(&self, bound: u64) -> u64 {
        let wide = u128::from(self.random()) * u128::from(bound);
        u64::try_from(wide >> 64).unwrap_or(0)
    }

    pub(crate) fn sleep_of(&self, clock: Clock, deadline: Instant) -> BoxFuture<'static, ()> {
        Box::pin(Sleep { world: Arc::clone(&self.world), clock, deadline, timer: None })
    }

    pub(crate) fn spawn_in(&self, client: usize, future: BoxFuture<'static, ()>) {
        let mut state = self.world.lock();
        let id = state.take_id();
        let waker = Waker::from(Arc::new(TaskWaker { id, world: Arc::downgrade(&self.world) }));
        state.tasks.insert(id, Task { future: Some(future), waker, client, is_queued: true });
        state.ready.push_back(id);
    }

    pub(crate) fn pause(&self, client: usize, time: Duration) {
        let mut state = self.world.lock();
        let until = state.now + time;
        state.paused[client] = state.paused[client].max(Pause::Until(Some(until)));
    }

    pub(crate) fn kill(&self, client: usize) {
        self.world.lock().paused[client] = Pause::Killed;
    }

    /// Runs a task that is ready; `false` if none is.
    fn run_one(&self) -> bool {
        let mut state = self.world.lock();
        let Some(id) = state.take_ready() else {
            return false;
        };
        let now = state.now;
        let client = state.tasks.get(&id).map_or(0, |task| task.client);
        let pause = state.paused[client];
        let Some(task) = state.tasks.get_mut(&id) else {
            return true;
        };
        task.is_queued = false;
        if pause == Pause::Killed {
            return true;
        }
        if let Pause::Until(Some(until)) = pause
            && now < until
        {
            // It stands still with its client, and goes on when that does.
            let waker = task.waker.clone();
            let timer = state.take_id();
            state.timers.insert((until, timer), waker);
            return true;
        }
        let (Some(mut future), waker) = (task.future.take(), task.waker.clone()) else {
            return true;
        };
        drop(state);
        let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
        let mut state = self.world.lock();
        let task = match polled {
            Poll::Ready(()) => state.tasks.remove(&id),
            Poll::Pending => {
                if let Some(task) = state.tasks.get_mut(&id) {
                    task.future = Some(future);
                }
                return true;
            }
        };
        // What a task held is dropped when the world is not locked: it may spawn.
        drop(state);
        drop((task, future));
        true
    }

    /// Goes to the next timer and rings it; `false` if there is none up to `limit`.
    fn jump(&self, limit: Option<Instant>) -> bool {
        let mut state = self.world.lock();
        let Some(timer) = state.timers.first_entry() else {
            return false;
        };
        let (at, _) = *timer.key();
        if limit.is_some_and(|limit| at > limit) {
            return false;
        }
        let mut wakers = vec![timer.remove()];
        state.now = state.now.max(at);
        while state.scheduler.is_some()
            && let Some(timer) = state.timers.first_entry().filter(|timer| timer.key().0 == at)
        {
            wakers.push(timer.remove());
        }
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        true
    }
}

impl Runtime for Sim {
    fn now(&self) -> Instant {
        self.world.lock().now
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        self.sleep_of(Clock::new(self.world.origin, 0), deadline)
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.spawn_in(0, task);
    }

    fn fill_random(&self, bytes: &mut [u8]) -> Result<(), EntropyError> {
        self.world.lock().rng.fill(bytes);
        Ok(())
    }

    /// The world began on 1 January 2025.
    fn unix_micros(&self) -> u64 {
        const BEGINNING: u64 = 1_735_689_600_000_000;
        let since = u64::try_from(self.elapsed().as_micros()).unwrap_or(u64::MAX);
        BEGINNING.saturating_add(since)
    }
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sim").field("elapsed", &self.elapsed()).finish_non_exhaustive()
    }
}

/// What a clock reads `time` later; if that is beyond all clocks, in thirty years.
pub(crate) fn after(now: Instant, time: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(30 * 365 * 86_400);
    now.checked_add(time).or_else(|| now.checked_add(FAR)).unwrap_or(now)
}

impl World {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    const fn take_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// The task that runs next.
    fn take_ready(&mut self) -> Option<u64> {
        match &mut self.scheduler {
            None => self.ready.pop_front(),
            Some(scheduler) => scheduler.take(&mut self.ready),
        }
    }
}
