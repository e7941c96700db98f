//! Tokio, and tokio for those who run on something else.

use std::borrow::Cow;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use pin_project::{pin_project, pinned_drop};
use tokio::runtime::{Builder, Handle, RuntimeFlavor};
use tokio::task::JoinHandle;
use tokio::time;

use super::suspend::{last_known, with_time_suspended};
use super::{BoxFuture, EntropyError, Runtime, os_random};

/// Runs locks on tokio.
///
/// Background work goes to the runtime that this value was made in, if that has threads of its own
/// and still runs; else to the one that the caller is in; else to one thread that is started for
/// all. So a guard that is dropped anywhere is still released, unless the runtime ends at that moment,
/// as it does behind the last line of `main`: [`close`](crate::LockManager::close) the manager there.
/// The clock is tokio's, which can be paused in tests, plus the time that the machine was suspended.
///
/// A runtime that you build yourself needs its timers, and the clients its I/O: `enable_all`.
#[derive(Clone, Debug)]
pub struct TokioRuntime {
    home: TokioContext,
}

impl TokioRuntime {
    /// Remembers the runtime it is made in, if there is one.
    #[must_use]
    pub fn new() -> Self {
        Self { home: TokioContext::current() }
    }

    /// Belongs to the runtime of `handle`.
    #[must_use]
    pub fn of(handle: Handle) -> Self {
        Self { home: TokioContext::of(handle) }
    }
}

impl Default for TokioRuntime {
    fn default() -> Self {
        Self::new()
    }
}

impl Runtime for TokioRuntime {
    fn now(&self) -> Instant {
        now()
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        Box::pin(Alarm { home: self.home.clone(), deadline, sleep: None, begun_in: None })
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        if planted!("drop_needs_a_runtime") {
            return drop(tokio::spawn(task));
        }
        // Without any runtime the task is dropped, and the ttl is the backstop.
        drop(self.home.here().map(|handle| handle.spawn(task)));
    }

    fn fill_random(&self, bytes: &mut [u8]) -> Result<(), EntropyError> {
        os_random(bytes)
    }
}

fn now() -> Instant {
    with_time_suspended(time::Instant::now().into_std())
}

/// A timer that goes on while the machine is suspended, and in another runtime than it was begun in:
/// that one may have ended, or nobody drive it.
#[pin_project]
struct Alarm {
    home: TokioContext,
    deadline: Instant,
    /// Begun by the first poll.
    #[pin]
    sleep: Option<time::Sleep>,
    begun_in: Option<tokio::runtime::Id>,
}

impl Future for Alarm {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        let near = this.home.near();
        let id = near.as_ref().map(|handle| handle.id());
        if *this.begun_in != id {
            this.sleep.set(None);
            *this.begun_in = id;
        }
        // More than once only after a suspend, or where tokio rounds.
        loop {
            if let Some(sleep) = this.sleep.as_mut().as_pin_mut() {
                ready!(sleep.poll(context));
                if now() >= *this.deadline {
                    return Poll::Ready(());
                }
            }
            let before = this.deadline.checked_sub(last_known()).unwrap_or(*this.deadline);
            let _entered = near.as_ref().map(|handle| handle.enter());
            this.sleep.set(Some(time::sleep_until(before.into())));
        }
    }
}

/// A tokio runtime to lend to futures that are polled anywhere.
///
/// Clients that are built on tokio panic on a thread without it. A backend wraps their futures in
/// [`enter`](Self::enter) and then runs on smol, on a hand-written executor, on any thread.
#[derive(Clone, Debug)]
pub struct TokioContext {
    home: Option<Arc<Home>>,
}

impl TokioContext {
    /// Lends the runtime that the caller is in to futures that are polled anywhere, if it has threads
    /// of its own and as long as it runs. Else they find the one that they are polled in, or, outside
    /// of tokio, one thread that is started for all.
    ///
    /// What a future begins in a current-thread runtime, a connection above all, goes on only while
    /// that runtime is driven, and stands still for everybody else, too, while it is not. Where
    /// several of them share it, lend a multi-threaded one by [`of`](Self::of).
    #[must_use]
    pub fn current() -> Self {
        Self { home: Handle::try_current().ok().and_then(Home::new) }
    }

    /// Lends the runtime of `handle` in the same way.
    #[must_use]
    pub fn of(handle: Handle) -> Self {
        Self { home: Home::new(handle) }
    }

    /// Makes `future` find tokio wherever it is polled, and wherever it is dropped.
    ///
    /// # Cancel safety
    ///
    /// As `future`'s: dropping this drops it.
    pub fn enter<F: Future>(&self, future: F) -> InTokio<F> {
        InTokio { context: self.clone(), future: Some(future) }
    }

    /// The home, while it runs.
    fn home(&self) -> Option<&Handle> {
        let home = self.home.as_deref().filter(|home| !home.sentinel.is_finished());
        home.map(|home| &home.handle)
    }

    /// The runtime that a future finds when it is polled here: home before the one that the caller is
    /// in, which may stand still as soon as the caller has left it.
    fn here(&self) -> Option<Cow<'_, Handle>> {
        let home = self.home().map(Cow::Borrowed);
        let current = || Handle::try_current().ok().map(Cow::Owned);
        home.or_else(current).or_else(|| helper().map(Cow::Borrowed))
    }

    /// The same for timers: the caller's before home. It is the caller's clock that is read, and one of
    /// the two may be paused.
    fn near(&self) -> Option<Cow<'_, Handle>> {
        Handle::try_current().map_or_else(|_| self.here(), |current| Some(Cow::Owned(current)))
    }

    fn enter_here<T>(&self, what: impl FnOnce() -> T) -> T {
        let here = self.here();
        let _entered = here.as_ref().map(|handle| handle.enter());
        what()
    }
}

/// A runtime that works by itself, and a task in it that ends when the runtime does: tokio does
/// not tell otherwise.
#[derive(Debug)]
struct Home {
    handle: Handle,
    sentinel: JoinHandle<()>,
}

impl Home {
    /// `None` for a current-thread runtime: it works only while somebody is in its `block_on`, and
    /// nobody can tell from outside.
    fn new(handle: Handle) -> Option<Arc<Self>> {
        if handle.runtime_flavor() == RuntimeFlavor::CurrentThread {
            return None;
        }
        let sentinel = handle.spawn(pending());
        Some(Arc::new(Self { handle, sentinel }))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        self.sentinel.abort();
    }
}

/// A future that finds tokio wherever it is polled. See [`TokioContext::enter`].
///
/// # Cancel safety
///
/// As that of the future inside: dropping this drops it, with tokio at hand.
#[pin_project(PinnedDrop)]
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct InTokio<F> {
    context: TokioContext,
    /// `None` while it is dropped.
    #[pin]
    future: Option<F>,
}

impl<F: Future> Future for InTokio<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        this.context.enter_here(|| match this.future.as_pin_mut() {
            Some(future) => future.poll(context),
            None => Poll::Pending,
        })
    }
}

#[pinned_drop]
impl<F> PinnedDrop for InTokio<F> {
    fn drop(self: Pin<&mut Self>) {
        let mut this = self.project();
        this.context.enter_here(|| this.future.set(None));
    }
}

/// One thread for all who have no runtime of their own; `None` if it cannot be started.
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
