//! Trap: while a node is away, fred queues commands, without a limit in time, and sends them when
//! it is back.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use fred::interfaces::{ClientLike, EventInterface};
use fred::types::ClientState;
use futures_util::FutureExt;
use quorate_core::{BackendErrorKind as Kind, LockBackend, Vote};
use quorate_fred::{ConnectError, FredBackend};

use crate::node::{Answer, Node};
use crate::{LIMIT, backend, claim, client, connected_client, until_answered, within_limit};

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
    let backend = backend(&format!("redis://{address}"));
    let claim = claim();
    for _ in 0..3 {
        let error = backend.acquire(&claim).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Connection);
        assert!(error.to_string().contains("refused"), "{error}");
    }
    let node = Node::start_at(address, obliging);
    let released = until_answered(|| backend.release(&claim)).await;
    assert_eq!(released, Vote::Granted);
    assert_eq!(node.heard("SET"), 0);
}

#[tokio::test]
async fn a_node_that_was_started_again_serves_again() {
    let node = Node::start(obliging);
    let (address, backend) = (node.address(), backend(&node.url()));
    assert_eq!(backend.acquire(&claim()).await.unwrap(), Vote::Granted);
    assert!(backend.obstacle().is_none());
    drop(node);
    let error = backend.acquire(&claim()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Connection);
    assert!(backend.obstacle().is_some());
    let node = Node::start_at(address, obliging);
    let acquired = until_answered(|| async { backend.acquire(&claim()).await }).await;
    assert_eq!(acquired, Vote::Granted);
    assert_eq!(node.heard("SET"), 1);
}

