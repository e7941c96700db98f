//! Trap: timeouts of the client, and connections that it holds on to or lets go of.

use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use futures_util::future::join_all;
use quorate_core::{Identify, LockBackend, Vote};
use quorate_fred::FredBackend;
use tokio::time;

use crate::node::{Answer, Node};
use crate::{backend, claim, connected_client};

/// Answers a `SET` when it is told to.
fn slow_node() -> (Node, Sender<()>) {
    let (go, gate) = channel();
    let node = Node::start(move |command| match command[0].as_str() {
        "SET" => {
            let _ = gate.recv();
            Answer::Say("+OK\r\n")
        }
        "EVALSHA" => Answer::Say(":1\r\n"),
        _ => Answer::Usual,
    });
    (node, go)
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the clock is paused")]
async fn a_call_stays_pending_for_as_long_as_it_may_still_be_carried_out() {
    let (node, go) = slow_node();
    for backend in [
        backend(&node.url()),
        FredBackend::from_client("mine", connected_client(&node, Some(1)).await).unwrap(),
    ] {
        backend.server_id().await.unwrap();
        let claim = claim();
        let mut acquire = backend.acquire(&claim);
        // No clock of fred's goes off in an hour. (While it is paused, tokio's clock jumps.)
        time::pause();
        let hour = Duration::from_secs(3600);
        assert!(time::timeout(hour, &mut acquire).await.is_err());
        time::resume();
        go.send(()).unwrap();
        assert_eq!(acquire.await.unwrap(), Vote::Granted);
    }
    assert_eq!(node.connections(), 2);
}

#[tokio::test]
async fn all_calls_go_over_one_connection_in_their_order() {
    let mut count = 0;
    let node = Node::start(move |command| match command[0].as_str() {
        "SET" => {
            count += 1;
            match count % 2 {
                1 => Answer::Say("+OK\r\n"),
                _ => Answer::Say("$-1\r\n"),
            }
        }
        "EVALSHA" => Answer::Say(":0\r\n"),
        _ => Answer::Usual,
    });
    let backend = backend(&node.url());
    let claims: Vec<_> = (0..20).map(|_| claim()).collect();
    let votes = join_all(claims.iter().map(|claim| backend.acquire(claim))).await;
    for (index, vote) in votes.into_iter().enumerate() {
        let expected = if index % 2 == 0 { Vote::Granted } else { Vote::Refused };
        assert_eq!(vote.unwrap(), expected);
    }
    assert_eq!(node.connections(), 1);
}

#[tokio::test]
async fn a_dropped_call_disturbs_no_other() {
    let (node, go) = slow_node();
    let backend = backend(&node.url());
    backend.server_id().await.unwrap();
    let (first, second) = (claim(), claim());
    let mut dropped = backend.acquire(&first);
    assert!(futures_util::poll!(&mut dropped).is_pending());
    drop(dropped);
    let kept = backend.acquire(&second);
    go.send(()).unwrap();
    go.send(()).unwrap();
    assert_eq!(kept.await.unwrap(), Vote::Granted);
    assert_eq!(backend.release(&first).await.unwrap(), Vote::Granted);
    assert_eq!(node.heard("SET"), 2);
    assert_eq!(node.connections(), 1);
}

#[tokio::test]
async fn a_dropped_backend_closes_its_connection() {
    let (node, _go) = slow_node();
    let backend = backend(&node.url());
    backend.server_id().await.unwrap();
    drop(backend);
    tokio::task::yield_now().await;
    node.wait_for_an_end();
}
