//! The last call of a request whose guard, or body, comes with its fencing token:
//! [`LockRequest::with_token`].

use std::future::IntoFuture;

use crate::error::{LockError, OnceError, QuorumFailure, WithError};
use crate::over::access::run_under;
use crate::runtime::BoxFuture;
use crate::{FencingToken, Lease, LockGuard, LockRequest, Period};

impl LockRequest {
    /// Acquires the lock with a fencing token, and gives it beside the guard. See
    /// [`fenced`](Self::fenced).
    ///
    /// It comes behind all settings.
    ///
    /// ```
    /// use quorate_core::{FencedCell, LockManager};
    ///
    /// async fn sell(
    ///     locks: &LockManager,
    ///     stock: &FencedCell<u32>,
    /// ) -> Result<(), Box<dyn std::error::Error>> {
    ///     let (guard, token) = locks.lock("stock:7").auto_renew().with_token().await?;
    ///     stock.write(token, |pieces| *pieces -= 1)?;
    ///     Ok(guard.release().await?)
    /// }
    /// ```
    pub const fn with_token(self) -> FencedRequest {
        FencedRequest(self.fenced())
    }
}

/// A request for a lock and its fencing token. Created by [`LockRequest::with_token`]; await it.
///
/// # Errors
///
/// As [`LockRequest`].
///
/// # Cancel safety
///
/// Dropping the future releases in the background what was acquired, within the cleanup bound.
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is awaited"]
pub struct FencedRequest(LockRequest);

impl FencedRequest {
    /// Acquires the lock if no other client or task has it. See [`LockRequest::try_now`].
    ///
    /// # Errors
    ///
    /// As [`LockRequest::try_now`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases in the background what was acquired.
    pub async fn try_now(self) -> Result<Option<(LockGuard, FencingToken)>, LockError> {
        self.0.try_now().await?.map(with_its_token).transpose()
    }

    /// Runs `body` under the lock. See [`LockRequest::with`].
    ///
    /// # Errors
    ///
    /// As [`LockRequest::with`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the body, and releases in the background.
    pub async fn with<T>(
        self,
        body: impl AsyncFnOnce(Lease, FencingToken) -> T,
    ) -> Result<T, WithError> {
        let (guard, token) = with_its_token(self.0.auto_renew().await?)?;
        let body = body(guard.lease(), token);
        run_under(guard, body).await
    }

    /// Leads under this lock whenever this process can, each term with a higher token. See
    /// [`LockManager::lead`](crate::LockManager::lead).
    ///
    /// # Errors
    ///
    /// As [`LockManager::lead`](crate::LockManager::lead).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future resigns: it drops the body, and releases in the background.
    pub async fn lead<F: Future>(
        self,
        mut body: impl FnMut(Lease, FencingToken) -> F,
    ) -> Result<Option<F::Output>, LockError> {
        self.0.lead_under(|guard| Ok(body(guard.lease(), token_of(guard)?))).await
    }

    /// Runs `body`, unless it was run in this period, or is running. See [`LockRequest::once_per`].
    ///
    /// Each period is a name of its own: tokens of different periods are in no order.
    ///
    /// # Errors
    ///
    /// As [`LockManager::once_per`](crate::LockManager::once_per).
    ///
    /// # Cancel safety
    ///
    /// As [`LockManager::once_per`](crate::LockManager::once_per).
    pub async fn once_per<T, E>(
        self,
        period: impl Into<Period>,
        body: impl AsyncFnOnce(Lease, FencingToken) -> Result<T, E>,
    ) -> Result<Option<Result<T, E>>, OnceError> {
        let begin = |guard: &LockGuard| Ok(body(guard.lease(), token_of(guard)?));
        self.0.once_per_under(period.into(), begin).await
    }

    /// Acquires the lock, and blocks the thread until it is decided. See
    /// [`LockRequest::lock_blocking`].
    ///
    /// # Errors
    ///
    /// As [`LockRequest::lock_blocking`].
    pub fn lock_blocking(self) -> Result<(LockGuard, FencingToken), LockError> {
        with_its_token(self.0.lock_blocking()?)
    }
}

impl IntoFuture for FencedRequest {
    type Output = Result<(LockGuard, FencingToken), LockError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { with_its_token(self.0.await?) })
    }
}

fn with_its_token(guard: LockGuard) -> Result<(LockGuard, FencingToken), LockError> {
    let token = token_of(&guard)?;
    Ok((guard, token))
}

/// The token of a lock that was asked for with one. Without a token there is no lock, which is this
/// error.
fn token_of(guard: &LockGuard) -> Result<FencingToken, LockError> {
    guard.fencing_token().ok_or_else(|| LockError::NoQuorum(QuorumFailure::default()))
}
