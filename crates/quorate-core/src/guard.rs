//! What the holder has: a lease that ends at a known moment, and the means to prolong or end it.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::algorithm::lease::Ttl;
use crate::algorithm::round::{Loss, Round, Step};
use crate::backend::Claim;
use crate::driver::{Attempt, Flight, Operation, Outcome};
use crate::error::{ExtendError, ReleaseError, Released, Votes};
use crate::resource::Key;

/// A lock that is held, until [`valid_until`](Self::valid_until).
///
/// Dropping it releases it in the background, where a runtime runs; [`release`](Self::release)
/// tells how that went. Drop neither blocks nor panics. Where nothing runs any more, the lock is
/// free again after its ttl.
///
/// A guard is no proof. Between the last look at [`is_valid`](Self::is_valid) and a write, a pause
/// may outlast the lease; only a resource that checks a fencing token is safe from that.
#[must_use = "if unused the lock is released at once"]
pub struct LockGuard {
    attempt: Arc<Attempt>,
    /// The origin of `valid_for`.
    start: Instant,
    /// Nanoseconds after `start`. Only grows.
    valid_for: AtomicU64,
    released: bool,
}

impl LockGuard {
    pub(crate) fn new(attempt: Arc<Attempt>, start: Instant, valid_until: Instant) -> Self {
        let valid_for = AtomicU64::new(nanos_between(start, valid_until));
        Self { attempt, start, valid_for, released: false }
    }

    /// The end of the lease, on the clock of the manager's runtime.
    #[must_use]
    pub fn valid_until(&self) -> Instant {
        self.start + Duration::from_nanos(self.valid_for.load(Ordering::Acquire))
    }

    /// Whether the lease still holds. A look at the clock: no I/O, and no task has to run for it.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// What is left of the lease, zero if nothing. No I/O.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.valid_until().saturating_duration_since(self.attempt.cluster.runtime.now())
    }

    /// The keys that the nodes keep for this lock.
    #[must_use]
    pub fn keys(&self) -> &[Key] {
        self.attempt.claim.keys()
    }

    /// Prolongs the lease to the ttl it was taken with, from now.
    ///
    /// # Errors
    ///
    /// [`ExtendError`]. The lease stays as it was: still valid until
    /// [`valid_until`](Self::valid_until), and worth another try until then.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time. The lease is then as it was, though the nodes may
    /// keep the keys for longer. Do not keep it without polling it: other calls of this guard wait
    /// for it, node by node.
    pub async fn extend(&self) -> Result<(), ExtendError> {
        self.extend_claim(self.attempt.claim.ttl()).await
    }

    /// Prolongs the lease so that it ends `ttl`, less the drift, from now; never shortens it.
    ///
    /// # Errors
    ///
    /// As [`extend`](Self::extend), and [`ExtendError::Ttl`] for a ttl that is too short or long.
    ///
    /// # Cancel safety
    ///
    /// As [`extend`](Self::extend).
    pub async fn extend_to(&self, ttl: Duration) -> Result<(), ExtendError> {
        let ttl = self.attempt.cluster.config.parse_ttl(ttl)?;
        self.extend_claim(ttl).await
    }

    async fn extend_claim(&self, ttl: Ttl) -> Result<(), ExtendError> {
        let cluster = &self.attempt.cluster;
        let (count, config) = (cluster.count(), &cluster.config);
        let start = cluster.runtime.now();
        let held_until = self.valid_until();
        if start >= held_until {
            return Err(ExtendError::Expired { votes: Votes::new([]) });
        }
        let patience = config.node_timeout(ttl).min(held_until - start);
        let mut round = Round::extend(count, start, patience, ttl, config.drift, held_until);
        let claim: Claim = self.attempt.claim.with_ttl(ttl);
        let mut flight = Flight::new(&self.attempt, &Operation::Extend(claim));
        let outcome = flight.decide(&mut round).await;
        let votes = |outcome: &Outcome| outcome.votes(cluster, start);
        match outcome.step {
            Step::Won { valid_until } => {
                let valid_for = nanos_between(self.start, valid_until);
                self.valid_for.fetch_max(valid_for, Ordering::AcqRel);
                Ok(())
            }
            Step::Lost(Loss::Expired) => Err(ExtendError::Expired { votes: votes(&outcome) }),
            // Fewer refusals leave room for a quorum that still has the keys.
            Step::Lost(_) if outcome.tally.refused() > count.spare() => {
                Err(ExtendError::NotHeld { votes: votes(&outcome) })
            }
            Step::Lost(_) | Step::Wait => Err(ExtendError::NoQuorum { votes: votes(&outcome) }),
        }
    }

    /// Releases the lock on all nodes and says whether it had been held to the end.
    ///
    /// Returns once a quorum no longer has the lock, so that others can take it, and it is known
    /// whether it had been held; slower nodes are released in the background, and failing ones
    /// again and again until the cleanup timeout.
    ///
    /// # Errors
    ///
    /// [`ReleaseError`] if a quorum could not be reached. The lock may then be kept for others
    /// until its ttl is over.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time, even before it was polled: the release goes on in
    /// the background.
    pub async fn release(mut self) -> Result<Released, ReleaseError> {
        let cluster = Arc::clone(&self.attempt.cluster);
        let start = cluster.runtime.now();
        let patience = cluster.config.node_timeout(self.attempt.claim.ttl());
        let mut round = Round::telling_release(cluster.count(), start, patience);
        let expired = start >= self.valid_until();
        let mut flight = self.release_flight();
        let outcome = flight.decide(&mut round).await;
        let (tally, count) = (&outcome.tally, cluster.count());
        match outcome.step {
            Step::Lost(_) | Step::Wait => {
                Err(ReleaseError::NoQuorum { votes: outcome.votes(&cluster, start) })
            }
            Step::Won { .. } if expired || tally.refused() > count.spare() => Ok(Released::Lost),
            Step::Won { .. } if tally.granted() >= count.quorum() => Ok(Released::Held),
            Step::Won { .. } => Ok(Released::Unsure),
        }
    }

    fn release_flight(&mut self) -> Flight {
        self.released = true;
        Flight::new(&self.attempt, &Operation::Release)
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if !mem::replace(&mut self.released, true) {
            drop(self.release_flight());
        }
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("keys", &self.keys())
            .field("valid_until", &self.valid_until())
            .finish_non_exhaustive()
    }
}

fn nanos_between(start: Instant, end: Instant) -> u64 {
    u64::try_from(end.saturating_duration_since(start).as_nanos()).unwrap_or(u64::MAX)
}
