//! A world with a clock of its own: one thread, no sleeping, the same run for the same seed.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use quorate_core::Runtime;
use quorate_core::runtime::{BoxFuture, EntropyError};

use crate::rng::SplitMix64;

/// A simulated world: a virtual clock, an executor and a source of randomness.
///
/// Time stands still while anything can run, and then jumps to the next moment at which something
/// will: ten minutes of waiting take no time. Clones are handles of the same world, and each is the
/// [`Runtime`] to build a manager with.
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
    tasks: HashMap<u64, BoxFuture<'static, ()>>,
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
            tasks: HashMap::new(),
        };
        Self { world: Arc::new(World { origin, state: Mutex::new(state) }) }
    }

    /// How long the world has lasted.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.world.lock().now - self.world.origin
    }

    /// Runs `future`, and whatever was spawned, until `future` is done.
    ///
    /// What else was spawned stays for the next call; [`settle`](Self::settle) runs it to the end.
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
    pub fn settle(&self) {
        while self.run_one() || self.jump(None) {}
    }

    /// Lets `time` pass, with all that happens in it.
    pub fn advance(&self, time: Duration) {
        let end = self.now() + time;
        while self.run_one() || self.jump(Some(end)) {}
        self.world.lock().now = end;
    }

    /// The next number of the world's randomness.
    pub fn random(&self) -> u64 {
        self.world.lock().rng.next()
    }

    /// Runs a task that is ready; `false` if none is.
    fn run_one(&self) -> bool {
        let mut state = self.world.lock();
        let Some(id) = state.ready.pop_front() else {
            return false;
        };
        let Some(mut task) = state.tasks.remove(&id) else {
            return true;
        };
        drop(state);
        let waker = Waker::from(Arc::new(Task { id, world: Arc::clone(&self.world) }));
        if task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            self.world.lock().tasks.insert(id, task);
        }
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
        let waker = timer.remove();
        state.now = state.now.max(at);
        drop(state);
        waker.wake();
        true
    }
}

impl Runtime for Sim {
    fn now(&self) -> Instant {
        self.world.lock().now
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        Box::pin(Sleep { world: Arc::clone(&self.world), deadline, timer: None })
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        let mut state = self.world.lock();
        let id = state.take_id();
        state.tasks.insert(id, task);
        state.ready.push_back(id);
    }

    fn fill_random(&self, bytes: &mut [u8]) -> Result<(), EntropyError> {
        self.world.lock().rng.fill(bytes);
        Ok(())
    }
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sim").field("elapsed", &self.elapsed()).finish_non_exhaustive()
    }
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
}

struct Sleep {
    world: Arc<World>,
    deadline: Instant,
    timer: Option<(Instant, u64)>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let world = Arc::clone(&self.world);
        let mut state = world.lock();
        if state.now >= self.deadline {
            return Poll::Ready(());
        }
        let deadline = self.deadline;
        let timer = *self.timer.get_or_insert_with(|| (deadline, state.take_id()));
        state.timers.insert(timer, context.waker().clone());
        Poll::Pending
    }
}

/// A sleep that is given up must not draw the clock to its deadline.
impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(timer) = &self.timer {
            let waker = self.world.lock().timers.remove(timer);
            drop(waker);
        }
    }
}

struct Task {
    id: u64,
    world: Arc<World>,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        let mut state = self.world.lock();
        if !state.ready.contains(&self.id) {
            state.ready.push_back(self.id);
        }
    }
}

/// Whether the future of `block_on` is to be polled; at first it is.
struct Alarm(Mutex<bool>);

impl Alarm {
    fn ringing(&self) -> MutexGuard<'_, bool> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_ringing(&self) -> bool {
        *self.ringing()
    }

    fn went_off(&self) -> bool {
        std::mem::take(&mut *self.ringing())
    }
}

impl Default for Alarm {
    fn default() -> Self {
        Self(Mutex::new(true))
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        *self.ringing() = true;
    }
}
