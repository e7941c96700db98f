//! The lock manager: what users call.

mod adopt;
mod builder;
mod close;

use std::sync::Arc;
use std::time::Duration;

pub use self::builder::LockManagerBuilder;
pub use self::close::CloseReport;
use crate::attempt::Attempt;
use crate::backend::{BackendError, Holder, LockBackend, Revoke, Sighting};
use crate::check::CheckRequest;
use crate::cluster::Cluster;
use crate::detached::DetachedLock;
use crate::error::{AdoptError, LockError, RevokeError, WithError};
use crate::guard::LockGuard;
use crate::inspect::{self, Inspection};
use crate::lease::Lease;
use crate::readiness::{Readiness, readiness};
use crate::request::LockRequest;
use crate::resource::{IntoResource, IntoResources, InvalidResource, Key, Label, Resources, Token};
use crate::revoke::Revocation;
use crate::runtime::{BoxFuture, EntropyError};
use crate::tickets::Inner;

/// Acquires locks on a fixed set of nodes. Cheap to clone.
///
/// All processes that share a lock are configured with the same nodes, since quorums of different sets need not
/// share a node. The order of the nodes does not matter.
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
    inner: Arc<Inner>,
}

impl LockManager {
    /// Starts a configuration of `nodes`.
    ///
    /// Nodes of different types go together as `Arc<dyn LockBackend>`.
    pub fn builder<B: LockBackend>(nodes: impl IntoIterator<Item = B>) -> LockManagerBuilder {
        LockManagerBuilder::new(nodes.into_iter().map(|node| Arc::new(node) as _).collect())
    }

    pub(crate) fn new(cluster: Cluster) -> Self {
        Self { inner: Inner::new(Arc::new(cluster)) }
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        &self.inner.cluster
    }

    /// Acquires a lock on `resources`, waiting until it is free.
    ///
    /// Returns a request; awaiting it starts the acquire. Defaults: a timeout of 30 s, a ttl of 10 s.
    /// Several resources are locked together: each node grants all of them or none.
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

