//! A connection that breaks while it is being made.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use quorate_core::runtime::{TokioRuntime, os_random};
use quorate_core::{
    BackendErrorKind, Claim, Key, LockBackend, LockError, LockManager, Resource, Token, Ttl,
};
use quorate_redis::{RedisBackend, redis};

/// The limit of every wait, and of every attempt to connect. Only a broken backend takes that long.
const LIMIT: Duration = Duration::from_secs(120);

fn connect(addresses: impl IntoIterator<Item = String>) -> Vec<RedisBackend> {
    quorate_redis::builder().connect_timeout(LIMIT).connect(addresses).unwrap()
}

/// The address of a node that closes its first connections, each behind its first answer to `CLIENT`:
/// that of Redis 7.0.15.
fn node(breaks: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let stream = stream.unwrap();
            thread::spawn(move || serve(stream, number < breaks));
        }
    });
    format!("redis://{address}")
}

fn manager(nodes: Vec<RedisBackend>) -> LockManager {
    let builder = LockManager::builder(TokioRuntime::new(), nodes).ttl(10 * LIMIT);
    builder.node_timeout(LIMIT).wait(LIMIT).build().unwrap()
}

/// Serves a connection to its end.
fn serve(mut stream: TcpStream, breaks: bool) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut number = |mark: char| -> Option<(usize, Vec<u8>)> {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let number: usize = line.trim().strip_prefix(mark)?.parse().ok()?;
        let mut text = vec![0; if mark == '$' { number + 2 } else { 0 }];
        reader.read_exact(&mut text).ok()?;
        text.truncate(number);
        Some((number, text))
    };
    loop {
        let (count, _) = number('*')?;
        let parts: Vec<Vec<u8>> =
            (0..count).map(|_| number('$').map(|(_, text)| text)).collect::<Option<_>>()?;
        let answer: &[u8] = match &*parts[0] {
            b"CLIENT" => b"-ERR unknown subcommand 'SETINFO'. Try CLIENT HELP.\r\n",
            b"INFO" => b"$10\r\nrun_id:abc\r\n",
            b"SET" => b"+OK\r\n",
            _ => b":1\r\n",
        };
        stream.write_all(answer).ok()?;
        if breaks && parts[0] == b"CLIENT" {
            return None;
        }
    }
}

fn claim() -> Claim {
    let key = Key::new(b"", &Resource::new("r").unwrap());
    let token = Token::draw(os_random).unwrap();
    Claim::new([key], token, Ttl::try_from(Duration::from_secs(10)).unwrap())
}

#[tokio::test]
async fn a_connection_that_breaks_during_the_login_is_a_lost_connection() {
    let node = connect([node(1)]).remove(0);
    let error = node.acquire(&claim()).await.unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Connection, "{error}");
}

/// The constructor cannot fail.
#[tokio::test]
async fn a_client_with_a_user_and_no_password_does_not_go_on_as_another_user() {
    let address = node(0).replace("redis://", "redis://ann@");
    let node = RedisBackend::new(redis::Client::open(address).unwrap());
    for _ in 0..2 {
        let error = node.acquire(&claim()).await.unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::Auth);
        assert_eq!(error.to_string(), "a user needs a password; any will do for nopass");
    }
}

/// As of Redis that is at `maxclients`, or in protected mode: its answer is there before a command.
#[tokio::test]
async fn a_node_that_turns_its_clients_away_is_one_that_may_be_full() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || listener.incoming().for_each(|stream| drop(stream.unwrap())));
    for place in ["", "ann:x@", ":x@"] {
        for database in ["", "/1"] {
            let url = format!("redis://{place}{address}{database}");
            let node = connect([url.clone()]).remove(0);
            let error = node.acquire(&claim()).await.unwrap_err();
            assert_eq!(error.kind(), BackendErrorKind::Connection);
            assert_eq!(
                error.to_string(),
                "the node closed the connection before it answered anything: it may be at \
                 maxclients, or in protected mode",
                "{url}"
            );
        }
    }
}

/// Else it would be taken for one that does not speak the protocol, and not be watched for a minute.
#[tokio::test]
async fn a_connection_that_breaks_in_the_middle_of_an_answer_is_a_lost_connection() {
    for part in [&b"$40\r\n0123456789"[..], b"$40", b":1", b"+O", b"-ERR no", b"*2\r\n:1\r\n$1"] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let _ = stream.read(&mut [0; 1024]).unwrap();
                stream.write_all(part).unwrap();
            }
        });
        let node = connect([format!("redis://{address}")]).remove(0);
        let error = node.acquire(&claim()).await.unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::Connection, "{error}");
        assert_eq!(error.to_string(), "the connection was lost in the middle of an answer");
    }
}

#[tokio::test]
async fn a4_a_connection_that_breaks_during_the_login_ends_no_wait() {
    let nodes = connect([node(1)]);
    let manager = manager(nodes);
    let _ = manager.lock("r").await.unwrap().release().await.unwrap();
}

/// They would be taken for nodes that cannot tell.
#[tokio::test]
async fn q6_one_server_is_found_out_though_its_first_connections_broke() {
    for breaks in [0, 1] {
        let nodes = connect([node(breaks), node(breaks)]);
        let manager = manager(nodes);
        let locked = manager.lock("r").await;
        assert!(matches!(locked, Err(LockError::SameServer { .. })), "{breaks}: {locked:?}");
    }
}

#[test]
fn a_runtime_without_a_timer_is_an_error_and_no_panic() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let node = RedisBackend::new(redis::Client::open("redis://127.0.0.1:1").unwrap());
    let error = runtime.block_on(node.acquire(&claim())).unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Connection, "{error}");
}
