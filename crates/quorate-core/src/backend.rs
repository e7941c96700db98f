//! The seam to a node: [`LockBackend`], its options and its replies.
//!
//! Three methods are required: acquire, extend and release. A backend with those three is complete
//! and correct. The rest is provided, and [`Capabilities`] says what a backend was built for.

mod claim;
mod error;
mod restart_guard;
mod sighting;

use std::borrow::Cow;
use std::fmt;
use std::ops::BitOr;
use std::sync::Arc;

use async_trait::async_trait;

use crate::algorithm::fence::{FenceHint, FencingToken};
use crate::algorithm::quorum::Vote;
pub use crate::algorithm::turn::{Entry, Refreshed};
use crate::resource::Key;
use crate::runtime::BoxFuture;

pub use claim::Claim;
pub use error::{BackendError, BackendErrorKind};
pub use restart_guard::RestartGuard;
pub use sighting::{Holder, Sighting};

/// **One** independent node that keeps keys.
///
/// # Contract
///
/// - *One node.* The algorithm spans nodes; a backend never does.
/// - *Atomic.* Each method takes effect at one moment. `acquire`, `extend` and `raise` change all keys of the
///   claim or none; `release` deletes each key that is ours.
/// - *Compare.* `extend` and `release` touch a key only while its value is the claim's token.
/// - *`Err` means unknown.* Only a node's reply that the keys are held, or not ours, is
///   [`Vote::Refused`]. An error reply, a lost connection or a reply that makes no sense is an
///   `Err`. Then the command may have been executed, unless [`BackendError::is_not_sent`] says
///   otherwise (Q4).
/// - *Once.* No method sends an acquire a second time (C6).
/// - *Relative time.* The node counts the ttl on its own clock from when it executes the command.
/// - *No deadline.* A method stays pending as long as the command may still be executed. The caller
///   has the deadlines (Q5).
/// - *First poll.* Nothing is sent before a future is first polled. With
///   [`Capabilities::ORDERED`], calls take effect in the order of their first polls, and a call that
///   did not leave before its connection ended never leaves (C3).
/// - *Drop.* Dropping a future may or may not stop its command, and disturbs no other call.
///
/// An option that the backend cannot carry out makes the call fail as
/// [`unsupported`](BackendError::unsupported), with nothing sent. Only `waiters` is a question, which
/// the backend may leave without an answer.
#[async_trait]
pub trait LockBackend: fmt::Debug + Send + Sync + 'static {
    /// Acquires all keys of the claim for its ttl, or none of them.
    ///
    /// A key that holds the claim's token counts as ours: it stays as it is, and missing keys are set. For a
    /// single key, a refusal is allowed too.
    ///
    /// # Errors
    ///
    /// The vote is unknown.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may or may not be executed. The caller sends a release.
    async fn acquire(
        &self,
        claim: &Claim,
        options: AcquireOptions,
    ) -> Result<Acquired, BackendError>;

    /// Makes all keys live for at least the claim's ttl from now, if all are ours. Never shortens (H2).
    ///
    /// # Errors
    ///
    /// The vote is unknown.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may or may not be executed.
    async fn extend(&self, claim: &Claim, options: ExtendOptions)
    -> Result<Extended, BackendError>;

    /// Deletes those keys of the claim that are ours; granted if all of them were.
    ///
    /// # Errors
    ///
    /// The vote is unknown.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may or may not be executed. It can be sent again (C7).
    async fn release(
        &self,
        claim: &Claim,
        options: ReleaseOptions,
    ) -> Result<Released, BackendError>;

    /// What errors and events call this node: an address without secrets. Empty for none.
    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    /// What this backend was built for.
    fn capabilities(&self) -> Capabilities {
        Capabilities::NONE
    }

    /// Raises the fencing number of all keys to `number`, if all keys are ours and none is higher.
    ///
    /// # Errors
    ///
    /// The vote is unknown.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may or may not be executed. It can be sent again.
    async fn raise(&self, claim: &Claim, number: FencingToken) -> Result<Vote, BackendError> {
        let _ = (claim, number);
        Err(BackendError::unsupported("this node keeps no fencing numbers"))
    }

    /// Reads what is at `key`; `None` if it is free.
    ///
    /// # Errors
    ///
    /// The node cannot be asked, or what is there is no lock.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time.
    async fn inspect(&self, key: &Key) -> Result<Option<Sighting>, BackendError> {
        let _ = key;
        Err(BackendError::unsupported("this node cannot be inspected"))
    }

    /// Reads the id that no other server has; `None` if this server has none (Q6).
    ///
    /// # Errors
    ///
    /// The node cannot be asked.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time.
    async fn server_id(&self) -> Result<Option<String>, BackendError> {
        Err(BackendError::unsupported("this node has no server id"))
    }

    /// Watches the lock's key `key`, or the key of `entry` in its wait queue.
    ///
    /// A notification may come for nothing. A change without one is not allowed, unless the
    /// connection hangs: waiters have timers as well.
    ///
    /// # Errors
    ///
    /// The node cannot report whether the key is there, or cannot watch it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future, or what it returned, ends this watch and no other.
    async fn watch(&self, key: &Key, entry: Option<&Entry>) -> Result<Watched, BackendError> {
        let _ = (key, entry);
        Err(BackendError::unsupported("this node cannot watch keys"))
    }

    /// Keeps `entry` alive in the wait queue of `key`, and appends it if it is missing.
    ///
    /// `locks` are the keys of the lock that is waited for. `key` is the first of them in sorted order. An entry
    /// that is not refreshed for 2 s leaves the queue. A lock key without a ttl counts as free.
    ///
    /// # Errors
    ///
    /// It is unknown whether the entry is there.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may or may not be executed. The caller sends
    /// [`queue_leave`](Self::queue_leave).
    async fn queue_refresh(
        &self,
        key: &Key,
        entry: &Entry,
        locks: &[Key],
    ) -> Result<Refreshed, BackendError> {
        let _ = (key, entry, locks);
        Err(BackendError::unsupported("this node keeps no wait queue"))
    }

    /// Removes `entry`, and `also` this one, from the wait queue of `key`. Returns whether any entry
    /// is left.
    ///
    /// # Errors
    ///
    /// It is unknown whether the entries were removed.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may or may not be executed. It can be sent again.
    async fn queue_leave(
        &self,
        key: &Key,
        entry: &Entry,
        also: Option<&Entry>,
    ) -> Result<bool, BackendError> {
        let _ = (key, entry, also);
        Err(BackendError::unsupported("this node keeps no wait queue"))
    }
}

