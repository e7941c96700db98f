//! What a call asks a node to do, and what the node answers.

use std::sync::Arc;

use super::claim::{Claim, Mode};
use super::description::Description;
use super::error::BackendError;
use super::options::{AcquireOptions, ExtendOptions, ReleaseOptions, Reply};
use super::sighting::{Holder, KeyState};
use crate::algorithm::fence::FencingToken;
use crate::algorithm::wait::{Entry, Refreshed};
use crate::resource::{Key, Label, Token};

/// What a node is asked to do.
///
/// The first three are methods of [`LockBackend`](crate::LockBackend); all others are one,
/// [`perform`](crate::LockBackend::perform). An error of any of them leaves it unknown whether it
/// was done. All but an acquire and a refresh can be sent again.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Operation {
    /// [`LockBackend::acquire`](crate::LockBackend::acquire).
    Acquire(Claim, AcquireOptions),
    /// [`LockBackend::extend`](crate::LockBackend::extend).
    Extend(Claim, ExtendOptions),
    /// [`LockBackend::release`](crate::LockBackend::release).
    Release(Claim, ReleaseOptions),
    /// Raises the fencing number of all keys to this one, if all keys are ours and none is higher.
    Raise(Claim, FencingToken),
    /// Says whether the keys are ours, and changes nothing. Only with
    /// [`Capabilities::PUSH`](super::Capabilities::PUSH).
    Look(Claim),
    /// Keeps `entry` alive in the wait queue of `key`, and appends it if it is missing.
    ///
    /// An entry that is not refreshed for 2 s leaves the queue. A lock key without a ttl counts as
    /// free for [`Choice::All`], and as held for [`Choice::Any`], which has other keys.
    ///
    /// An entry [of readers](Entry::is_of_readers) does not wait for such entries. Its predecessor
    /// is the last other entry before its own. Without a predecessor, a key that readers hold
    /// counts as free, too.
    Refresh {
        /// The key of the wait queue: the first of `locks` in sorted order.
        key: Key,
        /// The entry of the waiter.
        entry: Entry,
        /// The keys of the lock that is waited for.
        locks: Arc<[Key]>,
        /// Which of them are wanted.
        choice: Choice,
    },
    /// Removes `entry`, and `also` this one, from the wait queue of `key`. Answered by whether any
    /// entry is left.
    Leave {
        /// The key of the wait queue.
        key: Key,
        /// The entry of the waiter.
        entry: Entry,
        /// The entry that leaves with it.
        also: Option<Entry>,
    },
    /// Reads whether a key is there, and watches it: [`Call::push`](super::Call::push), taken
    /// before the key is read, is dropped when the key was written.
    ///
    /// A push may come for nothing. A change without one is not allowed, unless the connection
    /// hangs: waiters have timers as well. The watch ends when the push [is given
    /// up](super::Push::given_up).
    Watch {
        /// The key of the lock.
        key: Key,
        /// If given, the key of this entry in the wait queue is watched instead.
        entry: Option<Entry>,
    },
    /// Reads what is at a key.
    Inspect {
        /// The key to read.
        key: Key,
    },
    /// Takes a key away from its holder. Answered by what was there.
    ///
    /// A key without a ttl is returned and left as it is, and so is a key that has another holder
    /// or reader than [`Revoke::of`] says (V7). A replaced key lives as long as before: neither
    /// shorter nor longer (V1).
    Revoke {
        /// The key that is taken away from its holder.
        key: Key,
        /// The fate of the key, and the holders that lose it.
        how: Revoke,
    },
    /// Reads the version, the role, the memory policy and other facts of the node. What its user
    /// may not read is missing in the description, and is no error.
    Describe,
    /// Reads the id that no other server has, if this server has one (Q6).
    ServerId,
}

impl Operation {
    /// The claim of an acquire, an extension, a raise, a release or a look.
    #[must_use]
    pub const fn claim(&self) -> Option<&Claim> {
        match self {
            Self::Acquire(claim, _)
            | Self::Extend(claim, _)
            | Self::Raise(claim, _)
            | Self::Look(claim)
            | Self::Release(claim, _) => Some(claim),
            _ => None,
        }
    }