/// Calls fail until one of them fails without an attempt to connect: one that failed holds for a while.
async fn until_a_call_dials_nobody(backend: &FredBackend, dialled: impl Fn() -> usize) {
    let attempts = async {
        loop {
            let before = dialled();
            let error = backend.acquire(&claim()).await.unwrap_err();
            assert_eq!(error.kind(), Kind::Connection, "{error}");
            if before > 0 && dialled() == before {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    within_limit("a call that dials nobody", attempts).await;
}

/// However many ask: it may be turning clients away because it has too many.
#[tokio::test]
async fn a_node_that_turns_clients_away_is_not_dialled_by_every_call_until_it_lets_one_in() {
    let turns_away = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&turns_away);
    let node = Node::start(move |command| match asked.load(Ordering::SeqCst) {
        true => Answer::HangUp,
        false => obliging(command),
    });
    let backend = backend(&node.url());
    for _ in 0..3 {
        until_a_call_dials_nobody(&backend, || node.connections()).await;
        let before = node.connections();
        let dialled_again = async {
            while node.connections() == before {
                backend.acquire(&claim()).await.unwrap_err();
                tokio::task::yield_now().await;
            }
        };
        within_limit("another attempt", dialled_again).await;
    }

    turns_away.store(false, Ordering::SeqCst);
    let acquired = until_answered(|| async { backend.acquire(&claim()).await }).await;
    assert_eq!(acquired, Vote::Granted);
}

/// As one that is further away: what comes after its end has not yet reset the connection. fred takes
/// the end of a connection for an answer to its questions, and says that it is connected.
#[tokio::test]
async fn a_node_that_hangs_up_at_once_is_not_dialled_by_every_call() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let backend = backend(&format!("redis://{}", listener.local_addr().unwrap()));
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
    until_a_call_dials_nobody(&backend, || dialled.load(Ordering::SeqCst)).await;
}

#[tokio::test]
async fn how_an_attempt_ended_that_all_had_left_is_not_told_later() {
    let mut connections = 0;
    let node = Node::start(move |command| match connections {
        0 => {
            connections = 1;
            Answer::HangUp
        }
        _ => obliging(command),
    });
    let backend = backend(&node.url());
    // It goes on by itself, and fails.
    assert!(backend.acquire(&claim()).now_or_never().is_none());
    let ended = async {
        while backend.obstacle().unwrap().to_string() == "there is no connection yet" {
            tokio::task::yield_now().await;
        }
    };
    within_limit("the end of the attempt, which somebody sees through", ended).await;
    let acquired = until_answered(|| async { backend.acquire(&claim()).await }).await;
    assert_eq!(acquired, Vote::Granted);
}

#[tokio::test]
async fn a_refused_login_is_told_in_the_words_of_the_node() {
    for (answer, kind) in [
        ("-WRONGPASS invalid username-password pair\r\n", Kind::Auth),
        ("-LOADING Redis is loading the dataset\r\n", Kind::Loading),
        ("-DENIED Redis is running in protected mode\r\n", Kind::Other),
        ("-ERR unknown command `AUTH`, with args beginning with: `hunter2`, \r\n", Kind::Script),
    ] {
        let node = Node::start(move |command| match command[0].as_str() {
            "AUTH" => Answer::Say(answer),
            _ => Answer::Usual,
        });
        let backend = backend(&format!("redis://:hunter2@{}", node.address()));
        let error = backend.acquire(&claim()).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        let said = error.to_string();
        assert!(answer[1..].starts_with(&said), "{said}");
        assert!(!format!("{backend:?} {error:?}").contains("hunter2"));
        assert_eq!(node.heard("SET"), 0);
    }
}

#[tokio::test]
async fn a_node_that_says_nothing_is_given_up_after_the_connect_timeout() {
    // Connections are made by the kernel and never accepted.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let config = fred::types::config::Config::from_url(&url).unwrap();
    for by_url in [true, false] {
        let mut timeout = Duration::from_millis(20);
        loop {
            let settings = quorate_fred::builder().connect_timeout(timeout);
            let backend = match by_url {
                true => settings.connect([&url]).unwrap().remove(0),
                false => settings.build(config.clone()).unwrap(),
            };
            let obstacle = || backend.obstacle().unwrap().to_string();
            assert_eq!(obstacle(), "there is no connection yet");
            let error = backend.acquire(&claim()).await.unwrap_err();
            assert_eq!(error.kind(), Kind::TimedOut);
            assert_eq!(obstacle(), error.to_string());
            let look = backend.watcher().unwrap().look(&claim().keys()[0]).await.unwrap_err();
            assert_eq!(look.kind(), Kind::TimedOut);
            let words = format!("no connection within {timeout:?}");
            if error.to_string() == words && look.to_string() == words {
                break;
            }
            // On a slow machine fred's own timer, of twice the time, can be seen first.
            assert!(timeout < LIMIT, "{error}, {look}");
            timeout *= 4;
        }
    }
}

/// As a whole, and not for each part of it.
#[tokio::test]
async fn a_slow_login_fails_within_the_connect_timeout_or_not_at_all() {
    const STEP: Duration = Duration::from_millis(50);
    #[expect(clippy::disallowed_methods, reason = "the node is slow")]
    let slow_down = || thread::sleep(STEP);
    let node = Node::start(move |command| match command[0].as_str() {
        "PING" | "CLIENT" | "INFO" => {
            slow_down();
            Answer::Usual
        }
        _ => obliging(command),
    });
    for (timeout, is_reached) in [(STEP * 2, false), (Duration::ZERO, false), (LIMIT, true)] {
        let settings = quorate_fred::builder().connect_timeout(timeout);
        let backend = settings.connect([node.url()]).unwrap().remove(0);
        let voted = backend.acquire(&claim()).await;
        match voted {
            Ok(_) => assert!(is_reached, "within {timeout:?}"),
            Err(error) => {
                assert!(!is_reached, "within {timeout:?}: {error}");
                assert_eq!(error.kind(), Kind::TimedOut);
            }
        }
    }
    assert_eq!(node.heard("SET"), 1);
}

/// The node lets us in and does not answer `CLIENT TRACKING`.
#[tokio::test]
async fn a_connection_for_watches_is_made_within_the_connect_timeout() {
    let node = Node::start(|command| match command[0].as_str() {
        "CLIENT" if command[1] == "TRACKING" => Answer::Say(""),
        _ => Answer::Usual,
    });
    let settings = quorate_fred::builder().connect_timeout(Duration::from_millis(100));
    let backend = settings.connect([node.url()]).unwrap().remove(0);
    let claim = claim();
    let look = backend.watcher().unwrap().look(&claim.keys()[0]);
    let error = within_limit("the end of the attempt", look).await.err().unwrap();
    assert_eq!(error.kind(), Kind::TimedOut);
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
    let error = backend(&format!("redis://{address}")).acquire(&claim()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Protocol, "{error}");
    server.join().unwrap();
}

#[tokio::test]
async fn a_client_that_was_never_connected_queues_nothing() {
    let node = Node::start(obliging);
    let client = client(&node, Some(1));
    let backend = FredBackend::from_client("mine", client.clone()).unwrap();
    let error = backend.acquire(&claim()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Connection);
    client.init().await.unwrap();
    assert_eq!(backend.release(&claim()).await.unwrap(), Vote::Granted);
    assert_eq!(node.heard("SET"), 0);
}

/// The same after a second loss, with no call in between.
#[tokio::test]
async fn nor_does_one_that_has_lost_its_connection_twice() {
    let node = Node::start(obliging);
    let address = node.address();
    let client = connected_client(&node, Some(500)).await;
    let backend = FredBackend::from_client("mine", client.clone()).unwrap();
    assert_eq!(backend.acquire(&claim()).await.unwrap(), Vote::Granted);
    let (mut losses, mut connections) = (client.error_rx(), client.reconnect_rx());
    drop(node);
    losses.recv().await.unwrap();
    let node = Node::start_at(address, obliging);
    connections.recv().await.unwrap();
    while client.state() != ClientState::Connected {
        tokio::task::yield_now().await;
    }
    drop(node);
    losses.recv().await.unwrap();
    let acquired = backend.acquire(&claim()).now_or_never();
    assert!(matches!(acquired, Some(Err(_))), "it waits for the node to be back: {acquired:?}");
}

/// fred goes on saying `Connected` until the delay before its first attempt is over, and for ever
/// if it has no policy: what is sent then would be queued.
#[tokio::test]
async fn nor_does_one_that_has_lost_its_connection_and_does_not_say_so() {
    const HOUR: u32 = 3_600_000;
    for delay in [Some(HOUR), None] {
        let node = Node::start(obliging);
        let client = connected_client(&node, delay).await;
        let backend = FredBackend::from_client("mine", client.clone()).unwrap();
        assert_eq!(backend.acquire(&claim()).await.unwrap(), Vote::Granted);
        let mut losses = client.error_rx();
        drop(node);
        losses.recv().await.unwrap();
        assert_eq!(client.state(), ClientState::Connected);
        let claim = claim();
        let acquire = within_limit("an answer: it is not queued", backend.acquire(&claim));
        let error = acquire.await.unwrap_err();
        assert_eq!(error.kind(), Kind::Connection, "{error}");
    }
}

#[tokio::test]
async fn a_client_that_reconnected_serves_again() {
    let mut node = Node::start(obliging);
    let address = node.address();
    let client = connected_client(&node, Some(1)).await;
    let backend = FredBackend::from_client("mine", client).unwrap();
    for _ in 0..3 {
        let acquired = until_answered(|| async { backend.acquire(&claim()).await }).await;
        assert_eq!(acquired, Vote::Granted);
        drop(node);
        let error = backend.acquire(&claim()).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Connection, "{error}");
        node = Node::start_at(address, obliging);
    }
}

#[tokio::test]
async fn a_client_that_was_closed_and_opened_again_serves_again() {
    let node = Node::start(obliging);
    let client = connected_client(&node, Some(1)).await;
    let backend = FredBackend::from_client("mine", client.clone()).unwrap();
    for _ in 0..2 {
        assert_eq!(backend.acquire(&claim()).await.unwrap(), Vote::Granted);
        client.quit().await.unwrap();
        let error = backend.acquire(&claim()).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Connection, "{error}");
        client.init().await.unwrap();
    }
    assert_eq!(backend.acquire(&claim()).await.unwrap(), Vote::Granted);
    assert_eq!(node.heard("SET"), 3);
}

#[test]
fn the_client_of_a_group_is_refused() {
    let config = fred::types::config::Config::from_url("redis-cluster://localhost:1").unwrap();
    let client = fred::clients::Client::new(config.clone(), None, None, None);
    for error in [
        FredBackend::from_client("mine", client).unwrap_err(),
        FredBackend::new(config).unwrap_err(),
    ] {
        assert!(matches!(error, ConnectError::NotOneNode { .. }));
    }
}
