//! How the tests reach a node: the only file that knows the methods of a backend.

use quorate::{
    BackendError, BackendErrorKind, Claim, Fence, FenceHint, FenceVote, FencingToken, GuardedVote,
    Key, LockBackend, Resource, Sighting, Token, Ttl, Vote, Watched,
};

use super::{GUARD, SECOND};

/// A vote, what was seen, or what kind of error.
pub(crate) type Answer = Result<Told, BackendErrorKind>;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Told {
    Vote(Vote),
    Saw(Option<Sighting>),
    Fenced(FenceVote),
    Guarded(GuardedVote),
}

fn answer<T>(result: Result<T, BackendError>, told: fn(T) -> Told) -> Answer {
    result.map(told).map_err(|error| error.kind())
}

/// One operation on a node.
pub(crate) enum Call {
    Acquire(Claim),
    Extend(Claim),
    Release(Claim),
    Inspect(Key),
    FencedAcquire(Claim, FenceHint),
    Raise(Claim, FencingToken),
    FencedRelease(Claim, FencingToken),
    GuardedAcquire(Claim, Option<FenceHint>),
}

impl Call {
    /// What is done.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Acquire(_) => "acquire",
            Self::Extend(_) => "extend",
            Self::Release(_) => "release",
            Self::Inspect(_) => "inspect",
            Self::FencedAcquire(..) => "fenced acquire",
            Self::Raise(..) => "raise",
            Self::FencedRelease(..) => "fenced release",
            Self::GuardedAcquire(..) => "guarded acquire",
        }
    }

    pub(crate) async fn on(&self, node: &dyn LockBackend) -> Answer {
        match self {
            Self::Acquire(claim) => answer(node.acquire(claim).await, Told::Vote),
            Self::Extend(claim) => answer(node.extend(claim).await, Told::Vote),
            Self::Release(claim) => answer(node.release(claim).await, Told::Vote),
            Self::Inspect(key) => {
                let inspector = node.inspector().expect("both can look");
                answer(inspector.inspect(key).await, Told::Saw)
            }
            Self::FencedAcquire(claim, hint) => {
                answer(fencer(node).acquire(claim, *hint).await, Told::Fenced)
            }
            Self::Raise(claim, number) => {
                answer(fencer(node).raise(claim, *number).await, Told::Vote)
            }
            Self::FencedRelease(claim, number) => {
                answer(fencer(node).release(claim, *number).await, Told::Vote)
            }
            Self::GuardedAcquire(claim, hint) => {
                let quarantine = node.quarantine().expect("both can be guarded");
                let said = quarantine.acquire(claim, *hint, GUARD).await;
                answer(said, |said| Told::Guarded(said.vote))
            }
        }
    }
}

/// Lets a node know whose its data is.
pub(crate) async fn enter_epoch(node: &dyn LockBackend, tokens: &[Token]) {
    let key = Key::new(b"", &Resource::new("epoch").unwrap());
    let claim = Claim::new([key], tokens[0].clone(), Ttl::try_from(SECOND).unwrap());
    let said = Call::GuardedAcquire(claim, None).on(node).await;
    let Ok(Told::Guarded(GuardedVote::Quarantined { left })) = said else {
        panic!("not in quarantine: {said:?}");
    };
    // The node's clock may go on between what the script sets and what it reads.
    assert!(left <= GUARD.max_ttl() && !left.is_zero(), "{left:?}");
}

/// Looks at a key, and watches it from then on.
pub(crate) async fn look(node: &dyn LockBackend, key: &Key) -> Watched {
    let watcher = node.watcher().expect("both can watch");
    watcher.look(key).await.expect("a look at a string or at nothing")
}

fn fencer(node: &dyn LockBackend) -> &dyn Fence {
    node.fencer().expect("both can fence")
}
