//! Trap: what is sent to a node that hangs is kept until it answers, whoever has gone.

use std::sync::mpsc::{Sender, channel};

use futures_util::future::join_all;
use futures_util::poll;
use quorate_core::{BackendErrorKind, Identify, LockBackend, Resource, Vote};
use quorate_fred::FredBackend;

use crate::node::{Answer, Node};
use crate::{backend, claim, claim_of, connected_client, within_limit};

/// As many as a process under load has callers, until it sees that the node hangs.
const CALLS: usize = 5000;

/// 48 KiB of these commands, with the least that one of them takes.
const MOST: usize = 48 * 1024 / 75;

/// Says nothing from its first `SET` on, until it is told what then.
fn hung_node(awake: impl Fn(&[String]) -> Answer + Send + 'static) -> (Node, Sender<()>) {
    let (go, gate) = channel();
    let mut is_awake = false;
    let node = Node::start(move |command| match command[0].as_str() {
        "SET" => {
            if !is_awake {
                is_awake = gate.recv().is_ok();
            }
            awake(command)
        }
        "EVALSHA" => Answer::Say(":0\r\n"),
        _ => Answer::Usual,
    });
    (node, go)
}

/// Callers that come, and go again without an answer.
async fn come_and_go(backend: &FredBackend) {
    for _ in 0..CALLS {
        let claim = claim();
        let mut call = backend.acquire(&claim);
        assert!(poll!(&mut call).is_pending());
    }
}

#[tokio::test]
async fn a_hung_node_is_sent_no_more_than_its_socket_holds_and_answers_again_when_it_wakes() {
    for is_shared in [false, true] {
        let (node, go) = hung_node(|_| Answer::Say("+OK\r\n"));
        let backend = match is_shared {
            false => backend(&node.url()),
            true => FredBackend::from_client("mine", connected_client(&node, None).await).unwrap(),
        };
        backend.server_id().await.unwrap();
        come_and_go(&backend).await;
        let claim = claim();
        let mut kept = backend.acquire(&claim);
        assert!(poll!(&mut kept).is_pending());
        go.send(()).unwrap();
        // Though nobody heard the answers before.
        let vote = within_limit("an answer", kept).await;
        assert_eq!(vote.unwrap(), Vote::Granted);
        let heard = node.heard("SET");
        assert!((100..=MOST).contains(&heard), "shared: {is_shared}, of {CALLS} it got {heard}");
        assert_eq!(node.connections(), 1);
    }
}

#[tokio::test]
async fn who_waits_for_room_gets_an_answer_of_its_own_on_the_same_connection() {
    let (node, go) = hung_node(|command| match command[1].as_str() {
        "odd" => Answer::Say("$-1\r\n"),
        _ => Answer::Say("+OK\r\n"),
    });
    let backend = backend(&node.url());
    backend.server_id().await.unwrap();
    go.send(()).unwrap();
    let claims: Vec<_> = (0..CALLS).map(|n| claim_of(["even", "odd"][n % 2])).collect();
    let votes = join_all(claims.iter().map(|claim| backend.acquire(claim))).await;
    for (n, vote) in votes.into_iter().enumerate() {
        assert_eq!(vote.unwrap(), [Vote::Granted, Vote::Refused][n % 2], "of {n}");
    }
    assert_eq!(node.heard("SET"), CALLS);
    assert_eq!(node.connections(), 1);
}

#[tokio::test]
async fn who_waits_for_room_fails_with_the_connection_and_was_never_sent() {
    let (node, go) = hung_node(|_| Answer::HangUp);
    let backend = backend(&node.url());
    backend.server_id().await.unwrap();
    let claims: Vec<_> = (0..CALLS).map(|_| claim()).collect();
    let mut calls = join_all(claims.iter().map(|claim| backend.acquire(claim)));
    assert!(poll!(&mut calls).is_pending());
    go.send(()).unwrap();
    for result in calls.await {
        assert_eq!(result.unwrap_err().kind(), BackendErrorKind::Connection);
    }
    assert_eq!(node.heard("SET"), 1);
}

/// What is larger than all the room there is goes by itself.
#[tokio::test]
async fn a_command_of_any_size_is_sent() {
    let (node, go) = hung_node(|_| Answer::Say("+OK\r\n"));
    go.send(()).unwrap();
    let backend = backend(&node.url());
    let claims: Vec<_> = (0..3).map(|_| claim_of(&"x".repeat(Resource::MAX_LEN))).collect();
    for vote in join_all(claims.iter().map(|claim| backend.acquire(claim))).await {
        assert_eq!(vote.unwrap(), Vote::Granted);
    }
}
