//! The seam to an async runtime: clock, timer, spawner and randomness, as one object.
//!
//! `TokioRuntime` and `SmolRuntime` are behind the features `tokio` and `smol`. `quorate-memory`
//! has a runtime with virtual time. To support another runtime, implement the four required methods
//! of [`Runtime`] and test them with `quorate_memory::conformance::runtime`.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use futures_util::FutureExt as _;
use futures_util::future::{Either, select};

#[cfg(feature = "smol")]
mod smol;
mod suspend;
pub(crate) mod sync;
#[cfg(feature = "tokio")]
mod tokio;
mod wall;

#[cfg(feature = "smol")]
pub use self::smol::SmolRuntime;
pub use self::suspend::time_suspended;
pub(crate) use self::sync::lock;
#[cfg(feature = "tokio")]
pub use self::tokio::TokioRuntime;
#[cfg(feature = "tokio")]
pub(crate) use self::tokio::is_in_task;
pub use self::wall::unix_micros;
pub use crate::resource::token::EntropyError;

/// A boxed future that can move between threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Clock, timer, spawner and randomness. One object, so that clock and timer agree.
///
/// # Contract
///
/// - *Monotonic.* The clock never goes back. If possible, it advances while the machine is
///   suspended, as the nodes' clocks do: see [`time_suspended`] (T4).
/// - *Not early.* A sleep ends when [`now`](Self::now) has reached the deadline, never before.
/// - *Independent tasks.* A spawned task makes progress without being awaited. If that is
///   impossible, because the runtime has shut down, `spawn` drops the task. `spawn` is called from
///   `Drop`, so it neither blocks nor panics (A1).
/// - *Strong randomness.* It comes from the operating system or is as strong. Only a simulation may
///   use a weaker source.
pub trait Runtime: fmt::Debug + Send + Sync + 'static {
    /// The current time, on the clock that [`sleep_until`](Self::sleep_until) uses.
    fn now(&self) -> Instant;

    /// Waits until `deadline`.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time. It wakes no task after that.
    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()>;

    /// Waits until `deadline`, and no more than half a second longer after a suspend.
    ///
    /// For sleeps of seconds: it may cost more to begin one than a
    /// [`sleep_until`](Self::sleep_until). That is the default, and right if its timers go on
    /// during a suspend as the clock does.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time. It wakes no task after that.
    fn long_sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        self.sleep_until(deadline)
    }

    /// Runs `task` in the background.
    fn spawn(&self, task: BoxFuture<'static, ()>);

    /// Fills `bytes` with random bytes that are strong enough for secrets. Most implementations
    /// call [`os_random`].
    ///
    /// # Errors
    ///
    /// The source of randomness failed. Then no lock is acquired.
    fn fill_random(&self, bytes: &mut [u8]) -> Result<(), EntropyError>;

    /// Microseconds since 1970 by the wall clock: the [fencing hint](crate::backend::FenceHint),
    /// and the name of a period.
    ///
    /// No deadline depends on it, and it may be wrong. The default is [`unix_micros`]. Only a
    /// simulation overrides it, so that its runs can be repeated.
    fn unix_micros(&self) -> u64 {
        unix_micros()
    }
}

/// The output of `future`; `None` if `end` is ready first.
pub(crate) fn unless<T>(
    future: impl Future<Output = T> + Unpin,
    end: impl Future + Unpin,
) -> impl Future<Output = Option<T>> {
    select(future, end).map(|first| match first {
        Either::Left((output, _)) => Some(output),
        Either::Right(_) => None,
    })
}

impl dyn Runtime {
    /// Polls a timer that is kept between polls, and moved when the time is another.
    pub(crate) fn sleep(
        &self,
        timer: &mut Option<(Instant, BoxFuture<'static, ()>)>,
        until: Instant,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        if timer.as_ref().is_none_or(|(at, _)| *at != until) {
            *timer = Some((until, self.sleep_until(until)));
        }
        let Some((_, sleep)) = timer else { return Poll::Ready(()) };
        let polled = sleep.as_mut().poll(context);
        if polled.is_ready() {
            *timer = None;
        }
        polled
    }
}

#[deny(clippy::missing_trait_methods)]
impl<R: Runtime + ?Sized> Runtime for Arc<R> {
    fn now(&self) -> Instant {
        (**self).now()
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        (**self).sleep_until(deadline)
    }

    fn long_sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        (**self).long_sleep_until(deadline)
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        (**self).spawn(task);
    }

    fn fill_random(&self, bytes: &mut [u8]) -> Result<(), EntropyError> {
        (**self).fill_random(bytes)
    }

    fn unix_micros(&self) -> u64 {
        (**self).unix_micros()
    }
}

/// Fills `bytes` with random bytes from the operating system.
///
/// # Errors
///
/// The system has no such source, or it failed.
pub fn os_random(bytes: &mut [u8]) -> Result<(), EntropyError> {
    getrandom::fill(bytes).map_err(EntropyError::new)
}
