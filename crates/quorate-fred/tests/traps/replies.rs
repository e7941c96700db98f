//! What the node's answers become.

use quorate_core::{BackendErrorKind as Kind, LockBackend, Vote};

use crate::node::{Answer, Node};
use crate::{backend, claim};

/// A node that answers `SET` and `EVALSHA` so.
fn node(set: &'static str, evalsha: &'static str) -> Node {
    Node::start(move |command| match command[0].as_str() {
        "SET" => Answer::Say(set),
        "EVALSHA" => Answer::Say(evalsha),
        "EVAL" => Answer::Say(":1\r\n"),
        _ => Answer::Usual,
    })
}

#[tokio::test]
async fn q4_only_the_word_of_the_node_is_a_vote() {
    for (set, evalsha, vote) in [
        ("+OK\r\n", "", Vote::Granted),
        ("$2\r\nOK\r\n", "", Vote::Granted),
        // Taken, and the script says by whom.
        ("$-1\r\n", ":0\r\n", Vote::Refused),
        ("$-1\r\n", ":1\r\n", Vote::Granted),
        ("_\r\n", ":0\r\n", Vote::Refused),
        ("$-1\r\n", "-NOSCRIPT No matching script.\r\n", Vote::Granted),
    ] {
        let node = node(set, evalsha);
        let voted = backend(&node.url()).acquire(&claim()).await;
        assert_eq!(voted.unwrap(), vote, "{set:?} {evalsha:?}");
    }
}

/// `tokio-util` tells it as bytes that remain on a stream.
#[tokio::test]
async fn an_answer_that_is_cut_off_is_a_connection_that_was_lost_and_told_as_that() {
    for beginning in ["+O", "$-", "*2\r\n:1\r\n"] {
        let node = Node::start(move |command| match command[0].as_str() {
            "SET" => Answer::Begin(beginning),
            _ => Answer::Usual,
        });
        let error = backend(&node.url()).acquire(&claim()).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Connection);
        let told = "the connection was lost in the middle of an answer";
        assert_eq!(error.to_string(), told, "{beginning:?}");
    }
}

#[tokio::test]
async fn q4_every_other_answer_is_unknown_with_its_reason() {
    for (answer, kind) in [
        ("-READONLY You can't write against a replica.\r\n", Kind::ReadOnly),
        ("-LOADING Redis is loading the dataset in memory\r\n", Kind::Loading),
        ("-BUSY Redis is busy running a script.\r\n", Kind::Loading),
        ("-MISCONF Errors writing to the AOF file\r\n", Kind::Misconfigured),
        ("-OOM command not allowed\r\n", Kind::OutOfMemory),
        ("-NOAUTH Authentication required.\r\n", Kind::Auth),
        ("-NOPERM this user has no permissions\r\n", Kind::Permission),
        ("-WRONGTYPE Operation against a key\r\n", Kind::WrongType),
        ("-CLUSTERDOWN Hash slot not served\r\n", Kind::Cluster),
        ("-MOVED 1 127.0.0.1:7001\r\n", Kind::Cluster),
        ("-NOREPLICAS Not enough good replicas to write.\r\n", Kind::ReadOnly),
        ("*0\r\n", Kind::Protocol),
        ("+QUEUED\r\n", Kind::Protocol),
        (":1\r\n", Kind::Protocol),
        ("nonsense\r\n", Kind::Protocol),
    ] {
        let node = node(answer, ":1\r\n");
        let backend = backend(&node.url());
        let claim = claim();
        let error = backend.acquire(&claim).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        if let Some(said) = answer.strip_prefix('-') {
            assert_eq!(error.to_string(), said.trim_end());
        }
        // fred closes the connection after some of them; the next call has another.
        assert_eq!(backend.release(&claim).await.unwrap(), Vote::Granted);
        assert_eq!(node.heard("SET"), 1);
    }
}

#[tokio::test]
async fn an_error_answer_costs_no_connection() {
    for (answer, kind) in [
        ("-READONLY You can't write against a replica.\r\n", Kind::ReadOnly),
        ("-NOAUTH Authentication required.\r\n", Kind::Auth),
        ("-MOVED 1 127.0.0.1:7001\r\n", Kind::Cluster),
        ("-WRONGTYPE Operation against a key\r\n", Kind::WrongType),
        ("-no healthy upstream\r\n", Kind::Other),
    ] {
        let node = node(answer, answer);
        let backend = backend(&node.url());
        let claim = claim();
        for call in [backend.acquire(&claim), backend.release(&claim), backend.acquire(&claim)] {
            let error = call.await.unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert_eq!(error.to_string(), answer[1..].trim_end());
        }
        assert_eq!(node.connections(), 1, "{answer:?}");
    }
}

#[tokio::test]
async fn a6_a_token_that_the_node_repeats_is_not_shown() {
    let node = node("-ERR unknown command `SET`, with args beginning with: `k`, `t0ken`\r\n", "");
    let error = backend(&node.url()).acquire(&claim()).await.unwrap_err();
    assert!(!format!("{error} {error:?}").contains("t0ken"), "{error:?}");
}

#[tokio::test]
async fn q6_a_node_says_which_server_it_is() {
    let node = node("", "");
    let backend = backend(&node.url());
    let id = backend.identity().unwrap().server_id().await.unwrap();
    assert_eq!(id.as_deref(), Some("42"));
}
