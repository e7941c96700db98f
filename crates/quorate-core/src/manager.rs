//! The lock manager: what users call.

mod adopt;
mod builder;
mod close;
pub(crate) mod detached;
pub(crate) mod guard;
mod mark;
pub(crate) mod request;
#[cfg(feature = "serde")]
mod with_serde;

use std::sync::Arc;
use std::time::Duration;

pub use self::builder::LockManagerBuilder;
pub use self::close::CloseReport;
use crate::attempt::Attempt;
use crate::attempt::lease::Lease;
use crate::cluster::Cluster;
use crate::error::{AdoptError, LockError, ReleaseError, WithError};
use crate::manager::detached::DetachedLock;
use crate::manager::guard::LockGuard;
use crate::manager::request::LockRequest;
use crate::resource::{IntoResources, InvalidResource, Resources};
use crate::seam::backend::{LockBackend, Mode};
use crate::turns::ManagerState;

/// Acquires locks on a fixed set of nodes. Cheap to clone.
///
/// All processes that share a lock are configured with the same nodes, since quorums of different
/// sets need not share a node. The order of the nodes does not matter.
///
/// ```
/// use quorate_core::{LockBackend, LockManager};
///
/// async fn transfer(nodes: Vec<impl LockBackend>) -> Result<(), Box<dyn std::error::Error>> {
///     let locks = LockManager::builder(nodes).build()?;
///     let guard = locks.lock(["account:1", "account:2"]).await?;
///     // … both accounts are ours until guard.valid_until() …
///     guard.release().await?;
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
pub struct LockManager {
    state: Arc<ManagerState>,
}

impl LockManager {
    /// Starts a configuration of `nodes`.
    ///
    /// Nodes of different types go together as `Arc<dyn LockBackend>`.
    pub fn builder<B: LockBackend>(nodes: impl IntoIterator<Item = B>) -> LockManagerBuilder {
        LockManagerBuilder::new(nodes.into_iter().map(|node| Arc::new(node) as _).collect())
    }

    pub(crate) fn cluster(&self) -> &Arc<Cluster> {
        &self.state.cluster
    }

    /// Acquires a lock on `resources`, waiting until it is free.
    ///
    /// Returns a request; awaiting it starts the acquire. Defaults: a timeout of 30 s, a ttl of 10
    /// s. Several resources are locked together: each node grants all of them or none. They are
    /// given as an array, a slice or a `Vec`: a type that is one name, such as `String`, cannot be
    /// distinguished from an iterator of names.
    ///
    /// Locks are not reentrant: a task that locks again what it holds waits for itself.
    ///
    /// # Errors
    ///
    /// [`LockError`], from the request.
    ///
    /// # Cancel safety
    ///
    /// Dropping the request's future releases in the background what was acquired.
    pub fn lock(&self, resources: impl IntoResources) -> LockRequest {
        self.request(resources.into_resources())
    }

