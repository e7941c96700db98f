//! Connections that end, hang or are shared, shown by a peer that plays a script.
//!
//! A client has habits of its own that a lock must not suffer from. fred queues commands while a node is
//! away, sends a command again whose connection ended in flight, and keeps clocks. redis-rs drops the replies of a
//! pipeline that ended early.

use std::error::Error as _;
use std::net::{Shutdown, TcpListener};
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::poll;
use quorate::backend::Vote;
use quorate::{BackendError, BackendErrorKind as Kind};
use quorate_tests::peer::{Answer, Heard, Peer};
use quorate_tests::wait::{until, within_limit};

use crate::calls::{acquire, acquire_in_the_end, claim, kind, release, server_id};
use crate::client::{
    CONNECT_TIMEOUT, Client, connected, current_thread, with_each, with_each_client,
};

/// Many more than travel in one pipeline.
const CALLS: usize = 1_000;

const REFUSES: Answer = Answer::Say(b"_\r\n");

/// A peer that says nothing from its first `SET` on, until the sender lets it go on.
fn hung(awake: impl Fn(&Heard) -> Answer + Send + Sync + 'static) -> (Peer, Sender<()>) {
    let (go, gate) = channel::<()>();
    let gate = Mutex::new(Some(gate));
    let peer = Peer::start(move |command| {
        if command.name() == "SET"
            && let Some(gate) = gate.lock().unwrap().take()
        {
            let _ = gate.recv();
        }
        awake(command)
    });
    (peer, go)
}

#[test]
fn a_node_that_is_down_says_why_and_is_sent_nothing_when_it_is_back() {
    with_each(&Client::WITH_POOL, async |client| {
        let address = Peer::nowhere();
        let node = client.connect_one(&format!("redis://:hunter2@{address}"));
        let claim = claim("r");
        for _ in 0..3 {
            let error = acquire(&node, &claim).await.unwrap_err();
            assert_eq!(error.kind(), Kind::Connection, "{client:?}: {error}");
            assert!(error.is_not_sent() && error.to_string().contains("refused"), "{error}");
            let source = error.source().expect("the error of the client");
            match client {
                Client::Fred => assert!(source.is::<quorate::fred::fred::error::Error>()),
                _ => assert!(source.is::<quorate::redis::redis::RedisError>()),
            }
            assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
        }
        let peer = Peer::start_at(address, |_| Answer::Usual);
        let released = async { while release(&node, &claim).await.is_err() {} };
        within_limit("a release", released).await;
        assert_eq!(peer.heard("SET"), 0, "{client:?}");
    });
}

/// The kernel makes connections that no process accepts.
#[test]
fn a_node_that_says_nothing_is_given_up_after_the_connect_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("redis://{}", listener.local_addr().unwrap());
    with_each(&Client::ALL, async |client| {
        for connect_timeout in [Duration::ZERO, Duration::from_millis(20)] {
            let nodes = connected!(client, [&*address], |it| it.connect_timeout(connect_timeout));
            let node = &nodes[0];
            let error = acquire(node, &claim("r")).await.unwrap_err();
            assert_eq!((error.kind(), error.is_not_sent()), (Kind::TimedOut, true), "{client:?}");
            let told = format!("no connection within {connect_timeout:?}");
            assert_eq!(error.to_string(), told, "{client:?}");
        }
    });
}

/// The end of the connection does not reset it: bytes that are sent after it arrive. fred takes such an end for
/// the replies to its questions.
#[test]
fn a_node_that_hangs_up_at_once_is_not_dialled_by_every_call() {
    with_each_client(|client| async move {
        let peer = Peer::raw(|stream| {
            stream.shutdown(Shutdown::Write)?;
            std::io::copy(&mut &*stream, &mut std::io::sink()).map(drop)
        });
        let node = client.connect_one(&peer.url());
        let attempts = async {
            loop {
                let before = peer.connections();
                let error = acquire(&node, &claim("r")).await.unwrap_err();
                assert_eq!((error.kind(), error.is_not_sent()), (Kind::Connection, true));
                if before > 0 && peer.connections() == before {
                    return;
                }
            }
        };
        within_limit("a call that dials nobody", attempts).await;
    });
}

#[test]
fn a_connection_that_ends_in_the_handshake_is_one_on_which_nothing_was_sent() {
    with_each_client(|client| async move {
        for last in ["HELLO", "SELECT", "EVAL"] {
            let peer = Peer::with_handshake(move |command| {
                if command.connection == 1 && command.name() == last {
                    Answer::HangUp
                } else {
                    Answer::Usual
                }
            });
            let node = client.connect_one(&format!("{}/3", peer.url()));
            let error = acquire(&node, &claim("r")).await.unwrap_err();
            assert_eq!(error.kind(), Kind::Connection, "{client:?}, {last}: {error}");
            assert!(error.is_not_sent(), "{client:?}, {last}");
            acquire_in_the_end(&node, &claim("r")).await;
        }
    });
}

