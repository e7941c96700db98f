//! Calls to one node, as the core makes them.

use std::sync::Arc;

use quorate::backend::{
    AcquireOptions, Asked, CallReply, Claim, ExtendOptions, Operation, ReleaseOptions, Ttl, Vote,
    ask,
};
use quorate::resource::{Key, Resource, Token};
use quorate::{BackendError, BackendErrorKind, LockBackend};
use quorate_core::Runtime as _;
use quorate_core::runtime::{TokioRuntime, os_random};
use quorate_tests::wait::{LONG_TTL, within_limit};

pub(crate) fn key(name: &str) -> Key {
    Key::new(b"", &Resource::new(name).unwrap())
}

/// A claim with a token of its own.
pub(crate) fn claim(name: &str) -> Claim {
    claim_all(&[name])
}

pub(crate) fn claim_all(names: &[&str]) -> Claim {
    let keys: Vec<Key> = names.iter().map(|name| key(name)).collect();
    Claim::new(keys, Token::draw(os_random).unwrap(), Ttl::try_from(LONG_TTL).unwrap())
}

pub(crate) async fn acquire(node: &dyn LockBackend, claim: &Claim) -> Result<Vote, BackendError> {
    Ok(node.acquire(claim, AcquireOptions::default()).await?.vote)
}

pub(crate) async fn extend(node: &dyn LockBackend, claim: &Claim) -> Result<Vote, BackendError> {
    Ok(node.extend(claim, ExtendOptions::default()).await?.vote)
}

pub(crate) async fn release(node: &dyn LockBackend, claim: &Claim) -> Result<Vote, BackendError> {
    Ok(node.release(claim, ReleaseOptions::default()).await?.vote)
}

/// Acquires a free key, and again while nothing was sent, as during a back-off.
pub(crate) async fn acquire_in_the_end(node: &dyn LockBackend, claim: &Claim) {
    loop {
        match acquire(node, claim).await {
            Ok(vote) => return assert_eq!(vote, Vote::Granted),
            Err(error) => assert!(error.is_not_sent(), "{error:?}"),
        }
        tokio::task::yield_now().await;
    }
}

/// Begins a call. A node of a client needs no runtime of the caller for it.
pub(crate) fn asked(node: &Arc<impl LockBackend + ?Sized>, operation: Operation) -> Asked {
    let runtime = TokioRuntime::new();
    ask(operation, runtime.now(), |call| Arc::clone(node).begin(call, &runtime))
}

/// Whether a key is there, and the watch of it.
pub(crate) async fn watch(
    node: &Arc<dyn LockBackend>,
    name: &str,
) -> Result<(bool, Asked), BackendError> {
    let mut asked = asked(node, Operation::Watch { key: key(name), entry: None });
    match within_limit("a reply to the watch", &mut asked).await? {
        CallReply::Watched(is_there) => Ok((is_there, asked)),
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn ended(watch: Asked) {
    within_limit("the end of the watch", watch.pushed()).await;
}

/// Which server a node is.
pub(crate) async fn server_id(node: &Arc<dyn LockBackend>) -> Result<Arc<str>, BackendError> {
    match asked(node, Operation::ServerId).await? {
        CallReply::ServerId(Some(id)) => Ok(id),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn kind<T>(outcome: &Result<T, BackendError>) -> Option<BackendErrorKind> {
    outcome.as_ref().err().map(BackendError::kind)
}
