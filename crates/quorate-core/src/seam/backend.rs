//! The seam to a node: [`LockBackend`], its options and its replies.
//!
//! Three methods are required: acquire, extend and release. A backend with those three is complete
//! and correct. Every other operation is one more method, [`perform`](LockBackend::perform), and
//! [`Capabilities`] says what a backend was built for.

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

pub use crate::algorithm::fence::FenceHint;
pub use crate::algorithm::group::{Listed, Membership};
pub use crate::algorithm::lease::{Drift, InvalidTtl, SafetyMargin, Ttl};
pub use crate::algorithm::quorum::Vote;
pub use crate::algorithm::wait::{Entry, Refreshed};
use crate::seam::runtime::{Runtime, unless};

pub use ask::{Asked, ask};
pub(crate) use call::{Answered, CallKind, Tag};
pub use call::{Call, ListTask, NotSent, Push};
pub use claim::{Claim, Mode};
pub use description::Description;
pub use error::{BackendError, BackendErrorKind};
pub use operation::{CallReply, CallResult, Choice, Leaves, Operation, Revoke};
pub use options::{AcquireOptions, Capabilities, ExtendOptions, ReleaseOptions, Reply, Waiters};
pub use restart_guard::RestartGuard;
pub use sighting::{Holder, KeyState, Reader};

/// **One** independent node that keeps keys.
///
/// # Contract
///
/// - *One node.* The algorithm spans nodes; a backend never does.
/// - *Atomic.* Each call takes effect at one moment. An acquire, an extension and a raise change
///   all keys of the claim or none; a release deletes each key that is ours.
/// - *Compare.* An extension and a release touch a key only while its value is the claim's token.
/// - *Shared.* A claim of [`Mode::Shared`] is granted beside other readers, and refused while a
///   string is at a key. Its token is a member of the ordered set there, with an expiry of its own,
///   and each call touches no other member. The key lives as long as the last of its readers. An
///   ordered set without a ttl is another program's: an error.
/// - *`Err` means unknown.* Only a node's reply that the keys are held, or not ours, is
///   [`Vote::Refused`]. An error reply, a lost connection or a reply that makes no sense is an
///   `Err`. Then the command may have been executed, unless [`BackendError::is_not_sent`] says
///   otherwise (Q4).
/// - *Once.* No acquire is sent a second time (C6).
/// - *Relative time.* The node counts the ttl on its own clock from when it executes the command.
/// - *No deadline.* A method stays pending as long as the command may still be executed. The caller
///   has the deadlines (Q5).
/// - *Order.* With [`Capabilities::ORDERED`], calls take effect in the order of their
///   [`begin`](LockBackend::begin)s, and a call that did not leave before its connection ended
///   never leaves (C3).
/// - *Drop.* Dropping a future may or may not stop its command, and disturbs no other call.
///
/// An option that the backend cannot carry out makes the call fail as
/// [`unsupported`](BackendError::unsupported), with nothing sent.
#[async_trait]
#[allow(unused_variables, reason = "a method that is not there uses none")]
pub trait LockBackend: fmt::Debug + Send + Sync + 'static {
    /// Acquires all keys of the claim for its ttl, or none of them.
    ///
    /// A key that holds the claim's token counts as ours: it stays as it is, and missing keys are
    /// set. For a single key, a refusal is allowed too.
    ///
    /// # Errors
    ///
    /// The vote is unknown.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may or may not be executed. The caller sends a release.
    async fn acquire(&self, claim: &Claim, options: AcquireOptions) -> Result<Reply, BackendError>;

    /// Makes all keys live for at least the claim's ttl from now, if all are ours. Never shortens
    /// (H2).
    ///
    /// # Errors
    ///
    /// The vote is unknown.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may or may not be executed.
    async fn extend(&self, claim: &Claim, options: ExtendOptions) -> Result<Reply, BackendError>;

    /// Deletes those keys of the claim that are ours, or have the [mark](Leaves::Mark) for its
    /// token; granted if all of them were. No other value frees a mark (V9).
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

    /// How long a connect may take. Until the node has answered once, a call to it may take that
    /// much longer than a node timeout: a process that begins has no connection. Zero for a backend
    /// that connects before its first call.
    fn connect_limit(&self) -> Duration {
        Duration::ZERO
    }

    /// Carries out any operation that has no method of its own. [`Operation`] says what each one
    /// does, and what answers it.
    ///
    /// # Errors
    ///
    /// It is unknown whether the operation was carried out. The default is
    /// [`unsupported`](BackendError::unsupported).
    ///
    /// # Cancel safety
    ///
    /// A dropped call may or may not be executed.
    async fn perform(&self, call: &Call) -> CallResult {
        Err(BackendError::unsupported("this node lacks the operation"))
    }

    /// Starts `call`, and returns without waiting.
    ///
    /// The one way in which a node is asked. The default spawns the async method on `runtime` and
    /// answers with its result; nothing else calls these methods. A backend that overrides this may
    /// claim [`Capabilities::ORDERED`]: its calls take effect in the order of their `begin`s. This
    /// is called under a lock of the sender. It must not block, and it may answer the call, look at
    /// a lease, spawn and wake. A panic here is caught: the call is lost.
    ///
    /// # Errors
    ///
    /// [`Call::not_sent`]: nothing was sent, and nothing will be.
    fn begin(self: Arc<Self>, call: Call, runtime: &dyn Runtime) -> Result<(), NotSent> {
        runtime.spawn(Box::pin(carry_out(self, call)));
        Ok(())
    }
}

