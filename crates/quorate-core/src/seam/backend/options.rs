//! The options of calls, and what nodes reply.

use std::fmt;
use std::ops::BitOr;
use std::sync::Arc;

use super::restart_guard::RestartGuard;
use super::sighting::Holder;
use crate::algorithm::fence::{FenceHint, FencingToken};
use crate::algorithm::quorum::Vote;
use crate::resource::Key;

/// How a claim is acquired. The default is a plain lock, which also repairs a node.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct AcquireOptions {
    /// Raise the keys' fencing number, to this hint at least.
    pub fencing: Option<FenceHint>,
    /// Refuse to vote while the node may have forgotten locks.
    pub guard: Option<RestartGuard>,
    /// Say whether a writer waits for the keys: only of a claim of
    /// [`Mode::Shared`](super::Mode::Shared).
    ///
    /// In one step with the acquire, so that a writer which waits before it is seen. A node that
    /// cannot look makes the acquire without it.
    pub asks: bool,
}

/// How a claim is extended. There is no option yet.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct ExtendOptions {}

/// How a claim is released.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ReleaseOptions {
    /// Raise the fencing numbers of the keys that are ours to this one, where they are lower.
    pub raise_to: Option<FencingToken>,
    /// The lock was held, so that a revoke may have put its mark in place of the token: that is
    /// deleted as well (V9).
    pub was_held: bool,
    /// Say whether any entry is in the wait queues of these keys. A node that cannot look makes the
    /// release without it.
    pub asks: Option<Arc<[Key]>>,
}

/// What a node says of the wait queues that a call asks about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a backend gives each")]
pub enum Waiters {
    /// It was not asked, or could not look.
    #[default]
    Unknown,
    /// Nobody waits.
    Nobody,
    /// Somebody waits for the key at this place, the first such key. For a reader that acquires, it
    /// is an entry that is not [of readers](super::Entry::is_of_readers), and was refreshed in the
    /// last 2 s.
    For(usize),
}

/// The reply to an acquire, an extension, a raise or a release.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reply {
    /// Whether the keys are ours; to a release, whether all of them were until now.
    pub vote: Vote,
    /// The node's fencing number after the grant of an acquire with a hint.
    pub number: Option<FencingToken>,
    /// The holder of a key that refused an acquire, if the node names it.
    pub holder: Option<Holder>,
    /// A refusal: a revoke has put its mark in place of the claim's token. `holder` is the mark.
    pub is_marked: bool,
    /// The id of the server that replied, as [`Operation::ServerId`](super::Operation::ServerId)
    /// returns it.
    pub server: Option<Arc<str>>,
    /// The server has no id, or does not report it. A reply that merely has no place for the id
    /// does not say so.
    pub is_nameless: bool,
    /// Whether others wait, if the [acquire](AcquireOptions::asks) or the
    /// [release](ReleaseOptions::asks) asks.
    pub waiters: Waiters,
}

impl Reply {
    /// A vote and nothing else.
    #[must_use]
    pub const fn new(vote: Vote) -> Self {
        let (is_marked, is_nameless, waiters) = (false, false, Waiters::Unknown);
        Self { vote, number: None, holder: None, is_marked, server: None, is_nameless, waiters }
    }

    /// A refusal by the mark that a revoke has put in place of the claim's token.
    #[must_use]
    pub fn marked(mark: Holder) -> Self {
        Self { is_marked: true, ..Self::held_by(mark) }
    }

    /// A refusal of an acquire that names the holder of a key.
    #[must_use]
    pub fn held_by(holder: Holder) -> Self {
        Self { holder: Some(holder), ..Self::new(Vote::Refused) }
    }
}

/// What a backend was built for. A server may still lack or forbid it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities(u16);

impl Capabilities {
    /// The three required methods, without options.
    pub const NONE: Self = Self(0);
    /// Calls with a [key](super::Operation::keys) in common take effect in the order of their
    /// [`begin`](crate::LockBackend::begin)s.
    pub const ORDERED: Self = Self(1);
    /// [`AcquireOptions::fencing`], [`ReleaseOptions::raise_to`] and
    /// [`Operation::Raise`](super::Operation::Raise).
    pub const FENCING: Self = Self(1 << 1);
    /// [`AcquireOptions::guard`].
    pub const GUARD: Self = Self(1 << 2);
    /// [`Operation::Watch`](super::Operation::Watch).
    pub const WATCH: Self = Self(1 << 3);
    /// [`Operation::Refresh`](super::Operation::Refresh),
    /// [`Operation::Leave`](super::Operation::Leave), [`AcquireOptions::asks`] and
    /// [`ReleaseOptions::asks`].
    pub const QUEUE: Self = Self(1 << 4);
    /// [`Operation::Inspect`](super::Operation::Inspect).
    pub const INSPECT: Self = Self(1 << 5);
    /// [`Operation::ServerId`](super::Operation::ServerId). Each reply to an acquire and an
    /// extension names the [server](Reply::server), too, or says that it is
    /// [nameless](Reply::is_nameless).
    pub const SERVER_ID: Self = Self(1 << 6);
    /// [`Operation::Revoke`](super::Operation::Revoke).
    pub const REVOKE: Self = Self(1 << 7);
    /// [`Operation::Describe`](super::Operation::Describe).
    pub const DESCRIBE: Self = Self(1 << 8);
    /// Claims of [`Mode::Shared`](super::Mode::Shared).
    pub const SHARED: Self = Self(1 << 9);
    /// [`Operation::Look`](super::Operation::Look), and a push when a key is written that was
    /// extended or looked at.
    ///
    /// Only with [`ORDERED`](Self::ORDERED). Such a backend takes [`Call::push`](super::Call::push)
    /// of each extension and each look of an exclusive claim before the node reads the keys, and
    /// drops it when one of them was written by any other connection, when it was deleted, or when
    /// the node no longer tracks it. A push may come for nothing. One that does not come is heard
    /// of at the next renewal.
    pub const PUSH: Self = Self(1 << 10);

    /// Whether all of `others` are among these.
    #[must_use]
    pub const fn contains(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// These and `others`.
    #[must_use]
    pub const fn union(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// These without any of `others`.
    #[must_use]
    pub const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }
}

impl BitOr for Capabilities {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}

/// Prints the abilities that an operator decides on, separated by commas.
impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (Self::FENCING, "fencing"),
            (Self::GUARD, "restart guard"),
            (Self::QUEUE, "wait queue"),
            (Self::WATCH, "watching"),
            (Self::INSPECT, "inspect"),
            (Self::REVOKE, "revoke"),
            (Self::SHARED, "readers"),
        ];
        let names = names.into_iter().filter(|(one, _)| self.contains(*one));
        f.write_str(&names.map(|(_, name)| name).collect::<Vec<_>>().join(", "))
    }
}
