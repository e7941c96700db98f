//! How the tests reach a node.

use std::sync::Arc;
use std::time::Duration;

use quorate::backend::{AcquireOptions, CallReply, Claim, Entry, Operation, ReleaseOptions, Ttl};
use quorate::resource::{Key, Token};
use quorate::{BackendErrorKind, LockBackend};
use quorate_tests::keys;

use super::{GUARD, SECOND};
use crate::calls::{asked, key};

/// What a node replied, or the kind of its error.
pub(crate) type Answer = Result<CallReply, BackendErrorKind>;

/// Asks a node. The ids of the servers differ, since these are two.
pub(crate) async fn ask(operation: &Operation, node: &Arc<impl LockBackend + ?Sized>) -> Answer {
    let answer = asked(node, operation.clone()).await;
    answer.map_err(|error| error.kind()).map(|mut reply| {
        if let CallReply::Voted(reply) = &mut reply {
            reply.server = None;
        }
        reply
    })
}

/// The key at whose wait queue the reply depends on, if it depends on one.
pub(crate) fn queue(operation: &Operation) -> Option<&Key> {
    match operation {
        Operation::Refresh { key, .. } | Operation::Leave { key, .. } => Some(key),
        Operation::Release(_, ReleaseOptions { asks: Some(keys), .. }) => keys.first(),
        Operation::Acquire(claim, AcquireOptions { asks: true, .. }) => claim.keys().first(),
        _ => None,
    }
}

/// The same with another ttl; `None` if that is no ttl.
pub(crate) fn with_ttl(
    operation: &Operation,
    change: impl Fn(Duration) -> Option<Duration>,
) -> Option<Operation> {
    let mut operation = operation.clone();
    if let Operation::Acquire(claim, _)
    | Operation::Extend(claim, _)
    | Operation::Release(claim, _)
    | Operation::Raise(claim, _) = &mut operation
    {
        *claim = claim.with_ttl(Ttl::try_from(change(claim.ttl().as_duration())?).ok()?);
    }
    Some(operation)
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
    let mut options = AcquireOptions::default();
    options.guard = Some(GUARD);
    let error = node.acquire(&claim, options).await.unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Quarantined);
}
