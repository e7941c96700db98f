//! How the tests reach a node: the only file that knows the methods of a backend.

use std::time::Duration;

use quorate::backend::{
    AcquireOptions, Entry, ExtendOptions, Refreshed, ReleaseOptions, Reply, Watched,
};
use quorate::{
    BackendError, BackendErrorKind, Claim, FenceHint, FencingToken, Key, LockBackend, Resource,
    Sighting, Token, Ttl,
};
use quorate_tests::keys;

use super::{GUARD, SECOND};

/// What a node replied, or the kind of its error.
pub(crate) type Answer = Result<Told, BackendErrorKind>;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Told {
    Voted(Reply),
    Saw(Option<Sighting>),
    Refreshed(Refreshed),
    Waiters(bool),
}

fn answer<T>(result: Result<T, BackendError>, told: fn(T) -> Told) -> Answer {
    result.map(told).map_err(|error| error.kind())
}

/// The ids of the servers differ, since these are two.
fn without_ids(mut reply: Reply) -> Told {
    reply.server = None;
    Told::Voted(reply)
}

/// One operation on a node.
#[derive(Clone, Debug)]
pub(crate) enum Call {
    Acquire(Claim),
    Extend(Claim),
    Release(Claim),
    Inspect(Key),
    FencedAcquire(Claim, FenceHint),
    Raise(Claim, FencingToken),
    FencedRelease(Claim, FencingToken),
    GuardedAcquire(Claim, Option<FenceHint>),
    Refresh(Key, Entry, Vec<Key>),
    Hint(Key),
    Leave(Key, Entry, Option<Entry>),
}

impl Call {
    /// What is done.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Acquire(..) => "acquire",
            Self::Extend(..) => "extend",
            Self::Release(..) => "release",
            Self::Inspect(_) => "inspect",
            Self::FencedAcquire(..) => "fenced acquire",
            Self::Raise(..) => "raise",
            Self::FencedRelease(..) => "fenced release",
            Self::GuardedAcquire(..) => "guarded acquire",
            Self::Refresh(..) => "refresh",
            Self::Hint(_) => "hint",
            Self::Leave(..) => "leave",
        }
    }

    pub(crate) async fn on(&self, node: &dyn LockBackend) -> Answer {
        match self {
            Self::Acquire(claim) => acquire(node, claim, None, false).await,
            Self::FencedAcquire(claim, hint) => acquire(node, claim, Some(*hint), false).await,
            Self::GuardedAcquire(claim, hint) => acquire(node, claim, *hint, true).await,
            Self::Extend(claim) => {
                answer(node.extend(claim, ExtendOptions::default()).await, without_ids)
            }
            Self::Release(claim) => release(node, claim, None).await,
            Self::FencedRelease(claim, number) => release(node, claim, Some(*number)).await,
            Self::Inspect(key) => answer(node.inspect(key).await, Told::Saw),
            Self::Raise(claim, number) => answer(node.raise(claim, *number).await, without_ids),
            Self::Hint(key) => answer(node.hint(key).await, Told::Waiters),
            Self::Refresh(key, entry, locks) => {
                answer(node.queue_refresh(key, entry, locks).await, Told::Refreshed)
            }
            Self::Leave(key, entry, also) => {
                answer(node.queue_leave(key, entry, also.as_ref()).await, Told::Waiters)
            }
        }
    }

    /// The key at whose wait queue the reply depends on, if it depends on one.
    pub(crate) fn queue(&self) -> Option<&Key> {
        match self {
            Self::Hint(key) | Self::Refresh(key, ..) | Self::Leave(key, ..) => Some(key),
            _ => None,
        }
    }

    /// The same with another ttl; `None` if that is no ttl.
    pub(crate) fn with_ttl(&self, change: impl Fn(Duration) -> Option<Duration>) -> Option<Self> {
        let change = |claim: &Claim| {
            let ttl = change(claim.ttl().as_duration())?;
            Some(claim.with_ttl(Ttl::try_from(ttl).ok()?))
        };
        Some(match self {
            Self::Acquire(claim) => Self::Acquire(change(claim)?),
            Self::Extend(claim) => Self::Extend(change(claim)?),
            Self::Release(claim) => Self::Release(change(claim)?),
            Self::FencedAcquire(claim, hint) => Self::FencedAcquire(change(claim)?, *hint),
            Self::Raise(claim, number) => Self::Raise(change(claim)?, *number),
            Self::FencedRelease(claim, number) => Self::FencedRelease(change(claim)?, *number),
            Self::GuardedAcquire(claim, hint) => Self::GuardedAcquire(change(claim)?, *hint),
            Self::Inspect(_) | Self::Hint(_) | Self::Refresh(..) | Self::Leave(..) => self.clone(),
        })
    }
}

async fn acquire(
    node: &dyn LockBackend,
    claim: &Claim,
    fencing: Option<FenceHint>,
    guarded: bool,
) -> Answer {
    let mut options = AcquireOptions::default();
    options.fencing = fencing;
    options.guard = guarded.then_some(GUARD);
    answer(node.acquire(claim, options).await, without_ids)
}

async fn release(node: &dyn LockBackend, claim: &Claim, raise_to: Option<FencingToken>) -> Answer {
    let mut options = ReleaseOptions::default();
    options.raise_to = raise_to;
    answer(node.release(claim, options).await, without_ids)
}

/// The key of this name.
pub(crate) fn key(name: &str) -> Key {
    Key::new(b"", &Resource::new(name).unwrap())
}

/// The keys of the wait queues of `names`, with the entries of these names.
pub(crate) fn queue_keys(names: &[String], entries: &[Entry]) -> Vec<String> {
    let of = |name: &String| {
        let entries = entries
            .iter()
            .map(|entry| keys::entry(name, std::str::from_utf8(entry.as_bytes()).unwrap()));
        [keys::waiters(name), keys::seen(name)].into_iter().chain(entries).collect::<Vec<_>>()
    };
    names.iter().flat_map(of).collect()
}

/// Has a node record whose data it has, which begins its quarantine.
pub(crate) async fn enter_epoch(node: &dyn LockBackend, tokens: &[Token]) {
    let claim = Claim::new([key("epoch")], tokens[0].clone(), Ttl::try_from(SECOND).unwrap());
    let said = Call::GuardedAcquire(claim, None).on(node).await;
    assert_eq!(said, Err(BackendErrorKind::Quarantined));
}

/// Looks at a key, or at that of an entry, and watches it from then on.
pub(crate) async fn look(node: &dyn LockBackend, key: &Key, entry: Option<&Entry>) -> Watched {
    node.watch(key, entry).await.expect("a look at a string or at nothing")
}
