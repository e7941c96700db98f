//! Smol.

use std::time::Instant;

use smol::Timer;

use super::suspend::with_time_suspended;
use super::{BoxFuture, EntropyError, Runtime, os_random};

/// Runs locks on smol's global executor and timers.
///
/// The clock is `std`'s, plus the time that the machine was suspended.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct SmolRuntime;

impl SmolRuntime {
    /// Smol needs no handle: its executor is global.
    #[must_use]
    pub const fn new() -> Self {
        Self
    }
}

impl Runtime for SmolRuntime {
    fn now(&self) -> Instant {
        with_time_suspended(Instant::now())
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        let clock = *self;
        Box::pin(async move {
            // More than once only after a suspend.
            loop {
                let now = clock.now();
                if now >= deadline {
                    return;
                }
                Timer::after(deadline - now).await;
            }
        })
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        smol::spawn(task).detach();
    }

    fn fill_random(&self, bytes: &mut [u8]) -> Result<(), EntropyError> {
        os_random(bytes)
    }
}
