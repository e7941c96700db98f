//! A manager that was drained or closed, in whatever an error is wrapped.

use std::error::Error;

use super::{LeaseEnd, sources};

/// This process has drained or closed the lock manager.
///
/// The [source](Error::source) of [`LockError::Closed`](super::LockError::Closed). So a wrapper
/// that is *transparent* to that does not hide it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this process drained or closed it")]
#[expect(clippy::exhaustive_structs, reason = "complete by definition")]
pub struct Closed;

/// Whether an error says or comes from that the lock manager was drained or closed: the process is
/// to end.
///
/// Looks through the [sources](Error::source) of an error, also of one that was wrapped by other
/// libraries. True of a request that was not begun or whose wait has ended, and of work whose lease
/// the close has ended: of the latter, [`lost()`](super::lost) gives the end of the lease, too. A
/// wrapper that is *transparent* to a [`LeaseEnd`] itself hides it.
///
/// ```
/// use std::error::Error;
///
/// use quorate_core::{LockManager, closed};
///
/// /// A task that is to end without an error when the process is asked to end.
/// async fn run(locks: &LockManager) -> Result<(), Box<dyn Error>> {
///     match import(locks).await {
///         Err(error) if closed(&*error) => Ok(()),
///         ended => ended,
///     }
/// }
///
/// async fn import(locks: &LockManager) -> Result<(), Box<dyn Error>> {
///     let guard = locks.lock("import").auto_renew().await?;
///     guard.run(async { /* … */ }).await?;
///     Ok(guard.release().await?)
/// }
/// ```
#[must_use]
pub fn closed(error: &(dyn Error + 'static)) -> bool {
    sources(error).any(|error| {
        error.is::<Closed>() || matches!(error.downcast_ref(), Some(LeaseEnd::Closed(_)))
    })
}
