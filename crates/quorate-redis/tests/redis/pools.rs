//! Nodes over bb8 pools: ours and the user's.

use std::error::Error;
use std::pin::pin;
use std::sync::mpsc::channel;
use std::sync::{Barrier, Mutex};
use std::time::Duration;

use futures_util::future::{Either, join, poll_immediate, select};
use quorate_core::backend::ExtendOptions;
use quorate_core::{BackendErrorKind, Vote};
use quorate_redis::bb8::{ManageConnection, Pool};
use quorate_redis::redis::aio::MultiplexedConnection;
use quorate_redis::redis::{AsyncConnectionConfig, Client, RedisError, cmd};
use quorate_redis::{PooledNode, builder, from_pool};
use quorate_tests::RedisServer;

use crate::calls::{Capabilities, LIMIT, LockBackend, acquire, block_on, claim, key, release};
use crate::peer::{Peer, grant, nobody};

fn ours(address: &str) -> PooledNode {
    builder().connect_timeout(LIMIT).pooled(2, [address]).unwrap().remove(0)
}

/// Over a pool as most users make it, but for its patience.
fn theirs(address: &str) -> PooledNode {
    let pool = Pool::builder().max_size(2).connection_timeout(LIMIT);
    let pool = pool.idle_timeout(None).max_lifetime(None);
    from_pool("theirs", pool.build_unchecked(Client::open(address).unwrap()))
}

#[test]
fn a_pool_has_no_order_and_no_watches() {
    for node in [ours("redis://a.example"), theirs("redis://a.example")] {
        let can = node.capabilities();
        assert!(!can.contains(Capabilities::ORDERED) && !can.contains(Capabilities::WATCH));
        assert!(can.contains(Capabilities::FENCING | Capabilities::QUEUE));
        let watched = block_on(node.watch(&key("r"), None));
        assert!(watched.unwrap_err().is_not_sent());
    }
}

/// bb8 reports a failed connect to no waiter.
#[test]
fn a_pool_of_a_node_that_is_down_tells_the_reason_at_once() {
    for node in [ours(&nobody()), theirs(&nobody())] {
        for _ in 0..3 {
            let error = block_on(acquire(&node, &claim("r"))).unwrap_err();
            assert_eq!(error.kind(), BackendErrorKind::Connection, "{error}");
            assert!(error.is_not_sent() && error.to_string().contains("refused"), "{error}");
            assert!(error.source().unwrap().is::<RedisError>());
            assert!(!format!("{error:?}").contains("hunter2"));
        }
    }
}

#[test]
fn a_wrong_password_is_told_through_a_pool() {
    let server = RedisServer::builder().password("right").start();
    let address = server.address_as("default", "wr0ng");
    for node in [ours(&address), theirs(&address)] {
        let error = block_on(acquire(&node, &claim("r"))).unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::Auth, "{error}");
        assert!(error.is_not_sent() && !format!("{error} {error:?}").contains("wr0ng"));
    }
}

#[test]
fn calls_at_the_same_time_use_several_connections() {
    for make in [ours, theirs] {
        let both = Barrier::new(2);
        let peer = Peer::start(move |_, command| {
            if command[0] == "SET" {
                both.wait();
            }
            grant_and_ping(command)
        });
        let node = make(&peer.address());
        let (one, other) = (claim("one"), claim("other"));
        let calls = block_on(join(acquire(&node, &one), acquire(&node, &other)));
        assert_eq!((calls.0.unwrap(), calls.1.unwrap()), (Vote::Granted, Vote::Granted));
        assert_eq!(peer.connections(), 2);
    }
}

fn grant_and_ping(command: &[String]) -> Option<&'static str> {
    if command[0] == "PING" { Some("+PONG\r\n") } else { grant(command) }
}

#[test]
fn a_pool_finds_its_node_again() {
    let server = RedisServer::start();
    let node = ours(&server.address());
    assert_eq!(block_on(acquire(&node, &claim("r"))).unwrap(), Vote::Granted);
    server.kill();
    // The end of the connection may not have been noticed yet.
    loop {
        let error = block_on(acquire(&node, &claim("r"))).unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::Connection, "{error}");
        if error.is_not_sent() {
            assert!(error.to_string().contains("refused"), "{error}");
            break;
        }
    }
    server.restart();
    let ours = claim("r");
    loop {
        match block_on(acquire(&node, &ours)) {
            Ok(vote) => break assert_eq!(vote, Vote::Granted),
            Err(error) => assert!(error.is_not_sent(), "{error}"),
        }
    }
    assert_eq!(block_on(release(&node, &ours)).unwrap(), Vote::Granted);
    assert_eq!(server.keys(), [""; 0]);
}