    /// Acquires `resources` for reading: other readers may hold them at the same time, a lock may not.
    ///
    /// Returns a request, as [`lock`](Self::lock) does, which is the writer. It waits while a lock is held, and excludes
    /// every lock on the same names, also that of another Redlock library. Each reader has a token and a ttl of its own,
    /// is renewed, lost and released by itself, and can be labelled, detached and adopted.
    ///
    /// A reader gives way: if a writer waits, it joins the wait queue behind it, though other readers hold the lock
    /// ([`no_wait`](LockRequest::no_wait): it is *held*). Readers whose entries stand next to each other enter together.
    /// [`LockGuard::keep`] keeps writers out. A reader cannot become a writer: a task that locks what it reads waits for
    /// itself.
    ///
    /// ```
    /// use quorate_core::{LockError, LockManager};
    ///
    /// async fn report(locks: &LockManager) -> Result<(), LockError> {
    ///     let reading = locks.read("prices").await?;
    ///     // … nobody changes the prices until reading.valid_until() …
    ///     drop(reading);
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`LockError`], from the request. [`InvalidRequest::Readers`](crate::InvalidRequest::Readers): a node keeps no readers.
    /// [`InvalidRequest::Shared`](crate::InvalidRequest::Shared): the request is [fenced](LockRequest::fenced), or [led](LockRequest::lead) under.
    ///
    /// # Cancel safety
    ///
    /// Dropping the request's future releases in the background what was acquired.
    pub fn read(&self, resources: impl IntoResources) -> LockRequest {
        self.request(resources.into_resources()).shared()
    }

    /// A request for names that may be invalid.
    pub(crate) fn request(&self, resources: Result<Resources, InvalidResource>) -> LockRequest {
        LockRequest::new(Arc::clone(&self.inner), resources)
    }

    /// Acquires a lock on `resources` if no other client or task has it, and waits for no holder.
    ///
    /// `None`: another has it. Of several clients that ask at the same moment exactly one gets the lock, if enough
    /// nodes answer. That is one at a time: a second one can get it after the first. The short form of
    /// [`LockRequest::no_wait`], which says more.
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
        match self.lock(resources).no_wait().await {
            Ok(guard) => Ok(Some(guard)),
            Err(error) if error.is_held() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Runs `body` under a lock on `resources`, and returns its value.
    ///
    /// Waits for the lock as [`lock`](Self::lock) does, renews it while the body runs, and releases it. The
    /// body runs in the caller's task. If the lease ends, the body is dropped at once. Code in it that blocks
    /// the thread or was spawned goes on: give it the [`Lease`]. A body that panics releases too. For other
    /// settings use [`LockRequest::with`].
    ///
    /// The release is awaited for at most a node timeout. If it is unconfirmed, the value is returned all
    /// the same, and the release goes on in the background.
    ///
    /// # Errors
    ///
    /// [`WithError::Lock`] if the lock was not acquired, [`WithError::Lost`] if it was lost; the value is in
    /// the error if it was ready. An error of the body is its value: `with(..).await??`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the body, and releases in the background.
    pub fn with<R, F, T>(
        &self,
        resources: R,
        body: F,
    ) -> impl Future<Output = Result<T, WithError<T>>> + use<R, F, T>
    where
        R: IntoResources,
        F: AsyncFnOnce(Lease) -> T,
    {
        self.lock(resources).with(body)
    }

    /// Takes over a lock that another process has [detached](LockGuard::detach).
    ///
    /// All nodes are asked to extend the keys, and a quorum must still have them. No time comes from the
    /// other process: the validity counts from now. Both managers need the same nodes. The prefix of this
    /// manager plays no part, since the record holds the keys.
    ///
    /// # Errors
    ///
    /// - [`AdoptError::Lost`]: the lock expired or was released meanwhile, or is on other nodes.
    /// - [`AdoptError::NoQuorum`]: too few nodes replied. Nothing was released: try again.
    /// - [`AdoptError::Invalid`]: the ttl of the record does not fit this manager.
    /// - [`AdoptError::SameServer`], [`AdoptError::Closed`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the lock as it was, though nodes may keep the keys for longer.
    pub async fn adopt(&self, record: &DetachedLock) -> Result<LockGuard, AdoptError> {
        adopt::adopt(&self.inner, record).await
    }

    /// Shows who holds the lock on `resource`, and for how long, without acquiring it.
    ///
    /// All nodes are asked at once, and each may reply for a node timeout. What fails on a node is in its
    /// view. The result is about the past: only an acquire shows whether a lock can be acquired.
    ///
    /// ```
    /// use quorate_core::{InvalidResource, LockManager, LockState};
    ///
    /// async fn show(locks: &LockManager) -> Result<(), InvalidResource> {
    ///     let inspection = locks.inspect("orders:42").await?;
    ///     match (inspection.state(), inspection.time_left()) {
    ///         (LockState::Held, Some(left)) => println!("held for {left:.1?}, if not extended"),
    ///         (LockState::Free, _) => println!("free"),
    ///         _ => println!("{inspection}"), // what each node said
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidResource`]: the name cannot be locked.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time: it only reads.
    pub async fn inspect(
        &self,
        resource: impl IntoResource,
    ) -> Result<Inspection, InvalidResource> {
        let key = Key::new(&self.inner.cluster.config.key_prefix, &resource.into_resource()?);
        Ok(self.ask_all(|node| node.inspect(&key)).await)
    }

    /// Takes the lock on `resource` away from its holder: it can no longer be extended, and is free when its ttl has
    /// passed.
    ///
    /// No two clients hold the lock at once, whatever the holder does. Each node replaces the token of the holder and
    /// keeps what is left of the ttl. A holder that renews learns of it at its next renewal. Others wait as before.
    /// The lock is free in [`free_in`](Revocation::free_in): an extension just before the revoke counts in full.
    ///
    /// All nodes are asked at once, and each may reply for a node timeout. A node that does not reply may do it later,
    /// and may then meet the next holder, which loses the vote of this node. Fencing numbers, the restart guard and
    /// wait queues stay as they are. A lock on several names ends when one of them is revoked.
    ///
    /// ```
    /// use quorate_core::{LockManager, RevokeError};
    ///
    /// async fn free(locks: &LockManager) -> Result<(), RevokeError> {
    ///     let revocation = locks.revoke("orders:42").await?;
    ///     match revocation.is_effective() {
    ///         true => println!("free in {:.1?} at the latest", revocation.free_in()),
    ///         false => println!("{revocation}"), // what each node said
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// - [`RevokeError::Invalid`]: the name cannot be locked. Nothing was sent.
    /// - [`RevokeError::Entropy`]: there is no randomness for a token. Nothing was sent.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, some of the nodes may have done it. It is safe to call it again.
    pub async fn revoke(&self, resource: impl IntoResource) -> Result<Revocation, RevokeError> {
        let key = self.lockable(resource)?;
        self.take_away(key, Revoke::replace(self.value_of_revoked()?)).await
    }

    /// Takes the lock on `resource` away from the holder that `seen` shows, as [`revoke`](Self::revoke) does, and from no
    /// other.
    ///
    /// `seen` is an [inspection](Self::inspect) of the same name. Each node compares: a key of a client that has acquired
    /// the lock since is left alone, and the [`Revocation`] shows it. Of readers, a key is left alone that has a reader who
    /// was not seen. If `seen` shows no holder, nothing is done.
    ///
    /// ```
    /// use quorate_core::{LockManager, RevokeError};
    ///
    /// async fn free_if_held_by(label: &str, locks: &LockManager) -> Result<(), RevokeError> {
    ///     let seen = locks.inspect("orders:42").await?;
    ///     if seen.label() == Some(label) {
    ///         println!("{}", locks.revoke_seen("orders:42", &seen).await?);
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`revoke`](Self::revoke).
    ///
    /// # Cancel safety
    ///
    /// As [`revoke`](Self::revoke).
    pub async fn revoke_seen(
        &self,
        resource: impl IntoResource,
        seen: &Inspection,
    ) -> Result<Revocation, RevokeError> {
        let key = self.lockable(resource)?;
        self.take_away(key, Revoke::replace(self.value_of_revoked()?).of(of(seen))).await
    }

    /// Deletes the lock on `resource` on all nodes: it is free at once, and its holder does not know.
    ///
    /// The holder may go on working until its lease ends, while the next one works already. So this is for holders that
    /// are known to be dead, and for resources that check [fencing tokens](crate::LockRequest::fenced). Otherwise
    /// [`revoke`](Self::revoke).
    ///
    /// All nodes are asked at once, and each may reply for a node timeout. A node that does not reply may do it later.
    ///
    /// # Errors
    ///
    /// [`RevokeError::Invalid`]: the name cannot be locked. Nothing was sent.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, some of the nodes may have deleted the lock.
    pub async fn delete(&self, resource: impl IntoResource) -> Result<Revocation, RevokeError> {
        self.take_away(self.lockable(resource)?, Revoke::delete()).await
    }

    /// Deletes the lock on `resource` of the holder that `seen` shows, as [`delete`](Self::delete) does, and of no other.
    ///
    /// What [`revoke_seen`](Self::revoke_seen) says of `seen` holds here, too. A [mark](LockGuard::keep), of which the
    /// inspection says that it [is done](Inspection::is_done), can be deleted without risk: nobody works under it.
    ///
    /// # Errors
    ///
    /// As [`delete`](Self::delete).
    ///
    /// # Cancel safety
    ///
    /// As [`delete`](Self::delete).
    pub async fn delete_seen(
        &self,
        resource: impl IntoResource,
        seen: &Inspection,
    ) -> Result<Revocation, RevokeError> {
        self.take_away(self.lockable(resource)?, Revoke::delete().of(of(seen))).await
    }

    async fn take_away(&self, key: Key, how: Revoke) -> Result<Revocation, RevokeError> {
        let found = self.ask_all(|node| node.revoke(&key, &how)).await;
        Ok(Revocation::new(found, how))
    }

    /// Draws the value of a revoked key: a token that is thrown away, with a label that says so (V6).
    fn value_of_revoked(&self) -> Result<Token, EntropyError> {
        let cluster = &self.inner.cluster;
        let token = Token::draw(|bytes| cluster.runtime.fill_random(bytes))?;
        Ok(token.labelled(&Label::of_revoked(cluster.config.label.as_ref())))
    }

    /// The key of a resource whose name is not reserved (V4).
    fn lockable(&self, resource: impl IntoResource) -> Result<Key, InvalidResource> {
        let prefix = &self.inner.cluster.config.key_prefix;
        let key = Key::new(prefix, &resource.into_resource()?);
        if key.is_reserved(prefix) { Err(InvalidResource::Reserved) } else { Ok(key) }
    }

    /// What each node answers within a node timeout.
    async fn ask_all<'a>(
        &'a self,
        ask: impl Fn(&'a dyn LockBackend) -> BoxFuture<'a, Result<Option<Sighting>, BackendError>>
        + Sync,
    ) -> Inspection {
        let (cluster, ask) = (&self.inner.cluster, &ask);
        let calls = cluster.nodes.count().ids().map(|id| {
            let backend = &**cluster.nodes.backend(id);
            (Arc::clone(cluster.nodes.name(id)), async move { ask(backend).await })
        });
        let timeout = cluster.config.default_node_timeout();
        inspect::inspect(&*cluster.runtime, timeout, calls).await
    }

    /// The leases that this manager holds now. The order is not specified.
    ///
    /// Leases of guards that were forgotten are among them, and those of locks that were adopted. A lease that has ended
    /// is not, also if its keys are still being released. A look at the clock and a mutex: no I/O.
    #[must_use]
    pub fn leases(&self) -> Vec<Lease> {
        Attempt::all_held(&self.inner.cluster).map(Lease::new).collect()
    }

    /// Asks all nodes what they are, what they can do, and what is wrong with them. For a start-up, and for operators.
    ///
    /// All nodes are asked at once, and each may reply for a node timeout. Then each sets and deletes a key that no lock
    /// can have, `:quorate:check` below the [prefix](LockManagerBuilder::key_prefix) or `quorate:check` without one, and may
    /// take a node timeout more. A node without a problem may fail later.
    ///
    /// ```
    /// use quorate_core::LockManager;
    ///
    /// async fn start(locks: &LockManager) -> Result<(), String> {
    ///     let check = locks.check().await;
    ///     println!("{check}"); // one line for each node
    ///     match check.problems().next() {
    ///         Some((node, problem)) => Err(format!("{}: {problem}", node.name)),
    ///         None => Ok(()),
    ///     }
    /// }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time. Then a node may keep the key of the check for 1 s.
    pub fn check(&self) -> CheckRequest {
        CheckRequest::new(Arc::clone(&self.inner))
    }

    /// What is known of the nodes without asking them: which answered lately, and whether they are a quorum. For a
    /// readiness probe that is called often.
    ///
    /// A look at the clock and a mutex of each node: no I/O. *Lately* has no bound in time: it is about the latest call to
    /// each node, and a manager without work makes none. So it does not learn that nodes are back, and one that has asked
    /// nothing knows of no node: [`check`](Self::check) asks all of them, and its answers count.
    ///
    /// ```
    /// use quorate_core::LockManager;
    ///
    /// async fn probe(locks: &LockManager) -> Result<(), String> {
    ///     if locks.nodes().has_quorum() || locks.check().await.has_quorum() {
    ///         return Ok(());
    ///     }
    ///     Err(locks.nodes().to_string())
    /// }
    /// ```
    #[must_use]
    pub fn nodes(&self) -> Readiness {
        readiness(&self.inner.cluster)
    }

    /// Ends all leases, releases all locks, and returns when every node that answers is clean.
    ///
    /// Waits for at most `limit`. [`lost`](LockGuard::lost) of each guard resolves with
    /// [`LeaseEnd::Closed`](crate::error::LeaseEnd::Closed). Requests that wait fail with
    /// [`LockError::Closed`](crate::LockError) when they are polled. Drop a request that you no longer poll:
    /// otherwise its calls are waited for. A lock is released when its guard is gone, but at the latest after the
    /// safety margin, half of `limit` or the rest of the lease, whichever is the shortest.
    ///
    /// The report names each node that is not clean: it has answered none of its calls for a node timeout, its
    /// last call was not sent, its last release failed and no call was answered since, a call to it was given up
    /// whose key may still live, or `limit` came first.
    /// Such nodes alone do not hold up the close. What is left there is gone after its ttl. All clones of this
    /// manager are closed.
    ///
    /// # Cancel safety
    ///
    /// The manager is closed from the first poll on. If the future is dropped, the releases go on in the
    /// background.
    pub async fn close(&self, limit: Duration) -> CloseReport {
        close::close(&self.inner, limit).await
    }
}

/// The holders that an inspection shows.
fn of(seen: &Inspection) -> Vec<Holder> {
    seen.holders().into_iter().cloned().collect()
}
