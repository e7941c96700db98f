//! Real servers: logins, permissions, states of a server, TLS.

use std::fs;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

use quorate_core::{BackendError, BackendErrorKind as Kind, Vote};
use quorate_protocol::{Command, Connection as _, Dial, Push, Value};
use quorate_redis::RedisDial;
use quorate_redis::redis::{Client, TlsCertificates};
use quorate_tests::wait::until;
use quorate_tests::{RedisServer, TEST_CA};

use crate::calls::{acquire, acquire_in_the_end, block_on, claim, one, release};

/// The error of the first acquire, which sets nothing.
fn refusal(address: &str) -> BackendError {
    block_on(acquire(&one(address), &claim("r"))).unwrap_err()
}

/// Whether a lock is acquired and released.
fn locks(address: &str) {
    let (node, claim) = (one(address), claim("r"));
    assert_eq!(block_on(acquire(&node, &claim)).unwrap(), Vote::Granted, "{address}");
    assert_eq!(block_on(release(&node, &claim)).unwrap(), Vote::Granted, "{address}");
}

#[test]
fn a_wrong_password_is_told_without_the_password() {
    let server = RedisServer::builder().password("right").start();
    for login in [":wr0ng-secret@", "nobody:wr0ng-secret@", ""] {
        let error = refusal(&format!("redis://{login}127.0.0.1:{}", server.port()));
        assert_eq!(error.kind(), Kind::Auth, "{error}");
        assert!(error.is_not_sent() && !format!("{error} {error:?}").contains("wr0ng"));
    }
    locks(&server.address_as("default", "right"));
}

#[test]
fn a_user_and_a_database_of_the_address_are_used() {
    let server = RedisServer::builder().user("app", "on >pw ~r +@all").start();
    let address = server.address_as("app", "pw");
    locks(&address);
    let node = one(&format!("{address}/3"));
    assert_eq!(block_on(acquire(&node, &claim("r"))).unwrap(), Vote::Granted);
    assert!(server.keys().is_empty());
    assert!(server.info("db3").starts_with("keys=1,"));
    let error = block_on(acquire(&node, &claim("forbidden"))).unwrap_err();
    assert_eq!(error.kind(), Kind::Permission, "{error}");
    // The server itself says what is wrong.
    let error = refusal(&format!("{address}/999"));
    assert!(error.is_not_sent() && error.to_string().contains("out of range"), "{error}");
    let server = RedisServer::builder().user("app", "on >pw ~r +@all -select").start();
    let error = refusal(&format!("{}/3", server.address_as("app", "pw")));
    assert!(error.is_not_sent() && error.kind() == Kind::Permission, "{error}");
}

#[test]
fn a_unix_socket_is_reached() {
    locks(&RedisServer::builder().unix_socket().start().address());
    let error = refusal("redis+unix:///there/is/none");
    assert_eq!(error.kind(), Kind::Connection, "{error}");
}

/// A lock that was granted there would stay for its ttl.
#[test]
fn a_node_without_scripts_grants_nothing_it_cannot_release() {
    let neither = RedisServer::builder().without_compare_and_delete();
    let forbidden = neither.clone().user("app", "on >pw ~* +@all -@scripting").start();
    let neither = neither.config("rename-command", &["EVALSHA", ""]);
    let renamed = neither.config("rename-command", &["EVAL", ""]).start();
    for (server, address, kind) in [
        (&forbidden, forbidden.address_as("app", "pw"), Kind::Permission),
        (&renamed, renamed.address(), Kind::Script),
    ] {
        let node = one(&address);
        for _ in 0..3 {
            let error = block_on(acquire(&node, &claim("r"))).unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.is_not_sent() && error.kind().is_permanent());
            assert!(error.to_string().to_lowercase().contains("'eval'"), "{error}");
        }
        assert_eq!(server.keys(), [""; 0]);
    }
    // A permission that was granted is noticed.
    assert_eq!(forbidden.cli(&["ACL", "SETUSER", "app", "+@scripting"]).text(), "OK");
    locks(&forbidden.address_as("app", "pw"));
}

