//! How long to wait between two rounds: a pure function of the attempt and of random bits.

use std::fmt;
use std::time::Duration;

use super::round::Loss;

/// What a strategy may look at.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RetryContext {
    /// How many rounds were lost so far: 1 after the first.
    pub rounds: u32,
    /// Why the last one was lost.
    pub loss: Loss,
    /// 64 random bits, fresh for every call.
    pub random: u64,
}

impl RetryContext {
    /// The moment after `rounds` lost rounds.
    #[must_use]
    pub const fn new(rounds: u32, loss: Loss, random: u64) -> Self {
        Self { rounds, loss, random }
    }
}

/// Decides how long to wait before the next round.
///
/// Contenders that wait equally long split the votes again and again, so a strategy should use
/// the random bits it is given. The deadline of the request holds whatever it says.
pub trait RetryStrategy: fmt::Debug + Send + Sync + 'static {
    /// The wait before the next round, or `None` to give up.
    fn delay(&self, context: &RetryContext) -> Option<Duration>;
}

/// Capped exponential backoff with full jitter.
///
/// The wait is drawn evenly from zero to `base` × 2ⁿ, and never over `cap`. Full jitter spreads
/// contenders best for the load it costs (AWS Architecture Blog, "Exponential Backoff And Jitter").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    base: Duration,
    cap: Duration,
    limit: Option<u32>,
}

impl Backoff {
    /// Waits of up to `base`, then twice that, and so on up to `cap`.
    #[must_use]
    pub const fn new(base: Duration, cap: Duration) -> Self {
        Self { base, cap, limit: None }
    }

    /// Gives up after `rounds` lost rounds, even if there is time left.
    #[must_use]
    pub const fn limit(mut self, rounds: u32) -> Self {
        self.limit = Some(rounds);
        self
    }

    /// The longest wait after `rounds` lost rounds.
    #[must_use]
    pub fn ceiling(&self, rounds: u32) -> Duration {
        let doublings = rounds.saturating_sub(1).min(31);
        self.base.saturating_mul(1 << doublings).min(self.cap)
    }
}

impl Default for Backoff {
    /// Up to 10 ms at first, up to 250 ms in the end.
    fn default() -> Self {
        Self::new(Duration::from_millis(10), Duration::from_millis(250))
    }
}

impl RetryStrategy for Backoff {
    fn delay(&self, context: &RetryContext) -> Option<Duration> {
        if self.limit.is_some_and(|limit| context.rounds >= limit) {
            return None;
        }
        Some(scale(self.ceiling(context.rounds), context.random))
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

    fn delay(backoff: Backoff, rounds: u32, random: u64) -> Option<Duration> {
        backoff.delay(&RetryContext::new(rounds, Loss::Refused, random))
    }

    #[test]
    fn the_ceiling_doubles_up_to_the_cap() {
        let backoff = Backoff::new(10 * MS, 250 * MS);
        let ceilings: Vec<_> = (1..=7).map(|n| backoff.ceiling(n).as_millis()).collect();
        assert_eq!(ceilings, [10, 20, 40, 80, 160, 250, 250]);
        assert_eq!(backoff.ceiling(u32::MAX), 250 * MS);
    }

    #[test]
    fn jitter_is_full() {
        let backoff = Backoff::new(100 * MS, 100 * MS);
        assert_eq!(delay(backoff, 1, 0), Some(Duration::ZERO));
        assert_eq!(delay(backoff, 1, 1 << 63), Some(50 * MS));
        assert!(delay(backoff, 1, u64::MAX).unwrap() < 100 * MS);
    }

    #[test]
    fn a_limit_ends_it() {
        let backoff = Backoff::default().limit(3);
        assert!(delay(backoff, 2, 0).is_some());
        assert_eq!(delay(backoff, 3, 0), None);
    }

    #[test]
    fn t3_nothing_overflows_and_zero_is_allowed() {
        let wild = Backoff::new(Duration::MAX, Duration::MAX);
        assert!(delay(wild, u32::MAX, u64::MAX).is_some());
        let eager = Backoff::new(Duration::ZERO, Duration::ZERO);
        assert_eq!(delay(eager, 5, u64::MAX), Some(Duration::ZERO));
    }
}
