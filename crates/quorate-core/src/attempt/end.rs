//! The end of a lease, for looks without a mutex.
//!
//! The machine decides when a lease ends, and each input publishes that here before it unlocks. A look that finds
//! the time over before the machine has heard of it says so as well. The first writer wins. These atomics
//! are the one copy of a value that the machine keeps.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::algorithm::lease::saturating_add;
use crate::error::{LeaseEnd, QuorumFailure};
use crate::resource::Key;

/// Why a lease has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    Released = 1,
    Expired,
    NotOurs,
    HoldLimit,
    Detached,
    Closed,
}

impl Why {
    const ALL: [Self; 6] = [
        Self::Released,
        Self::Expired,
        Self::NotOurs,
        Self::HoldLimit,
        Self::Detached,
        Self::Closed,
    ];

    /// The reason as its holder hears it. `failure`: what each node said against the lease.
    pub(super) fn lost(self, keys: &[Key], failure: impl FnOnce() -> QuorumFailure) -> LeaseEnd {
        let names = keys.into();
        match self {
            Self::Released => LeaseEnd::Released(names),
            Self::Expired => LeaseEnd::Expired { last: failure().of(names) },
            Self::NotOurs => LeaseEnd::NotHeld(failure().of(names)),
            Self::HoldLimit => LeaseEnd::HoldLimit(names),
            Self::Detached => LeaseEnd::Detached(names),
            Self::Closed => LeaseEnd::Closed(names),
        }
    }
}

/// How many bits of [`PublishedEnd::ended`] say why.
const WHY_BITS: u32 = 3;

/// When a lease ends, and when and why it has ended.
#[derive(Debug)]
pub(crate) struct PublishedEnd {
    start: Instant,
    /// Nanoseconds from the start to the end of the lease.
    valid_for: AtomicU64,
    /// The end is that of the hold limit.
    is_limited: AtomicBool,
    /// Zero as long as it has not ended; then nanoseconds from the start, and why.
    ended: AtomicU64,
}

impl PublishedEnd {
    pub(crate) const fn new(start: Instant) -> Self {
        Self {
            start,
            valid_for: AtomicU64::new(0),
            is_limited: AtomicBool::new(false),
            ended: AtomicU64::new(0),
        }
    }

    /// The lease is valid until then.
    pub(super) fn publish(&self, valid_until: Instant, is_limited: bool) {
        self.is_limited.store(is_limited, Ordering::Release);
        self.valid_for.store(self.nanos(valid_until), Ordering::Release);
    }

    /// The lease has ended, if it had not before.
    pub(super) fn end(&self, why: Why, at: Instant) {
        let ended = self.nanos(at) << WHY_BITS | why as u64;
        let _ = self.ended.compare_exchange(0, ended, Ordering::AcqRel, Ordering::Acquire);
    }

    /// The end of the lease; if it has ended by now, why. Takes no mutex.
    pub(crate) fn check(&self, now: Instant) -> Result<Instant, Why> {
        if let Some((why, _)) = self.ended() {
            return Err(why);
        }
        let valid_until = self.valid_until();
        if now < valid_until {
            return Ok(valid_until);
        }
        let is_limited = self.is_limited.load(Ordering::Acquire);
        self.end(if is_limited { Why::HoldLimit } else { Why::Expired }, valid_until);
        // Another writer may have been first.
        self.ended().map_or(Ok(valid_until), |(why, _)| Err(why))
    }

    /// Why and when the lease has ended, if that is known already.
    pub(crate) fn ended(&self) -> Option<(Why, Instant)> {
        let ended = self.ended.load(Ordering::Acquire);
        let index = usize::try_from(ended & ((1 << WHY_BITS) - 1)).ok()?.checked_sub(1)?;
        Some((*Why::ALL.get(index)?, self.after(ended >> WHY_BITS)))
    }

    /// The end of the lease as it was last set.
    pub(crate) fn valid_until(&self) -> Instant {
        self.after(self.valid_for.load(Ordering::Acquire))
    }

    /// At most some 73 years: what is longer is cut off.
    fn nanos(&self, at: Instant) -> u64 {
        let nanos = at.saturating_duration_since(self.start).as_nanos();
        u64::try_from(nanos).unwrap_or(u64::MAX).min(u64::MAX >> WHY_BITS)
    }

    fn after(&self, nanos: u64) -> Instant {
        saturating_add(self.start, Duration::from_nanos(nanos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn h4_a_lease_ends_by_the_clock_and_the_first_writer_says_why() {
        let start = Instant::now();
        for (is_limited, why) in [(false, Why::Expired), (true, Why::HoldLimit)] {
            let end = PublishedEnd::new(start);
            end.publish(start + SECOND, is_limited);
            assert_eq!(end.check(start), Ok(start + SECOND));
            assert_eq!(end.check(start + SECOND), Err(why));
            end.end(Why::Released, start);
            end.publish(start + 9 * SECOND, false);
            assert_eq!(end.check(start), Err(why), "it has one end");
            assert_eq!(end.ended(), Some((why, start + SECOND)));
        }
    }

    #[test]
    fn each_reason_is_kept_with_its_time() {
        let start = Instant::now();
        for why in Why::ALL {
            let end = PublishedEnd::new(start);
            end.publish(start + SECOND, false);
            end.end(why, start + SECOND / 3);
            assert_eq!(end.ended().map(|(why, at)| (why, at - start)), Some((why, SECOND / 3)));
            let never = PublishedEnd::new(start);
            never.end(why, saturating_add(start, Duration::MAX));
            let year = 365 * 24 * 60 * 60 * SECOND;
            assert!(never.ended().is_some_and(|(kept, at)| kept == why && at > start + 70 * year));
        }
    }
}
