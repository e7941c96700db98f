//! Locks for threads without async: the same operations, on a thread that waits for them.
//!
//! The calling thread sleeps. The runtime of the manager does the rest: renewals, releases and
//! connections.

use std::time::Duration;

use pollster::block_on;

use crate::error::{InvalidRequest, LockError, ReleaseError, Stopped, WithError};
use crate::over::access::{release, telemetry};
use crate::resource::IntoResources;
use crate::{CloseReport, Lease, LockGuard, LockManager, LockRequest};

/// Refuses a thread that runs a tokio task: it would hold up all other tasks of that thread.
fn may_block() -> Result<(), InvalidRequest> {
    #[cfg(feature = "tokio")]
    if crate::over::access::is_in_task() {
        return Err(InvalidRequest::Blocking);
    }
    Ok(())
}

/// [`may_block`] for a request. Its error is an event, as that of any request.
fn may_lock() -> Result<(), LockError> {
    may_block().map_err(LockError::from).inspect_err(|error| {
        telemetry::not_acquired(&[], Duration::ZERO, error);
    })
}

impl LockRequest {
    /// Acquires the lock, and blocks the thread until it is decided. For threads without async.
    ///
    /// Needs no runtime on this thread. The runtime of the manager has to make progress meanwhile:
    /// tokio's helper thread and smol's executor do by themselves, a current-thread runtime only
    /// while another thread drives it. In async code await the request. With tokio, the threads of
    /// `spawn_blocking` and `block_in_place` may block.
    ///
    /// ```no_run
    /// # use quorate_core::{LockBackend, LockManager};
    /// # fn example(nodes: Vec<impl LockBackend>) -> Result<(), Box<dyn std::error::Error>> {
    /// let locks = LockManager::builder(nodes).build()?;
    /// let guard = locks.lock("orders:42").auto_renew().lock_blocking()?;
    /// // … work, and look at guard.is_valid() from time to time …
    /// guard.release_blocking()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As the request, and [`LockError::Invalid`] in a tokio task. Other executors are not
    /// recognized.
    pub fn lock_blocking(self) -> Result<LockGuard, LockError> {
        may_lock()?;
        block_on(self.into_future())
    }

    /// Runs `body` under the lock, and blocks the thread. The lease is renewed meanwhile, and the
    /// lock is released after it.
    ///
    /// `body` cannot be stopped: nothing drops it when the lease ends. It has to look at
    /// [`Lease::is_valid`] before each step that needs the lock. See
    /// [`lock_blocking`](Self::lock_blocking) for the threads that may block.
    ///
    /// # Errors
    ///
    /// [`WithError::Lock`] if the lock was not acquired, as [`lock_blocking`](Self::lock_blocking).
    /// [`WithError::Lost`] if the lease ended before `body` did: its value is dropped, and another
    /// client may have held the lock meanwhile.
    pub fn with_blocking<T>(self, body: impl FnOnce(Lease) -> T) -> Result<T, WithError> {
        let guard = self.auto_renew().lock_blocking()?;
        let lease = guard.lease();
        let value = body(lease.clone());
        match lease.check() {
            Ok(()) => block_on(release(guard, value)),
            Err(reason) => Err(WithError::Lost(Stopped { reason })),
        }
    }
}

impl LockGuard {
    /// Releases the lock, and blocks the thread until it is decided: for a node timeout at most.
    /// See [`release`](Self::release).
    ///
    /// # Errors
    ///
    /// As [`release`](Self::release). In a tokio task it is [`ReleaseError::Unconfirmed`] at once,
    /// and the release goes on in the background.
    pub fn release_blocking(self) -> Result<(), ReleaseError> {
        if may_block().is_err() {
            return Err(ReleaseError::Unconfirmed(self.lease().cluster().nodes.none_asked()));
        }
        block_on(self.release())
    }
}

impl LockManager {
    /// As [`try_lock`](Self::try_lock), and blocks the thread until it is decided: for two node
    /// timeouts at most, and the answers to an undo.
    ///
    /// # Errors
    ///
    /// As [`try_lock`](Self::try_lock), and [`LockError::Invalid`] in a tokio task.
    pub fn try_lock_blocking(
        &self,
        resources: impl IntoResources,
    ) -> Result<Option<LockGuard>, LockError> {
        may_lock()?;
        block_on(self.try_lock(resources))
    }

    /// As [`close`](Self::close), and blocks the thread for at most `limit`.
    ///
    /// # Errors
    ///
    /// [`LockError::Invalid`] in a tokio task. Then nothing is closed.
    pub fn close_blocking(&self, limit: Duration) -> Result<CloseReport, LockError> {
        may_block()?;
        Ok(block_on(self.close(limit)))
    }
}
