//! Which votes of a node that restarted are refused.

use std::time::Duration;

/// For how long a node that may have forgotten is kept from voting, and which nodes those are.
///
/// A plain [`Duration`] is a [strict](Self::strict) one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartGuard {
    max_ttl: Duration,
    is_strict: bool,
}

impl RestartGuard {
    /// A node that does not know who has used it may have forgotten: a new one is quarantined, too.
    ///
    /// `max_ttl` is the longest ttl of any lock on these nodes, in whole milliseconds; a fraction
    /// is cut off.
    #[must_use]
    pub const fn strict(max_ttl: Duration) -> Self {
        Self { max_ttl: whole_millis(max_ttl), is_strict: true }
    }

    /// A node without an epoch that has been up for `max_ttl`, and a second for the granularity of
    /// its uptime, is taken for one that was never used; one that has been up for
    /// less is quarantined for the rest of that.
    ///
    /// So a cluster that has run for long enough grants at once when the guard is switched on, and
    /// a node that was down for days and lost everything is back sooner. It takes **`FLUSHALL` on a
    /// node that is long up for a new node**, and lets it vote. The node's uptime comes from its
    /// wall clock, which must not have been set forward since its start. Another run's epoch is as
    /// with [`strict`](Self::strict).
    #[must_use]
    pub const fn soft(max_ttl: Duration) -> Self {
        Self { max_ttl: whole_millis(max_ttl), is_strict: false }
    }

    /// The longest ttl, which is how long a quarantine lasts; a soft one adds a second on a node
    /// without an epoch, and takes off the time for which the node has been up.
    #[must_use]
    pub const fn max_ttl(&self) -> Duration {
        self.max_ttl
    }

    /// Whether a node without an epoch is quarantined for `max_ttl`, however long it has been up.
    #[must_use]
    pub const fn is_strict(&self) -> bool {
        self.is_strict
    }

    /// How long a quarantine lasts that begins on a node without an epoch, which says that it has
    /// been up for so many whole seconds.
    #[must_use]
    pub const fn quarantine_of_unknown(&self, uptime: Duration) -> Duration {
        if self.is_strict {
            return self.max_ttl;
        }
        self.max_ttl.saturating_add(Duration::from_secs(1)).saturating_sub(uptime)
    }
}

/// As [`RestartGuard::strict`].
impl From<Duration> for RestartGuard {
    fn from(max_ttl: Duration) -> Self {
        Self::strict(max_ttl)
    }
}

const fn whole_millis(duration: Duration) -> Duration {
    let nanos = duration.subsec_nanos();
    Duration::new(duration.as_secs(), nanos - nanos % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_strict_guard_does_not_look_at_the_uptime_and_a_soft_one_waits_for_the_rest() {
        let (strict, soft) = (RestartGuard::from(10 * SECOND), RestartGuard::soft(10 * SECOND));
        for (uptime, rest) in [(0, 11), (1, 10), (10, 1), (11, 0), (12, 0), (u64::MAX, 0)] {
            let uptime = Duration::from_secs(uptime);
            assert_eq!(strict.quarantine_of_unknown(uptime), 10 * SECOND);
            assert_eq!(soft.quarantine_of_unknown(uptime), Duration::from_secs(rest));
        }
        assert_eq!(
            RestartGuard::soft(Duration::MAX).quarantine_of_unknown(SECOND).as_secs(),
            u64::MAX - 1
        );
    }

    #[test]
    fn a_max_ttl_has_whole_milliseconds() {
        let guard = RestartGuard::strict(Duration::from_micros(1_001_999));
        assert_eq!(guard.max_ttl(), Duration::from_millis(1_001));
        assert_eq!(RestartGuard::strict(Duration::from_nanos(999_999)).max_ttl(), Duration::ZERO);
    }
}
