//! What a world keeps: the time, the timers, the tasks and the randomness.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use quorate_core::runtime::BoxFuture;

use super::schedule::Scheduler;
use crate::rng::SplitMix64;

pub(crate) struct World {
    pub(crate) origin: Instant,
    state: Mutex<State>,
}

pub(super) struct State {
    pub(super) now: Instant,
    rng: SplitMix64,
    next_id: u64,
    /// By time, then in the order in which they were set.
    pub(super) timers: BTreeMap<(Instant, u64), Waker>,
    ready: VecDeque<u64>,
    /// Draws the next task. Without it, the next task is the one that has been ready the longest.
    pub(super) scheduler: Option<Scheduler>,
    pub(super) tasks: HashMap<u64, Task>,
    /// By client. Client 0 is the world itself.
    paused: Vec<Pause>,
}

pub(super) struct Task {
    /// `None` while it is polled.
    pub(super) future: Option<BoxFuture<'static, ()>>,
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

impl World {
    pub(crate) fn new(seed: u64, is_shuffled: bool) -> Self {
        // The one real time in a world: an `Instant` cannot be made of nothing.
        let origin = Instant::now();
        let state = State {
            now: origin,
            rng: SplitMix64::new(seed),
            next_id: 0,
            timers: BTreeMap::new(),
            ready: VecDeque::new(),
            scheduler: is_shuffled.then(|| Scheduler::new(seed)),
            tasks: HashMap::new(),
            paused: vec![Pause::Until(None)],
        };
        Self { origin, state: Mutex::new(state) }
    }

    pub(crate) fn now(&self) -> Instant {
        self.lock().now
    }

    /// Microseconds since 1970 when a clock reads `now`. The world began on 1 January 2025.
    pub(crate) fn unix_micros(&self, now: Instant) -> u64 {
        const BEGINNING: u64 = 1_735_689_600_000_000;
        let elapsed = now.saturating_duration_since(self.origin).as_micros();
        BEGINNING.saturating_add(u64::try_from(elapsed).unwrap_or(u64::MAX))
    }

    pub(crate) fn random(&self) -> u64 {
        self.lock().rng.next()
    }

    pub(crate) fn fill_random(&self, bytes: &mut [u8]) {
        self.lock().rng.fill(bytes);
    }

    /// The number of a new client.
    pub(crate) fn add_client(&self) -> usize {
        let mut state = self.lock();
        state.paused.push(Pause::Until(None));
        state.paused.len() - 1
    }

    pub(crate) fn pause(&self, client: usize, time: Duration) {
        let mut state = self.lock();
        let until = state.now + time;
        state.paused[client] = state.paused[client].max(Pause::Until(Some(until)));
    }

    pub(crate) fn kill(&self, client: usize) {
        self.lock().paused[client] = Pause::Killed;
    }

    pub(crate) fn is_stopped(&self, client: usize) -> bool {
        let state = self.lock();
        state.paused[client] > Pause::Until(Some(state.now))
    }

    pub(crate) fn spawn(self: &Arc<Self>, client: usize, future: BoxFuture<'static, ()>) {
        let mut state = self.lock();
        let id = state.take_id();
        let waker = Waker::from(Arc::new(TaskWaker { id, world: Arc::downgrade(self) }));
        state.tasks.insert(id, Task { future: Some(future), waker, client, is_queued: true });
        state.ready.push_back(id);
    }

    /// Drops every task and every timer.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        let tasks = std::mem::take(&mut state.tasks);
        let timers = std::mem::take(&mut state.timers);
        state.ready.clear();
        drop(state);
        drop((tasks, timers));
        // A task that is dropped may spawn another one.
        let tasks = std::mem::take(&mut self.lock().tasks);
        drop(tasks);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let elapsed = self.now() - self.origin;
        f.debug_struct("World").field("elapsed", &elapsed).finish_non_exhaustive()
    }
}

impl State {
    pub(super) const fn take_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// The task that runs next.
    pub(super) fn take_ready(&mut self) -> Option<u64> {
        match &mut self.scheduler {
            None => self.ready.pop_front(),
            Some(scheduler) => scheduler.take(&mut self.ready),
        }
    }

    /// The future of a task, to be polled; `None` if its client is killed, or paused until a timer.
    pub(super) fn take_future(&mut self, id: u64) -> Option<(BoxFuture<'static, ()>, Waker)> {
        let task = self.tasks.get_mut(&id)?;
        task.is_queued = false;
        match self.paused[task.client] {
            Pause::Killed => None,
            Pause::Until(Some(until)) if self.now < until => {
                let waker = task.waker.clone();
                let timer = (until, self.take_id());
                self.timers.insert(timer, waker);
                None
            }
            Pause::Until(_) => Some((task.future.take()?, task.waker.clone())),
        }
    }
}

struct TaskWaker {
    id: u64,
    /// A waker may be kept anywhere, and must not keep the world alive.
    world: Weak<World>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        let Some(world) = self.world.upgrade() else { return };
        let mut state = world.lock();
        if let Some(task) = state.tasks.get_mut(&self.id)
            && !task.is_queued
        {
            task.is_queued = true;
            state.ready.push_back(self.id);
        }
    }
}