#[test]
fn the_state_of_a_server_is_told() {
    let primary = RedisServer::start();
    let replica = RedisServer::builder().replica_of(&primary).start();
    assert_eq!(refusal(&replica.address()).kind(), Kind::ReadOnly);
    let full = RedisServer::builder().max_memory(1).start();
    assert_eq!(refusal(&full.address()).kind(), Kind::OutOfMemory);
    // The connection of the harness is the one that may be there.
    let crowded = RedisServer::builder().config("maxclients", &["1"]).start();
    let _only = crowded.connect();
    let error = refusal(&crowded.address());
    assert_eq!(error.kind(), Kind::Connection, "{error}");
    assert!(error.to_string().contains("max"), "{error}");
}

/// As of a server older than 6, or a proxy.
#[test]
fn a_server_without_resp3_can_be_locked_on() {
    let server = RedisServer::builder().config("rename-command", &["HELLO", ""]);
    locks(&server.clone().start().address());
    let server = server.password("right").start();
    locks(&server.address_as("default", "right"));
    let error = refusal(&server.address_as("default", "wr0ng"));
    assert_eq!(error.kind(), Kind::Auth, "{error}");
    assert!(!format!("{error:?}").contains("wr0ng"));
}

#[test]
fn a_node_that_comes_back_votes_again() {
    let server = RedisServer::start();
    let node = one(&server.address());
    block_on(acquire_in_the_end(&node, &claim("r")));
    server.kill();
    assert!(block_on(acquire(&node, &claim("r"))).is_err());
    server.restart();
    block_on(acquire_in_the_end(&node, &claim("r")));
}

#[test]
fn c3_a_node_that_hung_executes_what_was_sent_in_order() {
    let server = RedisServer::start();
    let node = one(&server.address());
    let (first, claim) = (claim("first"), claim("r"));
    assert_eq!(block_on(acquire(&node, &first)).unwrap(), Vote::Granted);
    server.pause();
    let mut acquired = pin!(acquire(&node, &claim));
    let mut released = pin!(release(&node, &claim));
    let mut context = Context::from_waker(Waker::noop());
    assert!(acquired.as_mut().poll(&mut context).is_pending());
    assert!(released.as_mut().poll(&mut context).is_pending());
    server.resume();
    assert_eq!(block_on(acquired).unwrap(), Vote::Granted);
    assert_eq!(block_on(released).unwrap(), Vote::Granted);
    assert_eq!(server.keys(), ["first"]);
}

/// So a restart while the node was idle costs no call.
#[tokio::test]
async fn the_end_of_an_idle_connection_is_noticed() {
    let server = RedisServer::start();
    let dial = RedisDial::new(server.address()).unwrap();
    let pushed = Arc::<Mutex<Vec<Push>>>::default();
    let heard = Arc::clone(&pushed);
    let push = move |push| heard.lock().unwrap().push(push);
    let connection = Dial::connect(&dial, push).await.unwrap();
    let ping = || vec![Command::new("PING", 0)];
    assert!(matches!(connection.send(ping()).await[..], [Ok(Value::Text(_))]));
    assert!(!connection.is_closed() && pushed.lock().unwrap().is_empty());
    server.kill();
    until("the end of the connection", || connection.is_closed()).await;
    until("the push", || *pushed.lock().unwrap() == [Push::ConnectionLost]).await;
    let error = connection.send(ping()).await.remove(0).unwrap_err();
    assert!(error.is_not_sent());
}

#[test]
fn a_lock_is_acquired_over_tls() {
    let server = RedisServer::builder().tls().start();
    let root_cert = Some(fs::read(TEST_CA).unwrap());
    let certificates = TlsCertificates { client_tls: None, root_cert };
    let client = Client::build_with_tls(server.tls_address(), certificates).unwrap();
    let builder = quorate_redis::builder().connect_timeout(crate::calls::LIMIT);
    let node = builder.connect([client]).unwrap().remove(0);
    let claim = claim("r");
    assert_eq!(block_on(acquire(&node, &claim)).unwrap(), Vote::Granted);
    assert_eq!(block_on(release(&node, &claim)).unwrap(), Vote::Granted);
    // No client trusts its authority otherwise.
    let error = refusal(&server.tls_address());
    assert!(error.is_not_sent() && error.kind() == Kind::Connection, "{error}");
    assert!(error.to_string().to_lowercase().contains("certificate"), "{error}");
}
