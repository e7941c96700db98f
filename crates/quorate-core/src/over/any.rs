//! One of several names, whichever is free first: [`LockManager::lock_any`] and
//! [`LockManager::permit`].
//!
//! A permit is a lock on one of N names. To count holders on each node instead is unsound: with two
//! permits on three nodes, the nodes can grant A and B, B and C, A and C. Then each of three
//! holders has a majority.

use crate::resource::{IntoResource, InvalidResource, Resource, Resources};
use crate::{LockManager, LockRequest};

impl LockManager {
    /// Acquires a lock on one of `resources`, whichever is free first.
    ///
    /// [`Lease::keys`](crate::Lease::keys) says which. It is a lock like any other: a
    /// [`lock`](Self::lock) on that name excludes it, and it has a fencing token of its own. All
    /// options of a request apply. The names are tried in a random order, the one that this manager
    /// released last comes first. After three lost rounds the request waits in the wait queue of
    /// the first name in sorted order.
    ///
    /// Requests of one manager for the same names are served one after the other. A request of this
    /// manager for one of these names alone goes before them, whenever it came. Each request holds
    /// one name at most.
    ///
    /// With [`no_wait`](LockRequest::no_wait) the error is *held* also if others ask at the same
    /// moment for the name that is free.
    ///
    /// ```
    /// use quorate_core::{LockError, LockManager};
    ///
    /// async fn convert(locks: &LockManager) -> Result<(), LockError> {
    ///     let guard = locks.lock_any(["gpu:0", "gpu:1", "gpu:2"]).auto_renew().await?;
    ///     println!("converts on {}", guard.keys()[0]);
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`LockError`](crate::LockError), from the request. Without a name, with a name that is given
    /// twice, and with more than 1,024 names the request is invalid.
    ///
    /// # Cancel safety
    ///
    /// Dropping the request's future releases in the background what was acquired.
    pub fn lock_any(&self, resources: impl IntoIterator<Item = impl IntoResource>) -> LockRequest {
        let names = resources.into_iter().map(IntoResource::into_resource);
        self.request(Resources::of_choice(names)).set(|settings| settings.is_choice = true)
    }

    /// Acquires one of `count` permits: a lock on one of `NAME#1` to `NAME#count`.
    ///
    /// At most `count` holders have a permit at a time. See [`lock_any`](Self::lock_any). Processes
    /// may give different counts, and a process may change its count at any time: a process with
    /// the count 3 never holds `NAME#4`.
    ///
    /// ```
    /// use quorate_core::{LockManager, WithError};
    ///
    /// async fn call(locks: &LockManager) -> Result<u32, WithError> {
    ///     // At most five processes do this at a time.
    ///     locks.permit("payment-api", 5).with(async |_lease| 42).await
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`LockError`](crate::LockError), from the request. 0 permits are invalid, and more than
    /// 1,024.
    ///
    /// # Cancel safety
    ///
    /// Dropping the request's future releases in the background what was acquired.
    pub fn permit(&self, name: impl IntoResource, count: usize) -> LockRequest {
        let names = name.into_resource().and_then(|name| match count {
            0 => Err(InvalidResource::NoPermits),
            _ => Resources::of_choice((1..=count).map(|number| of_number(&name, number))),
        });
        self.request(names).set(|settings| settings.is_choice = true)
    }
}

/// The name of one permit.
fn of_number(name: &Resource, number: usize) -> Result<Resource, InvalidResource> {
    Resource::new([name.as_bytes(), format!("#{number}").as_bytes()].concat())
}
