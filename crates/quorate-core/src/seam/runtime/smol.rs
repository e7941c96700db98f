//! The seam to smol.

use std::time::Instant;

use smol::Timer;

use super::suspend::{MACHINE, sleep_in_steps};
use super::{BoxFuture, EntropyError, Runtime, os_random};

/// A [`Runtime`] on smol's global executor and timers.
///
/// The clock is that of `std`, plus the time for which the machine was suspended.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct SmolRuntime;

impl SmolRuntime {
    /// Creates the runtime. It needs no handle, since smol's executor is global.
    #[must_use]
    pub const fn new() -> Self {
        Self
    }
}

impl Runtime for SmolRuntime {
    fn now(&self) -> Instant {
        Instant::now() + (MACHINE.suspended)()
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        let clock = *self;
        Box::pin(async move {
            // A suspend moves the clock and not the timer, so the deadline is compared again (T4).
            loop {
                let now = clock.now();
                if now >= deadline {
                    return;
                }
                Timer::after(deadline - now).await;
            }
        })
    }

    fn long_sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        Box::pin(sleep_in_steps(*self, MACHINE, deadline))
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        smol::spawn(task).detach();
    }

    fn fill_random(&self, bytes: &mut [u8]) -> Result<(), EntropyError> {
        os_random(bytes)
    }
}
