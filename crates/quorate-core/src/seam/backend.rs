//! The seam to a node: [`LockBackend`], its options and its replies.
//!
//! Three methods are required: acquire, extend and release. A backend with those three is complete
//! and correct. The rest is provided, and [`Capabilities`] says what a backend was built for.

mod ask;
mod call;
mod claim;
mod description;
mod error;
mod operation;
mod options;
mod restart_guard;
mod sighting;

use std::borrow::Cow;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// For an `impl` of [`LockBackend`], whose methods are `async`.
pub use async_trait::async_trait;
use futures_util::FutureExt as _;
use futures_util::future::try_join;

pub use crate::algorithm::fence::FenceHint;
use crate::algorithm::fence::FencingToken;
pub use crate::algorithm::lease::{Drift, InvalidTtl, Ttl};
pub use crate::algorithm::quorum::Vote;
pub use crate::algorithm::wait::{Entry, Refreshed};
use crate::resource::Key;
use crate::seam::runtime::{Runtime, unless};

pub use ask::{Asked, ask};
pub(crate) use call::{Answered, CallKind, Tag};
pub use call::{Call, NotSent, Push};
pub use claim::{Claim, Mode};
pub use description::Description;
pub use error::{BackendError, BackendErrorKind};
pub use operation::{CallReply, CallResult, Choice, Leaves, Operation, Revoke};
pub use options::{AcquireOptions, Capabilities, ExtendOptions, ReleaseOptions, Reply, Watched};
pub use restart_guard::RestartGuard;
pub use sighting::{Holder, Reader, Sighting};

/// **One** independent node that keeps keys.
///
/// # Contract
///
/// - *One node.* The algorithm spans nodes; a backend never does.
/// - *Atomic.* Each method takes effect at one moment. `acquire`, `extend` and `raise` change all keys of the
///   claim or none; `release` deletes each key that is ours.
/// - *Compare.* `extend` and `release` touch a key only while its value is the claim's token.
/// - *Shared.* A claim of [`Mode::Shared`] is granted beside other readers, and refused while a string is at a key. Its
///   token is a member of the ordered set there, with an expiry of its own, and each method touches no other member.
///   The key lives as long as the last of its readers. An ordered set without a ttl is another program's: an error.
/// - *`Err` means unknown.* Only a node's reply that the keys are held, or not ours, is
///   [`Vote::Refused`]. An error reply, a lost connection or a reply that makes no sense is an
///   `Err`. Then the command may have been executed, unless [`BackendError::is_not_sent`] says
///   otherwise (Q4).
/// - *Once.* No method sends an acquire a second time (C6).
/// - *Relative time.* The node counts the ttl on its own clock from when it executes the command.
/// - *No deadline.* A method stays pending as long as the command may still be executed. The caller
///   has the deadlines (Q5).
/// - *First poll.* Nothing is sent before a future is first polled.
/// - *Order.* With [`Capabilities::ORDERED`], calls take effect in the order of their
///   [`begin`](LockBackend::begin)s, and a call that did not leave before its connection ended never leaves (C3).
/// - *Drop.* Dropping a future may or may not stop its command, and disturbs no other call.
///
/// An option that the backend cannot carry out makes the call fail as
/// [`unsupported`](BackendError::unsupported), with nothing sent.
#[async_trait]
#[allow(unused_variables, reason = "a method that is not there uses none")]
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
    async fn acquire(&self, claim: &Claim, options: AcquireOptions) -> Result<Reply, BackendError>;

    /// Makes all keys live for at least the claim's ttl from now, if all are ours. Never shortens (H2).
    ///
    /// # Errors
    ///
    /// The vote is unknown.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may or may not be executed.
    async fn extend(&self, claim: &Claim, options: ExtendOptions) -> Result<Reply, BackendError>;

    /// Deletes those keys of the claim that are ours, or have the [mark](Leaves::Mark) for its token; granted if all of them
    /// were. No other value frees a mark (V9).
    ///
    /// # Errors
    ///
    /// The vote is unknown.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may or may not be executed. It can be sent again (C7).
    async fn release(&self, claim: &Claim, options: ReleaseOptions) -> Result<Reply, BackendError>;

    /// What errors and events call this node: an address without secrets. Empty for none.
    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    /// What this backend was built for.
    fn capabilities(&self) -> Capabilities {
        Capabilities::NONE
    }

    /// How long a connect may take. Until the node has answered once, a call to it may take that much longer than a node
    /// timeout: a process that begins has no connection. Zero for a backend that connects before its first call.
    fn connect_limit(&self) -> Duration {
        Duration::ZERO
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
    async fn raise(&self, claim: &Claim, number: FencingToken) -> Result<Reply, BackendError> {
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
        Err(BackendError::unsupported("this node cannot be inspected"))
    }

    /// Takes `key` away from its holder, and returns what was there; `None` if it was free.
    ///
    /// A key without a ttl is returned and left as it is, and so is a key that has another holder or reader than
    /// [`Revoke::of`] says (V7). A replaced key lives as long as before: neither shorter nor longer (V1).
    ///
    /// # Errors
    ///
    /// It is unknown whether it was done, or what is there is no lock.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may or may not be executed. It can be sent again.
    async fn revoke(&self, key: &Key, how: &Revoke) -> Result<Option<Sighting>, BackendError> {
        Err(BackendError::unsupported("this node cannot revoke a lock"))
    }

    /// Reads the version, the role, the memory policy and other facts of the node.
    ///
    /// # Errors
    ///
    /// The node cannot be asked. What its user may not read is missing in the description, and is no error.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time.
    async fn describe(&self) -> Result<Description, BackendError> {
        Err(BackendError::unsupported("this node does not describe itself"))
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

    /// Reads whether any entry is in the wait queue of `key`. For [`Mode::Shared`]: any entry that is not
    /// [of readers](Entry::is_of_readers), and was refreshed in the last 2 s.
    ///
    /// # Errors
    ///
    /// The node cannot be asked.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time.
    async fn hint(&self, key: &Key, mode: Mode) -> Result<bool, BackendError> {
        Err(BackendError::unsupported("this node keeps no wait queue"))
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
        Err(BackendError::unsupported("this node cannot watch keys"))
    }

    /// Keeps `entry` alive in the wait queue of `key`, and appends it if it is missing.
    ///
    /// `locks` are the keys of the lock that is waited for. `key` is the first of them in sorted order. An entry
    /// that is not refreshed for 2 s leaves the queue. A lock key without a ttl counts as free for
    /// [`Choice::All`], and as held for [`Choice::Any`], which has other keys.
    ///
    /// An entry [of readers](Entry::is_of_readers) does not wait for such entries. Its predecessor is the last other entry
    /// before its own. Without a predecessor, a key that readers hold counts as free, too.
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
        choice: Choice,
    ) -> Result<Refreshed, BackendError> {
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
        Err(BackendError::unsupported("this node keeps no wait queue"))
    }

    /// Starts `call`, and returns without waiting.
    ///
    /// The default spawns the async method on `runtime` and answers with its result. A backend that
    /// overrides this may claim [`Capabilities::ORDERED`]: its calls take effect in the order of their `begin`s.
    /// This is called under a lock of the sender. It must not block, and it may answer the call, look at a lease,
    /// spawn and wake. A panic here is caught: the call is lost.
    ///
    /// # Errors
    ///
    /// [`Call::not_sent`]: nothing was sent, and nothing will be.
    fn begin(self: Arc<Self>, call: Call, runtime: &dyn Runtime) -> Result<(), NotSent> {
        runtime.spawn(Box::pin(by_async_methods(self, call)));
        Ok(())
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

            fn connect_limit(&self) -> Duration {
                (**self).connect_limit()
            }

            fn begin(self: Arc<Self>, call: Call, runtime: &dyn Runtime) -> Result<(), NotSent> {
                Self::clone(&self).begin(call, runtime)
            }

            $(async fn $method(&self, $($argument: $type),*) -> Result<$reply, BackendError> {
                (**self).$method($($argument),*).await
            })+
        }
    };
}

