//! The seam to nodes: what one node must be able to do, and how it fails.

mod error;
mod fence;
mod inspect;
#[doc(hidden)]
pub mod seam;
mod watch;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

pub use error::{BackendError, BackendErrorKind};
pub use fence::Fence;
pub use inspect::{Holder, Inspect, Sighting};
pub use watch::{Watch, Watched};

use crate::algorithm::lease::Ttl;
use crate::algorithm::quorum::Vote;
use crate::driver::Call;
use crate::places::Queue;
use crate::resource::{Key, Token};
use crate::restarts::Quarantine;

/// What an operation is about: the keys, the token that signs the attempt, and the ttl.
///
/// Cheap to clone. `Debug` shows no token.
#[derive(Clone, Debug)]
pub struct Claim {
    keys: Arc<[Key]>,
    token: Token,
    ttl: Ttl,
}

impl Claim {
    /// A claim on all of `keys`. A claim on none would be granted by every node at any time.
    #[must_use]
    pub fn new(keys: impl Into<Arc<[Key]>>, token: Token, ttl: Ttl) -> Self {
        Self { keys: keys.into(), token, ttl }
    }

    /// The same keys and token with another ttl.
    #[must_use]
    pub fn with_ttl(&self, ttl: Ttl) -> Self {
        Self { keys: Arc::clone(&self.keys), token: self.token.clone(), ttl }
    }

    /// The keys, all of which are meant. No key stands there twice.
    #[must_use]
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// The value that a node stores at each key.
    #[must_use]
    pub const fn token(&self) -> &Token {
        &self.token
    }

    /// How long the node keeps the keys.
    #[must_use]
    pub const fn ttl(&self) -> Ttl {
        self.ttl
    }
}

/// **One** independent node that keeps keys.
///
/// It is implemented under [`async_trait`](crate::async_trait), and so are the traits beside it:
///
/// ```
/// use quorate_core::{BackendError, BackendErrorKind, Claim, LockBackend, Vote, async_trait};
///
/// /// A node that is never there.
/// #[derive(Debug)]
/// struct Nowhere;
///
/// fn away() -> BackendError {
///     BackendError::new(BackendErrorKind::Connection, "nobody is there")
/// }
///
/// #[async_trait]
/// impl LockBackend for Nowhere {
///     async fn acquire(&self, _: &Claim) -> Result<Vote, BackendError> {
///         Err(away())
///     }
///
///     async fn extend(&self, _: &Claim) -> Result<Vote, BackendError> {
///         Err(away())
///     }
///
///     async fn release(&self, _: &Claim) -> Result<Vote, BackendError> {
///         Err(away())
///     }
/// }
/// ```
///
/// # Contract
///
/// `quorate-memory`'s `conformance` module is this contract as code: run it on every backend.
///
/// - *One node.* The algorithm spans nodes; a backend never does. Two nodes share no fate.
/// - *Atomic.* Each method takes effect at one moment, on all keys of the claim or on none.
/// - *Compare.* `extend` and `release` touch a key only while its value is the claim's token.
/// - *Own token.* `acquire` of keys that already hold the claim's token grants: the request was
///   sent twice, or its first answer was lost.
/// - *`Err` means unknown.* Only the node's word that the keys are taken (or not ours) is
///   [`Vote::Refused`]. An error answer, a lost connection, a timeout, a reply that makes no sense
///   is an `Err`: the operation may or may not have happened.
/// - *Once.* No method sends an acquire a second time by itself when the first is in doubt.
/// - *Relative time.* The node counts the ttl on its own clock from when it hears of it.
/// - *Patience.* A method may take as long as it likes: deadlines are the caller's, who goes on
///   waiting in the background after its own deadline. So a future should stay pending as long as
///   the command may still be carried out, not give up on a timeout of its own.
/// - *Drop.* Dropping a future may or may not stop the command, and disturbs no other call.
///
/// Calls of one claim come to one node one after the other: a release is first polled after the
/// acquire that it undoes has settled, or was given up after the cleanup bound. So a backend may
/// use several connections. Where one [keeps order](LockBackend::keeps_order), a release that is
/// carried comes without that wait.
#[async_trait]
pub trait LockBackend: fmt::Debug + Send + Sync + 'static {
    /// Takes all keys of the claim for its ttl, or none of them.
    ///
    /// # Errors
    ///
    /// `BackendError` if the vote is unknown; the operation may have happened.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it may or may not be carried out, and no other call is disturbed. Nothing is undone: to
    /// give back what may have been taken, the caller sends a release.
    async fn acquire(&self, claim: &Claim) -> Result<Vote, BackendError>;

    /// Makes all keys live for at least the claim's ttl from now, if all are ours. Never shortens.
    ///
    /// # Errors
    ///
    /// `BackendError` if the vote is unknown; the operation may have happened.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it may or may not be carried out, and no other call is disturbed: the keys end as before,
    /// or later.
    async fn extend(&self, claim: &Claim) -> Result<Vote, BackendError>;

    /// Removes those keys of the claim that are ours; granted if all of them were.
    ///
    /// # Errors
    ///
    /// `BackendError` if the vote is unknown; the operation may have happened.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it may or may not be carried out, and no other call is disturbed. It can be sent again: a
    /// key that is gone, or somebody else's by then, is left alone.
    async fn release(&self, claim: &Claim) -> Result<Vote, BackendError>;

    /// What errors call this node: an address **without its password**. Without a name, a node is
    /// called by its place: `node 1` and so on.
    fn name(&self) -> Option<&str> {
        None
    }

    /// Why calls have to wait before they leave, as far as is known here: there is no connection yet,
    /// and why the last attempt to make one failed. `None` if they leave at once.
    ///
    /// Errors tell it of a node that has not answered in time. It does not wait.
    fn obstacle(&self) -> Option<BackendError> {
        None
    }

    /// Tells which server this is, where the node can say it.
    fn identity(&self) -> Option<&dyn Identify> {
        None
    }

    /// Looks at keys without taking them, where the backend can.
    fn inspector(&self) -> Option<&dyn Inspect> {
        None
    }

    /// Tells who has a key, and when that changes, where the backend can.
    fn watcher(&self) -> Option<&dyn Watch> {
        None
    }

    /// Keeps those who wait for a key in order, where the backend can.
    fn queue(&self) -> Option<&dyn Queue> {
        None
    }

    /// Keeps numbers for fencing tokens, where the backend can.
    fn fencer(&self) -> Option<&dyn Fence> {
        None
    }

    /// Keeps from voting while the node may have forgotten, where the backend can.
    fn quarantine(&self) -> Option<&dyn Quarantine> {
        None
    }

    /// Whether calls that share a key reach the node in the order in which they set out: were first
    /// polled, or given to the [carrier](Self::carrier). It is asked once.
    ///
    /// Then the next waiter of a process asks the nodes right behind the release of the last holder,
    /// where it would otherwise wait for their answer: a lock changes hands in one round trip less.
    /// (Not with fencing tokens or a restart guard, and not where waiters of other processes were
    /// met.) Where it is not so now and then, since a connection was lost or the node had to be sent
    /// a script again, the waiter is refused, and asks once more when the release is answered.
    ///
    /// And a release that is carried does not wait for the answer to the acquire that was given to
    /// the carrier before it. From then on that acquire is not [wanted](Call::is_wanted): if it has
    /// not left, or would have to be sent again, it must not.
    fn keeps_order(&self) -> bool {
        false
    }

    /// Carries calls without being polled for them, where the backend can.
    fn carrier(&self) -> Option<&dyn Carry> {
        None
    }
}

