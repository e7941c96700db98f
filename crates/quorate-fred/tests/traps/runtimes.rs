//! Trap: fred panics outside tokio.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use quorate_core::{BackendErrorKind, LockBackend, Vote};

use crate::node::{Answer, Node};
use crate::{backend, claim};

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

/// An executor that has nothing to do with anybody's.
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
    let backend = backend(&node.url());
    let claim = claim();
    assert_eq!(smol::block_on(backend.acquire(&claim)).unwrap(), Vote::Granted);
    assert_eq!(block_on(backend.extend(&claim)).unwrap(), Vote::Granted);
    assert_eq!(block_on(backend.release(&claim)).unwrap(), Vote::Granted);
    assert_eq!(node.connections(), 1);
    drop(backend);
    node.wait_for_an_end();
}

#[test]
fn a_dead_node_is_an_error_there_and_no_panic() {
    let backend = backend(&format!("redis://{}", Node::nowhere()));
    let error = block_on(backend.acquire(&claim())).unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Connection);
}

#[test]
fn it_outlives_the_runtimes_that_it_is_used_in() {
    let node = obliging();
    let backend = backend(&node.url());
    let claim = claim();
    for _ in 0..3 {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let acquired = runtime.block_on(backend.acquire(&claim));
        assert_eq!(acquired.unwrap(), Vote::Granted);
        drop(runtime);
    }
    assert_eq!(block_on(backend.release(&claim)).unwrap(), Vote::Granted);
    assert_eq!(node.connections(), 4);
}

#[test]
fn it_outlives_the_runtime_that_it_was_made_in() {
    let node = obliging();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let backend = runtime.block_on(async { backend(&node.url()) });
    drop(runtime);
    assert_eq!(block_on(backend.acquire(&claim())).unwrap(), Vote::Granted);
}

/// A connection that was made in it ends with it.
#[test]
fn it_uses_the_runtime_that_it_is_given() {
    let node = obliging();
    let claim = claim();
    let mut connections = 0;
    for by_builder in [true, false] {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let handle = runtime.handle().clone();
        let backend = match by_builder {
            true => quorate_fred::builder().tokio(handle).connect([node.url()]).unwrap().remove(0),
            false => backend(&node.url()).tokio(handle),
        };
        assert_eq!(smol::block_on(backend.acquire(&claim)).unwrap(), Vote::Granted);
        let watched = smol::block_on(backend.watcher().unwrap().look(&claim.keys()[0])).unwrap();
        connections += 2;
        assert_eq!(node.connections(), connections);
        drop(runtime);
        node.wait_for_an_end();
        node.wait_for_an_end();
        assert!(smol::block_on(watched.changed()).is_err());
        assert_eq!(smol::block_on(backend.release(&claim)).unwrap(), Vote::Granted);
        connections += 1;
        assert_eq!(node.connections(), connections, "in a runtime that still runs");
        drop(backend);
        node.wait_for_an_end();
    }
}

#[test]
fn a_runtime_without_a_timer_is_an_error_and_no_panic() {
    let node = obliging();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let backend = backend(&node.url());
    let error = runtime.block_on(backend.acquire(&claim())).unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Connection, "{error}");
}
