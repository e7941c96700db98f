//! Acquires a lock: one loop for each kind of request, over the rounds that all have.
//!
//! ```text
//! turn --> (others are first: wait) --> round --> won
//!                                        |  ^
//!                                        v  |
//!                                 lost: wait for the holder
//! ```
//!
//! `plain` is the loop of a lock of all its names: read it first. `any` is that of one of several
//! names, `readers` that of a reader. `rounds` is what all have. `back_off` is a wait without a
//! wait queue, `request` is what was asked for, and `replicas` remembers nodes that were no
//! primaries.

mod any;
mod back_off;
mod plain;
mod readers;
mod replicas;
mod request;
mod rounds;

use std::sync::Arc;

use futures_util::future::FutureExt;

pub(crate) use self::request::{Request, RequestSettings};
use crate::attempt::Attempt;
use crate::error::LockError;
use crate::seam::backend::Mode;
use crate::turns::ManagerState;

/// Acquires a lock.
///
/// Futures off the path of a free lock are boxed, so that the future of such a `lock` is small.
///
/// # Cancel safety
///
/// Dropping the future releases in the background what was acquired.
pub(crate) async fn acquire(
    manager: &Arc<ManagerState>,
    request: &Request,
) -> Result<Arc<Attempt>, LockError> {
    match (request.settings.mode, &request.set) {
        (Mode::Exclusive, None) => plain::acquire(manager, request).await,
        (Mode::Exclusive, Some(set)) => any::acquire(manager, request, set).boxed().await,
        (Mode::Shared, _) => readers::acquire(manager, request).boxed().await,
    }
}
