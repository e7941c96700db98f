//! A process in the world: a clock of its own, and pauses.

use std::time::{Duration, Instant};

use quorate_core::Runtime;
use quorate_core::runtime::{BoxFuture, EntropyError};

use crate::clock::Clock;
use crate::sim::{Sim, after};

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

    /// Kills the process, as `kill -9` does: none of its tasks ever runs again, and nothing is released.
    ///
    /// Requests that have left are still executed. A process that starts again is a new client, with a
    /// manager of its own.
    pub fn kill(&self) {
        self.sim.kill(self.id);
    }

    /// Ends when `time` has passed since this call, on this client's clock.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time, and wakes nobody after that.
    #[must_use = "time passes only if it is awaited"]
    pub fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        self.sleep_until(after(self.now(), time))
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
        self.sim.sleep_of(self.clock, deadline)
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

#[cfg(test)]
mod tests {
    use quorate_core::LockManager;

    use super::*;
    use crate::MemoryNode;

    #[test]
    fn a_sleep_lasts_by_the_clock_of_the_one_who_sleeps() {
        const SECOND: Duration = Duration::from_secs(1);
        let sim = Sim::new(1);
        sim.block_on(sim.sleep(SECOND));
        assert_eq!(sim.elapsed(), SECOND);
        // It gains a second in each.
        let fast = sim.client(1_000_000);
        sim.block_on(fast.sleep(SECOND));
        assert_eq!(sim.elapsed(), SECOND * 3 / 2);
        // From the call on, not from the first look.
        let early = sim.sleep(SECOND);
        sim.advance(SECOND);
        sim.block_on(early);
        assert_eq!(sim.elapsed(), SECOND * 5 / 2);
    }

    #[test]
    fn a_sleep_beyond_all_clocks_is_long_and_one_that_is_given_up_draws_no_clock() {
        let sim = Sim::new(1);
        for sleep in [sim.sleep(Duration::MAX), sim.client(-100).sleep(Duration::MAX)] {
            assert!(sim.block_on_for(sleep, 1).is_none());
        }
        sim.settle();
        assert_eq!(sim.elapsed(), Duration::ZERO);
    }

    #[test]
    fn a_killed_process_does_nothing_more_and_releases_nothing() {
        const SECOND: Duration = Duration::from_secs(1);
        let sim = Sim::new(1);
        let nodes = MemoryNode::cluster(3, sim.clone());
        let client = sim.client(0);
        let manager = LockManager::builder(client.clone(), nodes.clone()).build().unwrap();
        let world = sim.clone();
        client.spawn(Box::pin(async move {
            let guard = manager.lock("r").await.unwrap();
            world.sleep(SECOND).await;
            drop(guard.release().await);
        }));
        sim.advance(SECOND / 2);
        client.kill();
        sim.advance(SECOND * 2);
        assert!(nodes.iter().all(|node| node.get("r").is_some()), "it released");
        sim.advance(SECOND * 10);
        assert!(nodes.iter().all(|node| node.get("r").is_none()), "the ttl is over");
        sim.end();
    }
}
