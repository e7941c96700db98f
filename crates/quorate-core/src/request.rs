//! A lock as it is asked for, until it is awaited.

use std::future::IntoFuture;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};

use crate::acquire::{Wanted, acquire};
use crate::error::{InvalidRequest, LockError, Lost, ReleaseError, Stopped, WithError};
use crate::guard::LockGuard;
use crate::lease::Lease;
use crate::lease::renewal::renew;
use crate::resource::{InvalidResource, Resources};
use crate::runtime::BoxFuture;
use crate::telemetry;
use crate::wait::local_queue::LocalQueues;

/// A request for a lock. Created by [`LockManager::lock`](crate::LockManager::lock); await it.
///
/// # Errors
///
/// - [`LockError::Held`]: until the timeout, refusals left no quorum, or a guard or an earlier waiter of this
///   manager was in the way.
/// - [`LockError::Unreachable`]: until the timeout, too few nodes replied well to form a quorum.
/// - [`LockError::Invalid`]: a name or a setting is invalid.
/// - [`LockError::SameServer`], [`LockError::Entropy`], [`LockError::Closed`].
///
/// # Cancel safety
///
/// Dropping the future releases in the background what was acquired, within the cleanup bound.
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is awaited"]
pub struct LockRequest {
    queues: Arc<LocalQueues>,
    resources: Result<Resources, InvalidResource>,
    ttl: Option<Duration>,
    hold_limit: Option<Duration>,
    /// `None` for one round.
    timeout: Option<Duration>,
    fencing: bool,
    auto_renew: bool,
}

impl LockRequest {
    pub(crate) fn new(
        queues: Arc<LocalQueues>,
        resources: Result<Resources, InvalidResource>,
    ) -> Self {
        let timeout = Some(queues.cluster.config.timeout);
        Self {
            queues,
            resources,
            ttl: None,
            hold_limit: None,
            timeout,
            fencing: false,
            auto_renew: false,
        }
    }

    /// How long the nodes keep the lock. Default: the manager's.
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// How long the lock is held at most, however often it is extended. Then it is released. Default: the
    /// manager's.
    pub const fn hold_limit(mut self, limit: Duration) -> Self {
        self.hold_limit = Some(limit);
        self
    }

    /// How long to wait for the lock. Default: the manager's. Zero is not enough for a round: see
    /// [`no_wait`](Self::no_wait).
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Makes one round at most.
    ///
    /// Fails at once with [`LockError::Held`] where a guard or a waiter of this manager is in the way. Before the
    /// round it waits for a release, or an undo, of this manager; after a lost round, for its undo. Each of the
    /// three takes a node timeout at most.
    pub const fn no_wait(mut self) -> Self {
        self.timeout = None;
        self
    }

    /// Renews the lease in a background task. See [`LockGuard::auto_renew`].
    pub const fn auto_renew(mut self) -> Self {
        self.auto_renew = true;
        self
    }

    /// Acquires the lock with a fencing token, which is higher than that of every earlier holder.
    ///
    /// See [`LockGuard::fencing_token`]. While the nodes agree on the number, it costs no further round trip.
    /// Each node must keep fencing numbers, and must not lose them.
    pub const fn fenced(mut self) -> Self {
        self.fencing = true;
        self
    }

    /// Runs `body` under the lock. See [`LockManager::with`](crate::LockManager::with).
    ///
    /// # Errors
    ///
    /// [`WithError`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the body, and releases in the background.
    pub async fn with<T>(self, body: impl AsyncFnOnce(Lease) -> T) -> Result<T, WithError<T>> {
        let guard = self.await?;
        let body = body(guard.lease());
        run_under(guard, body).await
    }

    /// The same for a body that is a function from a lease to a future, such as a boxed closure.
    ///
    /// # Errors
    ///
    /// [`WithError`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the body, and releases in the background.
    pub async fn with_future<F: Future>(
        self,
        body: impl FnOnce(Lease) -> F,
    ) -> Result<F::Output, WithError<F::Output>> {
        let guard = self.await?;
        let body = body(guard.lease());
        run_under(guard, body).await
    }

    async fn acquire(self) -> Result<LockGuard, LockError> {
        let cluster = Arc::clone(&self.queues.cluster);
        let start = cluster.now();
        let wanted = self.check().inspect_err(|error| {
            telemetry::not_acquired(&[], Duration::ZERO, "invalid", error);
        })?;
        let keys = &wanted.keys;
        let acquiring = async {
            let result = acquire(&self.queues, &wanted).await;
            let waited = cluster.now().saturating_duration_since(start);
            match &result {
                Ok((_, lease)) => telemetry::acquired(keys, waited, lease.remaining()),
                Err(error) => telemetry::not_acquired(keys, waited, error.reason(), error),
            }
            result.map(LockGuard::new)
        };
        let guard = telemetry::in_lock_span(keys, acquiring).await?;
        if self.auto_renew {
            guard.auto_renew();
        }
        Ok(guard)
    }

    fn check(&self) -> Result<Wanted, InvalidRequest> {
        let resources = self.resources.as_ref().map_err(Clone::clone)?;
        let cluster = &self.queues.cluster;
        Wanted::new(cluster, resources, self.ttl, self.hold_limit, self.fencing, self.timeout)
    }
}

impl IntoFuture for LockRequest {
    type Output = Result<LockGuard, LockError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.acquire())
    }
}

/// Runs `body` until the lease ends, and renews the lease in the same task. Then releases.
async fn run_under<F: Future>(
    guard: LockGuard,
    body: F,
) -> Result<F::Output, WithError<F::Output>> {
    let lease = guard.lease();
    let result = {
        let running = pin!(guard.run(async {
            if planted!("body_waits_for_the_renewal") {
                lease.lost().await;
            }
            body.await
        }));
        // The body is polled while a renewal runs (A3). At the end of the lease it is dropped first.
        match select(running, pin!(renew(&lease))).await {
            Either::Left((result, _)) => result,
            Either::Right(((), running)) => running.await,
        }
    };
    let value = result.map_err(WithError::Lost)?;
    // A release that too few nodes answer goes on in the background.
    let cluster = lease.cluster();
    let limit = cluster.sleep(cluster.config.node_timeout(lease.attempt().claim.ttl()));
    match select(pin!(guard.release()), pin!(limit)).await {
        // After a close, no other client may have held the lock.
        Either::Left((Err(ReleaseError::Lost(Lost::Closed)), _)) => Ok(value),
        Either::Left((Err(ReleaseError::Lost(reason)), _)) => {
            Err(WithError::Lost(Stopped { reason, value: Some(value) }))
        }
        _ => Ok(value),
    }
}
