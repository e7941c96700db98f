//! When to renew a lease: a pure function of its end and of random bits.

use std::time::{Duration, Instant};

use super::backoff::scale;
use super::lease::saturating_add;

/// The times at which a lease is renewed.
///
/// Each moment is drawn at random, so that leases acquired together do not renew together (H7). A
/// renewal that failed is tried again, ever sooner as the end comes nearer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewal {
    validity: Duration,
    interval: Duration,
}

impl Renewal {
    /// For leases of `validity` that are renewed after `interval` at the latest.
    pub const fn new(validity: Duration, interval: Duration) -> Self {
        Self { validity, interval }
    }

    /// When to renew a lease: after seven tenths of the interval, up to all of it, since the start
    /// of the round that made it valid until `valid_until`. An interval of a second or more is cut
    /// to whole steps of ten milliseconds since `origin`: the leases of a process that are renewed
    /// in one step share pipelines.
    pub fn next(&self, valid_until: Instant, random: u64, origin: Instant) -> Instant {
        let after = self.interval / 10 * 7 + scale(self.interval / 10 * 3, random);
        let at = valid_until.checked_sub(self.validity.saturating_sub(after));
        let at = at.unwrap_or(valid_until);
        if self.interval < 100 * STEP {
            return at;
        }
        let beyond = at.saturating_duration_since(origin).subsec_nanos() % STEP.subsec_nanos();
        at.checked_sub(Duration::from_nanos(beyond.into())).unwrap_or(at)
    }

    /// When to try again after a renewal that failed: within a quarter of the time left, or of the
    /// interval where that is less.
    pub fn retry(&self, now: Instant, valid_until: Instant, random: u64) -> Instant {
        let left = valid_until.saturating_duration_since(now);
        let most = (left / 4).min(self.interval / 4).max(LEAST_PAUSE);
        saturating_add(now, most / 2 + scale(most / 2, random))
    }
}

/// A part of a second, and small beside the interval of a lease that is renewed in steps.
const STEP: Duration = Duration::from_millis(10);

/// So that the last tries are not made without a pause.
const LEAST_PAUSE: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn renewal() -> Renewal {
        Renewal::new(9 * SECOND, 3 * SECOND)
    }

    #[test]
    fn h7_the_next_renewal_is_drawn_from_the_last_three_tenths() {
        let start = Instant::now();
        let valid_until = start + 9 * SECOND;
        let earliest = renewal().next(valid_until, 0, start);
        let latest = renewal().next(valid_until, u64::MAX, start);
        assert_eq!(earliest - start, 2_100 * SECOND / 1000);
        assert!(latest <= start + 3 * SECOND && latest > start + 2989 * SECOND / 1000);
    }

    #[test]
    fn leases_are_renewed_in_steps_that_begin_no_later_than_was_drawn() {
        let start = Instant::now();
        let beyond_step = |renewal: Renewal, random| {
            let after = renewal.next(start + 9 * SECOND, random, start) - start;
            after.as_nanos() % STEP.as_nanos()
        };
        let short = Renewal::new(9 * SECOND, 99 * STEP);
        for random in [1 << 61, 1 << 62, 1 << 63, u64::MAX] {
            assert_eq!(beyond_step(renewal(), random), 0);
            assert_ne!(beyond_step(short, random), 0, "a short interval has no steps");
        }
    }

    #[test]
    fn a_lease_that_was_extended_for_longer_is_renewed_later() {
        let start = Instant::now();
        let next = renewal().next(start + 60 * SECOND, u64::MAX, start);
        assert!(next > start + 53 * SECOND, "not before it can gain anything");
    }

    /// However long the lease was extended for, and whatever is drawn.
    #[test]
    fn h7_a_failed_renewal_is_tried_again_within_a_quarter_of_the_interval_at_no_fixed_moment() {
        let start = Instant::now();
        for left in [6, 60, 600] {
            let retry = |random| renewal().retry(start, start + left * SECOND, random) - start;
            assert!(retry(u64::MAX) <= 3 * SECOND / 4, "{left} s: {:?}", retry(u64::MAX));
            assert!(retry(0) < retry(u64::MAX / 2) && retry(u64::MAX / 2) < retry(u64::MAX));
        }
    }

    #[test]
    fn t3_nothing_overflows() {
        let wild = Renewal::new(Duration::MAX, Duration::MAX / 8);
        let now = Instant::now();
        let _ = wild.next(now, u64::MAX, now);
        let _ = wild.retry(now, now, u64::MAX);
    }
}
