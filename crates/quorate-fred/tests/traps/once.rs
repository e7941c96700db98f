//! Trap: fred sends a command again whose connection closed in flight.

use fred::interfaces::ClientLike;
use fred::types::{ClusterHash, CustomCommand, Value};
use futures_util::future::join_all;
use quorate_core::{BackendErrorKind, LockBackend, Vote};
use quorate_fred::FredBackend;

use crate::node::{Answer, Node};
use crate::{backend, claim, connected_client, until_answered};

/// Hears the first `SET`, carries it out, and is gone before it can say so. From then on the key
/// is taken.
fn node_that_breaks_off() -> Node {
    let mut is_set = false;
    Node::start(move |command| match command[0].as_str() {
        "SET" if !is_set => {
            is_set = true;
            Answer::HangUp
        }
        "SET" => Answer::Say("$-1\r\n"),
        "EVALSHA" => Answer::Say(":1\r\n"),
        _ => Answer::Usual,
    })
}

#[tokio::test]
async fn fred_itself_sends_it_again_and_is_refused_by_its_own_key() {
    let node = node_that_breaks_off();
    let client = connected_client(&node, Some(1)).await;
    let set = CustomCommand::new_static("SET", ClusterHash::FirstKey, false);
    let reply: Value = client.custom(set, vec!["k", "v", "NX"]).await.unwrap();
    assert!(reply.is_null());
    assert_eq!(node.heard("SET"), 2);
}

#[tokio::test]
async fn c6_an_acquire_whose_connection_broke_is_unknown_and_not_sent_again() {
    let node = node_that_breaks_off();
    let backend = backend(&node.url());
    let claim = claim();
    let error = backend.acquire(&claim).await.unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Connection, "{error}");
    // On the next connection, behind anything that would have been sent again.
    assert_eq!(backend.release(&claim).await.unwrap(), Vote::Granted);
    assert_eq!(node.heard("SET"), 1);
    assert_eq!(node.connections(), 2);
}

#[tokio::test]
async fn c6_nor_is_it_by_a_client_that_tries_ten_times() {
    let node = node_that_breaks_off();
    let backend = FredBackend::from_client("mine", connected_client(&node, Some(1)).await).unwrap();
    let claim = claim();
    let error = backend.acquire(&claim).await.unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Connection, "{error}");
    let released = until_answered(|| backend.release(&claim)).await;
    assert_eq!(released, Vote::Granted);
    assert_eq!(node.heard("SET"), 1);
}

#[tokio::test]
async fn c6_nothing_that_was_in_flight_is_sent_again() {
    const CALLS: usize = 8;
    let mut heard = 0;
    let node = Node::start(move |command| match command[0].as_str() {
        "SET" => {
            heard += 1;
            match heard {
                CALLS => Answer::HangUp,
                _ => Answer::Say(""),
            }
        }
        "EVALSHA" => Answer::Say(":0\r\n"),
        _ => Answer::Usual,
    });
    let backend = backend(&node.url());
    let claim = claim();
    for result in join_all((0..CALLS).map(|_| backend.acquire(&claim))).await {
        assert_eq!(result.unwrap_err().kind(), BackendErrorKind::Connection);
    }
    assert_eq!(backend.release(&claim).await.unwrap(), Vote::Refused);
    assert_eq!(node.heard("SET"), CALLS);
}
