//! The seam to runtimes: clock, timer, spawner and randomness, as one object.
//!
//! `TokioRuntime` and `SmolRuntime` are behind the features `tokio` and `smol`;
//! `quorate-memory` has one with virtual time. Another needs the four methods that are required below, and a run of
//! `quorate_memory::conformance::runtime`.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

#[cfg(feature = "smol")]
mod smol;
mod suspend;
#[cfg(feature = "tokio")]
mod tokio;
mod wall;

#[cfg(feature = "smol")]
pub use self::smol::SmolRuntime;
pub use self::suspend::{time_suspended, with_time_suspended};
#[cfg(feature = "tokio")]
pub use self::tokio::{InTokio, TokioContext, TokioRuntime};
pub use self::wall::unix_micros;

/// A boxed future that can move between threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The clock, the timer, the spawner and the randomness: one object, so that they agree.
///
/// # Contract
///
/// - The clock never goes back. Where it can, it goes on while the machine is suspended, as the
///   nodes' clocks do: see [`time_suspended`].
/// - A sleep ends when [`now`](Self::now) has reached the deadline, never earlier.
/// - A spawned task makes progress without being awaited. Where that is impossible (the runtime
///   has shut down) it is dropped. `spawn` is called from `Drop`: it neither blocks nor panics.
/// - Randomness comes from the operating system or is as strong; only a simulation may differ.
pub trait Runtime: fmt::Debug + Send + Sync + 'static {
    /// The present, on the clock that [`sleep_until`](Self::sleep_until) uses.
    fn now(&self) -> Instant;

    /// Resolves at `deadline` or later.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time, and wakes nobody after that.
    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()>;

    /// Runs `task` in the background.
    fn spawn(&self, task: BoxFuture<'static, ()>);

    /// Fills `bytes` with random bytes fit for secrets. [`os_random`] does it almost everywhere.
    ///
    /// # Errors
    ///
    /// There is no randomness to be had. No lock is taken then.
    fn fill_random(&self, bytes: &mut [u8]) -> Result<(), EntropyError>;

    /// Microseconds since 1970 by a wall clock: the [hint](crate::FenceHint) of fencing tokens.
    ///
    /// It decides no time and may be wrong. A simulation gives one of its own, so that its runs can
    /// be repeated; everybody else leaves it as it is, which is [`unix_micros`].
    fn unix_micros(&self) -> u64 {
        unix_micros()
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

/// The operating system gave no random bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no random bytes to be had: {reason}")]
pub struct EntropyError {
    reason: String,
}

impl EntropyError {
    /// There is no randomness because of `reason`.
    #[must_use]
    pub fn new(reason: impl fmt::Display) -> Self {
        Self { reason: reason.to_string() }
    }
}

/// Fills `bytes` from the operating system's source of randomness.
///
/// # Errors
///
/// The system has no such source, or it failed.
pub fn os_random(bytes: &mut [u8]) -> Result<(), EntropyError> {
    getrandom::fill(bytes).map_err(EntropyError::new)
}
