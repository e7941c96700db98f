//! The seam to tokio.

use std::borrow::Cow;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;

use pin_project::pin_project;
use tokio::runtime::{Builder, Handle, RuntimeFlavor};
use tokio::task::JoinHandle;
use tokio::task::coop::poll_proceed;
use tokio::time;

use super::suspend::{MACHINE, Machine, sleep_in_steps};
use super::{BoxFuture, EntropyError, Runtime, os_random};

/// A [`Runtime`] on tokio.
///
/// Background tasks run on the first of these that exists:
///
/// 1. the multi-threaded tokio runtime in which this value was created, while it runs;
/// 2. the tokio runtime of the caller;
/// 3. one helper thread for the whole process.
///
/// So a guard can be dropped on any thread. Only a runtime that shuts down right after the drop
/// stops the release. At the end of `main`, [`close`](crate::LockManager::close) the manager.
///
/// The clock is tokio's, which tests can pause, plus the time for which the machine was suspended.
/// On Linux, a task looks for a suspend each 0.4 s while a lock is held for long. Build your own
/// tokio runtime with `enable_all`: this type needs the timer and the clients need I/O.
#[derive(Clone, Debug)]
pub struct TokioRuntime {
    home: Option<Arc<Home>>,
    pub(super) machine: Machine,
}

impl TokioRuntime {
    /// Creates the runtime on the current tokio runtime, if there is one.
    ///
    /// A connection that is made in a current-thread runtime makes progress only while a thread
    /// drives that runtime. If several current-thread runtimes share connections, pass the handle
    /// of a multi-threaded runtime to [`of`](Self::of).
    #[must_use]
    pub fn new() -> Self {
        Self::at(Handle::try_current().ok().and_then(Home::new))
    }

    /// Creates the runtime on the tokio runtime of `handle`.
    #[must_use]
    pub fn of(handle: Handle) -> Self {
        Self::at(Home::new(handle))
    }

    /// Creates the runtime on the helper thread, which lives as long as the process.
    ///
    /// For what outlives the tokio runtimes of the program: a `static` in tests, or the workers of
    /// actix. Each wake-up of a task there crosses threads.
    #[must_use]
    pub fn on_helper_thread() -> Self {
        Self::at(helper().cloned().map(Home::driven))
    }

    const fn at(home: Option<Arc<Home>>) -> Self {
        Self { home, machine: MACHINE }
    }

    /// The runtime for tasks and timers. Home comes before the caller's, which may be a
    /// current-thread runtime that no thread drives after the caller has returned.
    fn here(&self) -> Option<Cow<'_, Handle>> {
        let running = self.home.as_deref().filter(|home| !home.sentinel.is_finished());
        let home = running.map(|home| Cow::Borrowed(&home.handle));
        let current = || Handle::try_current().ok().map(Cow::Owned);
        home.or_else(current).or_else(|| helper().map(Cow::Borrowed))
    }
}

impl Default for TokioRuntime {
    fn default() -> Self {
        Self::new()
    }
}

impl Runtime for TokioRuntime {
    fn now(&self) -> Instant {
        time::Instant::now().into_std() + (self.machine.suspended)()
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        Box::pin(Alarm { runtime: self.clone(), deadline, sleep: None, begun_in: None })
    }

    fn long_sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        Box::pin(sleep_in_steps(self.clone(), self.machine, deadline))
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        // Without any runtime the task is dropped, and a lock ends with its ttl (A1).
        drop(self.here().map(|handle| handle.spawn(task)));
    }

    fn fill_random(&self, bytes: &mut [u8]) -> Result<(), EntropyError> {
        os_random(bytes)
    }
}

/// A timer that counts the time of a suspend, and starts again when it is polled in another tokio
/// runtime: the first one may have shut down, or no thread may drive it.
#[pin_project]
struct Alarm {
    runtime: TokioRuntime,
    deadline: Instant,
    /// Created by the first poll.
    #[pin]
    sleep: Option<time::Sleep>,
    begun_in: Option<tokio::runtime::Id>,
}

