//! Tokio, and tokio for those who run on something else.

use std::future::Future;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll};
use std::time::Instant;

use pin_project::pin_project;
use tokio::runtime::{Builder, Handle};
use tokio::time;

use super::{BoxFuture, EntropyError, Runtime, os_random, time_suspended};

/// Runs locks on tokio.
///
/// Work goes to the runtime that the caller is in, else to the one that this value was made in, so
/// a guard that is dropped on another thread is still released. If there is neither, one shared
/// background thread does it. The clock is tokio's, which can be paused in tests, plus the time
/// that the machine was suspended.
#[derive(Clone, Debug)]
pub struct TokioRuntime {
    home: TokioContext,
}

impl TokioRuntime {
    /// Remembers the runtime it is made in, if there is one.
    #[must_use]
    pub fn new() -> Self {
        Self {
            home: TokioContext::current(),
        }
    }

    /// Belongs to the runtime of `handle`.
    #[must_use]
    pub const fn of(handle: Handle) -> Self {
        Self {
            home: TokioContext::of(handle),
        }
    }
}

impl Default for TokioRuntime {
    fn default() -> Self {
        Self::new()
    }
}

impl Runtime for TokioRuntime {
    fn now(&self) -> Instant {
        time::Instant::now().into_std() + time_suspended()
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        let clock = self.clone();
        Box::pin(self.home.enter(async move {
            // More than once only after a suspend, or where tokio rounds.
            loop {
                let now = clock.now();
                if now >= deadline {
                    return;
                }
                time::sleep(deadline - now).await;
            }
        }))
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        let current = Handle::try_current().ok();
        // Without any of them the task is dropped, and the ttl is the backstop.
        if let Some(handle) = current
            .as_ref()
            .or(self.home.handle.as_ref())
            .or_else(|| helper())
        {
            drop(handle.spawn(task));
        }
    }

    fn fill_random(&self, bytes: &mut [u8]) -> Result<(), EntropyError> {
        os_random(bytes)
    }
}

/// A tokio runtime to lend to futures that are polled anywhere.
///
/// Clients that are built on tokio panic on a thread without it. A backend wraps their futures in
/// [`enter`](Self::enter) and then runs on smol, on a hand-written executor, on any thread.
#[derive(Clone, Debug)]
pub struct TokioContext {
    handle: Option<Handle>,
}

impl TokioContext {
    /// The runtime that the caller is in. If there is none, futures use the one they are polled
    /// in, and else one shared background thread that is started for the purpose.
    #[must_use]
    pub fn current() -> Self {
        Self {
            handle: Handle::try_current().ok(),
        }
    }

    /// The runtime of `handle`.
    #[must_use]
    pub const fn of(handle: Handle) -> Self {
        Self {
            handle: Some(handle),
        }
    }

    /// Makes `future` find tokio wherever it is polled.
    pub fn enter<F: Future>(&self, future: F) -> InTokio<F> {
        InTokio {
            home: self.handle.clone(),
            future,
        }
    }
}

/// A future that finds tokio wherever it is polled. See [`TokioContext::enter`].
#[pin_project]
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct InTokio<F> {
    home: Option<Handle>,
    #[pin]
    future: F,
}

impl<F: Future> Future for InTokio<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        if Handle::try_current().is_ok() {
            return this.future.poll(context);
        }
        let _entered = this.home.as_ref().or_else(|| helper()).map(Handle::enter);
        this.future.poll(context)
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
            .spawn(move || runtime.block_on(std::future::pending::<()>()))
            .ok()?;
        Some(handle)
    };
    HELPER.get_or_init(start).as_ref()
}