/// A connection whose reply is not awaited any more is closed, and its place in the pool is free again.
#[test]
fn a_call_that_is_given_up_closes_its_connection() {
    for make in [ours, theirs] {
        let peer = Peer::start(|_, command| {
            let is_silent = command[0] == "SET" && command[1].starts_with("dropped");
            if is_silent { Some("") } else { grant_and_ping(command) }
        });
        let node = make(&peer.address());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            for n in 0..5 {
                let dropped = claim(&format!("dropped:{n}"));
                let mut call = Box::pin(acquire(&node, &dropped));
                while peer.heard("SET") == n {
                    assert!(poll_immediate(&mut call).await.is_none());
                    tokio::task::yield_now().await;
                }
            }
            assert_eq!(acquire(&node, &claim("r")).await.unwrap(), Vote::Granted);
        });
        assert!(peer.connections() > 5);
    }
}

#[test]
fn a_connection_of_a_pool_without_a_reply_within_the_limit_is_closed() {
    let peer =
        Peer::start(
            |connection, command| {
                if connection == 1 && command[0] == "SET" { Some("") } else { grant(command) }
            },
        );
    let builder = builder().connect_timeout(LIMIT).reply_limit(Duration::from_millis(100));
    let node = builder.pooled(1, [peer.address()]).unwrap().remove(0);
    let error = block_on(acquire(&node, &claim("r"))).unwrap_err();
    assert_eq!((error.kind(), error.is_not_sent()), (BackendErrorKind::TimedOut, false));
    // A slow machine may take longer, too.
    while block_on(acquire(&node, &claim("r"))).is_err() {}
    assert!(peer.connections() >= 2);
}

#[test]
fn a_node_without_scripts_grants_nothing_it_cannot_release() {
    let server = RedisServer::builder().config("rename-command", &["EVAL", ""]);
    let server = server.config("rename-command", &["EVALSHA", ""]);
    let server = server.without_compare_and_delete().start();
    for node in [ours(&server.address()), theirs(&server.address())] {
        let error = block_on(acquire(&node, &claim("r"))).unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::Script, "{error}");
        assert!(error.is_not_sent() && server.keys().is_empty());
    }
}

/// Makes connections that wait for a reply for one millisecond.
#[derive(Debug)]
struct Hasty(Client);

impl ManageConnection for Hasty {
    type Connection = MultiplexedConnection;
    type Error = RedisError;

    async fn connect(&self) -> Result<MultiplexedConnection, RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(Some(Duration::from_millis(1)));
        self.0.get_multiplexed_async_connection_with_config(&config).await
    }

    async fn is_valid(&self, _: &mut MultiplexedConnection) -> Result<(), RedisError> {
        Ok(())
    }

    fn has_broken(&self, _: &mut MultiplexedConnection) -> bool {
        false
    }
}

/// A call that settled before its command would let the release overtake the acquire.
#[tokio::test]
async fn c3_the_response_timeout_of_a_pool_does_not_end_a_call() {
    let (go_on, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let peer = Peer::start(move |_, command| match command[0].as_str() {
        "SET" => wait.lock().unwrap().recv().ok().and(Some("+OK\r\n")),
        "GET" => Some(""),
        _ => grant(command),
    });
    let hasty = || Hasty(Client::open(peer.address()).unwrap());
    let pool = Pool::builder().connection_timeout(LIMIT).idle_timeout(None).max_lifetime(None);
    let node = from_pool("hasty", pool.build_unchecked(hasty()));
    let claim = claim("r");
    // A call that begins later than the acquire, and times out.
    let later = async {
        let mut connection = hasty().connect().await.unwrap();
        while peer.heard("SET") == 0 {
            tokio::task::yield_now().await;
        }
        let reply = connection.send_packed_command(cmd("GET").arg("r")).await;
        assert!(reply.unwrap_err().is_timeout());
        go_on.send(()).unwrap();
    };
    match select(pin!(acquire(&node, &claim)), pin!(later)).await {
        Either::Left((early, _)) => panic!("it settled before its reply: {early:?}"),
        Either::Right(((), acquired)) => assert_eq!(acquired.await.unwrap(), Vote::Granted),
    }
}

/// An administrator allows scripts, and the connection is replaced.
#[test]
fn a_pool_finds_out_anew_what_a_server_allows_after_a_lost_connection() {
    let peer = Peer::start(|connection, command| match command[0].as_str() {
        "EVAL" | "EVALSHA" if connection == 1 => Some("-NOPERM no permissions to run 'eval'\r\n"),
        "DELIFEQ" => Some(":0\r\n"),
        "SET" if connection == 1 => None,
        _ => grant(command),
    });
    let node = ours(&peer.address());
    assert!(block_on(acquire(&node, &claim("r"))).is_err(), "the connection is closed");
    let extended = block_on(node.extend(&claim("r"), ExtendOptions::default()));
    assert_eq!(extended.unwrap().vote, Vote::Granted);
}
