//! A runtime on nothing but the standard library: a thread per task, and one for the timers.

use std::collections::BTreeMap;
use std::future::{Future, IntoFuture};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

use quorate::Runtime;
use quorate::runtime::{BoxFuture, EntropyError, os_random, time_suspended};

/// Runs `future` on the current thread, which sleeps while there is nothing to do.
pub fn block_on<F: IntoFuture>(future: F) -> F::Output {
    let mut future = pin!(future.into_future());
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// A runtime made of threads.
#[derive(Clone, Debug)]
pub struct StdRuntime {
    timers: Arc<Timers>,
}

#[derive(Debug, Default)]
struct Timers {
    wakers: Mutex<BTreeMap<(Instant, u64), Waker>>,
    changed: Condvar,
    next: AtomicU64,
}

impl StdRuntime {
    /// Starts the thread of the timers, which ends with the last handle.
    #[must_use]
    pub fn new() -> Self {
        let timers = Arc::new(Timers::default());
        let weak = Arc::downgrade(&timers);
        thread::spawn(move || {
            while let Some(timers) = weak.upgrade() {
                timers.ring_next();
            }
        });
        Self { timers }
    }
}

impl Default for StdRuntime {
    fn default() -> Self {
        Self::new()
    }
}

impl Runtime for StdRuntime {
    fn now(&self) -> Instant {
        Instant::now() + time_suspended()
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        Box::pin(Sleep { runtime: self.clone(), deadline, timer: None })
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        thread::spawn(move || block_on(task));
    }

    fn fill_random(&self, bytes: &mut [u8]) -> Result<(), EntropyError> {
        os_random(bytes)
    }
}

impl Timers {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(Instant, u64), Waker>> {
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rings one timer, or waits up to 100 ms for its time or for another to be set.
    fn ring_next(&self) {
        const MOMENT: std::time::Duration = std::time::Duration::from_millis(100);
        let wakers = self.lock();
        let left = match wakers.first_key_value() {
            Some(((at, _), _)) => at.saturating_duration_since(Instant::now() + time_suspended()),
            None => MOMENT,
        };
        if left.is_zero() {
            let mut wakers = wakers;
            let due = wakers.pop_first();
            drop(wakers);
            if let Some((_, waker)) = due {
                waker.wake();
            }
        } else {
            // Ends when the time has come, a timer was set, or for no reason; all are fine.
            drop(self.changed.wait_timeout(wakers, left.min(MOMENT)));
        }
    }
}

struct Sleep {
    runtime: StdRuntime,
    deadline: Instant,
    timer: Option<(Instant, u64)>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.runtime.now() >= self.deadline {
            return Poll::Ready(());
        }
        let timers = Arc::clone(&self.runtime.timers);
        let deadline = self.deadline;
        let next = || (deadline, timers.next.fetch_add(1, Ordering::Relaxed));
        let timer = *self.timer.get_or_insert_with(next);
        timers.lock().insert(timer, context.waker().clone());
        timers.changed.notify_all();
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(timer) = &self.timer {
            let waker = self.runtime.timers.lock().remove(timer);
            drop(waker);
        }
    }
}
