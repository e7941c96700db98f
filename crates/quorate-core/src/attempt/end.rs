//! The end of a lease, for looks that do not wait for its attempt.
//!
//! The machine decides when a lease ends, and each input publishes that here before it unlocks. A
//! look that finds the time over before the machine has heard of it says so as well. The first
//! writer wins. This is the one copy of a value that the machine keeps. It has a mutex of its own,
//! under which times are compared and nothing else happens.

use std::mem;
use std::time::Instant;

use super::{Attempt, State};
use crate::algorithm::attempt::End;
use crate::error::{LeaseEnd, QuorumFailure};
use crate::resource::Label;
use crate::seam::runtime::sync::{Mutex, lock};

impl State {
    /// Why the lease has ended, as its holder hears it.
    pub(super) fn lost(&self, attempt: &Attempt) -> LeaseEnd {
        let names = attempt.claim.keys();
        let failure = || match self.told.lost {
            Some(_) => self.failure(attempt),
            // No node said anything about it.
            None => QuorumFailure::default().of(names),
        };
        match attempt.end.why() {
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

/// When a lease ends, and when and why it has ended.
#[derive(Debug)]
pub(crate) struct PublishedEnd(Mutex<Times>);

#[derive(Clone, Copy, Debug)]
struct Times {
    valid_until: Instant,
    /// Why it ends then, if nothing happens before.
    by_time: End,
    /// Why and when it has ended.
    ended: Option<(End, Instant)>,
}

impl PublishedEnd {
    pub(crate) const fn new(start: Instant) -> Self {
        Self(Mutex::new(Times { valid_until: start, by_time: End::Expired, ended: None }))
    }

    fn times(&self) -> Times {
        *lock(&self.0)
    }

    /// The lease is valid until then, and ends for this reason if nothing happens before. Returns
    /// whether it was valid for longer.
    pub(super) fn publish(&self, valid_until: Instant, why: End) -> bool {
        let mut times = lock(&self.0);
        times.by_time = why;
        valid_until < mem::replace(&mut times.valid_until, valid_until)
    }

    /// The lease has ended, if it had not before.
    pub(super) fn end(&self, why: End, at: Instant) {
        lock(&self.0).ended.get_or_insert((why, at));
    }

    /// The end of the lease; if it has ended by now, why.
    pub(crate) fn check(&self, now: Instant) -> Result<Instant, End> {
        let mut times = lock(&self.0);
        if now >= times.valid_until {
            times.ended = times.ended.or(Some((times.by_time, times.valid_until)));
        }
        times.ended.map_or(Ok(times.valid_until), |(why, _)| Err(why))
    }

    /// Why it has ended, or ends if nothing happens before.
    fn why(&self) -> End {
        let Times { by_time, ended, .. } = self.times();
        ended.map_or(by_time, |(why, _)| why)
    }

    /// Whether a revoke has taken effect: the lease ends at its end, if not before.
    pub(super) fn is_revoked(&self) -> bool {
        self.times().by_time == End::Revoked
    }

    /// Why and when the lease has ended, if that is known already.
    pub(crate) fn ended(&self) -> Option<(End, Instant)> {
        self.times().ended
    }

    /// The end of the lease as it was last set.
    pub(crate) fn valid_until(&self) -> Instant {
        self.times().valid_until
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
}
