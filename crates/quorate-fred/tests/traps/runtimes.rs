//! Trap: fred panics outside tokio.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use futures_util::future::join_all;
use futures_util::poll;
use quorate_core::backend::LockBackend;
use quorate_core::{BackendErrorKind, Vote};
use quorate_fred::FredNode;

use crate::node::{Answer, Node};
use crate::{LIMIT, acquire, claim, extend, node_at, release};

fn obliging() -> Node {
    Node::start(|command| match command[0].as_str() {
        "GET" => Answer::Say("_\r\n"),
        "SET" => Answer::Say("+OK\r\n"),
        "EVALSHA" => Answer::Say(":1\r\n"),
        _ => Answer::Usual,
    })
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// An executor that has nothing to do with any other.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn it_runs_on_smol_and_on_any_executor() {
    let node = obliging();
    let backend = node_at(&node.url());
    let claim = claim();
    assert_eq!(smol::block_on(acquire(&backend, &claim)).unwrap(), Vote::Granted);
    assert_eq!(block_on(extend(&backend, &claim)).unwrap(), Vote::Granted);
    assert_eq!(block_on(release(&backend, &claim)).unwrap(), Vote::Granted);
    assert_eq!(node.connections(), 1);
    drop(backend);
    node.wait_for_an_end();
}

#[test]
fn a_dead_node_is_an_error_there_and_no_panic() {
    let backend = node_at(&format!("redis://{}", Node::nowhere()));
    let error = block_on(acquire(&backend, &claim())).unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Connection);
}

#[test]
fn it_outlives_the_runtimes_that_it_is_used_in() {
    let node = obliging();
    let backend = node_at(&node.url());
    let claim = claim();
    for _ in 0..3 {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let acquired = runtime.block_on(acquire(&backend, &claim));
        assert_eq!(acquired.unwrap(), Vote::Granted);
        drop(runtime);
    }
    assert_eq!(block_on(release(&backend, &claim)).unwrap(), Vote::Granted);
    assert_eq!(node.connections(), 4);
}

#[test]
fn it_outlives_the_runtime_that_it_was_made_in() {
    let node = obliging();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let backend = runtime.block_on(async { node_at(&node.url()) });
    drop(runtime);
    assert_eq!(block_on(acquire(&backend, &claim())).unwrap(), Vote::Granted);
}

/// A connection that was made in it ends with it.
#[test]
fn it_uses_the_runtime_that_it_is_given() {
    let node = obliging();
    let claim = claim();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let backend = given(&node, &runtime);
    assert_eq!(smol::block_on(acquire(&backend, &claim)).unwrap(), Vote::Granted);
    let watched = smol::block_on(backend.watch(&claim.keys()[0], None)).unwrap();
    assert_eq!(node.connections(), 2);
    drop(runtime);
    node.wait_for_an_end();
    node.wait_for_an_end();
    smol::block_on(watched.changed());
    assert_eq!(smol::block_on(release(&backend, &claim)).unwrap(), Vote::Granted);
    assert_eq!(node.connections(), 3, "in a runtime that still runs");
    drop(backend);
    node.wait_for_an_end();
}

/// A call that had left may have been executed. A queued call certainly was not.
#[test]
fn every_call_is_answered_when_the_runtime_of_the_connection_ends() {
    let node = Node::start(|command| match command[0].as_str() {
        "SET" => Answer::Say(""),
        _ => Answer::Usual,
    });
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let backend = given(&node, &runtime);
    let claims: Vec<_> = (0..1000).map(|_| claim()).collect();
    let mut calls = join_all(claims.iter().map(|claim| acquire(&backend, claim)));
    let is_pending = smol::block_on(async { poll!(&mut calls).is_pending() });
    assert!(is_pending, "the node does not answer");
    while node.heard("SET") == 0 {
        thread::yield_now();
    }
    drop(runtime);
    let errors: Vec<_> =
        smol::block_on(calls).into_iter().map(|result| result.unwrap_err()).collect();
    for error in &errors {
        assert_eq!(error.kind(), BackendErrorKind::Connection, "{error}");
    }
    let lost = errors.iter().filter(|error| !error.is_not_sent()).count();
    assert!((1..1000).contains(&lost), "{lost} may have been executed");
}

fn given(node: &Node, runtime: &tokio::runtime::Runtime) -> FredNode {
    let settings = quorate_fred::builder().connect_timeout(LIMIT);
    settings.tokio(runtime.handle().clone()).connect([node.url()]).unwrap().remove(0)
}

#[test]
fn a_runtime_without_a_timer_is_an_error_and_no_panic() {
    let node = obliging();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let backend = node_at(&node.url());
    let error = runtime.block_on(acquire(&backend, &claim())).unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Connection, "{error}");
}
