//! Calls to one node, as the core makes them.

use quorate::backend::{AcquireOptions, Claim, ExtendOptions, ReleaseOptions, Ttl, Vote, Watched};
use quorate::resource::{Key, Resource, Token};
use quorate::{BackendError, BackendErrorKind, LockBackend};
use quorate_core::runtime::os_random;
use quorate_tests::wait::{LONG_TTL, within_limit};

pub(crate) fn key(name: &str) -> Key {
    Key::new(b"", &Resource::new(name).unwrap())
}

/// A claim with a token of its own.
pub(crate) fn claim(name: &str) -> Claim {
    let token = Token::draw(os_random).unwrap();
    Claim::new([key(name)], token, Ttl::try_from(LONG_TTL).unwrap())
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

pub(crate) async fn watch(node: &dyn LockBackend, name: &str) -> Result<Watched, BackendError> {
    within_limit("a reply to the watch", node.watch(&key(name), None)).await
}

pub(crate) async fn ended(watched: Watched) {
    within_limit("the end of the watch", watched.changed()).await;
}

pub(crate) fn kind<T>(outcome: &Result<T, BackendError>) -> Option<BackendErrorKind> {
    outcome.as_ref().err().map(BackendError::kind)
}
