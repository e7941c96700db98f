//! Random choices out of one seed: of a test on real nodes, of threads, or of a simulated world.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A source of draws. Its clones draw from the same source.
#[derive(Clone)]
pub struct Dice(Arc<dyn Fn(u64) -> u64 + Send + Sync>);

impl fmt::Debug for Dice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dice")
    }
}

impl Dice {
    /// The choices of this seed, by `SplitMix64`.
    pub fn new(seed: u64) -> Self {
        let state = AtomicU64::new(seed);
        Self::on(move |end| {
            let step = 0x9e37_79b9_7f4a_7c15;
            let mut z = state.fetch_add(step, Ordering::Relaxed).wrapping_add(step);
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (z ^ (z >> 31)) % end
        })
    }

    /// The choices of another source: numbers below a bound.
    pub fn on(source: impl Fn(u64) -> u64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(source))
    }

    /// A number below `end`, which is not zero.
    pub fn below(&self, end: usize) -> usize {
        usize::try_from((self.0)(end as u64)).unwrap_or(0)
    }

    /// True so many times of a hundred.
    pub fn percent(&self, chance: usize) -> bool {
        self.below(100) < chance
    }

    /// One of these.
    pub fn pick<'a, T>(&self, things: &'a [T]) -> &'a T {
        &things[self.below(things.len())]
    }

    /// A time from `least` to `most`, both included.
    pub fn time(&self, least: Duration, most: Duration) -> Duration {
        let span = u64::try_from(most.saturating_sub(least).as_nanos()).unwrap_or(u64::MAX - 1);
        least + Duration::from_nanos((self.0)(span + 1))
    }

    /// A time up to `most`, short ones as likely as long ones.
    pub fn scaled_time(&self, most: Duration) -> Duration {
        let shift = self.below(12);
        self.time(Duration::ZERO, most / (1 << shift))
    }

    /// So many hundredths of `time`, from `least` to `most`.
    pub fn part(&self, time: Duration, least: usize, most: usize) -> Duration {
        let percent = least + self.below(most - least + 1);
        time.mul_f64(percent as f64 / 100.0)
    }

    /// A number from `-most` to `most`.
    pub fn signed(&self, most: i32) -> i32 {
        let span = u64::from(most.unsigned_abs()) * 2 + 1;
        i32::try_from((self.0)(span)).unwrap_or(0) - most
    }
}
