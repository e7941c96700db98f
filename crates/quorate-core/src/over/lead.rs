//! Leading: a loop around a lock. A process leads in *terms*, each of them one lease.

use std::time::Duration;

use futures_util::FutureExt as _;

use crate::error::LockError;
use crate::over::access::{release, scale, telemetry};
use crate::resource::{IntoResource, IntoResources, Resource};
use crate::{Lease, LockGuard, LockManager, LockRequest};

/// The first pause after a round without a quorum, before jitter. It doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

impl LockManager {
    /// Leads under `name` whenever this process can, until `body` returns.
    ///
    /// Waits without a deadline, and runs `body` under the lock, which is renewed. When the lease
    /// is lost, the body is dropped before another process can lead. Then this process competes
    /// again, and calls the body anew for its next term. When the body returns, the lock is
    /// released and its value returned. `None`: the manager was [drained](Self::drain) or closed
    /// before that. A body that runs then is told by [`Lease::draining`].
    ///
    /// While too few nodes reply, it tries again after 1 s, 2 s, 4 s … 30 s, each shortened by up
    /// to a half at random. Code in the body that blocks the thread or was spawned is not stopped:
    /// give it the [`Lease`]. [Fenced](LockRequest::with_token), each term has a number.
    ///
    /// The future of a term must not borrow from the closure: `async move |lease| …` may use no
    /// value that it owns. A closure without `move` borrows from its surroundings, in an
    /// `async move` block of a spawned task as well.
    ///
    /// ```
    /// # use quorate_core::{LockError, LockManager};
    /// # async fn schedule_jobs() {}
    /// # async fn example(locks: LockManager) -> Result<(), LockError> {
    /// let leading = locks.lead("scheduler", async |lease| {
    ///     println!("leads until {:?}, if not renewed", lease.valid_until());
    ///     schedule_jobs().await; // to return is to resign
    /// });
    /// if leading.await?.is_none() {
    ///     println!("the process is to end");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Before the first term: an error that no waiting heals. See [`LockError::is_permanent`].
    ///
    /// After the first term, every error is retried, with the pause and the event `not leading`: a
    /// failover, or a password that is being changed, does not end the leading of all processes.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future resigns: it drops the body, and releases in the background.
    pub fn lead<R, B, F>(
        &self,
        name: R,
        body: B,
    ) -> impl Future<Output = Result<Option<F::Output>, LockError>> + use<R, B, F>
    where
        R: IntoResource,
        B: FnMut(Lease) -> F,
        F: Future,
    {
        self.request(name.into_resource().and_then(Resource::into_resources)).lead(body)
    }
}

impl LockRequest {
    /// Leads under this lock whenever this process can. See [`LockManager::lead`].
    ///
    /// The ttl, the hold limit and fencing are those of the request. A [`timeout`](Self::timeout)
    /// and [`no_wait`](Self::no_wait) play no part. A lock for [reading](LockManager::read) is
    /// refused.
    ///
    /// # Errors
    ///
    /// As [`LockManager::lead`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future resigns: it drops the body, and releases in the background.
    pub async fn lead<F: Future>(
        self,
        mut body: impl FnMut(Lease) -> F,
    ) -> Result<Option<F::Output>, LockError> {
        self.lead_under(|guard| Ok(body(guard.lease()))).await
    }

    /// The same with what begins a body under a lock.
    pub(super) async fn lead_under<F: Future>(
        self,
        mut begin: impl FnMut(&LockGuard) -> Result<F, LockError>,
    ) -> Result<Option<F::Output>, LockError> {
        let request = self.set(|settings| settings.needs_quorum = true).wait_forever().auto_renew();
        let mut has_led = false;
        while let Some(guard) = next_term(&request, has_led).boxed().await? {
            has_led = true;
            let body = begin(&guard)?;
            match Lease::run_under([guard.lease()], body).await {
                // A body that has returned is over, although its lease may be so too.
                Ok(value) | Err((_, Some(value))) => {
                    let _ = release(guard, ()).boxed().await;
                    return Ok(Some(value));
                }
                Err((_, None)) => {}
            }
        }
        Ok(None)
    }
}

/// Acquires the lock, however long that takes. `None` once the manager is drained or closed.
/// `has_led`: it has had a term before, so that no error is lasting.
async fn next_term(request: &LockRequest, has_led: bool) -> Result<Option<LockGuard>, LockError> {
    let mut failures = 0_u32;
    loop {
        let error = match request.clone().await {
            Ok(guard) => return Ok(Some(guard)),
            Err(error) if error.is_closed() => return Ok(None),
            Err(error) if error.is_permanent() && !has_led => return Err(error),
            Err(error) => error,
        };
        let cluster = request.cluster();
        let whole = FIRST_PAUSE.saturating_mul(1 << failures.min(5)).min(LONGEST_PAUSE);
        let pause = whole / 2 + scale(whole / 2, cluster.random());
        telemetry::not_leading(&request.keys(), pause, &error);
        if cluster.attempts.unless_closed(cluster.sleep(pause)).await.is_none() {
            return Ok(None);
        }
        failures = failures.saturating_add(1);
    }
}
