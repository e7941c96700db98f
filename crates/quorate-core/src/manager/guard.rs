//! The RAII value that releases a lock on drop.

use std::ops::Deref;
use std::time::{Duration, Instant};

use crate::attempt::lease::Lease;
use crate::error::{ExtendError, LeaseEnd, ReleaseError};
use crate::manager::detached::DetachedLock;
use crate::telemetry;

/// A lock that is held until [`valid_until`](Lease::valid_until).
///
/// All methods of its [`Lease`] are methods of a guard.
///
/// Dropping it releases the lock in the background, where a runtime runs.
/// [`release`](Self::release) says whether the lock was held until then. Drop neither blocks nor
/// panics. Where nothing runs any more, or the guard is forgotten, the lock is free again after its
/// ttl.
///
/// A guard is no proof. Between the last look at [`is_valid`](Lease::is_valid) and a write, a pause
/// may outlast the lease. Only a resource that checks a fencing token refuses that write.
#[must_use = "the lock is released at once, unless the guard is bound to a name: \
              `let _guard = …`, not `let _ = …`"]
#[derive(Debug)]
pub struct LockGuard {
    pub(super) lease: Lease,
    /// The lock was released, detached or kept.
    pub(super) is_over: bool,
}

impl LockGuard {
    pub(crate) const fn new(lease: Lease) -> Self {
        Self { lease, is_over: false }
    }

    /// A view of the lease, for other tasks.
    #[must_use]
    pub fn lease(&self) -> Lease {
        self.lease.clone()
    }

    /// Renews the lease in the background until it ends. A second call changes nothing.
    ///
    /// A renewal that fails is tried again until the end of the lease. The moments are drawn at
    /// random, so that many leases do not renew at once. A guard that is renewed and forgotten is
    /// held until its [`hold_limit`](crate::LockRequest::hold_limit), or for as long as the process
    /// lives.
    pub fn auto_renew(&self) {
        self.lease.attempt().renew();
    }

    /// Extends the lease to the ttl that it was acquired with, from now.
    ///
    /// Nodes that have lost the keys are given them again, if a quorum still had them. They count
    /// from the next extension on.
    ///
    /// # Errors
    ///
    /// - [`ExtendError::Lost`]: the lease has ended. More nodes than a quorum can spare may have
    ///   answered just now that the keys are not ours.
    /// - [`ExtendError::NoQuorum`]: no quorum extended. The lease stays as it was, and the next try
    ///   may succeed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing: the round goes on in the background.
    pub async fn extend(&self) -> Result<(), ExtendError> {
        let attempt = self.lease.attempt();
        attempt.extend(attempt.claim.ttl()).await
    }

    /// Extends the lease so that the keys live for `ttl` from now. It never shortens it, and never
    /// extends it beyond its [`hold_limit`](crate::LockRequest::hold_limit).
    ///
    /// # Errors
    ///
    /// As [`extend`](Self::extend), and [`ExtendError::Ttl`] for a ttl that is too short or too
    /// long.
    ///
    /// # Cancel safety
    ///
    /// As [`extend`](Self::extend).
    pub async fn extend_to(&self, ttl: Duration) -> Result<(), ExtendError> {
        self.lease.attempt().extend(self.lease.cluster().config.parse_ttl(ttl)?).await
    }

    /// Turns the guard into a record, with which another process can
    /// [`adopt`](crate::LockManager::adopt) the lock. Nothing is sent.
    ///
    /// The lease of this guard ends at once. If no process adopts the lock in time, it expires.
    ///
    /// # Errors
    ///
    /// [`LeaseEnd`]: the lease has ended before, or the lock was revoked, and there is nothing to
    /// adopt. The lock is released in the background.
    pub fn detach(mut self) -> Result<DetachedLock, LeaseEnd> {
        let attempt = self.lease.attempt();
        attempt.detach()?;
        telemetry::detached(self.keys(), attempt.held(attempt.cluster().now()));
        let record = DetachedLock::new(attempt.claim.clone(), attempt.fencing_token());
        self.is_over = true;
        Ok(record)
    }

    /// Releases the lock on all nodes, and says whether it was held until then.
    ///
    /// Returns when the answers decide it, after a node timeout at the latest. Slower nodes are
    /// released in the background, and a node that fails is asked again until the cleanup bound.
    ///
    /// # Errors
    ///
    /// - [`ReleaseError::Lost`]: the lease had ended before. Another client may have held the lock
    ///   since.
    /// - [`ReleaseError::Unconfirmed`]: too few nodes answered to prove that it had not.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time, even before its first poll: the release goes on in
    /// the background.
    pub async fn release(mut self) -> Result<(), ReleaseError> {
        let start = telemetry::IS_ON.then(|| (self.lease.cluster().now(), self.lease.remaining()));
        let result = self.lease.attempt().release().await;
        self.is_over = true;
        if let Some((start, left)) = start {
            self.report(&result, start, left);
        }
        result
    }

    /// Reports a release that was decided. `left` is what the lease had at its `start`.
    fn report(&self, result: &Result<(), ReleaseError>, start: Instant, left: Duration) {
        let took = self.lease.cluster().now().saturating_duration_since(start);
        let held = self.lease.attempt().held(start);
        if let Err(ReleaseError::Lost(lost @ LeaseEnd::NotHeld(_))) = result
            && !left.is_zero()
        {
            telemetry::lost(self.keys(), "not_held", held, lost);
        }
        telemetry::released(self.keys(), Some(result), Some(took), held, left);
    }
}

impl Deref for LockGuard {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.lease
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        if telemetry::IS_ON {
            let (left, now) = (self.lease.remaining(), self.lease.cluster().now());
            let held = self.lease.attempt().held(now);
            telemetry::released(self.keys(), None, None, held, left);
        }
        self.lease.attempt().leave();
    }
}
