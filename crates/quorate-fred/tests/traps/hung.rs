//! Trap: what is sent to a node that hangs is kept until it answers, even if its caller has gone.

use std::sync::mpsc::{Sender, channel};

use futures_util::future::join_all;
use futures_util::poll;
use quorate_core::backend::LockBackend;
use quorate_core::{BackendErrorKind, Resource, Vote};

use crate::node::{Answer, Node};
use crate::{acquire, claim, claim_of, node_at};

/// As many as a process under load has callers, until it sees that the node hangs.
const CALLS: usize = 2000;

/// Says nothing from its first `SET` on, until the sender lets it go on.
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
        _ => Answer::Usual,
    });
    (node, go)
}

#[tokio::test]
async fn each_caller_gets_its_own_answer_when_a_hung_node_wakes() {
    let (node, go) = hung_node(|command| match command[1].as_str() {
        "odd" => Answer::Say("_\r\n"),
        _ => Answer::Say("+OK\r\n"),
    });
    let backend = node_at(&node.url());
    backend.server_id().await.unwrap();
    let claims: Vec<_> = (0..CALLS).map(|n| claim_of(["even", "odd"][n % 2])).collect();
    let mut calls = join_all(claims.iter().map(|claim| acquire(&backend, claim)));
    assert!(poll!(&mut calls).is_pending());
    go.send(()).unwrap();
    for (n, vote) in calls.await.into_iter().enumerate() {
        assert_eq!(vote.unwrap(), [Vote::Granted, Vote::Refused][n % 2], "of {n}");
    }
    assert_eq!(node.heard("SET"), CALLS);
    assert_eq!(node.connections(), 1);
}

#[tokio::test]
async fn all_calls_fail_when_a_hung_node_dies_and_none_is_sent_again() {
    let (node, go) = hung_node(|_| Answer::HangUp);
    let backend = node_at(&node.url());
    backend.server_id().await.unwrap();
    let claims: Vec<_> = (0..CALLS).map(|_| claim()).collect();
    let mut calls = join_all(claims.iter().map(|claim| acquire(&backend, claim)));
    assert!(poll!(&mut calls).is_pending());
    go.send(()).unwrap();
    let errors: Vec<_> = calls.await.into_iter().map(Result::unwrap_err).collect();
    assert!(errors.iter().all(|error| error.kind() == BackendErrorKind::Connection));
    let lost = errors.iter().filter(|error| !error.is_not_sent()).count();
    assert!(node.heard("SET") <= lost && lost < CALLS, "{lost} may have been executed");
}

#[tokio::test]
async fn a_command_of_any_size_is_sent() {
    let node = Node::start(|command| match command[0].as_str() {
        "SET" => Answer::Say("+OK\r\n"),
        _ => Answer::Usual,
    });
    let backend = node_at(&node.url());
    let claims: Vec<_> = (0..3).map(|_| claim_of(&"x".repeat(Resource::MAX_LEN))).collect();
    for vote in join_all(claims.iter().map(|claim| acquire(&backend, claim))).await {
        assert_eq!(vote.unwrap(), Vote::Granted);
    }
}
