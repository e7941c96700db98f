//! A lease: the view of an attempt that its holder has.
//!
//! It keeps no state of its own. A lease ends by the clock at `valid_until`, whether or not a task
//! has run (H4).

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{Either, select, select_all};
use futures_util::{FutureExt as _, TryFutureExt as _};

use crate::algorithm::fence::FencingToken;
use crate::attempt::{Attempt, State};
use crate::cluster::Cluster;
use crate::error::{LeaseEnd, QuorumFailure, Stopped};
use crate::resource::{Key, Label};

/// A view of a lease, for other tasks. Cheap to clone; it does not keep the lock.
///
/// A [`LockGuard`](crate::LockGuard) has all of its methods.
#[derive(Clone)]
pub struct Lease {
    attempt: Arc<Attempt>,
}

impl Lease {
    pub(crate) const fn new(attempt: Arc<Attempt>) -> Self {
        Self { attempt }
    }

    /// The end of the lease, or the moment at which it was ended, if that is earlier. On the clock
    /// of the manager's runtime. No I/O.
    ///
    /// The keys expire later, by drift and safety margin.
    #[must_use]
    pub fn valid_until(&self) -> Instant {
        let end = &self.attempt.end;
        end.ended().map_or_else(|| end.valid_until(), |(_, at)| at)
    }

    /// Whether the lease is valid. A look at the clock: no I/O, and no task has to run for it.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.attempt.end.check(self.cluster().now()).is_ok()
    }

    /// What is left of the lease; zero if it has ended. A look at the clock: no I/O.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let now = self.cluster().now();
        let valid_until = self.attempt.end.check(now);
        valid_until.map_or(Duration::ZERO, |end| end.saturating_duration_since(now))
    }

    /// The keys that the nodes store for this lock, in sorted order.
    #[must_use]
    pub fn keys(&self) -> &[Key] {
        self.attempt.claim.keys()
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
        self.attempt.fencing_token()
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
        let attempt = Arc::clone(&self.attempt);
        async move {
            attempt.wait(|_| attempt.end.check(attempt.cluster().now()).err()).await;
            attempt.lost()
        }
    }

    /// Resolves when the manager is [drained](crate::LockManager::drain) or closed. Until the lease
    /// has ended, the work under it can come to an end of its own.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time.
    pub fn draining(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        Arc::clone(&self.cluster().attempts).until_closed()
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
        self.until(|attempt, state| {
            let now = attempt.cluster().now();
            let end = attempt.end.check(now).ok().filter(|_| state.is_at_risk(attempt))?;
            Some(end.saturating_duration_since(now))
        })
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
        self.until(|attempt, state| attempt.end.is_revoked().then(|| state.revoked_by()))
    }

    /// Waits until `look` finds something. An error if the lease has ended before.
    fn until<T, L>(
        &self,
        look: L,
    ) -> impl Future<Output = Result<T, LeaseEnd>> + Send + 'static + use<T, L>
    where
        T: Send + 'static,
        L: Fn(&Attempt, &State) -> Option<T> + Send + Sync + 'static,
    {
        let attempt = Arc::clone(&self.attempt);
        async move {
            let found = attempt.wait(|state| {
                let has_ended = || attempt.end.check(attempt.cluster().now()).is_err();
                look(&attempt, state).map(Some).or_else(|| has_ended().then_some(None))
            });
            found.await.ok_or_else(|| attempt.lost())
        }
    }

    /// Whether the lease is valid and [at risk](Self::at_risk). A look at the clock and a mutex: no
    /// I/O.
    #[must_use]
    pub fn is_at_risk(&self) -> bool {
        self.is_valid() && self.attempt.look(|state| state.is_at_risk(&self.attempt))
    }

    /// What each node answered to the latest extension that failed, if none has succeeded since. A
    /// mutex: no I/O.
    #[must_use]
    pub fn failed_extension(&self) -> Option<QuorumFailure> {
        self.attempt.look(|state| state.told.is_failing.then(|| state.failure(&self.attempt)))
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
        Self::run_under([self.clone()], future).map_err(|(reason, _)| Stopped { reason })
    }

    /// The same under several leases, of which the first that ends is the end. An error has what
    /// the future returned, if it was ready by then.
    pub(crate) fn run_under<F: Future, L: AsRef<[Self]>>(
        leases: L,
        future: F,
    ) -> impl Future<Output = Result<F::Output, (LeaseEnd, Option<F::Output>)>> + use<F, L> {
        let (lost, future) = (Self::first_lost(leases.as_ref()), Box::pin(future));
        async move {
            match select(lost, future).await {
                Either::Left((reason, _)) => Err((reason, None)),
                // A future may block its thread beyond the end.
                Either::Right((value, _)) => {
                    match leases.as_ref().iter().try_for_each(Self::check) {
                        Ok(()) => Ok(value),
                        Err(reason) => Err((reason, Some(value))),
                    }
                }
            }
        }
    }

    /// Resolves when the first of these leases has ended, and says why.
    pub(crate) fn first_lost(
        leases: &[Self],
    ) -> impl Future<Output = LeaseEnd> + Send + Unpin + 'static + use<> {
        let ends = leases.iter().map(|lease| Box::pin(lease.lost()));
        select_all(ends).map(|(end, ..)| end)
    }

    pub(crate) const fn attempt(&self) -> &Arc<Attempt> {
        &self.attempt
    }

    pub(crate) fn cluster(&self) -> &Arc<Cluster> {
        self.attempt.cluster()
    }

    /// An error if the lease has ended, with the reason.
    pub(crate) fn check(&self) -> Result<(), LeaseEnd> {
        let checked = self.attempt.end.check(self.cluster().now());
        checked.map(drop).map_err(|_| self.attempt.lost())
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("keys", &self.keys())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
