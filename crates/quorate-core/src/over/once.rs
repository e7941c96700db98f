//! Work that is done once per period, by one of many processes.
//!
//! The wall clock only chooses a name: the lock is `NAME@N`, with N the number of the period. After a success the
//! lock is kept on the nodes, where it marks the period as done.

use std::time::Duration;

use crate::Lease;
use crate::LockManager;
use crate::error::{ExtendError, InvalidRequest, LockError, OnceError, Stopped, WithError};
use crate::over::access::Ttl;
use crate::over::access::release;
use crate::over::access::telemetry;
use crate::resource::{IntoResource, IntoResources, InvalidResource, Resource};

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
    /// /// Called every hour, on every machine.
    /// async fn every_hour(locks: &LockManager) -> Result<(), Box<dyn std::error::Error>> {
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
    /// - [`WithError::Lock`]: the lock was not acquired, for another reason than that it is held. The body did not
    ///   run. [`InvalidRequest::Period`]: the period is under 1 s or over 365 days.
    /// - [`WithError::Lost`]: the lease was lost, and another process may run the body in this period. What the body
    ///   returned is in the error, if it was ready.
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
    ) -> impl Future<Output = Result<Option<Result<T, E>>, OnceError<T, E>>> + use<R, F, T, E>
    where
        R: IntoResource,
        F: AsyncFnOnce(Lease) -> Result<T, E>,
    {
        once_per(self.clone(), name.into_resource(), period, body)
    }
}

async fn once_per<T, E>(
    manager: LockManager,
    name: Result<Resource, InvalidResource>,
    period: Duration,
    body: impl AsyncFnOnce(Lease) -> Result<T, E>,
) -> Result<Option<Result<T, E>>, OnceError<T, E>> {
    if !(LEAST..=Ttl::MAX).contains(&period) {
        let error = LockError::from(InvalidRequest::Period { period });
        telemetry::not_acquired(&[], Duration::ZERO, error.reason(), &error);
        return Err(error.into());
    }
    let now = Duration::from_micros(manager.cluster().runtime.unix_micros());
    let name = name.and_then(|name| of_period(&name, now.as_nanos() / period.as_nanos()));
    let request = manager.request(name.and_then(Resource::into_resources));
    let guard = match request.no_wait().auto_renew().await {
        Ok(guard) => guard,
        Err(error) if error.is_held() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let body = body(guard.lease());
    let value = guard.run(body).await.map_err(WithError::Lost)?;
    if value.is_err() {
        return release(guard, value).await.map(Some);
    }
    match guard.keep(2 * period).await {
        Err(ExtendError::Lost(reason)) => Err(Stopped { reason, value: Some(value) }.into()),
        // Without a quorum, the lock stays for its ttl.
        _ => Ok(Some(value)),
    }
}

/// The name of one period.
fn of_period(name: &Resource, number: u128) -> Result<Resource, InvalidResource> {
    Resource::new([name.as_bytes(), format!("@{number}").as_bytes()].concat())
}
