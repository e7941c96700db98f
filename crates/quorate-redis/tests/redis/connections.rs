//! Connections: shared, lost, hung and made again.

use std::error::Error;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use futures_util::future::join_all;
use quorate_core::{BackendErrorKind, Vote};
use quorate_redis::redis::{Client, RedisError};
use quorate_redis::{RedisDial, bb8, from_pool, pooled};

use crate::calls::{LockBackend, acquire, acquire_in_the_end, block_on, claim, one};
use crate::peer::{Peer, grant, nobody};

#[test]
fn a_node_that_is_down_tells_the_reason_at_once() {
    let node = one(&nobody());
    for _ in 0..3 {
        let error = block_on(acquire(&node, &claim("r"))).unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::Connection);
        assert!(error.is_not_sent() && error.to_string().contains("refused"), "{error}");
        let source = error.source().unwrap();
        assert!(source.is::<RedisError>(), "a_node_error_has_its_client_error_as_source");
    }
}

#[test]
fn a_node_that_says_nothing_is_given_up_after_the_connect_timeout() {
    // Connections are made by the kernel and never accepted.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("redis://{}", listener.local_addr().unwrap());
    let builder = quorate_redis::builder().connect_timeout(Duration::from_millis(20));
    let node = builder.connect([&address]).unwrap().remove(0);
    let pooled = builder.pooled(2, [&address]).unwrap().remove(0);
    for node in [&node as &dyn LockBackend, &pooled] {
        let error = block_on(acquire(node, &claim("r"))).unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::TimedOut);
        assert!(error.is_not_sent() && error.to_string() == "no connection within 20ms", "{error}");
    }
}

#[test]
fn calls_need_no_tokio_and_share_one_connection() {
    let peer = Peer::start(|_, command| grant(command));
    let node = Arc::new(one(&peer.address()));
    let callers: Vec<_> = (0..32)
        .map(|n| {
            let node = Arc::clone(&node);
            thread::spawn(move || block_on(acquire(&*node, &claim(&format!("r:{n}")))))
        })
        .collect();
    for caller in callers {
        assert_eq!(caller.join().unwrap().unwrap(), Vote::Granted);
    }
    assert_eq!(peer.connections(), 1);
    assert_eq!(
        smol::block_on(acquire(&node.as_ref().clone(), &claim("r"))).unwrap(),
        Vote::Granted
    );
    assert_eq!(peer.connections(), 1, "clones share it");
}

#[test]
fn commands_that_leave_together_each_get_their_own_reply() {
    let peer = Peer::start(|_, command| match command[0].as_str() {
        "SET" if command[1].starts_with("odd") => Some("_\r\n"),
        "SET" if command[1].starts_with("bad") => Some("-OOM no room\r\n"),
        _ => grant(command),
    });
    let node = one(&peer.address());
    let claims: Vec<_> =
        (0..300).map(|n| claim(&format!("{}:{n}", ["even", "odd", "bad"][n % 3]))).collect();
    let votes = block_on(join_all(claims.iter().map(|claim| acquire(&node, claim))));
    for (n, vote) in votes.into_iter().enumerate() {
        match n % 3 {
            0 => assert_eq!(vote.unwrap(), Vote::Granted),
            1 => assert_eq!(vote.unwrap(), Vote::Refused),
            _ => assert_eq!(vote.unwrap_err().kind(), BackendErrorKind::OutOfMemory),
        }
    }
    assert_eq!(peer.connections(), 1);
}

#[test]
fn c6_after_a_lost_connection_nothing_is_sent_twice() {
    let peer = Peer::start(|connection, command| {
        let breaks = connection == 1 && command.get(1).is_some_and(|key| key == "r:20");
        if breaks { None } else { grant(command) }
    });
    let node = one(&peer.address());
    assert_eq!(block_on(acquire(&node, &claim("first"))).unwrap(), Vote::Granted);
    let claims: Vec<_> = (0..40).map(|n| claim(&format!("r:{n}"))).collect();
    let votes = block_on(join_all(claims.iter().map(|claim| acquire(&node, claim))));
    let error = votes[20].as_ref().unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Connection);
    assert!(!error.is_not_sent() && error.source().unwrap().is::<RedisError>(), "{error:?}");
    assert!(votes.iter().flatten().all(|vote| *vote == Vote::Granted));
    block_on(acquire_in_the_end(&node, &claim("next")));
    assert!(peer.heard("SET") <= 1 + 40 + 1);
    assert_eq!(peer.connections(), 2);
}

/// The node closes it at the first lock, so before it was of any use: a back-off follows.
#[test]
fn a_connection_that_broke_is_replaced() {
    let peer =
        Peer::start(
            |connection, command| {
                if connection == 1 && command[0] == "SET" { None } else { grant(command) }
            },
        );
    let node = one(&peer.address());
    let error = block_on(acquire(&node, &claim("r"))).unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Connection);
    assert!(!error.is_not_sent(), "{error:?}");
    block_on(acquire_in_the_end(&node, &claim("r")));
    assert_eq!((peer.connections(), peer.heard("SET")), (2, 2));
}

#[test]
fn a6_debug_shows_neither_user_nor_password() {
    let address = "redis://ann:hunter2@a.example:7000/2";
    let node = one(address);
    assert_eq!(node.name(), "a.example:7000/2");
    let ours = pooled(4, [address]).unwrap().remove(0);
    assert_eq!(ours.name(), "a.example:7000/2");
    let client = Client::open(address).unwrap();
    let pool = bb8::Pool::builder().idle_timeout(None).max_lifetime(None);
    let theirs = from_pool("b.example", pool.build_unchecked(client));
    assert_eq!(theirs.name(), "b.example");
    let dial = RedisDial::new(address).unwrap();
    for shown in [
        format!("{node:?}"),
        format!("{ours:#?}"),
        format!("{theirs:#?}"),
        format!("{dial:?}"),
        format!("{:?}", quorate_redis::builder()),
    ] {
        assert!(!shown.contains("hunter2") && !shown.contains("ann"), "{shown}");
    }
}
