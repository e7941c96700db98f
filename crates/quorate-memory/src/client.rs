//! A process in the world: a clock of its own, and pauses.

use std::time::{Duration, Instant};

use quorate_core::Runtime;
use quorate_core::runtime::{BoxFuture, EntropyError};

use crate::clock::Clock;
use crate::sim::Sim;

/// One of several processes that share a [`Sim`]: the [`Runtime`] of its lock manager.
///
/// Its clock may run faster or slower than the world's, and it can be paused, as by a garbage
/// collector, a debugger or a busy host. Clones are the same process.
#[derive(Clone, Debug)]
pub struct SimClient {
    sim: Sim,
    id: usize,
    clock: Clock,
}

impl SimClient {
    pub(crate) const fn new(sim: Sim, id: usize, clock: Clock) -> Self {
        Self { sim, id, clock }
    }

    /// Stops every task of this client for `time`. Its clock goes on.
    pub fn pause(&self, time: Duration) {
        self.sim.pause(self.id, time);
    }

    /// The number of this client, from 1.
    #[must_use]
    pub const fn id(&self) -> usize {
        self.id
    }

    /// When, by the world's clock, this client's clock reads `local`.
    #[must_use]
    pub fn world_time(&self, local: Instant) -> Instant {
        self.clock.when(local)
    }
}

impl Runtime for SimClient {
    fn now(&self) -> Instant {
        self.clock.read(self.sim.now())
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        self.sim.sleep(self.clock, deadline)
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.sim.spawn_in(self.id, task);
    }

    fn fill_random(&self, bytes: &mut [u8]) -> Result<(), EntropyError> {
        self.sim.fill_random(bytes)
    }

    fn unix_micros(&self) -> u64 {
        let (local, world) = (self.now(), self.sim.now());
        let micros = |ahead: Duration| u64::try_from(ahead.as_micros()).unwrap_or(u64::MAX);
        let ahead = micros(local.saturating_duration_since(world));
        let behind = micros(world.saturating_duration_since(local));
        self.sim.unix_micros().saturating_add(ahead).saturating_sub(behind)
    }
}
