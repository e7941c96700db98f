//! Where connections live: runtimes that end, that have no timer, and none at all.
//!
//! redis-rs and fred need tokio, and fred panics outside of it. A node brings tokio along.

use std::thread;

use futures_util::future::join_all;
use futures_util::poll;
use quorate::BackendErrorKind as Kind;
use quorate::backend::Vote;
use quorate_examples::block_on;
use quorate_tests::peer::{Answer, Peer};
use tokio::runtime::{Builder, Runtime};

use crate::calls::{acquire, acquire_in_the_end, claim, ended, extend, release, watch};
use crate::client::{Client, Home, Settings};

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn obliging() -> Peer {
    Peer::start(|_| Answer::Usual)
}

#[test]
fn a_node_needs_no_tokio_and_its_callers_share_one_connection() {
    for client in Client::ALL {
        let peer = obliging();
        let node = client.connect_one(&peer.url());
        let claim = claim("r");
        assert_eq!(smol::block_on(acquire(&node, &claim)).unwrap(), Vote::Granted);
        assert_eq!(block_on(extend(&node, &claim)).unwrap(), Vote::Granted);
        thread::scope(|scope| {
            for _ in 0..32 {
                scope.spawn(|| {
                    let released = block_on(release(&node, &claim));
                    assert_eq!(released.unwrap(), Vote::Granted);
                });
            }
        });
        assert_eq!(peer.connections(), 1, "{client:?}");
        drop(node);
        peer.wait_for_an_end();
        let down = client.connect_one(&format!("redis://{}", Peer::nowhere()));
        let error = block_on(acquire(&down, &claim)).unwrap_err();
        assert_eq!(error.kind(), Kind::Connection, "{client:?}: no panic");
    }
}

#[test]
fn a_node_outlives_the_runtimes_that_it_was_made_in_and_is_used_in() {
    for client in Client::ALL {
        let peer = obliging();
        let home = Runtime::new().unwrap();
        let node = home.block_on(async { client.connect_one(&peer.url()) });
        drop(home);
        for connections in 1..=3 {
            let acquired = current_thread().block_on(acquire(&node, &claim("r")));
            assert_eq!(acquired.unwrap(), Vote::Granted);
            assert_eq!(peer.connections(), connections, "{client:?}");
        }
        assert_eq!(block_on(acquire(&node, &claim("r"))).unwrap(), Vote::Granted);
    }
}

/// A connection that was made there ends with it, and no runtime of a caller ends one.
#[test]
fn a_node_uses_the_runtime_that_it_is_given() {
    for client in Client::ALL {
        let peer = obliging();
        let home = Runtime::new().unwrap();
        let settings = Settings::at(Home::Given(home.handle().clone()));
        let node = client.connect_with(&[peer.url()], &settings).remove(0);
        let claim = claim("r");
        for _ in 0..2 {
            let acquired = current_thread().block_on(acquire(&node, &claim));
            assert_eq!(acquired.unwrap(), Vote::Granted);
        }
        let watched = smol::block_on(async { node.watch(&claim.keys()[0], None).await.unwrap() });
        assert_eq!(peer.connections(), 2, "{client:?}: one for commands, and one for watches");
        drop(home);
        peer.wait_for_an_end();
        peer.wait_for_an_end();
        smol::block_on(watched.changed());
        block_on(acquire_in_the_end(&node, &claim));
        assert_eq!(peer.connections(), 3, "{client:?}: in a runtime that still runs");
    }
}

/// As a `static` in tests that each have a runtime.
#[test]
fn a_connection_on_its_own_thread_outlives_every_runtime() {
    for client in Client::WITH_POOL {
        let peer = obliging();
        let node = client.connect_on_own_thread(&[peer.url()]).remove(0);
        for _ in 0..3 {
            let acquired = current_thread().block_on(acquire(&node, &claim("r")));
            assert_eq!(acquired.unwrap(), Vote::Granted);
        }
        assert_eq!(peer.connections(), 1, "{client:?}");
    }
}

/// A call that was sent may have been executed. A queued call certainly was not.
#[test]
fn every_call_is_answered_when_the_runtime_of_its_connection_ends() {
    const CALLS: usize = 1_000;
    for client in Client::ALL {
        let peer = Peer::start(|command| match command.name() {
            "SET" => Answer::Say(b""),
            _ => Answer::Usual,
        });
        let home = Runtime::new().unwrap();
        let settings = Settings::at(Home::Given(home.handle().clone()));
        let node = client.connect_with(&[peer.url()], &settings).remove(0);
        let claims: Vec<_> = (0..CALLS).map(|_| claim("r")).collect();
        let mut calls = join_all(claims.iter().map(|claim| acquire(&node, claim)));
        assert!(smol::block_on(async { poll!(&mut calls).is_pending() }));
        while peer.heard("SET") == 0 {
            thread::yield_now();
        }
        drop(home);
        let errors: Vec<_> = smol::block_on(calls).into_iter().map(Result::unwrap_err).collect();
        assert!(errors.iter().all(|error| error.kind() == Kind::Connection), "{client:?}");
        let lost = errors.iter().filter(|error| !error.is_not_sent()).count();
        assert!((1..CALLS).contains(&lost), "{client:?}: {lost} may have been executed");
    }
}

/// The connection lives in the runtime that the node was made in, or else in that of its first call.
#[test]
fn the_end_of_the_runtime_of_the_connection_ends_the_watches_of_others() {
    for client in Client::ALL {
        let (first, second) = (Runtime::new().unwrap(), Runtime::new().unwrap());
        let peer = Peer::start(|command| match command.name() {
            "GET" => Answer::Say(b"$1\r\nx\r\n"),
            _ => Answer::Usual,
        });
        let node = first.block_on(async { client.connect_one(&peer.url()) });
        second.block_on(async {
            let watched = watch(&node, "r").await.unwrap();
            assert!(watched.is_held());
            first.shutdown_background();
            ended(watched).await;
            while watch(&node, "r").await.is_err() {
                tokio::task::yield_now().await;
            }
        });
    }
}

#[test]
fn a_runtime_without_a_timer_is_an_error_and_no_panic_of_the_caller() {
    for client in Client::ALL {
        let runtime = Builder::new_current_thread().enable_io().build().unwrap();
        let peer = obliging();
        let node = client.connect_one(&peer.url());
        let error = runtime.block_on(acquire(&node, &claim("r"))).unwrap_err();
        assert_eq!(error.kind(), Kind::Connection, "{client:?}: {error}");
        assert!(error.is_not_sent());
    }
}