macro_rules! forward {
    ($($method:ident($($argument:ident: $type:ty),*) -> $reply:ty;)+) => {
        /// Nodes of different types are configured together as `Arc<dyn LockBackend>`.
        #[async_trait]
        #[deny(clippy::missing_trait_methods)]
        impl<B: LockBackend + ?Sized> LockBackend for Arc<B> {
            fn name(&self) -> Cow<'_, str> {
                (**self).name()
            }

            fn capabilities(&self) -> Capabilities {
                (**self).capabilities()
            }

            $(async fn $method(&self, $($argument: $type),*) -> Result<$reply, BackendError> {
                (**self).$method($($argument),*).await
            })+
        }
    };
}

forward! {
    acquire(claim: &Claim, options: AcquireOptions) -> Acquired;
    extend(claim: &Claim, options: ExtendOptions) -> Extended;
    release(claim: &Claim, options: ReleaseOptions) -> Released;
    raise(claim: &Claim, number: FencingToken) -> Vote;
    inspect(key: &Key) -> Option<Sighting>;
    server_id() -> Option<String>;
    watch(key: &Key, entry: Option<&Entry>) -> Watched;
    queue_refresh(key: &Key, entry: &Entry, locks: &[Key]) -> Refreshed;
    queue_leave(key: &Key, entry: &Entry, also: Option<&Entry>) -> bool;
}

/// How a claim is acquired. The default is a plain lock, which also repairs a node.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct AcquireOptions {
    /// Raise the keys' fencing number, to this hint at least.
    pub fencing: Option<FenceHint>,
    /// Refuse to vote while the node may have forgotten locks.
    pub guard: Option<RestartGuard>,
    /// Ask whether other processes wait for the first key, in sorted order.
    pub waiters: bool,
}

/// How a claim is extended.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct ExtendOptions {
    /// Ask whether other processes wait for the first key, in sorted order.
    pub waiters: bool,
}

/// How a claim is released.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct ReleaseOptions {
    /// Raise the fencing numbers of the keys that are ours to this one, where they are lower.
    pub raise_to: Option<FencingToken>,
    /// Ask whether other processes wait for the first key, in sorted order.
    pub waiters: bool,
}

/// The reply to an acquire.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Acquired {
    /// Whether the keys are ours. A quarantined node does not vote: that is an error.
    pub vote: Vote,
    /// The node's fencing number after a grant, if there was a hint.
    pub number: Option<FencingToken>,
    /// The server that replied, under the restart guard.
    pub server: Option<Server>,
    /// Whether other processes wait; `None` if that was not asked or is unknown.
    pub waiters: Option<bool>,
}

impl Acquired {
    /// A vote and nothing else.
    #[must_use]
    pub const fn new(vote: Vote) -> Self {
        Self { vote, number: None, server: None, waiters: None }
    }
}

/// The server that replied to an acquire under the restart guard.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Server {
    /// Its id, as [`LockBackend::server_id`] returns it.
    pub id: String,
    /// The server whose epoch this one found, if it was another one.
    pub before: Option<String>,
}

impl Server {
    /// The server `id`, which found its own epoch.
    #[must_use]
    pub fn new(id: impl Into<String>) -> Self {
        Self { id: id.into(), before: None }
    }
}

/// The reply to an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Extended {
    /// Whether all keys are still ours.
    pub vote: Vote,
    /// Whether other processes wait; `None` if that was not asked or is unknown.
    pub waiters: Option<bool>,
}