/// Nodes of different types are configured together as `Arc<dyn LockBackend>`.
#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<B: LockBackend + ?Sized> LockBackend for Arc<B> {
    async fn acquire(&self, claim: &Claim, options: AcquireOptions) -> Result<Reply, BackendError> {
        (**self).acquire(claim, options).await
    }

    async fn extend(&self, claim: &Claim, options: ExtendOptions) -> Result<Reply, BackendError> {
        (**self).extend(claim, options).await
    }

    async fn release(&self, claim: &Claim, options: ReleaseOptions) -> Result<Reply, BackendError> {
        (**self).release(claim, options).await
    }

    fn name(&self) -> Cow<'_, str> {
        (**self).name()
    }

    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }

    fn connect_limit(&self) -> Duration {
        (**self).connect_limit()
    }

    async fn perform(&self, call: &Call) -> CallResult {
        (**self).perform(call).await
    }

    fn begin(self: Arc<Self>, call: Call, runtime: &dyn Runtime) -> Result<(), NotSent> {
        Self::clone(&self).begin(call, runtime)
    }
}

/// Carries a call out by the async methods of a backend: the default of
/// [`begin`](LockBackend::begin).
async fn carry_out<B: LockBackend + ?Sized>(backend: Arc<B>, call: Call) {
    let performing = AssertUnwindSafe(async {
        let voted = match call.operation() {
            Operation::Acquire(claim, options) => backend.acquire(claim, *options).await,
            Operation::Extend(claim, options) => backend.extend(claim, *options).await,
            Operation::Release(claim, options) => backend.release(claim, options.clone()).await,
            _ => return backend.perform(&call).await,
        };
        voted.map(CallReply::Voted)
    });
    let result = unless(pin!(performing.catch_unwind()), pin!(call.given_up())).await;
    let panicked = |_| Err(BackendError::new(BackendErrorKind::Other, "the backend panicked"));
    if let Some(result) = result {
        call.answer(result.unwrap_or_else(panicked));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Instant;

    use futures_util::FutureExt;

    use super::*;
    use crate::algorithm::lease::Ttl;
    use crate::algorithm::quorum::Vote;
    use crate::resource::{Key, Resource, Token};

    /// The smallest backend: each call has this vote, or is lost.
    #[derive(Debug)]
    pub(crate) struct Votes(pub(crate) Option<Vote>);

    impl Votes {
        fn answer(&self) -> Result<Reply, BackendError> {
            let lost = || BackendError::new(BackendErrorKind::Connection, "the connection ended");
            self.0.map(Reply::new).ok_or_else(lost)
        }
    }

    #[async_trait]
    impl LockBackend for Votes {
        async fn acquire(&self, _: &Claim, _: AcquireOptions) -> Result<Reply, BackendError> {
            self.answer()
        }

        async fn extend(&self, _: &Claim, _: ExtendOptions) -> Result<Reply, BackendError> {
            self.answer()
        }

        async fn release(&self, _: &Claim, _: ReleaseOptions) -> Result<Reply, BackendError> {
            self.answer()
        }
    }

    #[test]
    fn three_methods_are_a_backend_and_all_others_are_unsupported() {
        let node: &dyn LockBackend = &Votes(Some(Vote::Refused));
        let key = Key::new(b"", &Resource::new("k").unwrap());
        let token = Token::draw(|_| Ok(())).unwrap();
        let ttl = Ttl::try_from(Duration::from_secs(1)).unwrap();
        let claim = Claim::new([key.clone()], token, ttl);
        let unsupported = |call: Call| {
            let error = node.perform(&call).now_or_never().unwrap().unwrap_err();
            assert!(error.is_not_sent() && error.is_lack());
            Err(call.not_sent(error))
        };
        let inspected = ask(Operation::Inspect { key }, Instant::now(), unsupported);
        assert!(inspected.now_or_never().unwrap().is_err());
        assert_eq!((node.name(), node.capabilities()), ("".into(), Capabilities::NONE));
        let vote = node.acquire(&claim, AcquireOptions::default()).now_or_never().unwrap();
        assert_eq!(vote.unwrap().vote, Vote::Refused);
    }
}