forward! {
    acquire(claim: &Claim, options: AcquireOptions) -> Reply;
    extend(claim: &Claim, options: ExtendOptions) -> Reply;
    release(claim: &Claim, options: ReleaseOptions) -> Reply;
    raise(claim: &Claim, number: FencingToken) -> Reply;
    inspect(key: &Key) -> Option<Sighting>;
    revoke(key: &Key, how: &Revoke) -> Option<Sighting>;
    describe() -> Description;
    server_id() -> Option<String>;
    hint(key: &Key, mode: Mode) -> bool;
    watch(key: &Key, entry: Option<&Entry>) -> Watched;
    queue_refresh(key: &Key, entry: &Entry, locks: &[Key], choice: Choice) -> Refreshed;
    queue_leave(key: &Key, entry: &Entry, also: Option<&Entry>) -> bool;
}

/// Carries a call out by the async methods of a backend: the default of
/// [`begin`](LockBackend::begin).
async fn by_async_methods<B: LockBackend + ?Sized>(backend: Arc<B>, call: Call) {
    if let Operation::Watch { key, entry } = call.operation() {
        let push = call.push();
        let (key, entry) = (key.clone(), entry.clone());
        let watching = backend.watch(&key, entry.as_ref());
        let watched = unless(pin!(watching), pin!(call.given_up())).await;
        match watched {
            Some(Ok(watched)) => {
                call.answer(Ok(CallReply::Watched(watched.is_held())));
                unless(pin!(watched.changed()), pin!(push.given_up())).await;
            }
            Some(Err(error)) => call.answer(Err(error)),
            None => {}
        }
        return;
    }
    let performing = AssertUnwindSafe(perform(&*backend, &call)).catch_unwind();
    let result = unless(pin!(performing), pin!(call.given_up())).await;
    let panicked = |_| Err(BackendError::new(BackendErrorKind::Other, "the backend panicked"));
    if let Some(result) = result {
        call.answer(result.unwrap_or_else(panicked));
    }
}