impl Future for Alarm {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        // The caller's runtime comes before home: `now` reads the caller's clock, and a test may
        // have paused one of the two.
        let current = Handle::try_current().ok();
        let home = if current.is_none() { this.runtime.here() } else { None };
        let id = current.as_ref().or(home.as_deref()).map(Handle::id);
        if *this.begun_in != id {
            this.sleep.set(None);
            *this.begun_in = id;
        }
        // A suspend moves the clock and not tokio's timer, and tokio rounds to 1 ms. So the
        // deadline is compared again (T4).
        loop {
            if let Some(sleep) = this.sleep.as_mut().as_pin_mut() {
                ready!(sleep.poll(context));
                if this.runtime.now() >= *this.deadline {
                    return Poll::Ready(());
                }
            }
            let suspended = (this.runtime.machine.suspended)();
            let before = this.deadline.checked_sub(suspended).unwrap_or(*this.deadline);
            let _entered = home.as_ref().map(|handle| handle.enter());
            this.sleep.set(Some(time::sleep_until(before.into())));
        }
    }
}

/// A multi-threaded runtime, and a task in it that ends when the runtime shuts down. Tokio has no
/// other way to find out.
#[derive(Debug)]
struct Home {
    handle: Handle,
    sentinel: JoinHandle<()>,
}

impl Home {
    /// `None` for a current-thread runtime. It makes progress only inside `block_on`, and whether a
    /// thread is in there is unknown.
    fn new(handle: Handle) -> Option<Arc<Self>> {
        if handle.runtime_flavor() == RuntimeFlavor::CurrentThread {
            return None;
        }
        Some(Self::driven(handle))
    }

    /// The home on a runtime that a thread drives.
    fn driven(handle: Handle) -> Arc<Self> {
        let sentinel = handle.spawn(pending());
        Arc::new(Self { handle, sentinel })
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        self.sentinel.abort();
    }
}

/// Whether this thread runs a tokio task, or the future of `block_on`. Not in a thread of
/// `spawn_blocking`, nor inside `block_in_place`, though both have a runtime.
///
/// Tokio panics where a task blocks, and says nowhere else which threads those are. Only such a
/// future has a budget: here it is taken, and restored.
pub(crate) fn is_in_task() -> bool {
    /// More than the budget of any version of tokio so far.
    const MOST: usize = 1024;
    let mut context = Context::from_waker(Waker::noop());
    let mut taken = Vec::new();
    let is_spent = loop {
        match poll_proceed(&mut context) {
            Poll::Ready(unit) if taken.len() < MOST => taken.push(unit),
            Poll::Ready(_) => break false,
            Poll::Pending => break true,
        }
    };
    // Each puts the budget back to what it was: the last one first.
    while taken.pop().is_some() {}
    is_spent
}

/// The runtime of the helper thread. `None` if the thread cannot be started.
fn helper() -> Option<&'static Handle> {
    static HELPER: OnceLock<Option<Handle>> = OnceLock::new();
    let start = || {
        let runtime = Builder::new_current_thread().enable_all().build().ok()?;
        let handle = runtime.handle().clone();
        std::thread::Builder::new()
            .name("quorate-tokio".into())
            .spawn(move || runtime.block_on(pending::<()>()))
            .ok()?;
        Some(handle)
    };
    HELPER.get_or_init(start).as_ref()
}

#[cfg(test)]
mod tests {
    use tokio::task::coop::has_budget_remaining;
    use tokio::task::spawn_blocking;

    use super::*;

    #[test]
    fn a_task_is_told_from_a_thread_that_may_block() {
        assert!(!is_in_task());
        let tokio = Builder::new_current_thread().build().unwrap();
        tokio.block_on(async {
            assert!(is_in_task());
            assert!(has_budget_remaining(), "it was given back");
            assert!(!spawn_blocking(is_in_task).await.unwrap());
        });
        let _entered = tokio.enter();
        assert!(!is_in_task(), "no future runs");
    }
}
