//! How long to wait between two rounds where no node says when the lock is free.

use std::time::Duration;

/// Capped exponential backoff with full jitter.
///
/// The wait after `n` lost rounds is drawn evenly from zero to `base` × 2ⁿ⁻¹, and is never
/// over `most`. Full jitter spreads contenders best for the load that it costs (AWS Architecture
/// Blog, "Exponential Backoff And Jitter").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Backoff {
    pub(crate) base: Duration,
    pub(crate) most: Duration,
}

impl Backoff {
    /// The wait after `rounds` lost rounds, by 64 random bits.
    pub(crate) fn delay(&self, rounds: u32, random: u64) -> Duration {
        let doublings = rounds.saturating_sub(1).min(31);
        scale(self.base.saturating_mul(1 << doublings).min(self.most), random)
    }
}

/// `random` / 2⁶⁴ of `whole`.
pub(crate) fn scale(whole: Duration, random: u64) -> Duration {
    let nanos = u64::try_from(whole.as_nanos()).unwrap_or(u64::MAX);
    let part = (u128::from(nanos) * u128::from(random)) >> 64;
    Duration::from_nanos(u64::try_from(part).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_longest_wait_doubles_up_to_the_limit() {
        let backoff = Backoff { base: 10 * MS, most: 250 * MS };
        let longest = |rounds| backoff.delay(rounds, u64::MAX).as_micros().div_ceil(1000);
        assert_eq!(
            [1, 2, 3, 4, 5, 6, 7, u32::MAX].map(longest),
            [10, 20, 40, 80, 160, 250, 250, 250]
        );
        assert_eq!(backoff.delay(3, 0), Duration::ZERO);
    }

    #[test]
    fn t3_nothing_overflows() {
        let wild = Backoff { base: Duration::MAX, most: Duration::MAX };
        assert!(wild.delay(u32::MAX, u64::MAX) > Duration::from_secs(1));
    }
}
