//! Trap: fred sends a command again whose connection ended in flight.

use futures_util::future::join_all;
use quorate_core::{BackendErrorKind, Vote};

use crate::node::{Answer, Node};
use crate::{acquire, claim, node_at, release};

/// Many times: the runtime may poll the task of fred and ours in any order.
#[tokio::test(flavor = "multi_thread")]
async fn c6_an_acquire_whose_connection_ended_is_unknown_and_not_sent_again() {
    // It hears the first `SET`, executes it, and is gone before it can say so.
    let node = Node::start(|command| match command[0].as_str() {
        "SET" => Answer::HangUp,
        "EVALSHA" => Answer::Say(":1\r\n"),
        _ => Answer::Usual,
    });
    let backend = node_at(&node.url());
    let claim = claim();
    // So that the end is not the first thing that happens on the connection.
    assert_eq!(release(&backend, &claim).await.unwrap(), Vote::Granted);
    for times in 1..=100 {
        let error = acquire(&backend, &claim).await.unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::Connection, "{error}");
        assert!(!error.is_not_sent());
        // On the next connection, behind anything that would have been sent again.
        assert_eq!(release(&backend, &claim).await.unwrap(), Vote::Granted);
        assert_eq!(node.heard("SET"), times);
        assert_eq!(node.connections(), times + 1);
    }
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
    let backend = node_at(&node.url());
    let claim = claim();
    assert_eq!(release(&backend, &claim).await.unwrap(), Vote::Refused);
    for result in join_all((0..CALLS).map(|_| acquire(&backend, &claim))).await {
        assert_eq!(result.unwrap_err().kind(), BackendErrorKind::Connection);
    }
    assert_eq!(release(&backend, &claim).await.unwrap(), Vote::Refused);
    assert_eq!(node.heard("SET"), CALLS);
}
