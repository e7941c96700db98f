//! The RAII value that releases a lock on drop.

use std::fmt;
use std::time::{Duration, Instant};

use crate::algorithm::fence::FencingToken;
use crate::attempt::lease::Lease;
use crate::error::{ExtendError, LeaseEnd, ReleaseError, Stopped};
use crate::manager::detached::DetachedLock;
use crate::resource::{Key, Label};
use crate::telemetry;

/// A lock that is held until [`valid_until`](Self::valid_until).
///
/// Dropping it releases the lock in the background, where a runtime runs.
/// [`release`](Self::release) says whether the lock was held until then. Drop neither blocks nor
/// panics. Where nothing runs any more, or the guard is forgotten, the lock is free again after its
/// ttl.
///
/// A guard is no proof. Between the last look at [`is_valid`](Self::is_valid) and a write, a pause
/// may outlast the lease. Only a resource that checks a fencing token refuses that write.
#[must_use = "the lock is released at once, unless the guard is bound to a name: `let _guard = …`, \
              not `let _ = …`"]
pub struct LockGuard {
    pub(super) lease: Lease,
    /// The lock was released, detached or kept.
    pub(super) is_over: bool,
}

impl LockGuard {
    pub(crate) const fn new(lease: Lease) -> Self {
        Self { lease, is_over: false }
    }

    /// The end of the lease, on the clock of the manager's runtime. No I/O.
    ///
    /// The keys expire later, by drift and safety margin.
    #[must_use]
    pub fn valid_until(&self) -> Instant {
        self.lease.valid_until()
    }

    /// Whether the lease is valid. A look at the clock: no I/O, and no task has to run for it.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.lease.is_valid()
    }

    /// What is left of the lease; zero if it has ended. No I/O.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.lease.remaining()
    }

    /// The keys that the nodes store for this lock.
    #[must_use]
    pub fn keys(&self) -> &[Key] {
        self.lease.keys()
    }

    /// The lock's fencing token, if one was [asked for](crate::LockRequest::fenced). No I/O. A
    /// request for it [gives it](crate::LockRequest::with_token) beside the guard.
    ///
    /// Send it along with each write. A resource that keeps the highest token it has seen, and
    /// refuses lower ones, cannot be written to by a holder whose lease has ended unnoticed.
    /// [`FencedCell`](crate::FencedCell) is such a resource in memory. Later holders have higher
    /// tokens.
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.lease.fencing_token()
    }

    /// A view of the lease, for other tasks.
    #[must_use]
    pub fn lease(&self) -> Lease {
        self.lease.clone()
    }

    /// Resolves when the lease has ended, and says why.
    ///
    /// A lease that is not extended ends at [`valid_until`](Self::valid_until), by a local timer,
    /// whatever the nodes do. Any number of tasks may wait.
    ///
    /// If the lease ended by time, at its hold limit or by a close, its keys stay for the safety
    /// margin while the guard lives: no other client or task can have the lock before that. If the
    /// nodes say that the keys are not ours, another client may have the lock already.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time.
    pub fn lost(&self) -> impl Future<Output = LeaseEnd> + Send + 'static + use<> {
        self.lease.lost()
    }

    /// Resolves when the manager is [drained](crate::LockManager::drain) or closed.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time.
    pub fn draining(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.lease.draining()
    }

    /// Resolves when the lease is at risk, with the time that is left: an early warning before
    /// [`lost`](Self::lost).
    ///
    /// A lease is at risk from the moment at which an extension or renewal has failed, while the
    /// lease is still valid. The next extension that succeeds ends the risk, and so do votes of the
    /// failed one that move the end of the lease late. A lock that was [revoked](Self::revoked) is
    /// at risk until its end.
    ///
    /// Renewals are tried again by themselves, so a risk may pass. As long as it lasts, this
    /// resolves at once: warn once, and wait for it again when [`is_at_risk`](Self::is_at_risk) is
    /// false. A lease that is not extended is never at risk. Any number of tasks may wait.
    ///
    /// # Errors
    ///
    /// [`LeaseEnd`]: the lease has ended, or ends before it is at risk.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time.
    pub fn at_risk(
        &self,
    ) -> impl Future<Output = Result<Duration, LeaseEnd>> + Send + 'static + use<> {
        self.lease.at_risk()
    }

    /// Resolves when the lock was [revoked](crate::LockManager::revoke), with the label of the
    /// process that did it: the holder is asked to leave.
    ///
    /// The lease stays valid until its end, and is extended no more: no other client has the lock
    /// before. A holder that releases before that gives the lock free. Nodes that push say it
    /// within a round trip, others at the next renewal.
    ///
    /// # Errors
    ///
    /// [`LeaseEnd`]: the lease has ended before.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time.
    pub fn revoked(
        &self,
    ) -> impl Future<Output = Result<Option<Label>, LeaseEnd>> + Send + 'static + use<> {
        self.lease.revoked()
    }

    /// Whether the lease is valid and [at risk](Self::at_risk). A look at the clock and a mutex: no
    /// I/O.
    #[must_use]
    pub fn is_at_risk(&self) -> bool {
        self.lease.is_at_risk()
    }

    /// Runs `future` until the lease ends: then `future` is dropped.
    ///
    /// Code that blocks the thread cannot be stopped. If `future` ends after its lease, its value
    /// is dropped.
    ///
    /// # Errors
    ///
    /// [`Stopped`], with the reason.
    ///
    /// # Cancel safety
    ///
    /// As `future`'s: dropping this drops it.
    pub fn run<F: Future>(
        &self,
        future: F,
    ) -> impl Future<Output = Result<F::Output, Stopped>> + use<F> {
        self.lease.run(future)
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
        let failure = result.as_ref().err().map(|error| error as &dyn fmt::Display);
        let outcome = ReleaseError::outcome(result);
        telemetry::released(self.keys(), outcome, Some(took), held, left, failure);
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
            telemetry::released(self.keys(), "dropped", None, held, left, None);
        }
        self.lease.attempt().leave();
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("keys", &self.keys())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
