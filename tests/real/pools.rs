//! Nodes over bb8 pools of users: what differs from connections of their own.

use std::future::IntoFuture as _;
use std::pin::pin;
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use futures_util::future::{Either, join, join_all, poll_immediate, select};
use quorate::backend::Vote;
use quorate::redis::bb8::Pool;
use quorate::redis::from_pool;
use quorate::redis::redis::{self, cmd};
use quorate::{BackendError, BackendErrorKind, LockBackend, LockError};
use quorate_tests::peer::{Answer, Peer};
use quorate_tests::proxy::Proxy;
use quorate_tests::wait::{LIMIT, until, until_it_says};
use quorate_tests::{Nodes, RedisServer};

use crate::calls::{acquire, acquire_in_the_end, claim, extend, kind, release, server_id};
use crate::client::{Client, accepted, assert_clean, on_tokio, pooled, unhurried};

/// A pool as most users make it, but for its patience.
pub(crate) fn theirs(address: &str) -> Arc<dyn LockBackend> {
    with_patience(address, LIMIT)
}

/// The same with a short timeout: when its server is gone, a call fails by it.
fn theirs_of_a_moment(address: &str) -> Arc<dyn LockBackend> {
    with_patience(address, Duration::from_millis(100))
}

fn with_patience(address: &str, timeout: Duration) -> Arc<dyn LockBackend> {
    let client = redis::Client::open(address).unwrap();
    let pool = Pool::builder().max_size(2).connection_timeout(timeout);
    let pool = pool.idle_timeout(None).max_lifetime(None).build_unchecked(client);
    let (_, name) = address.rsplit_once(['@', '/']).unwrap();
    Arc::new(from_pool(name, pool))
}

/// Drops an acquire when the peer has it.
async fn give_up(node: &Arc<dyn LockBackend>, peer: &Peer) {
    let (heard, dropped) = (peer.heard("SET"), claim("dropped"));
    let mut call = Box::pin(acquire(node, &dropped));
    while peer.heard("SET") == heard {
        assert!(poll_immediate(&mut call).await.is_none());
        tokio::task::yield_now().await;
    }
}

#[test]
fn calls_at_the_same_time_use_several_connections() {
    let barrier = Barrier::new(2);
    let peer = Peer::start(move |command| {
        if command.name() == "SET" {
            barrier.wait();
        }
        Answer::Usual
    });
    on_tokio(async {
        let (node, one, other) = (theirs(&peer.url()), claim("one"), claim("other"));
        let votes = join(acquire(&node, &one), acquire(&node, &other)).await;
        assert_eq!((votes.0.unwrap(), votes.1.unwrap()), (Vote::Granted, Vote::Granted));
        assert_eq!(peer.connections(), 2);
    });
}

