//! What the replies of a node mean.

use quorate_core::backend::LockBackend;
use quorate_core::{BackendErrorKind as Kind, Vote};

use crate::node::{Answer, Node};
use crate::{acquire, claim, node_at, release};

/// A node that answers `SET` and `EVALSHA` so.
fn node(set: &'static str, evalsha: &'static str) -> Node {
    Node::start(move |command| match command[0].as_str() {
        "SET" => Answer::Say(set),
        "EVALSHA" => Answer::Say(evalsha),
        _ => Answer::Usual,
    })
}

#[tokio::test]
async fn q4_only_the_word_of_the_node_is_a_vote() {
    for (set, vote) in
        [("+OK\r\n", Vote::Granted), ("$2\r\nOK\r\n", Vote::Granted), ("_\r\n", Vote::Refused)]
    {
        let node = node(set, "");
        assert_eq!(acquire(&node_at(&node.url()), &claim()).await.unwrap(), vote, "{set:?}");
    }
    for (evalsha, vote) in [
        (":0\r\n", Vote::Refused),
        (":1\r\n", Vote::Granted),
        ("-NOSCRIPT No matching script.\r\n", Vote::Granted),
    ] {
        let node = node("", evalsha);
        assert_eq!(release(&node_at(&node.url()), &claim()).await.unwrap(), vote, "{evalsha:?}");
    }
}

#[tokio::test]
async fn an_answer_that_is_cut_off_is_a_connection_that_was_lost() {
    for beginning in ["+O", "$-", "*2\r\n:1\r\n"] {
        let node = Node::start(move |command| match command[0].as_str() {
            "SET" => Answer::Begin(beginning),
            _ => Answer::Usual,
        });
        let error = acquire(&node_at(&node.url()), &claim()).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Connection, "{beginning:?}");
        assert!(!error.is_not_sent(), "{beginning:?}");
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
        ("-NOREPLICAS Not enough good replicas to write.\r\n", Kind::Misconfigured),
        ("*0\r\n", Kind::Protocol),
        ("+QUEUED\r\n", Kind::Protocol),
        (":1\r\n", Kind::Protocol),
        ("#t\r\n", Kind::Protocol),
        (",1.0\r\n", Kind::Protocol),
        ("nonsense\r\n", Kind::Protocol),
    ] {
        let node = node(answer, ":1\r\n");
        let backend = node_at(&node.url());
        let claim = claim();
        assert_eq!(release(&backend, &claim).await.unwrap(), Vote::Granted);
        let error = acquire(&backend, &claim).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{answer:?}: {error}");
        assert!(!error.is_not_sent(), "{answer:?}");
        if let Some(said) = answer.strip_prefix('-') {
            assert_eq!(error.to_string(), said.trim_end());
        }
        // fred closes the connection after some of them; the next call has another.
        assert_eq!(release(&backend, &claim).await.unwrap(), Vote::Granted);
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
        let backend = node_at(&node.url());
        let claim = claim();
        let calls = [
            acquire(&backend, &claim).await,
            release(&backend, &claim).await,
            acquire(&backend, &claim).await,
        ];
        for error in calls.map(Result::unwrap_err) {
            assert_eq!(error.kind(), kind, "{error}");
            assert_eq!(error.to_string(), answer[1..].trim_end());
        }
        assert_eq!(node.connections(), 1, "{answer:?}");
    }
}

#[tokio::test]
async fn a6_a_token_that_the_node_repeats_is_not_shown() {
    let node = node("-ERR unknown command `SET`, with args beginning with: `k`, `t0ken`\r\n", "");
    let error = acquire(&node_at(&node.url()), &claim()).await.unwrap_err();
    assert!(!format!("{error} {error:?}").contains("t0ken"), "{error:?}");
}

#[tokio::test]
async fn q6_a_node_says_which_server_it_is() {
    let node = node("", "");
    let id = node_at(&node.url()).server_id().await.unwrap();
    assert_eq!(id.as_deref(), Some("42"));
}
