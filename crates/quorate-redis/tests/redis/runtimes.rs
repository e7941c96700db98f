//! Runtimes that end, that have no timer, and calls that outlive them.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread;

use futures_util::future::poll_immediate;
use quorate_core::{BackendErrorKind, Vote};
use tokio::runtime::{Builder, Runtime};

use crate::calls::{LockBackend, acquire, acquire_in_the_end, block_on, claim, one};
use crate::peer::{Peer, grant, nobody};

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Grants everything but locks, to which it never replies.
fn hung() -> Peer {
    Peer::start(|_, command| if command[0] == "SET" { Some("") } else { grant(command) })
}

#[test]
fn c6_a_hung_node_keeps_a_call_pending() {
    let peer = hung();
    let node = one(&peer.address());
    let claim = claim("r");
    let mut call = pin!(acquire(&node, &claim));
    let mut context = Context::from_waker(Waker::noop());
    while peer.heard("SET") == 0 {
        assert!(call.as_mut().poll(&mut context).is_pending());
        thread::yield_now();
    }
    assert!(call.as_mut().poll(&mut context).is_pending());
}

#[test]
fn a_node_outlives_the_runtimes_that_its_connections_were_made_in() {
    let peer = Peer::start(|_, command| grant(command));
    let node = one(&peer.address());
    for connections in 1..=3 {
        let vote = current_thread().block_on(acquire(&node, &claim("r")));
        assert_eq!(vote.unwrap(), Vote::Granted);
        assert_eq!(peer.connections(), connections);
    }
    assert_eq!(block_on(acquire(&node, &claim("r"))).unwrap(), Vote::Granted);
}

#[test]
fn calls_are_answered_when_their_runtime_ends() {
    let peer = hung();
    let node = one(&peer.address());
    let (sent, queued) = (claim("sent"), claim("queued"));
    let mut sent = pin!(acquire(&node, &sent));
    let mut queued = pin!(acquire(&node, &queued));
    let runtime = current_thread();
    runtime.block_on(async {
        let until_heard = poll_fn(|context| {
            assert!(sent.as_mut().poll(context).is_pending());
            context.waker().wake_by_ref();
            if peer.heard("SET") == 0 { Poll::Pending } else { Poll::Ready(()) }
        });
        until_heard.await;
        // The runtime does not drive the connection any more.
        assert!(poll_immediate(&mut queued).await.is_none());
    });
    drop(runtime);
    let sent = block_on(sent).unwrap_err();
    assert_eq!((sent.kind(), sent.is_not_sent()), (BackendErrorKind::Connection, false));
    assert!(block_on(queued).unwrap_err().is_not_sent());
}

#[test]
fn a_node_that_was_made_in_a_runtime_with_threads_uses_that_one() {
    let peer = Peer::start(|_, command| grant(command));
    let home = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let builder = quorate_redis::builder().tokio(home.handle().clone());
    let node = builder.connect([peer.address()]).unwrap().remove(0);
    for _ in 0..2 {
        let vote = current_thread().block_on(acquire(&node, &claim("r")));
        assert_eq!(vote.unwrap(), Vote::Granted);
    }
    assert_eq!(peer.connections(), 1, "it does not end with the runtime of a caller");
    drop(home);
    block_on(acquire_in_the_end(&node, &claim("r")));
    assert_eq!(peer.connections(), 2);
}

/// As a `static` in tests that each have a runtime.
#[test]
fn a_connection_on_its_own_thread_outlives_every_runtime() {
    let peer = Peer::start(|_, command| grant(command));
    let builder = quorate_redis::builder().own_thread();
    let node = builder.connect([peer.address()]).unwrap().remove(0);
    let pooled = builder.pooled(1, [peer.address()]).unwrap().remove(0);
    for _ in 0..3 {
        for node in [&node as &dyn LockBackend, &pooled] {
            let vote = current_thread().block_on(acquire(node, &claim("r")));
            assert_eq!(vote.unwrap(), Vote::Granted);
        }
    }
    assert_eq!(peer.connections(), 2);
}

#[test]
fn a_runtime_without_a_timer_is_an_error_and_no_panic_of_the_caller() {
    let runtime = Builder::new_current_thread().enable_io().build().unwrap();
    let node = one(&nobody());
    let error = runtime.block_on(acquire(&node, &claim("r"))).unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Connection, "{error}");
    assert!(error.is_not_sent());
}
