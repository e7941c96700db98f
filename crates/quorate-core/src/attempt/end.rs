//! The end of a lease, for looks without a mutex.
//!
//! The machine decides when a lease ends, and each input publishes that here before it unlocks. A
//! look that finds the time over before the machine has heard of it says so as well. The first
//! writer wins. These atomics are the one copy of a value that the machine keeps.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{Attempt, State};
use crate::algorithm::attempt::End;
use crate::algorithm::lease::saturating_add;
use crate::error::{LeaseEnd, QuorumFailure};
use crate::resource::Label;

/// All ends of a lease, each at the number that stands for it.
const ALL: [End; 7] = [
    End::Expired,
    End::HoldLimit,
    End::NotOurs,
    End::Revoked,
    End::Closed,
    End::Released,
    End::Detached,
];

impl State {
    /// Why the lease has ended, as its holder hears it.
    pub(super) fn lost(&self, attempt: &Attempt) -> LeaseEnd {
        let names = attempt.claim.keys();
        let failure = || match self.told.lost {
            Some(_) => self.failure(attempt),
            // No node said anything about it.
            None => QuorumFailure::default().of(names),
        };
        match attempt.end.ended().map_or_else(|| attempt.end.why(), |(why, _)| why) {
            End::Expired => LeaseEnd::Expired { last: failure() },
            End::HoldLimit => LeaseEnd::HoldLimit(names.into()),
            End::NotOurs => LeaseEnd::NotHeld(failure()),
            End::Closed => LeaseEnd::Closed(names.into()),
            End::Released => LeaseEnd::Released(names.into()),
            End::Detached => LeaseEnd::Detached(names.into()),
            End::Revoked => LeaseEnd::Revoked { names: names.into(), by: self.revoked_by() },
        }
    }

    /// The label of the process that revoked the lock.
    pub(super) fn revoked_by(&self) -> Option<Label> {
        self.revoked.as_deref().cloned().flatten()
    }

    /// Whether the lock was revoked, or an extension failed and the end has not moved on since.
    pub(super) fn is_at_risk(&self, attempt: &Attempt) -> bool {
        attempt.end.is_revoked() || self.told.is_failing
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
    /// Why it ends by time.
    by_time: AtomicU8,
    /// Zero as long as it has not ended; then nanoseconds from the start, and why.
    ended: AtomicU64,
}

impl PublishedEnd {
    pub(crate) const fn new(start: Instant) -> Self {
        Self {
            start,
            valid_for: AtomicU64::new(0),
            by_time: AtomicU8::new(End::Expired as u8),
            ended: AtomicU64::new(0),
        }
    }

    /// The lease is valid until then, and ends for this reason if nothing happens before. Returns
    /// whether it was valid for longer.
    pub(super) fn publish(&self, valid_until: Instant, why: End) -> bool {
        let valid_for = self.nanos(valid_until);
        let before = self.valid_for.load(Ordering::Relaxed);
        self.by_time.store(why as u8, Ordering::Release);
        self.valid_for.store(valid_for, Ordering::Release);
        valid_for < before
    }

    /// The lease has ended, if it had not before.
    pub(super) fn end(&self, why: End, at: Instant) {
        let ended = self.nanos(at) << WHY_BITS | (why as u64 + 1);
        let _ = self.ended.compare_exchange(0, ended, Ordering::AcqRel, Ordering::Acquire);
    }

    /// The end of the lease; if it has ended by now, why. Takes no mutex.
    pub(crate) fn check(&self, now: Instant) -> Result<Instant, End> {
        if let Some((why, _)) = self.ended() {
            return Err(why);
        }
        let valid_until = self.valid_until();
        if now < valid_until {
            return Ok(valid_until);
        }
        self.end(self.why(), valid_until);
        // Another writer may have been first.
        self.ended().map_or(Ok(valid_until), |(why, _)| Err(why))
    }

    /// Why it ends, if nothing happens before.
    pub(super) fn why(&self) -> End {
        let index: usize = self.by_time.load(Ordering::Acquire).into();
        ALL.get(index).copied().unwrap_or(End::Expired)
    }

    /// Whether a revoke has taken effect: the lease ends at its end, if not before.
    pub(super) fn is_revoked(&self) -> bool {
        self.why() == End::Revoked
    }

    /// Why and when the lease has ended, if that is known already.
    pub(crate) fn ended(&self) -> Option<(End, Instant)> {
        let ended = self.ended.load(Ordering::Acquire);
        let index = usize::try_from(ended & ((1 << WHY_BITS) - 1)).ok()?.checked_sub(1)?;
        Some((*ALL.get(index)?, self.after(ended >> WHY_BITS)))
    }

    /// The end of the lease as it was last set.
    pub(crate) fn valid_until(&self) -> Instant {
        self.after(self.valid_for.load(Ordering::Acquire))
    }

    /// At most some 73 years: a longer time is cut.
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
        for why in [End::Expired, End::HoldLimit] {
            let end = PublishedEnd::new(start);
            end.publish(start + SECOND, why);
            assert_eq!(end.check(start), Ok(start + SECOND));
            assert_eq!(end.check(start + SECOND), Err(why));
            end.end(End::Released, start);
            end.publish(start + 9 * SECOND, End::Expired);
            assert_eq!(end.check(start), Err(why), "it has one end");
            assert_eq!(end.ended(), Some((why, start + SECOND)));
        }
    }

    #[test]
    fn each_reason_is_kept_with_its_time() {
        let start = Instant::now();
        for why in ALL {
            let end = PublishedEnd::new(start);
            end.publish(start + SECOND, End::Expired);
            end.end(why, start + SECOND / 3);
            assert_eq!(end.ended().map(|(why, at)| (why, at - start)), Some((why, SECOND / 3)));
            let never = PublishedEnd::new(start);
            never.end(why, saturating_add(start, Duration::MAX));
            let year = 365 * 24 * 60 * 60 * SECOND;
            assert!(never.ended().is_some_and(|(kept, at)| kept == why && at > start + 70 * year));
        }
    }
}
