//! A lock as it is asked for, until it is awaited.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use crate::acquire::{Request, RequestSettings, acquire};
use crate::attempt::lease::Lease;
use crate::cluster::Cluster;
use crate::error::{InvalidRequest, LockError, ReleaseError, Stopped, WithError};
use crate::manager::guard::LockGuard;
use crate::resource::{IntoResources as _, InvalidResource, Key, Label, Resource, Resources};
use crate::seam::backend::Mode;
use crate::seam::runtime::BoxFuture;
use crate::telemetry;
use crate::turns::ManagerState;

/// A request for a lock. Created by [`LockManager::lock`](crate::LockManager::lock),
/// [`read`](crate::LockManager::read), [`lock_any`](crate::LockManager::lock_any) and
/// [`permit`](crate::LockManager::permit); await it.
///
/// # Errors
///
/// - [`LockError::Held`]: until the timeout, refusals left no quorum, or a guard or an earlier
///   waiter of this manager was in the way.
/// - [`LockError::NoQuorum`]: until the timeout, too few nodes replied well to form a quorum.
/// - [`LockError::Invalid`]: a name or a setting is invalid.
/// - [`LockError::TooManyWaiters`]: with [`max_waiters`](crate::LockManagerBuilder::max_waiters).
/// - [`LockError::SameServer`], [`LockError::Entropy`], [`LockError::Closed`].
///
/// # Cancel safety
///
/// Dropping the future releases in the background what was acquired, within the cleanup bound.
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is awaited"]
pub struct LockRequest {
    manager: Arc<ManagerState>,
    resources: Result<Resources, InvalidResource>,
    settings: RequestSettings,
}

impl LockRequest {
    pub(crate) fn new(
        manager: Arc<ManagerState>,
        resources: Result<Resources, InvalidResource>,
    ) -> Self {
        let wait_limit = Some(manager.cluster.config.wait_timeout);
        Self {
            manager,
            resources,
            settings: RequestSettings { wait_limit, ..RequestSettings::default() },
        }
    }

