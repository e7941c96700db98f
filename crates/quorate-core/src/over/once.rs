//! Work that is done once per period, by one of many processes.
//!
//! The wall clock only chooses a name: the lock is `NAME@N`, with N the number of the period. After a success the
//! lock is kept on the nodes, where it marks the period as done.

use std::time::Duration;

use crate::error::{ExtendError, InvalidRequest, LockError, OnceError, Stopped};
use crate::over::access::{Ttl, release, telemetry};
use crate::resource::{IntoResource, IntoResources, InvalidResource, Resource};
use crate::{Lease, LockGuard, LockManager, LockRequest};

/// The shortest period. The longest is the longest ttl.
const LEAST: Duration = Duration::from_secs(1);

impl LockManager {
    /// Runs `body`, unless this or another process has run it in this period, or is running it.
    ///
    /// Periods are those of the Unix clock: the number of a period is `now / period`, rounded down. The lock is
    /// `NAME@NUMBER`. The body runs as in [`with`](Self::with). If it returns `Ok`, the lock is
    /// [kept](crate::LockGuard::keep) for two periods, and marks the period as done. Two, so that a machine whose
    /// clock is a period slow does not run it again.
    ///
    /// A body that fails, panics or loses its lease lets another call run it in the same period. After a crash
    /// that is so once the ttl has passed. A process that crashes after the work and before the mark is set leaves no
    /// mark: make the work idempotent. Successive periods have different names, so a body that outlives its period
    /// runs beside the next one, unless it locks `NAME` inside.
    ///
    /// If no quorum keeps the mark, the value is returned all the same, with the event `not kept`.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use quorate_core::LockManager;
    /// # async fn send_report() -> Result<(), std::io::Error> { Ok(()) }
    ///
    /// /// Called every ten minutes, on every machine.
    /// async fn report(locks: &LockManager) -> Result<(), Box<dyn std::error::Error>> {
    ///     let hour = Duration::from_secs(60 * 60);
    ///     match locks.once_per("report", hour, async |_lease| send_report().await).await? {
    ///         Some(sent) => sent?,
    ///         None => println!("another machine does it"),
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// - [`WithError::Lock`](crate::WithError::Lock): the lock was not acquired, for another reason than that it is held. The body did not
    ///   run. [`InvalidRequest::Period`]: the period is under 1 s or over 365 days.
    /// - [`WithError::Lost`](crate::WithError::Lost): the lease was lost, and another process may run the body in this
    ///   period. What the body returned is dropped.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the body, and releases in the background. If the body has returned `Ok`, the mark
    /// is set in the background.
    pub fn once_per<R, F, T, E>(
        &self,
        name: R,
        period: Duration,
        body: F,
    ) -> impl Future<Output = Result<Option<Result<T, E>>, OnceError>> + use<R, F, T, E>
    where
        R: IntoResource,
        F: AsyncFnOnce(Lease) -> Result<T, E>,
    {
        let names = name.into_resource().and_then(Resource::into_resources);
        self.request(names).once_per(period, body)
    }
}

impl LockRequest {
    /// Runs `body`, unless this or another process has run it in this period, or is running it. See
    /// [`LockManager::once_per`].
    ///
    /// The ttl, the label, the hold limit and fencing are those of the request, and `@NUMBER` goes behind each of its names.
    /// A [`timeout`](Self::timeout) plays no part. A lock for [reading](LockManager::read) is refused.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use quorate_core::{LockManager, error::OnceError};
    /// # async fn send_report(number: u64) -> Result<(), std::io::Error> { Ok(()) }
    /// # async fn example(locks: &LockManager) -> Result<(), OnceError> {
    /// let hour = Duration::from_secs(60 * 60);
    /// let report = locks.lock("report").label("web-3").with_token();
    /// let sent = report.once_per(hour, async |_lease, token| send_report(token.get()).await);
    /// println!("{}", if sent.await?.is_some() { "sent, or not" } else { "another machine does it" });
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`LockManager::once_per`].
    ///
    /// # Cancel safety
    ///
    /// As [`LockManager::once_per`].
    pub async fn once_per<T, E>(
        self,
        period: Duration,
        body: impl AsyncFnOnce(Lease) -> Result<T, E>,
    ) -> Result<Option<Result<T, E>>, OnceError> {
        self.once_per_under(period, |guard| Ok(body(guard.lease()))).await
    }

    /// The same with what begins the body under a lock.
    pub(super) async fn once_per_under<T, E, F: Future<Output = Result<T, E>>>(
        self,
        period: Duration,
        begin: impl FnOnce(&LockGuard) -> Result<F, LockError>,
    ) -> Result<Option<Result<T, E>>, OnceError> {
        let invalid = match (LEAST..=Ttl::MAX).contains(&period) {
            false => Some(InvalidRequest::Period { period }),
            true if self.is_shared() => {
                Some(InvalidRequest::Shared { what: "done once per period" })
            }
            true => None,
        };
        if let Some(error) = invalid.map(LockError::from) {
            telemetry::not_acquired(&[], Duration::ZERO, error.reason(), &error);
            return Err(error.into());
        }
        let now = Duration::from_micros(self.cluster().runtime.unix_micros());
        let number = now.as_nanos() / period.as_nanos();
        let request = self.map_names(|name| of_period(name, number)).auto_renew();
        let Some(guard) = request.try_now().await? else { return Ok(None) };
        let body = begin(&guard)?;
        let value = guard.run(body).await?;
        if value.is_err() {
            return release(guard, value).await.map(Some);
        }
        match guard.keep(2 * period).await {
            Err(ExtendError::Lost(reason)) => Err(Stopped { reason }.into()),
            // Without a quorum, there is no mark.
            _ => Ok(Some(value)),
        }
    }
}

/// The name of one period.
fn of_period(name: &Resource, number: u128) -> Result<Resource, InvalidResource> {
    Resource::new([name.as_bytes(), format!("@{number}").as_bytes()].concat())
}
