//! Trap: while a node is away, fred queues commands, without a limit in time, and sends them when
//! it is back.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use fred::types::config::Config;
use quorate_core::BackendErrorKind as Kind;
use quorate_core::Vote;
use quorate_core::backend::LockBackend;
use quorate_fred::ConnectError;

use crate::node::{Answer, Node};
use crate::{acquire, claim, node_at, release, until_answered, within_limit};

fn obliging(command: &[String]) -> Answer {
    match command[0].as_str() {
        "SET" => Answer::Say("+OK\r\n"),
        "EVALSHA" => Answer::Say(":1\r\n"),
        _ => Answer::Usual,
    }
}

#[tokio::test]
async fn a_call_on_a_dead_node_fails_with_the_reason_and_is_never_sent() {
    let address = Node::nowhere();
    let backend = node_at(&format!("redis://{address}"));
    let claim = claim();
    for _ in 0..3 {
        let error = acquire(&backend, &claim).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Connection);
        assert!(error.is_not_sent() && error.to_string().contains("refused"), "{error}");
        let source = error.source().expect("the error of the client");
        assert!(source.is::<fred::error::Error>(), "{source:?}");
    }
    let node = Node::start_at(address, obliging);
    let released = until_answered(|| release(&backend, &claim)).await;
    assert_eq!(released, Vote::Granted);
    assert_eq!(node.heard("SET"), 0);
}

#[tokio::test]
async fn a_node_that_was_started_again_serves_again() {
    let mut node = Node::start(obliging);
    let (address, backend) = (node.address(), node_at(&node.url()));
    for _ in 0..3 {
        let claim = claim();
        let acquired = until_answered(|| acquire(&backend, &claim)).await;
        assert_eq!(acquired, Vote::Granted);
        assert_eq!(node.heard("SET"), 1);
        drop(node);
        let error = acquire(&backend, &claim).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Connection, "{error}");
        node = Node::start_at(address, obliging);
    }
}

/// The end of the connection does not reset it: bytes sent after it arrive. fred takes such an end
/// for answers to its questions, and says that it is connected.
#[tokio::test]
async fn a_node_that_hangs_up_at_once_is_not_dialled_by_every_call() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let backend = node_at(&format!("redis://{}", listener.local_addr().unwrap()));
    let dialled = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&dialled);
    thread::spawn(move || {
        let mut kept = Vec::new();
        loop {
            let (connection, _) = listener.accept().unwrap();
            counted.fetch_add(1, Ordering::SeqCst);
            connection.shutdown(Shutdown::Write).unwrap();
            kept.push(connection);
        }
    });
    let attempts = async {
        loop {
            let before = dialled.load(Ordering::SeqCst);
            let error = acquire(&backend, &claim()).await.unwrap_err();
            assert_eq!(error.kind(), Kind::Connection, "{error}");
            assert!(error.is_not_sent(), "{error}");
            if before > 0 && dialled.load(Ordering::SeqCst) == before {
                return;
            }
        }
    };
    within_limit("a call that dials nobody", attempts).await;
}

#[tokio::test]
async fn a_refused_login_is_told_in_the_words_of_the_node() {
    for (answer, kind) in [
        ("-WRONGPASS invalid username-password pair or user is disabled.\r\n", Kind::Auth),
        ("-LOADING Redis is loading the dataset\r\n", Kind::Loading),
        ("-DENIED Redis is running in protected mode\r\n", Kind::Other),
        ("-ERR unknown command `AUTH`, with args beginning with: `hunter2`, \r\n", Kind::Script),
    ] {
        let node = Node::start(move |command| match command[0].as_str() {
            "HELLO" | "AUTH" => Answer::Say(answer),
            _ => Answer::Usual,
        });
        let backend = node_at(&format!("redis://:hunter2@{}", node.address()));
        let error = acquire(&backend, &claim()).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        let said = error.to_string();
        assert!(answer[1..].starts_with(&said), "{said}");
        let shown = format!("{backend:?} {error:?} {:?}", error.source());
        assert!(!shown.contains("hunter2") && backend.name() == node.address().to_string());
        assert_eq!(node.heard("SET"), 0);
    }
}

#[tokio::test]
async fn a_server_without_resp3_is_reached_in_resp2() {
    for refusal in [
        "-ERR unknown command `HELLO`, with args beginning with: `3`\r\n",
        "-NOPROTO unsupported protocol version\r\n",
        "-NOAUTH Authentication required.\r\n",
    ] {
        let node = Node::start(move |command| match command[0].as_str() {
            "HELLO" => Answer::Say(refusal),
            "SET" => Answer::Say("$-1\r\n"),
            _ => obliging(command),
        });
        let backend = node_at(&format!("redis://:hunter2@{}", node.address()));
        assert_eq!(acquire(&backend, &claim()).await.unwrap(), Vote::Refused);
        assert_eq!((node.heard("HELLO"), node.heard("AUTH")), (1, 1));
        // The server would accept client tracking, and push nothing.
        let error = backend.watch(&claim().keys()[0], None).await.unwrap_err();
        assert!(error.is_not_sent() && error.to_string().contains("RESP3"), "{error}");
    }
}

#[tokio::test]
async fn a_node_that_says_nothing_is_given_up_after_the_connect_timeout() {
    // Connections are made by the kernel and never accepted.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    for timeout in [Duration::ZERO, Duration::from_millis(20)] {
        let settings = quorate_fred::builder().connect_timeout(timeout);
        let by_url = settings.connect([&url]).unwrap().remove(0);
        let by_config = settings.build(Config::from_url(&url).unwrap()).unwrap();
        for backend in [by_url, by_config] {
            let claim = claim();
            let acquired = acquire(&backend, &claim).await.unwrap_err();
            let watched = backend.watch(&claim.keys()[0], None).await.unwrap_err();
            for error in [acquired, watched] {
                assert_eq!(error.kind(), Kind::TimedOut, "{error}");
                assert_eq!(error.to_string(), format!("no connection within {timeout:?}"));
            }
        }
    }
}

#[tokio::test]
async fn what_is_no_redis_is_told_as_such() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        connection.read_exact(&mut [0; 4]).unwrap();
        connection.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    });
    let error = acquire(&node_at(&format!("redis://{address}")), &claim()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Protocol, "{error}");
    server.join().unwrap();
}

#[test]
fn a_configuration_that_is_none_of_one_node_is_refused() {
    let build = |url: &str| {
        let config = Config::from_url(url).unwrap();
        quorate_fred::builder().build(config).unwrap_err()
    };
    let group = build("redis-cluster://:hunter2@localhost:1");
    assert!(matches!(group, ConnectError::NotOneNode { .. }), "{group}");
    let lacking = build("redis://ann@localhost:1");
    assert!(matches!(lacking, ConnectError::InvalidAddress { .. }), "{lacking}");
    assert!(lacking.to_string().ends_with("a user needs a password; any will do for nopass"));
    assert!(!format!("{group} {group:?}").contains("hunter2"));
}

#[test]
fn a6_a_node_shows_its_name_and_no_secret() {
    let url = "redis://ann:hunter2@127.0.0.1:7000/3";
    let nodes = quorate_fred::connect([url]).unwrap();
    let dial = quorate_fred::FredDial::new(Config::from_url(url).unwrap()).unwrap();
    let shown = format!("{nodes:?} {:?} {dial:?}", nodes[0].clone());
    assert!(shown.contains("127.0.0.1:7000/3") && !shown.contains("hunter2"), "{shown}");
}
