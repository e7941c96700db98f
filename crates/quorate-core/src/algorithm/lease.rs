//! How long a lock is held: the ttl at the nodes, and what of it the holder may rely on.

use std::time::{Duration, Instant};

/// How long a node keeps the key: whole milliseconds, from 1 ms to 365 days.
///
/// A fraction of a millisecond is cut off, since the wire (`PX`) has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ttl(u64);

impl Ttl {
    /// The longest ttl. A user who needs more needs a renewed lease, not a longer one.
    pub const MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

    /// The ttl of a lock that is kept after its lease, in whole milliseconds: from 1 ms to 100
    /// years. What is shorter or longer becomes that (T3): a mark is no lease, so
    /// [`MAX`](Self::MAX) does not bound it.
    pub(crate) fn of_mark(duration: Duration) -> Self {
        const CENTURY: u64 = 100 * 365 * 24 * 60 * 60 * 1000;
        let millis = duration.as_nanos().div_ceil(1_000_000);
        Self(u64::try_from(millis).map_or(CENTURY, |millis| millis.clamp(1, CENTURY)))
    }

    /// The ttl in milliseconds, as it stands on the wire.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The ttl as a duration.
    #[must_use]
    pub const fn as_duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

impl TryFrom<Duration> for Ttl {
    type Error = InvalidTtl;

    fn try_from(ttl: Duration) -> Result<Self, InvalidTtl> {
        if ttl > Self::MAX {
            return Err(InvalidTtl::TooLong { ttl });
        }
        match u64::try_from(ttl.as_millis()) {
            Ok(millis @ 1..) => Ok(Self(millis)),
            _ => Err(InvalidTtl::TooShort { ttl, least: Duration::from_millis(1) }),
        }
    }
}

/// Why a duration cannot be the ttl of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidTtl {
    /// Nothing would be left of it once the drift is taken off and the nodes are asked.
    #[error("a ttl of {ttl:?} leaves no validity, {least:?} is the least")]
    TooShort {
        /// The ttl given.
        ttl: Duration,
        /// The shortest ttl that would do.
        least: Duration,
    },
    /// Of a lease that is renewed: no renewal in time could be relied on.
    #[error("a ttl of {ttl:?} is too short to be renewed, {least:?} is the least")]
    TooShortToRenew {
        /// The ttl given.
        ttl: Duration,
        /// The shortest ttl that would do.
        least: Duration,
    },
    /// Over the `max_ttl` of the [restart guard](crate::RestartGuard): a node that has forgotten
    /// the lock would vote again before it is over.
    #[error("a ttl of {ttl:?} is over the max_ttl of the restart guard, {max_ttl:?}")]
    OverMaxTtl {
        /// The ttl given.
        ttl: Duration,
        /// The longest ttl that the guard allows.
        max_ttl: Duration,
    },
    /// Over [`Ttl::MAX`].
    #[error("a ttl of {ttl:?} is over the longest, {longest:?}", longest = Ttl::MAX)]
    TooLong {
        /// The ttl given.
        ttl: Duration,
    },
}

/// How far the clocks of client and nodes may run apart within one ttl.
///
/// The Redlock page takes a part of the ttl for clocks of unequal speed and a constant for the
/// granularity of expiry: 1 % and 2 ms, which is the default here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drift {
    parts_per_million: u32,
    constant: Duration,
}

impl Drift {
    /// `parts_per_million` of the ttl plus `constant`. All of the ttl, or more, is no error here,
    /// but leaves no ttl that [`Drift::validity_of`] accepts.
    #[must_use]
    pub const fn new(parts_per_million: u32, constant: Duration) -> Self {
        Self { parts_per_million, constant }
    }

    /// What drift takes off `ttl`. Never overflows.
    #[must_use]
    pub fn of(&self, ttl: Ttl) -> Duration {
        // A millionth of a millisecond is a nanosecond.
        let nanos = ttl.as_millis().checked_mul(self.parts_per_million.into());
        nanos.map_or(Duration::MAX, Duration::from_nanos).saturating_add(self.constant)
    }

    /// What drift leaves of `ttl`, zero if nothing.
    #[must_use]
    pub fn validity_of(&self, ttl: Ttl) -> Duration {
        ttl.as_duration().saturating_sub(self.of(ttl))
    }
}

impl Default for Drift {
    /// 1 % of the ttl and 2 ms, as the Redlock page has it.
    fn default() -> Self {
        Self::new(10_000, Duration::from_millis(2))
    }
}

/// How long before the keys may expire a lease ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SafetyMargin {
    /// A tenth of the ttl, at most 500 ms.
    #[default]
    TenthOfTtl,
    /// The same for every ttl. Zero gives the bare formula of Redlock.
    Fixed(Duration),
}

impl SafetyMargin {
    /// The margin of a lease with this ttl.
    #[must_use]
    pub fn of(self, ttl: Ttl) -> Duration {
        match self {
            Self::TenthOfTtl => (ttl.as_duration() / 10).min(Duration::from_millis(500)),
            Self::Fixed(margin) => margin,
        }
    }

    /// What a lease with this ttl lasts: the ttl without drift and margin (T2). Zero if nothing is
    /// left.
    #[must_use]
    pub fn validity(self, drift: Drift, ttl: Ttl) -> Duration {
        drift.validity_of(ttl).saturating_sub(self.of(ttl))
    }
}

/// The earlier of two times that may be there.
pub(crate) fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// `start + after`. Where that cannot be represented: `start` and a hundred years; else `start`.
pub(crate) fn saturating_add(start: Instant, after: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
    start.checked_add(after).or_else(|| start.checked_add(FAR)).unwrap_or(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ttl(millis: u64) -> Ttl {
        Ttl::try_from(Duration::from_millis(millis)).unwrap()
    }

    #[test]
    fn a_mark_lasts_from_a_millisecond_to_a_hundred_years() {
        for (asked, days) in [(Duration::MAX, 36_500), (Duration::from_secs(86_400), 1)] {
            assert_eq!(Ttl::of_mark(asked).as_duration(), Duration::from_secs(days * 86_400));
        }
        assert_eq!(Ttl::of_mark(Duration::ZERO).as_millis(), 1);
    }

    #[test]
    fn t2_validity_is_ttl_minus_one_percent_and_two_milliseconds() {
        let drift = Drift::default();
        assert_eq!(drift.of(ttl(10_000)), Duration::from_millis(102));
        assert_eq!(drift.validity_of(ttl(10_000)), Duration::from_millis(9_898));
        assert_eq!(drift.validity_of(ttl(1_000)), Duration::from_millis(988));
    }

    #[test]
    fn t3_nothing_overflows_and_nothing_underflows() {
        assert!(matches!(Ttl::try_from(Duration::MAX), Err(InvalidTtl::TooLong { .. })));
        assert!(matches!(Ttl::try_from(Duration::ZERO), Err(InvalidTtl::TooShort { .. })));
        assert!(matches!(
            Ttl::try_from(Duration::from_micros(999)),
            Err(InvalidTtl::TooShort { .. })
        ));
        assert_eq!(Ttl::try_from(Ttl::MAX).unwrap().as_duration(), Ttl::MAX);
        let wild = Drift::new(u32::MAX, Duration::MAX);
        assert_eq!(wild.validity_of(Ttl::try_from(Ttl::MAX).unwrap()), Duration::ZERO);
        let start = Instant::now();
        assert_eq!(wild.validity_of(ttl(1)), Duration::ZERO);
        let far = saturating_add(start, Duration::MAX);
        assert!(far > start + 99 * Ttl::MAX && far < start + 101 * Ttl::MAX, "a century");
    }
}
