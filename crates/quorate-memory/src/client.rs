//! A process in a simulated world: a clock of its own, and pauses.

use std::sync::Arc;
use std::time::{Duration, Instant};

use quorate_core::Runtime;
use quorate_core::runtime::{BoxFuture, EntropyError};

use crate::clock::Clock;
use crate::world::{World, after};

/// One of several processes that share a [`Sim`](crate::Sim): the [`Runtime`] of its lock manager.
///
/// Its clock may run faster or slower than the world's, and it can be paused, as by a garbage
/// collector, a debugger or a busy host. Clones are the same process.
#[derive(Clone, Debug)]
pub struct SimClient {
    world: Arc<World>,
    id: usize,
    clock: Clock,
}

impl SimClient {
    /// A new process, whose clock gains `parts_per_million` on the world's.
    pub(crate) fn new(world: Arc<World>, parts_per_million: i32) -> Self {
        let (id, clock) = (world.add_client(), Clock::new(world.origin, parts_per_million));
        Self { world, id, clock }
    }

    /// Stops every task of this client for `time`, and the handling of replies from nodes that it
    /// [uses](crate::MemoryNode::seen_by). Its clock goes on.
    pub fn pause(&self, time: Duration) {
        self.world.pause(self.id, time);
    }

    /// Kills the process, as `kill -9` does: none of its tasks ever runs again.
    ///
    /// Requests that have left are still executed. A process that starts again is a new client,
    /// with a manager of its own.
    pub fn kill(&self) {
        self.world.kill(self.id);
    }

    /// Waits until `time` has passed since this call, on this client's clock.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time.
    #[must_use = "time passes only if it is awaited"]
    pub fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        self.sleep_until(after(self.now(), time))
    }

    /// The number of this client, from 1.
    #[must_use]
    pub const fn id(&self) -> usize {
        self.id
    }

    /// Whether the client is paused or killed.
    pub(crate) fn is_stopped(&self) -> bool {
        self.world.is_stopped(self.id)
    }

    /// The time of the world at which this client's clock reads `local`.
    #[must_use]
    pub fn world_time(&self, local: Instant) -> Instant {
        self.clock.when(local)
    }
}

impl Runtime for SimClient {
    fn now(&self) -> Instant {
        self.clock.read(self.world.now())
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        self.world.sleep(self.clock, deadline)
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.world.spawn(self.id, task);
    }

    fn fill_random(&self, bytes: &mut [u8]) -> Result<(), EntropyError> {
        self.world.fill_random(bytes);
        Ok(())
    }

    fn unix_micros(&self) -> u64 {
        self.world.unix_micros(self.now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sim;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_sleep_lasts_by_the_clock_of_its_client() {
        let sim = Sim::new(1);
        sim.block_on(sim.sleep(SECOND));
        assert_eq!(sim.elapsed(), SECOND);
        // It gains a second in each.
        let fast = sim.client(1_000_000);
        sim.block_on(fast.sleep(SECOND));
        assert_eq!(sim.elapsed(), SECOND * 3 / 2);
        // From the call on, not from the first poll.
        let early = sim.sleep(SECOND);
        sim.advance(SECOND);
        sim.block_on(early);
        assert_eq!(sim.elapsed(), SECOND * 5 / 2);
    }

    #[test]
    fn the_timer_of_a_dropped_sleep_does_not_move_the_clock() {
        let sim = Sim::new(1);
        for sleep in [sim.sleep(Duration::MAX), sim.client(-100).sleep(Duration::MAX)] {
            assert!(sim.block_on_for(sleep, 1).is_none());
        }
        sim.settle();
        assert_eq!(sim.elapsed(), Duration::ZERO);
    }
}