impl Extended {
    /// A vote and nothing else.
    #[must_use]
    pub const fn new(vote: Vote) -> Self {
        Self { vote, waiters: None }
    }
}

/// The reply to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Released {
    /// Whether all keys were ours until now.
    pub vote: Vote,
    /// Whether other processes wait; `None` if that was not asked or is unknown.
    pub waiters: Option<bool>,
}

impl Released {
    /// A vote and nothing else.
    #[must_use]
    pub const fn new(vote: Vote) -> Self {
        Self { vote, waiters: None }
    }
}

/// A key that is [watched](LockBackend::watch).
#[must_use = "dropping it ends the watch"]
pub struct Watched {
    is_held: bool,
    changed: BoxFuture<'static, ()>,
}

impl Watched {
    /// A key that was there or not; `changed` ends when that may have changed, or when the
    /// connection has ended.
    pub fn new(is_held: bool, changed: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { is_held, changed: Box::pin(changed) }
    }

    /// Whether the key was there.
    #[must_use]
    pub const fn is_held(&self) -> bool {
        self.is_held
    }

    /// Waits until the key may have changed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the watch.
    pub async fn changed(self) {
        self.changed.await;
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").field("is_held", &self.is_held).finish_non_exhaustive()
    }
}

/// What a backend was built for. A server may still lack or forbid it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities(u8);

impl Capabilities {
    /// The three required methods, without options.
    pub const NONE: Self = Self(0);
    /// Calls take effect in the order of their first polls.
    pub const ORDERED: Self = Self(1);
    /// [`AcquireOptions::fencing`], [`ReleaseOptions::raise_to`] and [`LockBackend::raise`].
    pub const FENCING: Self = Self(1 << 1);
    /// [`AcquireOptions::guard`].
    pub const GUARD: Self = Self(1 << 2);
    /// [`LockBackend::watch`].
    pub const WATCH: Self = Self(1 << 3);
    /// [`LockBackend::queue_refresh`], [`LockBackend::queue_leave`] and the `waiters` options.
    pub const QUEUE: Self = Self(1 << 4);
    /// [`LockBackend::inspect`].
    pub const INSPECT: Self = Self(1 << 5);
    /// [`LockBackend::server_id`].
    pub const SERVER_ID: Self = Self(1 << 6);

    /// Whether all of `others` are among these.
    #[must_use]
    pub const fn contains(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }
}

impl BitOr for Capabilities {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BackendError {
    /// The error of a call that this backend, or this server, cannot carry out. Nothing was sent.
    #[must_use]
    pub fn unsupported(what: impl Into<Arc<str>>) -> Self {
        Self::new(BackendErrorKind::Script, what).not_sent()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::algorithm::lease::Ttl;
    use crate::resource::{Resource, Token};

    /// The smallest backend: every call is refused.
    #[derive(Debug)]
    struct Refusing;

    #[async_trait]
    impl LockBackend for Refusing {
        async fn acquire(&self, _: &Claim, _: AcquireOptions) -> Result<Acquired, BackendError> {
            Ok(Acquired::new(Vote::Refused))
        }

        async fn extend(&self, _: &Claim, _: ExtendOptions) -> Result<Extended, BackendError> {
            Ok(Extended::new(Vote::Refused))
        }

        async fn release(&self, _: &Claim, _: ReleaseOptions) -> Result<Released, BackendError> {
            Ok(Released::new(Vote::Refused))
        }
    }

    #[test]
    fn three_methods_are_a_backend_and_all_others_are_unsupported() {
        let node: &dyn LockBackend = &Refusing;
        let key = Key::new(b"", &Resource::new("k").unwrap());
        let token = Token::draw(|_| Ok(())).unwrap();
        let ttl = Ttl::try_from(std::time::Duration::from_secs(1)).unwrap();
        let claim = Claim::new([key.clone()], token, ttl);
        let entry = Entry::new(*b"e");
        let number = FencingToken::MAX;
        let errors = [
            node.raise(&claim, number).now_or_never().unwrap().unwrap_err(),
            node.inspect(&key).now_or_never().unwrap().unwrap_err(),
            node.server_id().now_or_never().unwrap().unwrap_err(),
            node.watch(&key, None).now_or_never().unwrap().unwrap_err(),
            node.queue_refresh(&key, &entry, &[]).now_or_never().unwrap().unwrap_err(),
            node.queue_leave(&key, &entry, None).now_or_never().unwrap().unwrap_err(),
        ];
        assert!(errors.iter().all(BackendError::is_not_sent));
        assert_eq!((node.name(), node.capabilities()), ("".into(), Capabilities::NONE));
        let vote = node.acquire(&claim, AcquireOptions::default()).now_or_never().unwrap();
        assert_eq!(vote.unwrap().vote, Vote::Refused);
    }

    #[test]
    fn capabilities_are_a_set() {
        let some = Capabilities::ORDERED | Capabilities::QUEUE;
        assert!(some.contains(Capabilities::QUEUE) && some.contains(Capabilities::NONE));
        assert!(!some.contains(Capabilities::QUEUE | Capabilities::WATCH));
    }
}
