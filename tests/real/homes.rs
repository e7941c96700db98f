//! Where connections live: runtimes that end, that have no timer, and none at all.
//!
//! redis-rs and fred need tokio, and fred panics outside of it. A node brings tokio along.

use std::thread;

use quorate::backend::{Claim, Operation, Vote};
use quorate::{BackendErrorKind as Kind, LockBackend};
use quorate_examples::block_on;
use quorate_tests::peer::{Answer, Peer};
use tokio::runtime::{Builder, Runtime};

use crate::calls::{acquire, acquire_in_the_end, asked, claim, extend, release};
use crate::client::{CONNECT_TIMEOUT, Client, connected, current_thread};
use crate::events;

fn obliging() -> Peer {
    Peer::start(|_| Answer::Usual)
}

fn is_granted(node: &dyn LockBackend, runtime: Runtime) {
    assert_eq!(runtime.block_on(acquire(node, &claim("r"))).unwrap(), Vote::Granted);
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
        smol::block_on(asked(&node, watching(&claim))).unwrap();
        assert_eq!(peer.connections(), 2, "{client:?}: one for commands, and one for watches");
        drop(node);
        peer.wait_for_an_end();
        peer.wait_for_an_end();
        let down = client.connect_one(&format!("redis://{}", Peer::nowhere()));
        let error = block_on(acquire(&down, &claim)).unwrap_err();
        assert_eq!(error.kind(), Kind::Connection, "{client:?}: no panic");
    }
}

#[test]
fn a_node_outlives_the_runtimes_that_it_was_made_in_and_is_used_in() {
    events::listen();
    for client in Client::ALL {
        let peer = obliging();
        let home = Runtime::new().unwrap();
        let node = home.block_on(async { client.connect_one(&peer.url()) });
        drop(home);
        for connections in 1..=3 {
            is_granted(&node, current_thread());
            assert_eq!(peer.connections(), connections, "{client:?}");
        }
        assert_eq!(block_on(acquire(&node, &claim("r"))).unwrap(), Vote::Granted);
        // The first call after the end of a runtime says what helps.
        let warnings = events::warnings("runtime ended", &peer.url());
        assert_eq!(warnings.len(), 3, "{client:?}: {warnings:?}");
        assert!(warnings.iter().all(|it| it.contains("own_thread()")), "{warnings:?}");
    }
}

/// As a `static` in tests that each have a runtime.
#[test]
fn a_connection_on_its_own_thread_outlives_every_runtime() {
    for client in Client::ALL {
        let peer = obliging();
        let node =
            connected!(client, [peer.url()], |it| it.connect_timeout(CONNECT_TIMEOUT).own_thread())
                .remove(0);
        (0..3).for_each(|_| is_granted(&node, current_thread()));
        assert_eq!(peer.connections(), 1, "{client:?}");
    }
}

/// A connection that was made there ends with it, and no runtime of a caller ends one.
#[test]
fn a_node_uses_the_runtime_that_it_is_given() {
    for client in Client::ALL {
        let peer = obliging();
        let home = Runtime::new().unwrap();
        let tokio = home.handle().clone();
        let node =
            connected!(client, [peer.url()], |it| it.connect_timeout(CONNECT_TIMEOUT).tokio(tokio))
                .remove(0);
        let claim = claim("r");
        (0..2).for_each(|_| is_granted(&node, current_thread()));
        let mut watched = asked(&node, watching(&claim));
        smol::block_on(&mut watched).unwrap();
        assert_eq!(peer.connections(), 2, "{client:?}: one for commands, and one for watches");
        drop(home);
        peer.wait_for_an_end();
        peer.wait_for_an_end();
        smol::block_on(watched.pushed());
        block_on(acquire_in_the_end(&node, &claim));
        assert_eq!(peer.connections(), 3, "{client:?}: in a runtime that still runs");
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

fn watching(claim: &Claim) -> Operation {
    Operation::Watch { key: claim.keys()[0].clone(), entry: None }
}