    /// Acquires `resources` as one of several readers. It is a lock, and reads no data.
    ///
    /// Other readers may hold them at the same time, a lock may not. Returns a request, as
    /// [`lock`](Self::lock) does, which is the writer. It waits while a lock is held, and excludes
    /// every lock on the same names, also that of another Redlock library. Each reader has a token
    /// and a ttl of its own, is renewed, lost and released by itself, and can be labelled, detached
    /// and adopted.
    ///
    /// A reader gives way: if a writer waits, it joins the wait queue behind it, though other
    /// readers hold the lock ([`no_wait`](LockRequest::no_wait): it is *held*). Readers whose
    /// entries stand next to each other enter together. [`LockGuard::keep`] keeps writers out. A
    /// reader cannot become a writer: a task that locks what it reads waits for itself. So does a
    /// task that reads what it reads already, once a writer waits in between:
    /// [`is_local`](crate::error::QuorumFailure::is_local) of the failure says so.
    ///
    /// ```
    /// use quorate_core::{LockError, LockManager};
    ///
    /// async fn report(locks: &LockManager) -> Result<(), LockError> {
    ///     let reading = locks.read("prices").await?;
    ///     // … no writer changes the prices until reading.valid_until() …
    ///     drop(reading);
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`LockError`], from the request.
    /// [`InvalidRequest::Readers`](crate::InvalidRequest::Readers): a node keeps no readers.
    /// [`InvalidRequest::Shared`](crate::InvalidRequest::Shared): the request is
    /// [fenced](LockRequest::fenced), or [led](LockRequest::lead) under.
    ///
    /// # Cancel safety
    ///
    /// Dropping the request's future releases in the background what was acquired.
    pub fn read(&self, resources: impl IntoResources) -> LockRequest {
        self.lock(resources).set(|settings| settings.mode = Mode::Shared)
    }

    /// A request for names that may be invalid.
    pub(crate) fn request(&self, resources: Result<Resources, InvalidResource>) -> LockRequest {
        LockRequest::new(Arc::clone(&self.state), resources)
    }

    /// Acquires a lock on `resources` if no other client or task has it, and waits for no holder.
    ///
    /// `None`: another has it. Of several clients that ask at the same moment exactly one gets the
    /// lock, if enough nodes answer. That is one at a time: a second one can get it after the
    /// first. With settings it is [`LockRequest::try_now`], and [`LockRequest::no_wait`] says more.
    ///
    /// # Errors
    ///
    /// [`LockError`], but not [`LockError::Held`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases in the background what was acquired.
    pub async fn try_lock(
        &self,
        resources: impl IntoResources,
    ) -> Result<Option<LockGuard>, LockError> {
        self.lock(resources).try_now().await
    }

    /// Runs `body` under a lock on `resources`, and returns its value.
    ///
    /// Waits for the lock as [`lock`](Self::lock) does, renews it while the body runs, and releases
    /// it. The body runs in the caller's task. If the lease ends, the body is dropped at once. Code
    /// in it that blocks the thread or was spawned goes on: give it the [`Lease`]. A body that
    /// panics releases too. For other settings use [`LockRequest::with`].
    ///
    /// The release is awaited for at most a node timeout. If it is unconfirmed, the value is
    /// returned all the same, and the release goes on in the background.
    ///
    /// # Errors
    ///
    /// [`WithError::Lock`] if the lock was not acquired, [`WithError::Lost`] if it was lost: then
    /// what the body returned is dropped. An error of the body is its value: `with(..).await??`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the body, and releases in the background.
    pub fn with<R, F, T>(
        &self,
        resources: R,
        body: F,
    ) -> impl Future<Output = Result<T, WithError>> + use<R, F, T>
    where
        R: IntoResources,
        F: AsyncFnOnce(Lease) -> T,
    {
        self.lock(resources).with(body)
    }

    /// Takes over a lock that another process has [detached](LockGuard::detach).
    ///
    /// All nodes are asked to extend the keys, and a quorum must still have them. No time comes
    /// from the other process: the validity counts from now. Both managers need the same nodes. The
    /// prefix of this manager plays no part, since the record holds the keys.
    ///
    /// # Errors
    ///
    /// - [`AdoptError::Lost`]: the lock expired or was released meanwhile, or is on other nodes.
    /// - [`LockError::NoQuorum`] in [`AdoptError::Lock`]: too few nodes replied. Nothing was
    ///   released: try again.
    /// - [`LockError::Invalid`]: the ttl of the record does not fit this manager.
    /// - [`LockError::SameServer`], [`LockError::Closed`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the lock as it was, though nodes may keep the keys for longer.
    pub async fn adopt(&self, record: &DetachedLock) -> Result<LockGuard, AdoptError> {
        adopt::adopt(&self.state, record).await
    }

    /// Releases a lock that another process has [detached](LockGuard::detach), without
    /// [adopting](Self::adopt) it, also one that was [revoked](Self::revoke) since, and says
    /// whether a quorum of nodes still had it.
    ///
    /// As for [`LockGuard::release`], the answers decide it after a node timeout at the latest, and
    /// the cleanup goes on. A process that has adopted the lock meanwhile loses it.
    ///
    /// # Errors
    ///
    /// - [`ReleaseError::Lost`]: the lock had expired or was released before, or is on other nodes;
    ///   or this manager is closed.
    /// - [`ReleaseError::Unconfirmed`]: too few nodes answered to prove either.
    ///
    /// # Cancel safety
    ///
    /// From the first poll on, the release goes on when the future is dropped.
    pub async fn release(&self, record: &DetachedLock) -> Result<(), ReleaseError> {
        adopt::release(&self.state, record).await
    }

    /// The leases that this manager holds now. The order is not specified.
    ///
    /// Leases of guards that were forgotten are among them, and leases of adopted locks. A lease
    /// that has ended is not, also if its keys are still being released. A look at the clock and a
    /// mutex: no I/O.
    #[must_use]
    pub fn leases(&self) -> Vec<Lease> {
        Attempt::all_held(&self.state.cluster).map(Lease::new).collect()
    }

    /// Resolves when this manager is [drained](Self::drain) or [closed](Self::close): for tasks
    /// that hold no lock then, such as one that pauses between two locks. A clone of the manager
    /// will do for that.
    ///
    /// ```
    /// use futures_util::future::{Either, select};
    /// use quorate_core::LockManager;
    /// # async fn next_order() -> u32 { 7 }
    ///
    /// /// Ships one order after the other, until the process is asked to end.
    /// async fn ship(locks: LockManager) -> Result<(), quorate_core::WithError> {
    ///     loop {
    ///         let (order, end) = (std::pin::pin!(next_order()), std::pin::pin!(locks.draining()));
    ///         let Either::Left((order, _)) = select(order, end).await else { return Ok(()) };
    ///         locks.with(format!("orders:{order}"), async |_| { /* … */ }).await?;
    ///     }
    /// }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time.
    pub fn draining(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        Arc::clone(&self.state.cluster.attempts).until_closed()
    }

    /// Acquires nothing from now on, waits until the leases that are held have ended, and closes.
    /// For a process that is asked to end.
    ///
    /// Requests that wait fail with [`LockError::Closed`](crate::LockError), which
    /// [`closed()`](crate::closed) finds in any error, and so do new ones. A [`lead`](Self::lead)
    /// that waits ends with `None`. Holders are notified: [`Lease::draining`] resolves, also in the
    /// body of a `lead` or a [`once_per`](Self::once_per). Their leases live and are renewed until
    /// their guards go, for `limit` at most. Then the manager [closes](Self::close), in what is
    /// left of `limit`, but in 1 s at least and 5 s at most. All clones of this manager are
    /// drained.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use futures_util::future::poll_immediate;
    /// use quorate_core::LockManager;
    /// # async fn next_page() -> Option<u32> { None }
    ///
    /// /// Imports page by page, and ends behind a page when the process is asked to end.
    /// async fn import(locks: &LockManager) -> Result<(), quorate_core::WithError> {
    ///     locks
    ///         .with("import", async |lease| {
    ///             let mut asked_to_end = std::pin::pin!(lease.draining());
    ///             while poll_immediate(&mut asked_to_end).await.is_none() {
    ///                 let Some(_page) = next_page().await else { break };
    ///             }
    ///         })
    ///         .await
    /// }
    ///
    /// /// After SIGTERM: Kubernetes, for example, kills after 30 s.
    /// async fn shut_down(locks: &LockManager) {
    ///     println!("{}", locks.drain(Duration::from_secs(25)).await);
    /// }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the manager goes on acquiring nothing, and no lease is ended. A
    /// second call waits again.
    pub async fn drain(&self, limit: Duration) -> CloseReport {
        close::drain(self.cluster(), limit).await
    }

    /// Ends all leases, releases all locks, and returns when every node that answers is clean.
    ///
    /// Waits for at most `limit`. [`lost`](Lease::lost) of each guard resolves with
    /// [`LeaseEnd::Closed`](crate::error::LeaseEnd::Closed). Requests that wait fail with
    /// [`LockError::Closed`](crate::LockError) when they are polled. Drop a request that you no
    /// longer poll: otherwise its calls are waited for. A lock is released when its guard is gone,
    /// but at the latest after the safety margin, half of `limit` or the rest of the lease,
    /// whichever is the shortest.
    ///
    /// The report names each node that is not clean: it has answered none of its calls for a node
    /// timeout, its last call was not sent, its last release failed and no call was answered since,
    /// a call to it was given up whose key may still live, or `limit` came first. Such nodes alone
    /// do not hold up the close. What is left there is gone after its ttl. All clones of this
    /// manager are closed.
    ///
    /// # Cancel safety
    ///
    /// The manager is closed from the first poll on. If the future is dropped, the releases go on
    /// in the background.
    pub async fn close(&self, limit: Duration) -> CloseReport {
        close::close(self.cluster(), limit).await
    }
}

#[cfg(test)]
#[cfg(feature = "tokio")]
mod tests {
    use std::future::IntoFuture as _;

    use super::*;
    use crate::seam::backend::Vote;
    use crate::seam::backend::tests::Votes;

    #[tokio::test(start_paused = true)]
    async fn a_node_that_is_away_is_awaited_only_by_what_is_not_over() {
        let nodes = [Some(Vote::Granted), Some(Vote::Granted), None].map(Votes);
        let locks = LockManager::builder(nodes).build().unwrap();
        for name in 0..10 {
            let guard = locks.lock(format!("lock {name}")).into_future().await.unwrap();
            guard.release().await.unwrap();
        }
        let cluster = &locks.state.cluster;
        let awaiting = || cluster.nodes.count.ids().map(|id| cluster.nodes.health(id).awaiting());
        assert_eq!(awaiting().sum::<usize>(), 10);
        cluster.attempts.over().await;
        assert_eq!(awaiting().sum::<usize>(), 0);
    }
}
