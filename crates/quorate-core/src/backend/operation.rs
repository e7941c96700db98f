//! What a call asks a node to do, and what the node answers.

use std::sync::Arc;

use super::claim::{Claim, Mode};
use super::description::Description;
use super::error::BackendError;
use super::options::{AcquireOptions, ExtendOptions, ReleaseOptions, Reply};
use super::sighting::Sighting;
use crate::algorithm::fence::FencingToken;
use crate::algorithm::wait::{Entry, Refreshed};
use crate::resource::{Key, Token};

/// What a node is asked to do: a method of [`LockBackend`](crate::LockBackend), with its arguments.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Operation {
    /// [`LockBackend::acquire`](crate::LockBackend::acquire).
    Acquire(Claim, AcquireOptions),
    /// [`LockBackend::extend`](crate::LockBackend::extend).
    Extend(Claim, ExtendOptions),
    /// [`LockBackend::raise`](crate::LockBackend::raise).
    Raise(Claim, FencingToken),
    /// [`LockBackend::release`](crate::LockBackend::release).
    Release(Claim, ReleaseOptions),
    /// [`LockBackend::hint`](crate::LockBackend::hint).
    Hint {
        /// The key of the wait queue.
        key: Key,
        /// The mode of the holder that asks.
        mode: Mode,
    },
    /// [`LockBackend::queue_refresh`](crate::LockBackend::queue_refresh).
    Refresh {
        /// The key of the wait queue.
        key: Key,
        /// The entry of the waiter.
        entry: Entry,
        /// The keys of the lock.
        locks: Arc<[Key]>,
        /// Which of them are wanted.
        choice: Choice,
    },
    /// [`LockBackend::queue_leave`](crate::LockBackend::queue_leave).
    Leave {
        /// The key of the wait queue.
        key: Key,
        /// The entry of the waiter.
        entry: Entry,
        /// The entry that leaves with it.
        also: Option<Entry>,
    },
    /// [`LockBackend::watch`](crate::LockBackend::watch). [`Call::push`](super::Call::push) is what tells of a change.
    Watch {
        /// The key of the lock.
        key: Key,
        /// If given, the key of this entry in the wait queue is watched instead.
        entry: Option<Entry>,
    },
    /// [`LockBackend::inspect`](crate::LockBackend::inspect).
    Inspect {
        /// The key to read.
        key: Key,
    },
    /// [`LockBackend::revoke`](crate::LockBackend::revoke).
    Revoke {
        /// The key that is taken away from its holder.
        key: Key,
        /// What becomes of the key.
        how: Revoke,
    },
    /// [`LockBackend::describe`](crate::LockBackend::describe).
    Describe,
    /// [`LockBackend::server_id`](crate::LockBackend::server_id).
    ServerId,
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

/// The way in which a key is taken away from its holder.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Revoke {
    /// Its value is replaced by a token that nobody keeps, and its ttl goes on.
    Replace(Token),
    /// It is deleted.
    Delete,
}

/// What a node answered to a call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum CallReply {
    /// To an acquire, an extension, a raise or a release.
    Voted(Reply),
    /// To a hint or a leave: whether any entry is in the wait queue.
    Waiters(bool),
    /// To a refresh.
    Refreshed(Refreshed),
    /// To a watch: whether the key is there.
    Watched(bool),
    /// To an inspection, and to a revoke: what was at the key.
    Sighted(Option<Sighting>),
    /// To a describe. Boxed: it is far larger than the others.
    Described(Box<Description>),
    /// To the question for the server's id.
    ServerId(Option<Arc<str>>),
}

impl From<Description> for CallReply {
    fn from(told: Description) -> Self {
        Self::Described(Box::new(told))
    }
}

impl From<Reply> for CallReply {
    fn from(reply: Reply) -> Self {
        Self::Voted(reply)
    }
}

/// How a call settled.
pub type CallResult = Result<CallReply, BackendError>;