/// A backend that carries calls by itself, on a task of its own, and tells the answers.
///
/// That is for speed alone: a call costs no future then, many to one node can travel together, and
/// nobody is woken to look after them. What is said of the methods of [`LockBackend`] holds for
/// calls, too; they are not given up by dropping a future, but when they are no longer
/// [wanted](Call::is_wanted). One that is not wanted and has not left must not leave: what undoes it
/// may have gone before it.
///
/// A test makes its own calls with [`Call::apart`].
pub trait Carry: Send + Sync {
    /// Whether a call about `claim` would be carried at this moment. If not, [`LockBackend`] is
    /// asked: for what has to be connected first, say, or is as quick without company. Among many
    /// calls about the same keys it is to say yes in the end: the conformance suite makes 24 of them.
    fn carries(&self, claim: &Claim) -> bool;

    /// Takes a call on its way. It does not wait, and it [answers](Call::answer) in the end.
    fn carry(&self, call: Call);
}

/// A node that can tell which server it is.
///
/// Two configured nodes that are one server void the quorum; where all nodes can identify
/// themselves, the manager refuses to lock over such a pair.
#[async_trait]
pub trait Identify: Send + Sync {
    /// An id that no other server has, and that the same server gives under each of its addresses:
    /// Redis and Valkey call it `run_id`. `None` if this server has none.
    ///
    /// # Errors
    ///
    /// `BackendError` if the node cannot be asked, or will not tell.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time: it only reads, and no other call is disturbed.
    async fn server_id(&self) -> Result<Option<String>, BackendError>;
}

macro_rules! forward {
    ($($pointer:ident),+) => {$(
#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<T: LockBackend + ?Sized> LockBackend for $pointer<T> {
    async fn acquire(&self, claim: &Claim) -> Result<Vote, BackendError> {
        (**self).acquire(claim).await
    }

    async fn extend(&self, claim: &Claim) -> Result<Vote, BackendError> {
        (**self).extend(claim).await
    }

    async fn release(&self, claim: &Claim) -> Result<Vote, BackendError> {
        (**self).release(claim).await
    }

    fn name(&self) -> Option<&str> {
        (**self).name()
    }

    fn obstacle(&self) -> Option<BackendError> {
        (**self).obstacle()
    }

    fn identity(&self) -> Option<&dyn Identify> {
        (**self).identity()
    }

    fn inspector(&self) -> Option<&dyn Inspect> {
        (**self).inspector()
    }

    fn watcher(&self) -> Option<&dyn Watch> {
        (**self).watcher()
    }

    fn queue(&self) -> Option<&dyn Queue> {
        (**self).queue()
    }

    fn fencer(&self) -> Option<&dyn Fence> {
        (**self).fencer()
    }

    fn quarantine(&self) -> Option<&dyn Quarantine> {
        (**self).quarantine()
    }

    fn keeps_order(&self) -> bool {
        (**self).keeps_order()
    }

    fn carrier(&self) -> Option<&dyn Carry> {
        (**self).carrier()
    }
}
    )+};
}

forward!(Arc, Box);

#[cfg(test)]
mod tests {
    use super::*;

    /// `LockBackend` stays object safe.
    fn _object_safe(_: &dyn LockBackend) {}
}
