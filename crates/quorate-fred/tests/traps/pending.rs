//! Trap: timeouts of the client, and connections that it holds on to or lets go of.

use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::poll;
use quorate_core::Vote;
use quorate_core::backend::LockBackend;
use tokio::time;

use crate::node::{Answer, Node};
use crate::{LIMIT, acquire, claim, node_at, release, until, until_answered, within_limit};

/// Answers a `SET` when the sender lets it.
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
async fn a_call_stays_pending_for_as_long_as_it_may_still_be_executed() {
    let (node, go) = slow_node();
    let builder = quorate_fred::builder().connect_timeout(LIMIT).reply_limit(Duration::MAX);
    let backend = builder.connect([node.url()]).unwrap().remove(0);
    backend.server_id().await.unwrap();
    let claim = claim();
    let mut call = Box::pin(acquire(&backend, &claim));
    // No clock of fred goes off in an hour. (While it is paused, tokio's clock jumps.)
    time::pause();
    let hour = Duration::from_secs(3600);
    assert!(time::timeout(hour, &mut call).await.is_err());
    time::resume();
    go.send(()).unwrap();
    assert_eq!(call.await.unwrap(), Vote::Granted);
    assert_eq!(node.connections(), 1);
}

#[tokio::test]
async fn all_calls_go_over_one_connection_in_their_order() {
    let mut count = 0;
    let node = Node::start(move |command| match command[0].as_str() {
        "SET" => {
            count += 1;
            match count % 2 {
                1 => Answer::Say("+OK\r\n"),
                _ => Answer::Say("_\r\n"),
            }
        }
        _ => Answer::Usual,
    });
    let backend = node_at(&node.url());
    let claims: Vec<_> = (0..500).map(|_| claim()).collect();
    let votes = join_all(claims.iter().map(|claim| acquire(&backend, claim))).await;
    for (index, vote) in votes.into_iter().enumerate() {
        let expected = if index % 2 == 0 { Vote::Granted } else { Vote::Refused };
        assert_eq!(vote.unwrap(), expected);
    }
    assert_eq!(node.connections(), 1);
}

#[tokio::test]
async fn a_connection_that_ended_in_between_costs_no_call_once_that_is_known() {
    let (node, _go) = slow_node();
    let backend = node_at(&node.url());
    let mut polls = 1;
    let spared = async {
        loop {
            until_answered(|| backend.server_id()).await;
            node.hang_up();
            // The news takes its time.
            for _ in 0..polls {
                tokio::task::yield_now().await;
            }
            if backend.server_id().await.is_ok() {
                return;
            }
            polls *= 2;
        }
    };
    within_limit("a call that is not lost", spared).await;
}

#[tokio::test]
async fn a_dropped_call_disturbs_no_other() {
    let (node, go) = slow_node();
    let backend = node_at(&node.url());
    let (first, second) = (claim(), claim());
    let mut dropped = Box::pin(acquire(&backend, &first));
    assert!(poll!(&mut dropped).is_pending());
    until("the command of the call", || node.heard("SET") == 1).await;
    drop(dropped);
    let kept = acquire(&backend, &second);
    go.send(()).unwrap();
    go.send(()).unwrap();
    assert_eq!(kept.await.unwrap(), Vote::Granted);
    assert_eq!(release(&backend, &first).await.unwrap(), Vote::Granted);
    assert_eq!(node.heard("SET"), 2);
    assert_eq!(node.connections(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_clone_of_a_node_closes_its_connections() {
    let (node, _go) = slow_node();
    let backend = node_at(&node.url());
    let clone = backend.clone();
    backend.server_id().await.unwrap();
    drop(backend);
    clone.server_id().await.unwrap();
    assert_eq!(node.connections(), 1);
    drop(clone);
    node.wait_for_an_end();
}
