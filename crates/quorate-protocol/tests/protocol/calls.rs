//! Calls to a node over a fake client, as the core makes them.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use quorate_core::BackendError;
use quorate_core::backend::{
    AcquireOptions, Asked, CallReply, CallResult, Claim, LockBackend, Operation, ReleaseOptions,
    Reply, Ttl, Vote, ask,
};
use quorate_core::resource::{Key, Resource, Token};
use quorate_core::runtime::TokioRuntime;
use quorate_protocol::{RedisNode, Settings, Value};
use tokio::time::sleep;

use crate::fake::Fake;

pub(crate) type Node = Arc<RedisNode>;

pub(crate) const TTL: Duration = Duration::from_secs(10);

/// Long enough for everything that can happen to have happened. Virtual.
pub(crate) const TICK: Duration = Duration::from_micros(10);

/// A server on which each command works, and its node.
pub(crate) fn pair() -> (Fake, Node) {
    on(|_| None)
}

/// A server that replies as a script says, and its node.
pub(crate) fn on(script: impl FnMut(&[String]) -> Option<Value> + Send + 'static) -> (Fake, Node) {
    let fake = Fake::with(script);
    let node = RedisNode::new(fake.clone(), &Settings::default());
    (fake, Arc::new(node))
}

/// A server whose replies wait, and its node.
pub(crate) fn held() -> (Fake, Node) {
    let (fake, node) = pair();
    fake.hold(true);
    (fake, node)
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().start_paused(true).build().unwrap()
}

/// The names of the commands that were handed over.
pub(crate) fn commands(fake: &Fake) -> Vec<String> {
    fake.sent().into_iter().map(|sent| sent.parts[0].clone()).collect()
}

/// Begins operations on the keys `0`, `1` and so on, each in a pipeline of its own.
pub(crate) async fn in_turn(
    node: &Node,
    range: Range<usize>,
    operation: fn(&str) -> Operation,
) -> Vec<BoxFuture<'static, CallResult>> {
    let mut calls = Vec::new();
    for number in range {
        calls.push(begin(node, operation(&number.to_string())));
        sleep(TICK).await;
    }
    calls
}

pub(crate) fn key(name: &str) -> Key {
    Key::new(b"", &Resource::new(name).unwrap())
}

pub(crate) fn claim(names: &[&str]) -> Claim {
    let token = Token::draw(|bytes| {
        bytes.fill(0xab);
        Ok(())
    });
    let keys: Vec<Key> = names.iter().map(|name| key(name)).collect();
    Claim::new(keys, token.unwrap(), Ttl::try_from(TTL).unwrap())
}

pub(crate) fn acquire(name: &str) -> Operation {
    Operation::Acquire(claim(&[name]), AcquireOptions::default())
}

pub(crate) fn release(name: &str) -> Operation {
    Operation::Release(claim(&[name]), ReleaseOptions::default())
}

/// Begins a call. Dropping the future gives it up.
pub(crate) fn begin(node: &Node, operation: Operation) -> BoxFuture<'static, CallResult> {
    asked(node, operation).boxed()
}

/// The same, with the push that may follow.
pub(crate) fn asked(node: &Node, operation: Operation) -> Asked {
    ask(operation, Instant::now(), |call| Arc::clone(node).begin(call, &TokioRuntime::new()))
}

pub(crate) fn watching(name: &str) -> Operation {
    Operation::Watch { key: key(name), entry: None }
}

/// Whether a key is there, and the watch of it.
pub(crate) async fn watch(node: &Node, name: &str) -> Result<(bool, Asked), BackendError> {
    let mut asked = asked(node, watching(name));
    match (&mut asked).await? {
        CallReply::Watched(is_there) => Ok((is_there, asked)),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn vote(result: CallResult) -> Result<Vote, BackendError> {
    Ok(voted(result)?.vote)
}

pub(crate) fn voted(result: CallResult) -> Result<Reply, BackendError> {
    match result? {
        CallReply::Voted(reply) => Ok(reply),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn is_lost(result: &CallResult) -> bool {
    result.as_ref().is_err_and(|error| !error.is_not_sent())
}

pub(crate) fn is_not_sent(result: &CallResult) -> bool {
    result.as_ref().is_err_and(BackendError::is_not_sent)
}
