//! Draws from the world's randomness.

use std::time::Duration;

use quorate_memory::Sim;

/// A source of draws. All of them come from the seed of the world.
#[derive(Clone, Debug)]
pub(crate) struct Dice(Sim);

impl Dice {
    pub(crate) const fn new(sim: Sim) -> Self {
        Self(sim)
    }

    pub(crate) fn below(&self, bound: usize) -> usize {
        usize::try_from(self.0.random_below(bound as u64)).unwrap_or(0)
    }

    /// True so many times of a hundred.
    pub(crate) fn percent(&self, chance: usize) -> bool {
        self.below(100) < chance
    }

    pub(crate) fn time(&self, least: Duration, most: Duration) -> Duration {
        let span = u64::try_from(most.saturating_sub(least).as_nanos()).unwrap_or(u64::MAX - 1);
        least + Duration::from_nanos(self.0.random_below(span + 1))
    }

    /// A time up to `most`, short ones as likely as long ones.
    pub(crate) fn scaled_time(&self, most: Duration) -> Duration {
        let shift = self.below(12);
        self.time(Duration::ZERO, most / (1 << shift))
    }

    pub(crate) fn signed(&self, most: i32) -> i32 {
        let span = u64::from(most.unsigned_abs()) * 2 + 1;
        i32::try_from(self.0.random_below(span)).unwrap_or(0) - most
    }

    pub(crate) fn pick<'a, T>(&self, things: &'a [T]) -> &'a T {
        &things[self.below(things.len())]
    }
}