/// A round of hints is given up with each release, and each would cost a connection.
/// Rule W2.
#[test]
fn a_call_that_is_given_up_keeps_its_connection_if_its_reply_comes() {
    let (go_on, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let peer = Peer::start(move |command| {
        if command.words.get(1).is_some_and(|key| key == "dropped") {
            let _ = wait.lock().unwrap().recv();
        }
        Answer::Usual
    });
    let node = pooled(&peer.url(), 1);
    on_tokio(async {
        for _ in 0..3 {
            give_up(&node, &peer).await;
            go_on.send(()).unwrap();
            assert_eq!(acquire(&node, &claim("r")).await.unwrap(), Vote::Granted);
        }
        assert_eq!(peer.connections(), 1);
    });
}

/// A connection is asked once what its server can do, and the pool makes no more of them than it may.
#[test]
fn calls_over_a_pool_make_no_connections_and_no_handshakes_of_their_own() {
    let node = RedisServer::start();
    on_tokio(async {
        let manager = unhurried([theirs(&node.address())]).build().unwrap();
        // At the same time, so that the pool has all its connections.
        let pair = async || {
            let [one, other] = ["a", "b"].map(|name| manager.lock(name).into_future());
            let (one, other) = join(one, other).await;
            let (one, other) = join(one.unwrap().release(), other.unwrap().release()).await;
            one.and(other).unwrap();
        };
        for _ in 0..20 {
            pair().await;
        }
        let (before, monitor) = (accepted(&node), node.monitor());
        for _ in 0..100 {
            pair().await;
        }
        let lines = monitor.stop();
        let is_question = |name: &String| name.eq_ignore_ascii_case("INFO");
        let asked = lines.iter().filter(|line| is_question(&line.args[0])).count();
        assert!(asked <= 4, "{asked} handshakes of 400 calls");
        // Those of this test, and of a pool that had fewer than it may have.
        let made = accepted(&node) - before;
        assert!(made <= 10, "{made} connections for 400 calls");
        assert_clean(&manager).await;
    });
}

/// A connection to a replica is closed, in case that its address leads to the new primary.
#[test]
fn a_replica_behind_a_pool_gets_no_connection_and_no_handshake_with_each_call() {
    let primary = RedisServer::start();
    let replica = RedisServer::builder().replica_of(primary.port()).start();
    replica.wait_until_in_sync();
    on_tokio(async {
        let (node, before) = (theirs(&replica.address()), accepted(&replica));
        for _ in 0..100 {
            let refused = acquire(&node, &claim("r")).await;
            assert_eq!(kind(&refused), Some(BackendErrorKind::ReadOnly));
        }
        // On a slow machine, more may be due.
        let made = accepted(&replica) - before;
        assert!(made < 50, "{made} connections for 100 calls");
    });
}

/// Its server ends each connection at once.
#[test]
fn calls_that_fail_at_the_same_time_share_a_connect() {
    let peer = Peer::raw(|_| Ok(()));
    on_tokio(async {
        let node = Client::Pool.connect_one(&peer.url());
        let claims: Vec<_> = (0..100).map(|number| claim(&format!("r{number}"))).collect();
        let voted = join_all(claims.iter().map(|claim| acquire(&node, claim))).await;
        assert!(voted.iter().all(|vote| vote.as_ref().is_err_and(BackendError::is_not_sent)));
        // A connect tries two protocols. On a slow machine, a second one may be due.
        assert!(peer.connections() < 50, "{} connections", peer.connections());
    });
}

/// Its place in the pool is free again.
#[test]
fn a_call_that_is_given_up_closes_its_connection_if_no_reply_comes() {
    let peer = Peer::start(|command| match command.words.get(1) {
        Some(key) if key.starts_with("dropped") => Answer::Say(b""),
        _ => Answer::Usual,
    });
    on_tokio(async {
        let node = theirs(&peer.url());
        for _ in 0..5 {
            give_up(&node, &peer).await;
        }
        assert_eq!(acquire(&node, &claim("r")).await.unwrap(), Vote::Granted);
        assert!(peer.connections() > 5);
    });
}

/// Its connections are replaced by the pool, and lead to another server from then on: one that has a vote already.
#[test]
fn a_pool_whose_address_has_moved_is_asked_again_which_server_it_is() {
    let servers = Nodes::start(3);
    on_tokio(async {
        let proxy = Proxy::start(servers[1].port());
        let moved = theirs_of_a_moment(&proxy.address());
        let [first, third] = [0, 2].map(|at| theirs_of_a_moment(&servers[at].address()));
        let manager = unhurried([first, Arc::clone(&moved), third]).build().unwrap();
        let answers = || manager.readiness().nodes()[1].is_answering;
        let lock = || manager.lock("r").no_wait().into_future();
        until_it_says("all nodes", async || {
            lock().await.unwrap().release().await.unwrap();
            answers()
        })
        .await;
        assert_eq!(*server_id(&moved).await.unwrap(), servers[1].run_id());
        // The server goes.
        let port = proxy.port();
        drop(proxy);
        until_it_says("a node that is gone", async || {
            lock().await.unwrap().release().await.unwrap();
            !answers()
        })
        .await;
        let _proxy = Proxy::start_at(port, servers[0].port()).unwrap();
        // Without the third one, no two servers are left.
        servers[2].kill();
        until_it_says("a refusal", async || match lock().await {
            Err(error) => matches!(error, LockError::SameServer { .. }),
            Ok(_) => panic!("one server votes twice"),
        })
        .await;
        servers[2].restart();
        until_it_says("the other server", async || {
            server_id(&moved).await.is_ok_and(|id| *id == servers[0].run_id())
        })
        .await;
    });
}

/// If a call settled before its command, the release would overtake the acquire. By default a connection of redis-rs
/// waits for a reply for half a second.
#[test]
fn c3_the_response_timeout_of_a_pool_does_not_end_a_call() {
    let (go_on, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let peer = Peer::start(move |command| match command.name() {
        "SET" => wait.lock().unwrap().recv().map_or(Answer::HangUp, |()| Answer::Usual),
        "GET" => Answer::Say(b""),
        _ => Answer::Usual,
    });
    let (node, claim) = (theirs(&peer.url()), claim("r"));
    on_tokio(async {
        // A call that begins later than the acquire, and times out.
        let later = async {
            until("the acquire", || peer.heard("SET") > 0).await;
            let client = redis::Client::open(peer.url()).unwrap();
            // A slow machine may not connect in time.
            let mut connection = loop {
                if let Ok(connection) = client.get_multiplexed_async_connection().await {
                    break connection;
                }
            };
            let reply = connection.send_packed_command(cmd("GET").arg("r")).await;
            assert!(reply.unwrap_err().is_timeout());
            go_on.send(()).unwrap();
        };
        match select(pin!(acquire(&node, &claim)), pin!(later)).await {
            Either::Left((early, _)) => panic!("it settled before its reply: {early:?}"),
            Either::Right(((), acquired)) => assert_eq!(acquired.await.unwrap(), Vote::Granted),
        }
    });
}

/// Its node was down, and an administrator has allowed scripts meanwhile.
#[test]
fn a_pool_finds_its_node_again_and_anew_what_it_allows() {
    let server = RedisServer::start();
    let peer = Peer::with_handshake(|command| match (command.name(), command.connection) {
        ("EVAL" | "EVALSHA", 1) => Answer::Say(b"-NOPERM no permissions to run 'eval'\r\n"),
        ("DELIFEQ", _) => Answer::Say(b":0\r\n"),
        ("SET", 1) => Answer::HangUp,
        _ => Answer::Usual,
    });
    on_tokio(async {
        let node = theirs_of_a_moment(&server.address());
        acquire_in_the_end(&node, &claim("r")).await;
        server.kill();
        // The end of the connection may not have been noticed yet.
        while !acquire(&node, &claim("r")).await.is_err_and(|error| error.is_not_sent()) {}
        server.restart();
        acquire_in_the_end(&node, &claim("r")).await;

        let node = Client::Pool.connect_one(&peer.url());
        assert!(acquire(&node, &claim("r")).await.is_err(), "the connection is closed");
        assert_eq!(extend(&node, &claim("r")).await.unwrap(), Vote::Granted);
        assert_eq!(release(&node, &claim("r")).await.unwrap(), Vote::Refused);
    });
}
