//! Leading: a loop around a lock. A process leads in *terms*, each of them one lease.

use std::time::Duration;

use futures_util::FutureExt as _;

use crate::error::{LeaseEnd, LockError};
use crate::over::access::{release, scale, telemetry};
use crate::resource::{IntoResource, IntoResources, Resource};
use crate::{Lease, LockGuard, LockManager, LockRequest};

/// The first pause after a round without a quorum, before jitter. It doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

impl LockManager {
    /// Leads under `name` whenever this process can, until `body` returns.
    ///
    /// Waits without a deadline, and runs `body` under the lock, which is renewed. When the lease is lost, the body is
    /// dropped before another process can lead. Then this process competes again, and calls the body anew for
    /// its next term. When the body returns, the lock is released and its value returned.
    ///
    /// While too few nodes reply, it tries again after 1 s, 2 s, 4 s … 30 s, each shortened by up to a half at random.
    /// Code in the body that blocks the thread or was spawned is not stopped: give it the [`Lease`]. With
    /// [`LockRequest::fenced`] the fencing token is the number of the term.
    ///
    /// ```
    /// # use quorate_core::{LockError, LockManager};
    /// # async fn schedule_jobs() {}
    /// # async fn example(locks: LockManager) -> Result<(), LockError> {
    /// let leading = locks.lead("scheduler", async move |lease| {
    ///     println!("leads until {:?}, if not renewed", lease.valid_until());
    ///     schedule_jobs().await; // to return is to resign
    /// });
    /// leading.await
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// - Before the first term: an error that no waiting heals. See [`LockError::is_permanent`].
    /// - [`LockError::Closed`], at any time.
    ///
    /// After the first term, every other error is retried, with the pause and the event `not leading`: a failover,
    /// or a password that is being changed, does not end the leading of all processes.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future resigns: it drops the body, and releases in the background.
    pub fn lead<R, F, T>(
        &self,
        name: R,
        body: F,
    ) -> impl Future<Output = Result<T, LockError>> + use<R, F, T>
    where
        R: IntoResource,
        F: AsyncFnMut(Lease) -> T,
    {
        self.request(name.into_resource().and_then(Resource::into_resources)).lead(body)
    }
}

impl LockRequest {
    /// Leads under this lock whenever this process can. See [`LockManager::lead`].
    ///
    /// The ttl, the hold limit and fencing are those of the request. A [`timeout`](Self::timeout) and
    /// [`no_wait`](Self::no_wait) play no part. A lock for [reading](LockManager::read) is refused.
    ///
    /// # Errors
    ///
    /// [`LockError`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future resigns: it drops the body, and releases in the background.
    pub async fn lead<T>(self, mut body: impl AsyncFnMut(Lease) -> T) -> Result<T, LockError> {
        let mut leading = Leading::new(self);
        loop {
            let guard = leading.next_term().boxed().await?;
            let body = body(guard.lease());
            let ended = guard.lease().run_to_end(body).await;
            if let Some(value) = returned(guard, ended).await? {
                return Ok(value);
            }
        }
    }

    /// The same for a body that is a function from a lease to a future, such as a boxed closure.
    ///
    /// To be spawned, the future of [`lead`](Self::lead) needs an `async move` closure, and rustc 1.95 does not see that
    /// it is `Send` if the closure has captured a trait object. This one it does see through.
    ///
    /// # Errors
    ///
    /// [`LockError`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future resigns: it drops the body, and releases in the background.
    pub async fn lead_future<F: Future>(
        self,
        mut body: impl FnMut(Lease) -> F,
    ) -> Result<F::Output, LockError> {
        let mut leading = Leading::new(self);
        loop {
            let guard = leading.next_term().boxed().await?;
            let body = body(guard.lease());
            let ended = guard.lease().run_to_end(body).await;
            if let Some(value) = returned(guard, ended).await? {
                return Ok(value);
            }
        }
    }
}

/// A process that leads whenever it can.
struct Leading {
    request: LockRequest,
    has_led: bool,
    /// How often it has failed to acquire since its last term.
    failures: u32,
}

impl Leading {
    fn new(request: LockRequest) -> Self {
        Self { request: request.while_held().auto_renew(), has_led: false, failures: 0 }
    }

    /// Acquires the lock, however long that takes.
    async fn next_term(&mut self) -> Result<LockGuard, LockError> {
        loop {
            let error = match self.request.clone().await {
                Ok(guard) => {
                    (self.has_led, self.failures) = (true, 0);
                    return Ok(guard);
                }
                Err(error) => error,
            };
            if error.is_closed() || error.is_permanent() && !self.has_led {
                return Err(error);
            }
            let cluster = self.request.cluster();
            let whole = FIRST_PAUSE.saturating_mul(1 << self.failures.min(5)).min(LONGEST_PAUSE);
            let pause = whole / 2 + scale(whole / 2, cluster.random());
            telemetry::not_leading(&self.request.keys(), pause, &error);
            let paused = cluster.attempts.unless_closed(cluster.sleep(pause));
            paused.await.ok_or(LockError::Closed)?;
            self.failures = self.failures.saturating_add(1);
        }
    }
}

/// Ends a term. Returns what the body has returned, if it has.
async fn returned<T>(
    guard: LockGuard,
    ended: Result<T, (LeaseEnd, Option<T>)>,
) -> Result<Option<T>, LockError> {
    match ended {
        // A body that has returned is over, although its lease may be so too.
        Ok(value) | Err((_, Some(value))) => {
            let _ = release(guard, ()).boxed().await;
            Ok(Some(value))
        }
        Err((LeaseEnd::Closed(_), None)) => Err(LockError::Closed),
        Err(_) => Ok(None),
    }
}