async fn perform<B: LockBackend + ?Sized>(backend: &B, call: &Call) -> CallResult {
    Ok(match call.operation() {
        Operation::Acquire(claim, options) => {
            with_server(backend, call, backend.acquire(claim, *options)).await?.into()
        }
        Operation::Extend(claim, options) => {
            with_server(backend, call, backend.extend(claim, *options)).await?.into()
        }
        Operation::Raise(claim, number) => backend.raise(claim, *number).await?.into(),
        Operation::Release(claim, options) => backend.release(claim, *options).await?.into(),
        Operation::Hint { key, mode } => CallReply::Waiters(backend.hint(key, *mode).await?),
        Operation::Refresh { key, entry, locks, choice } => {
            CallReply::Refreshed(backend.queue_refresh(key, entry, locks, *choice).await?)
        }
        Operation::Leave { key, entry, also } => {
            CallReply::Waiters(backend.queue_leave(key, entry, also.as_ref()).await?)
        }
        Operation::Watch { .. } => return Err(BackendError::unsupported("a watch")),
        Operation::Look(_) => return Err(BackendError::unsupported("a look")),
        Operation::Inspect { key } => CallReply::Sighted(backend.inspect(key).await?),
        Operation::Revoke { key, how } => CallReply::Sighted(backend.revoke(key, how).await?),
        Operation::Describe => CallReply::Described(backend.describe().await?.into()),
        Operation::ServerId => CallReply::ServerId(backend.server_id().await?.map(Arc::from)),
    })
}

/// The reply, with the server that gave it if that is asked. Both calls leave with the first poll, and an error
/// of the first waits for no server id.
async fn with_server<B: LockBackend + ?Sized>(
    backend: &B,
    call: &Call,
    reply: impl Future<Output = Result<Reply, BackendError>>,
) -> Result<Reply, BackendError> {
    if !call.asks_server() {
        return reply.await;
    }
    let id = async {
        match backend.server_id().await {
            // It is asked again with the next call. Until then this vote may be that of another node.
            Err(error) if !error.kind().is_permanent() => Err(error),
            id => Ok(id.ok().flatten()),
        }
    };
    let (mut reply, id) = try_join(reply, id).await?;
    if reply.server.is_none() {
        reply.server = id.map(Arc::from);
        reply.is_nameless = reply.server.is_none();
    }
    Ok(reply)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::algorithm::lease::Ttl;
    use crate::algorithm::quorum::Vote;
    use crate::resource::{Resource, Token};

    /// The smallest backend: every call is refused.
    #[derive(Debug)]
    struct Refusing;

    #[async_trait]
    impl LockBackend for Refusing {
        async fn acquire(&self, _: &Claim, _: AcquireOptions) -> Result<Reply, BackendError> {
            Ok(Reply::new(Vote::Refused))
        }

        async fn extend(&self, _: &Claim, _: ExtendOptions) -> Result<Reply, BackendError> {
            Ok(Reply::new(Vote::Refused))
        }

        async fn release(&self, _: &Claim, _: ReleaseOptions) -> Result<Reply, BackendError> {
            Ok(Reply::new(Vote::Refused))
        }
    }

    #[test]
    fn three_methods_are_a_backend_and_all_others_are_unsupported() {
        let node: &dyn LockBackend = &Refusing;
        let key = Key::new(b"", &Resource::new("k").unwrap());
        let token = Token::draw(|_| Ok(())).unwrap();
        let ttl = Ttl::try_from(Duration::from_secs(1)).unwrap();
        let claim = Claim::new([key.clone()], token, ttl);
        let entry = Entry::new(*b"e");
        let number = FencingToken::MAX;
        let errors = [
            node.raise(&claim, number).now_or_never().unwrap().unwrap_err(),
            node.inspect(&key).now_or_never().unwrap().unwrap_err(),
            node.revoke(&key, &Revoke::delete()).now_or_never().unwrap().unwrap_err(),
            node.describe().now_or_never().unwrap().unwrap_err(),
            node.server_id().now_or_never().unwrap().unwrap_err(),
            node.hint(&key, Mode::Exclusive).now_or_never().unwrap().unwrap_err(),
            node.watch(&key, None).now_or_never().unwrap().unwrap_err(),
            node.queue_refresh(&key, &entry, &[], Choice::All).now_or_never().unwrap().unwrap_err(),
            node.queue_leave(&key, &entry, None).now_or_never().unwrap().unwrap_err(),
        ];
        assert!(errors.iter().all(BackendError::is_not_sent));
        assert_eq!((node.name(), node.capabilities()), ("".into(), Capabilities::NONE));
        let vote = node.acquire(&claim, AcquireOptions::default()).now_or_never().unwrap();
        assert_eq!(vote.unwrap().vote, Vote::Refused);
    }
}
