//! A lease: the view of an attempt that its holder has.
//!
//! It keeps no state of its own. A lease ends by the clock at `valid_until`, whether or not a task
//! has run (H4).

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use futures_util::future::select_all;
use futures_util::{FutureExt as _, TryFutureExt as _};
use pin_project::pin_project;

use crate::algorithm::fence::FencingToken;
use crate::attempt::Attempt;
use crate::cluster::Cluster;
use crate::error::{LeaseEnd, QuorumFailure, Stopped};
use crate::resource::{Key, Label};
use crate::seam::runtime::BoxFuture;

/// A view of a lease, for other tasks. Cheap to clone; it does not keep the lock.
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
    #[must_use]
    pub fn valid_until(&self) -> Instant {
        let end = &self.attempt.end;
        end.ended().map_or_else(|| end.valid_until(), |(_, at)| at)
    }

    /// Whether the lease is valid. A look at the clock: no I/O, no lock.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.attempt.end.check(self.cluster().now()).is_ok()
    }

    /// What is left of the lease; zero if it has ended. A look at the clock: no I/O, no lock.
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

    /// The lock's fencing token, if one was asked for.
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.attempt.fencing_token()
    }

    /// Resolves when the lease has ended, by a local timer, and says why. See
    /// [`LockGuard::lost`](crate::LockGuard::lost).
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time.
    pub fn lost(&self) -> impl Future<Output = LeaseEnd> + Send + 'static + use<> {
        let attempt = Arc::clone(&self.attempt);
        async move { attempt.ended().await }
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

    /// Resolves when the lease is at risk, with the time that is left. See
    /// [`LockGuard::at_risk`](crate::LockGuard::at_risk).
    ///
    /// # Errors
    ///
    /// [`LeaseEnd`]: the lease has ended.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time.
    pub fn at_risk(
        &self,
    ) -> impl Future<Output = Result<Duration, LeaseEnd>> + Send + 'static + use<> {
        let attempt = Arc::clone(&self.attempt);
        async move { attempt.at_risk().await }
    }

    /// Resolves when the lock was revoked, with the label of the process that did it. See
    /// [`LockGuard::revoked`](crate::LockGuard::revoked).
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
        let attempt = Arc::clone(&self.attempt);
        async move { attempt.revoked().await }
    }

    /// Whether the lease is valid and [at risk](Self::at_risk). A look at the clock and a mutex: no
    /// I/O.
    #[must_use]
    pub fn is_at_risk(&self) -> bool {
        self.attempt.is_at_risk()
    }

    /// What each node answered to the latest extension that failed, if none has succeeded since. A
    /// mutex: no I/O.
    #[must_use]
    pub fn failed_extension(&self) -> Option<QuorumFailure> {
        self.attempt.failed_extension()
    }

    /// Runs `future` until the lease ends. See [`LockGuard::run`](crate::LockGuard::run).
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
        self.run_to_end(future).map_err(|(reason, _)| Stopped { reason })
    }

    /// The same, with what the future returned if it was ready by then.
    pub(crate) fn run_to_end<F: Future>(&self, future: F) -> Run<F, [Self; 1]> {
        Self::run_under([self.clone()], future)
    }

    /// The same under several leases, of which the first that ends is the end.
    pub(crate) fn run_under<F: Future, L: AsRef<[Self]>>(leases: L, future: F) -> Run<F, L> {
        Run { future: Some(future), lost: Self::first_lost(leases.as_ref()), leases }
    }

    /// Resolves when the first of these leases has ended, and says why.
    pub(crate) fn first_lost(leases: &[Self]) -> BoxFuture<'static, LeaseEnd> {
        match leases {
            [one] => Box::pin(one.lost()),
            several => {
                let ends = several.iter().map(|lease| Box::pin(lease.lost()));
                Box::pin(select_all(ends).map(|(end, ..)| end))
            }
        }
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

/// A future that ends with the first of its leases.
#[pin_project]
pub(crate) struct Run<F, L> {
    /// `None` once it has ended or was stopped.
    #[pin]
    future: Option<F>,
    lost: BoxFuture<'static, LeaseEnd>,
    leases: L,
}

impl<F: Future, L: AsRef<[Lease]>> Future for Run<F, L> {
    type Output = Result<F::Output, (LeaseEnd, Option<F::Output>)>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let Some(future) = this.future.as_mut().as_pin_mut() else {
            // Polled after its end.
            return Poll::Pending;
        };
        if let Poll::Ready(reason) = this.lost.as_mut().poll(context) {
            this.future.set(None);
            return Poll::Ready(Err((reason, None)));
        }
        let value = ready!(future.poll(context));
        this.future.set(None);
        // A future may block its thread beyond the end.
        Poll::Ready(match this.leases.as_ref().iter().try_for_each(Lease::check) {
            Ok(_) => Ok(value),
            Err(reason) => Err((reason, Some(value))),
        })
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