/// The peer hears an acquire and is gone before it replies. Many times: a runtime polls the task of the client and
/// ours in any order.
#[test]
fn c6_an_acquire_whose_connection_ended_is_unknown_and_not_sent_again() {
    with_each_client(|client| async move {
        let peer = Peer::start(|command| match command.name() {
            "SET" => Answer::HangUp,
            _ => Answer::Usual,
        });
        let (node, claim) = (client.connect_one(&peer.url()), claim("r"));
        // So that the end is not the first thing that happens on the connection.
        assert_eq!(release(&node, &claim).await.unwrap(), Vote::Granted);
        for times in 1..=100 {
            let error = acquire(&node, &claim).await.unwrap_err();
            assert_eq!(error.kind(), Kind::Connection, "{client:?}: {error}");
            assert!(!error.is_not_sent());
            // On the next connection, behind anything that would have been sent again.
            assert_eq!(release(&node, &claim).await.unwrap(), Vote::Granted);
            assert_eq!((peer.heard("SET"), peer.connections()), (times, times + 1), "{client:?}");
        }
    });
}

#[test]
fn c6_nothing_that_was_in_flight_is_sent_again() {
    with_each_client(|client| async move {
        let (peer, go) = hung(|command| match command.name() {
            "SET" if command.connection == 1 => Answer::HangUp,
            _ => Answer::Usual,
        });
        let node = client.connect_one(&peer.url());
        server_id(&node).await.unwrap();
        let claims: Vec<_> = (0..CALLS).map(|_| claim("r")).collect();
        let mut calls = join_all(claims.iter().map(|claim| acquire(&node, claim)));
        assert!(poll!(&mut calls).is_pending());
        until("a command", || peer.heard("SET") > 0).await;
        go.send(()).unwrap();
        let errors: Vec<_> = calls.await.into_iter().filter_map(Result::err).collect();
        assert!(errors.iter().all(|error| error.kind() == Kind::Connection));
        let lost = errors.iter().filter(|error| !error.is_not_sent()).count();
        let granted = CALLS - errors.len();
        assert!(lost > 0 && peer.heard("SET") <= lost + granted, "{client:?}: {lost} are lost");
    });
}

#[test]
fn each_call_gets_its_own_reply_over_one_connection_when_a_hung_node_wakes() {
    with_each_client(|client| async move {
        let (peer, go) = hung(|command| match (command.name(), command.words[1].as_str()) {
            ("SET", "odd") => REFUSES,
            ("SET", "bad") => Answer::Say(b"-OOM no room\r\n"),
            _ => Answer::Usual,
        });
        let node = client.connect_one(&peer.url());
        let claims: Vec<_> = (0..CALLS).map(|n| claim(["even", "odd", "bad"][n % 3])).collect();
        let mut calls = join_all(claims.iter().map(|claim| acquire(&node, claim)));
        assert!(poll!(&mut calls).is_pending());
        go.send(()).unwrap();
        for (n, vote) in calls.await.into_iter().enumerate() {
            match n % 3 {
                0 => assert_eq!(vote.unwrap(), Vote::Granted),
                1 => assert_eq!(vote.unwrap(), Vote::Refused),
                _ => assert_eq!(kind(&vote), Some(Kind::OutOfMemory)),
            }
        }
        assert_eq!((peer.heard("SET"), peer.connections()), (CALLS, 1), "{client:?}");
    });
}

/// No clock of a client goes off in an hour. While it is paused, tokio's clock jumps.
/// Rule Q5.
#[test]
#[expect(clippy::disallowed_methods, reason = "the clock is paused")]
fn c6_a_hung_node_keeps_a_call_pending() {
    let tokio = current_thread();
    for client in Client::ALL {
        tokio.block_on(async {
            let (peer, go) = hung(|_| Answer::Usual);
            let node = connected!(client, [peer.url()], |it| it
                .connect_timeout(CONNECT_TIMEOUT)
                .reply_limit(Duration::MAX))
            .remove(0);
            server_id(&node).await.unwrap();
            let claim = claim("r");
            let mut call = Box::pin(acquire(&node, &claim));
            tokio::time::pause();
            let hour = Duration::from_secs(3_600);
            assert!(tokio::time::timeout(hour, &mut call).await.is_err(), "{client:?}");
            tokio::time::resume();
            go.send(()).unwrap();
            assert_eq!(call.await.unwrap(), Vote::Granted);
            assert_eq!(peer.connections(), 1);
        });
    }
}

