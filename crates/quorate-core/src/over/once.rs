//! Work that is done once per period, by one of many processes.
//!
//! The wall clock only chooses a name: the lock is `NAME@N`, with N the number or the date of the
//! period. After a success the lock is kept on the nodes, where it marks the period as done.

use std::time::Duration;

use crate::error::{ExtendError, InvalidRequest, LockError, OnceError, Stopped};
use crate::over::access::{month_of, release, telemetry, week_of};
use crate::resource::{IntoResource, IntoResources, InvalidResource, Resource};
use crate::{Lease, LockGuard, LockManager, LockRequest};

/// The shortest length of a period.
const LEAST: Duration = Duration::from_secs(1);

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A period of [`once_per`](LockManager::once_per), in UTC. A [`Duration`] is one, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Period {
    /// Periods of this length, from 1 s to 1 day, counted from 1970-01-01. One that divides a day
    /// begins at the same times on each day: an hour at each full hour, a day at midnight.
    Every(Duration),
    /// From Monday to Sunday.
    Week,
    /// A month of the calendar.
    Month,
}

impl From<Duration> for Period {
    fn from(length: Duration) -> Self {
        Self::Every(length)
    }
}

impl Period {
    /// What stands behind the `@` in the name of the lock, for the period at so much time since
    /// 1970: a number, such as `492901`, a week, such as `2026-W48Z`, or a month, such as
    /// `2026-11Z`.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use quorate_core::Period;
    ///
    /// let time = Duration::from_secs(1_795_824_000); // 2026-11-28
    /// assert_eq!(Period::Week.name_at(time), "2026-W48Z");
    /// assert_eq!(Period::Month.name_at(time), "2026-11Z");
    /// assert_eq!(Period::from(Duration::from_secs(60 * 60)).name_at(time), "498840");
    /// ```
    #[must_use]
    pub fn name_at(self, time: Duration) -> String {
        let day = time.as_secs() / DAY.as_secs();
        match self {
            Self::Every(length) => (time.as_nanos() / length.as_nanos().max(1)).to_string(),
            Self::Week => {
                let (year, week) = week_of(day);
                format!("{year:04}-W{week:02}Z")
            }
            Self::Month => {
                let (year, month) = month_of(day);
                format!("{year:04}-{month:02}Z")
            }
        }
    }

    /// The longest time from the begin of such a period to its end.
    #[must_use]
    pub const fn length(self) -> Duration {
        match self {
            Self::Every(length) => length,
            Self::Week => DAY.saturating_mul(7),
            Self::Month => DAY.saturating_mul(31),
        }
    }
}

impl LockManager {
    /// Runs `body`, unless this or another process has run it in this period, or is running it.
    ///
    /// A [`Period`] is a duration of at most a day, whose number is that of the Unix clock:
    /// `now / period`, rounded down; or a week or a month of the calendar, in UTC. The lock is
    /// `NAME@NUMBER` ([`Period::name_at`]). The body runs as in [`with`](Self::with). If it returns
    /// `Ok`, the lock is [kept](crate::LockGuard::keep) for two periods, and marks the period as
    /// done. Two, so that a machine whose clock is a period slow does not run it again.
    ///
    /// A body that fails, panics or loses its lease lets another call run it in the same period.
    /// After a crash that is so once the ttl has passed. A process that crashes after the work and
    /// before the mark is set leaves no mark: make the work idempotent. Successive periods have
    /// different names, so a body that outlives its period runs beside the next one, unless it
    /// locks `NAME` inside.
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
    /// - [`WithError::Lock`](crate::WithError::Lock): the lock was not acquired, for another reason
    ///   than that it is held. The body did not run. [`InvalidRequest::Period`]: the duration is
    ///   under 1 s or over a day.
    /// - [`WithError::Lost`](crate::WithError::Lost): the lease was lost, and another process may
    ///   run the body in this period. What the body returned is dropped.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the body, and releases in the background: also if the body has
    /// returned `Ok`, and the mark does not stand yet.
    pub fn once_per<R, P, F, T, E>(
        &self,
        name: R,
        period: P,
        body: F,
    ) -> impl Future<Output = Result<Option<Result<T, E>>, OnceError>> + use<R, P, F, T, E>
    where
        R: IntoResource,
        P: Into<Period>,
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
    /// The ttl, the label, the hold limit and fencing are those of the request, and `@` and the
    /// [period](Period::name_at) go behind each of its names. A [`timeout`](Self::timeout) plays no
    /// part. A lock for [reading](LockManager::read) is refused.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use quorate_core::{LockManager, error::OnceError};
    /// # async fn send_report(number: u64) -> Result<(), std::io::Error> { Ok(()) }
    /// # async fn example(locks: &LockManager) -> Result<(), OnceError> {
    /// let hour = Duration::from_secs(60 * 60);
    /// let report = locks.lock("report").label("web-3").with_token();
    /// let sent = report.once_per(hour, async |_lease, token| send_report(token.get()).await);
    /// println!("{}", if sent.await?.is_some() { "done" } else { "another machine does it" });
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
        period: impl Into<Period>,
        body: impl AsyncFnOnce(Lease) -> Result<T, E>,
    ) -> Result<Option<Result<T, E>>, OnceError> {
        self.once_per_under(period.into(), |guard| Ok(body(guard.lease()))).await
    }

    /// The same with what begins the body under a lock.
    pub(super) async fn once_per_under<T, E, F: Future<Output = Result<T, E>>>(
        self,
        period: Period,
        begin: impl FnOnce(&LockGuard) -> Result<F, LockError>,
    ) -> Result<Option<Result<T, E>>, OnceError> {
        let invalid = match period {
            Period::Every(period) if !(LEAST..=DAY).contains(&period) => {
                Some(InvalidRequest::Period { period })
            }
            _ if self.is_shared() => Some(InvalidRequest::Shared { what: "done once per period" }),
            _ => None,
        };
        if let Some(error) = invalid.map(LockError::from) {
            telemetry::not_acquired(&[], Duration::ZERO, &error);
            return Err(error.into());
        }
        let now = Duration::from_micros(self.cluster().runtime.unix_micros());
        let period_now = period.name_at(now);
        let request = self.map_names(|name| of_period(name, &period_now)).auto_renew();
        let Some(guard) = request.try_now().await? else { return Ok(None) };
        let body = begin(&guard)?;
        let value = guard.run(body).await?;
        if value.is_err() {
            return release(guard, value).await.map(Some);
        }
        match guard.keep(2 * period.length()).await {
            Err(ExtendError::Lost(reason)) => Err(Stopped { reason }.into()),
            // Without a quorum, there is no mark.
            _ => Ok(Some(value)),
        }
    }
}

/// The name of one period.
fn of_period(name: &Resource, period: &str) -> Result<Resource, InvalidResource> {
    Resource::new([name.as_bytes(), b"@", period.as_bytes()].concat())
}
