//! Several permits at once: [`LockRequest::several`].
//!
//! A request that holds one permit and waits for the next can block another one that does the same,
//! and then neither ends. So a lock of their own stands around the parts: a request has it from
//! before its first part until its last one.

use std::time::{Duration, Instant};

use futures_util::TryFutureExt as _;
use futures_util::future::join_all;

use crate::error::{ExtendError, InvalidRequest, LeaseEnd, LockError, ReleaseError, Stopped};
use crate::over::access::saturating_add;
use crate::resource::{InvalidResource, Resource};
use crate::{Lease, LockGuard, LockRequest};

impl LockRequest {
    /// Acquires `count` of the permits, or of the names of
    /// [`lock_any`](crate::LockManager::lock_any): all of them or none.
    ///
    /// Of two such requests never both hold a part: a lock on `NAME#several` is held until the last
    /// part is there. It keeps such requests in their order, and no request for one permit away.
    /// The settings of the request are those of each part, and its timeout is that of all together.
    /// The parts are renewed until the guard goes.
    ///
    /// ```
    /// use quorate_core::LockManager;
    ///
    /// # async fn call() {}
    /// async fn heavy(locks: &LockManager) -> Result<(), Box<dyn std::error::Error>> {
    ///     let permits = locks.permit("payment-api", 5).several(2).await?;
    ///     permits.run(call()).await?;
    ///     Ok(permits.release().await?)
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`LockError`], as the request for one part. Nothing is held then. 0 and more than there are
    /// permits are invalid. With [`no_wait`](Self::no_wait) it is also *held* while another such
    /// request acquires its parts.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases in the background what was acquired.
    pub async fn several(self, count: usize) -> Result<Permits, LockError> {
        if self.is_shared() {
            return Err(InvalidRequest::Shared { what: "several permits" }.into());
        }
        let permits = self.keys().len();
        let part = self.auto_renew().set(|settings| settings.is_choice = true);
        let now = || part.cluster().now();
        let deadline = part.wait_limit().map(|limit| saturating_add(now(), limit));
        let in_time = |request: &Self| match deadline {
            Some(at) => request.clone().timeout(at.saturating_duration_since(now())),
            None => request.clone(),
        };
        let all = part.clone().set(|settings| settings.is_choice = false);
        let around = all.map_names(|name| match count {
            _ if (1..=permits).contains(&count) => around(name),
            wanted => Err(InvalidResource::Several { wanted, permits }),
        });
        loop {
            let guard = in_time(&around).await?;
            let mut parts = Vec::with_capacity(count);
            let acquiring = async {
                while parts.len() < count {
                    parts.push(in_time(&part).await?);
                }
                Ok(())
            };
            let acquired = guard.run(acquiring).await;
            let permits = Permits { parts };
            match acquired {
                Ok(Ok(())) if permits.is_valid() => return Ok(permits),
                Ok(Err(error)) => {
                    // In this order, and before the caller hears of it (C8).
                    let _ = permits.release().await;
                    let _ = guard.release().await;
                    return Err(error);
                }
                // The lock around the parts is lost, or a part.
                _ => drop(permits.release().await),
            }
        }
    }
}

/// The name of the lock around a permit. Names that are no permits have one each.
fn around(name: &Resource) -> Result<Resource, InvalidResource> {
    let name = name.as_bytes();
    let stem = match name.iter().rposition(|byte| !byte.is_ascii_digit()) {
        Some(at) if name[at] == b'#' => &name[..at],
        _ => name,
    };
    Resource::new([stem, b"#several"].concat())
}

/// Several permits, all of them renewed. Created by [`LockRequest::several`].
///
/// Dropping it releases all in the background.
#[derive(Debug)]
#[must_use = "the permits are released at once, unless they are bound to a name: `let _permits = \
              …`, not `let _ = …`"]
pub struct Permits {
    parts: Vec<LockGuard>,
}

impl Permits {
    /// The guards of the single permits, with their keys and fencing tokens.
    pub fn parts(&self) -> &[LockGuard] {
        &self.parts
    }

    /// The guards of the single permits, each to be released for itself.
    pub fn into_parts(self) -> Vec<LockGuard> {
        self.parts
    }

    /// The end of the lease that ends first. No I/O.
    #[must_use]
    pub fn valid_until(&self) -> Option<Instant> {
        self.parts.iter().map(|part| part.valid_until()).min()
    }

    /// Whether all leases are valid. A look at the clock: no I/O.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.parts.iter().all(|part| part.is_valid())
    }

    /// What is left of the lease that ends first; zero if one has ended. No I/O.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.parts.iter().map(|part| part.remaining()).min().unwrap_or_default()
    }

    /// Resolves when the first of the leases has ended, and says why.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time.
    pub fn lost(&self) -> impl Future<Output = LeaseEnd> + Send + 'static + use<> {
        Lease::first_lost(&self.leases())
    }

    /// Runs `future` until the first of the leases ends: then `future` is dropped. See
    /// [`Lease::run`].
    ///
    /// # Errors
    ///
    /// [`Stopped`], with the reason.
    ///
    /// # Cancel safety
    ///
    /// As `future`'s: dropping this drops it.
    pub fn run<F: Future>(
        &self,
        future: F,
    ) -> impl Future<Output = Result<F::Output, Stopped>> + use<F> {
        Lease::run_under(self.leases(), future).map_err(|(reason, _)| Stopped { reason })
    }

    fn leases(&self) -> Vec<Lease> {
        self.parts.iter().map(LockGuard::lease).collect()
    }

    /// Extends all leases now. See [`LockGuard::extend`].
    ///
    /// # Errors
    ///
    /// [`ExtendError`] of the first permit that was not extended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing: the rounds go on in the background.
    pub async fn extend(&self) -> Result<(), ExtendError> {
        join_all(self.parts.iter().map(LockGuard::extend)).await.into_iter().collect()
    }

    /// Releases all permits, and says whether all were held until then. See [`LockGuard::release`].
    ///
    /// # Errors
    ///
    /// [`ReleaseError`] of a permit, of a lost one if there is any.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time: the releases go on in the background.
    pub async fn release(self) -> Result<(), ReleaseError> {
        let released = join_all(self.parts.into_iter().map(LockGuard::release)).await;
        let error = released.into_iter().filter_map(Result::err).max_by_key(ReleaseError::is_lost);
        error.map_or(Ok(()), Err)
    }
}