/// A peer that replies so to an acquire.
fn replying(reply: Answer) -> Peer {
    Peer::start(move |command| if command.name() == "SET" { reply } else { Answer::Usual })
}

/// An error of the node costs no connection. After a reply that makes no sense, no reply can be trusted.
#[test]
fn q4_only_the_word_of_the_node_is_a_vote_and_every_other_reply_is_unknown_with_its_reason() {
    with_each_client(|client| async move {
        for (reply, expected) in [
            ("+OK\r\n", Ok(Vote::Granted)),
            ("$2\r\nOK\r\n", Ok(Vote::Granted)),
            ("_\r\n", Ok(Vote::Refused)),
            ("-READONLY You can't write against a replica.\r\n", Err(Kind::ReadOnly)),
            ("-LOADING Redis is loading the dataset in memory\r\n", Err(Kind::Loading)),
            ("-BUSY Redis is busy running a script.\r\n", Err(Kind::Loading)),
            ("-MISCONF Errors writing to the AOF file\r\n", Err(Kind::Misconfigured)),
            ("-OOM command not allowed\r\n", Err(Kind::OutOfMemory)),
            ("-NOAUTH Authentication required.\r\n", Err(Kind::Auth)),
            ("-NOPERM this user has no permissions\r\n", Err(Kind::Permission)),
            ("-WRONGTYPE Operation against a key\r\n", Err(Kind::WrongType)),
            ("-CLUSTERDOWN Hash slot not served\r\n", Err(Kind::Cluster)),
            ("-MOVED 1 127.0.0.1:7001\r\n", Err(Kind::Cluster)),
            ("-NOREPLICAS Not enough good replicas to write.\r\n", Err(Kind::Misconfigured)),
            ("-no healthy upstream\r\n", Err(Kind::Other)),
            // Some servers have no other way to say what they did not understand (A6).
            (
                "-ERR unknown command 'SET', with args beginning with: 'r', 't0ken'\r\n",
                Err(Kind::Script),
            ),
            ("*0\r\n", Err(Kind::Protocol)),
            ("+QUEUED\r\n", Err(Kind::Protocol)),
            (":1\r\n", Err(Kind::Protocol)),
            ("#t\r\n", Err(Kind::Protocol)),
            (",1.0\r\n", Err(Kind::Protocol)),
            ("nonsense\r\n", Err(Kind::Protocol)),
        ] {
            let place = format!("{client:?}, {reply:?}");
            let peer = replying(Answer::Say(reply.as_bytes()));
            let (node, claim) = (client.connect_one(&peer.url()), claim("r"));
            assert_eq!(release(&node, &claim).await.unwrap(), Vote::Granted);
            let voted = acquire(&node, &claim).await;
            // redis-rs ends a connection on which it cannot read.
            let is_unreadable = client == Client::Redis && reply == "nonsense\r\n";
            let expected = if is_unreadable { Err(Kind::Connection) } else { expected };
            assert_eq!(voted.as_ref().copied().map_err(BackendError::kind), expected, "{place}");
            assert_eq!(release(&node, &claim).await.unwrap(), Vote::Granted);
            // fred ends the connection after some errors.
            let is_kept =
                reply.starts_with('-') && (client, expected) != (Client::Fred, Err(Kind::Cluster));
            let connections = if is_kept || expected.is_ok() { 1..=1 } else { 1..=2 };
            assert_eq!(peer.heard("SET"), 1, "{place}");
            assert!(connections.contains(&peer.connections()), "{place}");
            let Err(error) = voted else { continue };
            assert!(!error.is_not_sent(), "{place}");
            assert!(!format!("{error} {error:?}").contains("t0ken"), "{place}: {error:?}");
            let said =
                reply.strip_prefix('-').map(str::trim_end).filter(|said| !said.contains("t0ken"));
            let said = said.filter(|_| error.kind() != Kind::WrongType);
            assert!(said.is_none_or(|said| error.to_string() == said), "{place}: {error}");
        }
        for beginning in [&b"+O"[..], b"$-", b"*2\r\n:1\r\n"] {
            let peer = replying(Answer::Begin(beginning));
            let error = acquire(&client.connect_one(&peer.url()), &claim("r")).await.unwrap_err();
            assert_eq!((error.kind(), error.is_not_sent()), (Kind::Connection, false));
        }
    });
}
