//! Work under a lock: acquire, renew in the same task, stop in time, release.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use futures_util::FutureExt;

use crate::error::{LockError, Lost, Stopped, WithError};
use crate::guard::LockGuard;
use crate::lease::Lease;
use crate::renewal::renew;

/// Runs `body` under the lock that `locking` takes.
pub(crate) async fn with<T>(
    locking: impl Future<Output = Result<LockGuard, LockError>>,
    body: impl AsyncFnOnce(Lease) -> T,
) -> Result<T, WithError<T>> {
    let guard = locking.await?;
    let lease = guard.lease();
    let ended = {
        let mut renewal = pin!(renew(Arc::clone(guard.tenure())));
        let mut renews = true;
        let work = AssertUnwindSafe(async { body(lease.clone()).await }).catch_unwind();
        let mut work = pin!(lease.run(work));
        poll_fn(|context| {
            // First, so that a lease which the same wake-up ends or prolongs is seen as it is.
            renews = renews && renewal.as_mut().poll(context).is_pending();
            if planted!("body_waits_for_the_renewal") && guard.tenure().attempt.is_called() {
                return Poll::Pending;
            }
            work.as_mut().poll(context)
        })
        .await
    };
    // Here the renewal is over, and the work is dropped.
    match ended {
        Ok(Ok(value)) => match guard.release_telling().await.map(|ending| ending.gone) {
            Ok(Some(votes)) => {
                let reason = Lost::NotHeld { votes };
                Err(WithError::Lost(Stopped { reason, value: Some(value) }))
            }
            // Where too few answer, the lease had lasted all the same.
            Ok(None) | Err(_) => Ok(value),
        },
        Ok(Err(panic)) => {
            drop(guard.release().await);
            resume_unwind(panic)
        }
        // The release goes on in the background: the caller should know at once.
        Err(Stopped { reason, value }) => match value {
            Some(Err(panic)) => resume_unwind(panic),
            Some(Ok(value)) => Err(WithError::Lost(Stopped { reason, value: Some(value) })),
            None => Err(WithError::Lost(Stopped { reason, value: None })),
        },
    }
}
