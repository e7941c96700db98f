//! A lock as asked for, until it is awaited.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use crate::algorithm::retry::RetryStrategy;
use crate::cluster::Cluster;
use crate::error::{LockError, WithError};
use crate::guard::LockGuard;
use crate::lease::Lease;
use crate::manager::{self, Wanted};
use crate::observe;
use crate::resource::{InvalidResource, Resources};
use crate::runtime::BoxFuture;
use crate::with;

/// A lock that is waited for. Made by [`LockManager::lock`](crate::LockManager::lock).
///
/// # Errors
///
/// [`LockError`]: that of the last round, once the deadline has come, the strategy gives up, or
/// the nodes fail in a way that waiting does not mend.
///
/// # Cancel safety
///
/// The future can be dropped at any time. Whatever it had taken on single nodes is given back in
/// the background, within the cleanup timeout.
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is awaited"]
pub struct LockRequest {
    cluster: Arc<Cluster>,
    resources: Result<Resources, InvalidResource>,
    ttl: Option<Duration>,
    hold_limit: Option<Duration>,
    fenced: bool,
    wait: Option<Duration>,
    retry: Option<Arc<dyn RetryStrategy>>,
}

impl LockRequest {
    pub(crate) const fn new(
        cluster: Arc<Cluster>,
        resources: Result<Resources, InvalidResource>,
    ) -> Self {
        Self {
            cluster,
            resources,
            ttl: None,
            hold_limit: None,
            fenced: false,
            wait: None,
            retry: None,
        }
    }

    /// How long the nodes keep the lock. Default: the manager's.
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// How long the lock is held at the most, however often it is extended. Default: the manager's.
    pub const fn hold_limit(mut self, limit: Duration) -> Self {
        self.hold_limit = Some(limit);
        self
    }

    /// Takes the lock with a [`FencingToken`](crate::FencingToken): a number that is greater than
    /// that of every earlier holder of the resource, which the resource itself can check. See
    /// [`LockGuard::fencing_token`].
    ///
    /// It excludes holders without a token as they exclude each other, but only holders with one
    /// are in an order. While the nodes agree, it costs no round trip more; where they do not, one
    /// more, within the same node timeout. Each node must be able to keep numbers (those of the
    /// backends here are), and must not lose them: see [`protocol::fence`](crate::protocol::fence)
    /// for what to know as an operator, and [`algorithm::fence`](crate::algorithm::fence) for why
    /// it holds.
    ///
    /// Besides the others, the request fails with [`LockError::NotFenced`],
    /// [`LockError::FenceHint`] or [`LockError::NoToken`].
    pub const fn fenced(mut self) -> Self {
        self.fenced = true;
        self
    }

    /// For how long to try. Default: the manager's.
    ///
    /// The first round may take one node timeout, even if that is longer. It is made in any case, unless
    /// the lock is held with this manager or others wait for it here: then the error may be what those
    /// in front were told.
    pub const fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// How long to wait between two rounds. Default: the manager's.
    pub fn retry(mut self, retry: impl RetryStrategy) -> Self {
        self.retry = Some(Arc::new(retry));
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
    /// The future can be dropped at any time: it drops the body, and releases in the background.
    pub async fn with<T>(self, body: impl AsyncFnOnce(Lease) -> T) -> Result<T, WithError<T>> {
        with::with(self.into_future(), body).await
    }
}

impl IntoFuture for LockRequest {
    type Output = Result<LockGuard, LockError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let Self { cluster, resources, ttl, hold_limit, fenced, wait, retry } = self;
            let wanted = Wanted::new(&cluster, resources, ttl, hold_limit, fenced)?;
            let wait = wait.unwrap_or(cluster.config.wait);
            let retry = retry.unwrap_or_else(|| Arc::clone(&cluster.config.retry));
            let locking = manager::lock(&cluster, &wanted, wait, &*retry);
            observe::acquiring(&cluster, &wanted.keys, locking).await
        })
    }
}

/// A lock that is tried once. Made by [`LockManager::try_lock`](crate::LockManager::try_lock).
///
/// # Errors
///
/// [`LockError`], after one node timeout at the latest.
///
/// # Cancel safety
///
/// As [`LockRequest`].
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is awaited"]
pub struct TryLockRequest {
    cluster: Arc<Cluster>,
    resources: Result<Resources, InvalidResource>,
    ttl: Option<Duration>,
    hold_limit: Option<Duration>,
    fenced: bool,
}

impl TryLockRequest {
    pub(crate) const fn new(
        cluster: Arc<Cluster>,
        resources: Result<Resources, InvalidResource>,
    ) -> Self {
        Self { cluster, resources, ttl: None, hold_limit: None, fenced: false }
    }

    /// How long the nodes keep the lock. Default: the manager's.
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// How long the lock is held at the most, however often it is extended. Default: the manager's.
    pub const fn hold_limit(mut self, limit: Duration) -> Self {
        self.hold_limit = Some(limit);
        self
    }

    /// Takes the lock with a fencing token. See [`LockRequest::fenced`].
    pub const fn fenced(mut self) -> Self {
        self.fenced = true;
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
    /// The future can be dropped at any time: it drops the body, and releases in the background.
    pub async fn with<T>(self, body: impl AsyncFnOnce(Lease) -> T) -> Result<T, WithError<T>> {
        with::with(self.into_future(), body).await
    }
}

impl IntoFuture for TryLockRequest {
    type Output = Result<LockGuard, LockError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let Self { cluster, resources, ttl, hold_limit, fenced } = self;
            let wanted = Wanted::new(&cluster, resources, ttl, hold_limit, fenced)?;
            let locking = manager::try_lock(&cluster, &wanted);
            observe::acquiring(&cluster, &wanted.keys, locking).await
        })
    }
}