    /// The keys of locks that it reads or writes. Two operations without a key in common may change
    /// places.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        let one = std::slice::from_ref::<Key>;
        let (first, others): (&[Key], &[Key]) = match self {
            Self::Refresh { key, locks, .. } => (one(key), locks),
            Self::Release(claim, options) => {
                (claim.keys(), options.asks.as_deref().unwrap_or_default())
            }
            Self::Leave { key, .. }
            | Self::Watch { key, .. }
            | Self::Inspect { key }
            | Self::Revoke { key, .. } => (one(key), &[]),
            _ => (self.claim().map_or(&[], Claim::keys), &[]),
        };
        first.iter().chain(others)
    }

    /// Whether it is the extension of an exclusive claim, or its release without a fencing number
    /// and a question. A node may carry out several of one kind together.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        match self {
            Self::Extend(claim, _) => claim.mode() == Mode::Exclusive,
            Self::Release(claim, options) => {
                let is_plain = options.raise_to.is_none() && options.asks.is_none();
                claim.mode() == Mode::Exclusive && is_plain
            }
            _ => false,
        }
    }
}

/// Which of several keys a waiter wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a backend answers both")]
pub enum Choice {
    /// All of them together.
    All,
    /// One of them, whichever is free first.
    Any,
}

/// The way in which a key is taken away, and from which holder.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Revoke {
    /// What is left at the key.
    pub leaves: Leaves,
    /// The holders that lose it: a key with any other holder or reader is left alone. `None`: any
    /// holder.
    pub of: Option<Arc<[Holder]>>,
}

/// What a revoke leaves at a key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a backend does each")]
pub enum Leaves {
    /// This value, while the ttl goes on.
    Value(Token),
    /// The mark for the value that is there, while the ttl goes on: `revoked:`, the SHA-1 of that
    /// value in 40 hexadecimal digits, a space and this label. Another function of the value may
    /// take the place of SHA-1, if only a client that knows the value can compute it. A mark that
    /// is there stays as it is: it is that of the holder who was asked to leave.
    Mark(Label),
    /// Nothing: the key is deleted.
    Nothing,
}

impl Revoke {
    /// Asks the holder to leave: puts a mark with this label in place of the value of any holder.
    #[must_use]
    pub const fn mark(label: Label) -> Self {
        Self { leaves: Leaves::Mark(label), of: None }
    }

    /// Replaces the value of any holder by `token`.
    #[must_use]
    pub const fn replace(token: Token) -> Self {
        Self { leaves: Leaves::Value(token), of: None }
    }

    /// Deletes the key of any holder.
    #[must_use]
    pub const fn delete() -> Self {
        Self { leaves: Leaves::Nothing, of: None }
    }

    /// Leaves a key alone that has another holder than these (V7).
    #[must_use]
    pub fn of(mut self, holders: impl Into<Arc<[Holder]>>) -> Self {
        self.of = Some(holders.into());
        self
    }

    /// Whether a key that was seen so is taken away: it has a ttl, and no other holder.
    #[must_use]
    pub fn takes(&self, seen: &KeyState) -> bool {
        let is_of = |holder| self.of.as_ref().is_none_or(|of| of.contains(holder));
        seen.time_left().is_some() && seen.holders().all(is_of)
    }
}

/// What a node answered to a call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum CallReply {
    /// To an acquire, an extension, a raise or a release.
    Voted(Reply),
    /// To a leave: whether any entry is in the wait queue.
    Waiters(bool),
    /// To a refresh.
    Refreshed(Refreshed),
    /// To a watch: whether the key is there.
    Watched(bool),
    /// To an inspection, and to a revoke: what is, or was, at the key.
    Sighted(KeyState),
    /// To a describe.
    Described(Box<Description>),
    /// To the question for the server's id. `None` if it has none.
    ServerId(Option<Arc<str>>),
}

impl From<Reply> for CallReply {
    fn from(reply: Reply) -> Self {
        Self::Voted(reply)
    }
}

/// How a call settled.
pub type CallResult = Result<CallReply, BackendError>;