    /// How long the nodes keep the lock. Default: the manager's.
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.settings.ttl = Some(ttl);
        self
    }

    /// How long the lock is held at most, however often it is extended. Default: the manager's. A
    /// process that adopts the lock has the limit of its own manager.
    pub const fn hold_limit(mut self, limit: Duration) -> Self {
        self.settings.hold_limit = Some(limit);
        self
    }

    /// How long to wait for the lock. Default: the manager's. Zero is [`no_wait`](Self::no_wait).
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.settings.wait_limit = Some(timeout);
        self
    }

    /// Waits without a deadline, whether the lock is held or too few nodes reply.
    ///
    /// Ends without the lock for a reason that no waiting heals ([`LockError::is_permanent`]), at a
    /// close, and with [`LockError::TooManyWaiters`] or [`LockError::Entropy`].
    pub const fn wait_forever(mut self) -> Self {
        self.settings.wait_limit = None;
        self
    }

    /// Waits for no holder: the error is *held* if there is one. See also
    /// [`try_now`](Self::try_now).
    ///
    /// Fails at once with [`LockError::Held`] where a guard or a waiter of this manager is in the
    /// way, where a quorum of nodes names one holder, or where a quorum refuses without a name, as
    /// for readers. If several clients that ask at the same moment split the votes, each undoes its
    /// round and asks again, after a pause that differs: one of them gets the lock. After ten such
    /// rounds, or two node timeouts, the error is [`LockError::Held`].
    ///
    /// Before the first round it waits for a release, or an undo, of this manager, for a node
    /// timeout at most. All in all it takes two node timeouts at most, and the time for the answers
    /// to its undo.
    pub const fn no_wait(self) -> Self {
        self.timeout(Duration::ZERO)
    }

    /// Acquires the lock if no other client or task has it. `None`: another has it. See
    /// [`LockManager::try_lock`](crate::LockManager::try_lock), which is this without settings.
    ///
    /// # Errors
    ///
    /// [`LockError`], but not [`LockError::Held`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases in the background what was acquired.
    pub async fn try_now(self) -> Result<Option<LockGuard>, LockError> {
        match self.no_wait().await {
            Ok(guard) => Ok(Some(guard)),
            Err(error) if error.is_held() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What other processes see of this holder. Default: the manager's. See
    /// [`LockManagerBuilder::label`](crate::LockManagerBuilder::label).
    pub fn label(mut self, label: impl AsRef<str>) -> Self {
        self.settings.label = Some(Label::new(label));
        self
    }

    /// Renews the lease in the background. See [`LockGuard::auto_renew`]. The ttl is at least 50 ms
    /// then, also for [`with`](Self::with).
    pub const fn auto_renew(mut self) -> Self {
        self.settings.is_renewed = true;
        self
    }

    /// Acquires the lock with a fencing token, which is higher than that of every earlier holder.
    ///
    /// Not for a lock that is [read](crate::LockManager::read): several readers hold it at the same
    /// time. [`with_token`](Self::with_token) gives the token with the guard; see also
    /// [`Lease::fencing_token`]. While the nodes agree on the number, it costs no further round
    /// trip. Each node must keep fencing numbers, and must not lose them.
    pub const fn fenced(mut self) -> Self {
        self.settings.fencing = true;
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
    pub async fn with<T>(self, body: impl AsyncFnOnce(Lease) -> T) -> Result<T, WithError> {
        self.with_future(|lease| body(lease)).await
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
    ) -> Result<F::Output, WithError> {
        let guard = self.auto_renew().await?;
        let body = body(guard.lease());
        run_under(guard, body).await
    }

    /// The same request on other names.
    pub(crate) fn map_names(
        mut self,
        name: impl Fn(&Resource) -> Result<Resource, InvalidResource>,
    ) -> Self {
        let names = self.resources.and_then(|names| names.as_slice().iter().map(name).collect());
        self.resources = names.and_then(|names: Vec<_>| names.into_resources());
        self
    }

    /// The same request with other settings.
    pub(crate) fn set(mut self, change: impl FnOnce(&mut RequestSettings)) -> Self {
        change(&mut self.settings);
        self
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.settings.mode == Mode::Shared
    }

    /// How long it waits for a holder; `None` without a deadline.
    pub(crate) const fn wait_limit(&self) -> Option<Duration> {
        self.settings.wait_limit
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        &self.manager.cluster
    }

    /// The keys; none if the request is invalid.
    pub(crate) fn keys(&self) -> Arc<[Key]> {
        self.check().map(|request| request.keys).unwrap_or_default()
    }

    async fn acquire(self) -> Result<LockGuard, LockError> {
        let cluster = Arc::clone(&self.manager.cluster);
        let start = telemetry::IS_ON.then(|| cluster.now());
        let request = self.check().map_err(LockError::from).inspect_err(|error| {
            telemetry::not_acquired(&[], Duration::ZERO, error);
        })?;
        let keys = &request.keys;
        let acquiring = async {
            let result = acquire(&self.manager, &request).await.map(Lease::new);
            if let Some(start) = start {
                let waited = cluster.now().saturating_duration_since(start);
                match &result {
                    Ok(lease) => telemetry::acquired(lease.keys(), waited, lease.remaining()),
                    Err(error) => telemetry::not_acquired(keys, waited, error),
                }
            }
            result.map(LockGuard::new).map_err(|error| error.of(keys))
        };
        telemetry::in_lock_span(keys, acquiring).await
    }

    fn check(&self) -> Result<Request, InvalidRequest> {
        let resources = self.resources.as_ref().map_err(Clone::clone)?;
        Request::new(&self.manager.cluster, resources, self.settings.clone())
    }
}

impl IntoFuture for LockRequest {
    type Output = Result<LockGuard, LockError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.acquire())
    }
}

/// Runs `body` until the lease ends, and then releases.
pub(crate) async fn run_under<F: Future>(
    guard: LockGuard,
    body: F,
) -> Result<F::Output, WithError> {
    // At the end of the lease the body is dropped, before the guard is.
    let value = guard.run(body).await.map_err(WithError::Lost)?;
    release(guard, value).await
}

/// Releases after a body that returned `value`. A release that too few nodes answer goes on in the
/// background.
pub(crate) async fn release<T>(guard: LockGuard, value: T) -> Result<T, WithError> {
    let lease = guard.lease();
    let cluster = lease.cluster();
    let limit = cluster.config.node_timeout(lease.attempt().claim.ttl());
    match cluster.within(limit, guard.release()).await {
        Some(Err(ReleaseError::Lost(reason))) => Err(WithError::Lost(Stopped { reason })),
        _ => Ok(value),
    }
}
