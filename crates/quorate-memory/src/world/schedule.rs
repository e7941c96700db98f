//! The random scheduler: draws which of the ready tasks runs next.

use std::collections::VecDeque;

use crate::rng::SplitMix64;

/// One task of this many is slow.
const SLOW: u64 = 8;

/// How often a slow task is passed over while others are ready.
const PATIENCE: u32 = 64;

pub(super) struct Scheduler {
    rng: SplitMix64,
    salt: u64,
}

impl Scheduler {
    pub(super) const fn new(seed: u64) -> Self {
        // Not the stream of the world's own draws.
        let mut rng = SplitMix64::new(!seed);
        let salt = rng.next();
        Self { rng, salt }
    }

    /// Draws a ready task. A slow task runs when no other one was drawn.
    pub(super) fn take(&mut self, ready: &mut VecDeque<u64>) -> Option<u64> {
        let mut place = 0;
        if ready.len() > 1 {
            for _ in 0..PATIENCE {
                place = self.below(ready.len());
                if !self.is_slow(ready[place]) {
                    break;
                }
            }
        }
        ready.swap_remove_back(place)
    }

    fn is_slow(&self, task: u64) -> bool {
        SplitMix64::new(task ^ self.salt).next().is_multiple_of(SLOW)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.rng.next() % bound as u64).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_task_starves_while_others_are_ready() {
        let mut scheduler = Scheduler::new(1);
        let slow = (0..).find(|task| scheduler.is_slow(*task)).unwrap();
        let quick = (0..).find(|task| !scheduler.is_slow(*task)).unwrap();
        let mut ready = VecDeque::from([slow]);
        for _ in 0..1_000 {
            ready.push_back(quick);
            assert_eq!(scheduler.take(&mut ready), Some(quick));
        }
        assert_eq!(scheduler.take(&mut ready), Some(slow));
    }
}
