//! Random choices out of one seed.

use std::time::Duration;

/// `SplitMix64`.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The choices of this seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `end`, which is not zero.
    pub const fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    /// So many hundredths of `time`, from `least` to `most`.
    pub fn part(&mut self, time: Duration, least: u64, most: u64) -> Duration {
        let percent = least + self.below(most - least + 1);
        time.mul_f64(percent as f64 / 100.0)
    }
}
