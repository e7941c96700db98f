//! Watches on a real server.

use quorate_core::backend::Watched;
use quorate_core::{BackendErrorKind, Vote};
use quorate_redis::RedisNode;
use quorate_tests::RedisServer;
use quorate_tests::wait::within_limit;

use crate::calls::{LockBackend, acquire, claim, key, one, release};

async fn watched(node: &RedisNode) -> Watched {
    let watched = node.watch(&key("r"), None).await.unwrap();
    assert!(watched.is_held());
    watched
}

#[tokio::test]
async fn a_watch_ends_when_its_key_changes_or_its_connection_ends() {
    let server = RedisServer::start();
    let (node, claim) = (one(&server.address()), claim("r"));
    assert!(!node.watch(&key("r"), None).await.unwrap().is_held());
    let changes: [&[&str]; 4] = [
        &["DEL", "r"],
        &["PEXPIRE", "r", "0"],
        &["FLUSHALL"],
        // The connection with client tracking is among them.
        &["CLIENT", "KILL", "TYPE", "normal"],
    ];
    for change in changes {
        while acquire(&node, &claim).await.ok() != Some(Vote::Granted) {
            server.cli(&["DEL", "r"]);
        }
        let watched = watched(&node).await;
        let change = server.cli(change);
        assert_eq!(change.error(), None);
        within_limit("a push", watched.changed()).await;
    }
    server.flushall();
    while acquire(&node, &claim).await.ok() != Some(Vote::Granted) {}
    let seen = watched(&node).await;
    assert_eq!(release(&node, &claim).await.unwrap(), Vote::Granted);
    within_limit("a push", seen.changed()).await;
    assert_eq!(acquire(&node, &claim).await.unwrap(), Vote::Granted);
    let seen = watched(&node).await;
    server.kill();
    within_limit("the end of the connection", seen.changed()).await;
}

#[tokio::test]
async fn a_user_who_may_not_watch_can_lock() {
    for rules in ["-client|tracking", "-client"] {
        let rules = format!("on >pw ~* +@all {rules}");
        let server = RedisServer::builder().user("app", &rules).start();
        let node = one(&server.address_as("app", "pw"));
        let error = node.watch(&key("r"), None).await.unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::Permission, "{error}");
        assert_eq!(acquire(&node, &claim("r")).await.unwrap(), Vote::Granted);
    }
}

/// The server would accept the watch, and push nothing.
#[tokio::test]
async fn a_server_without_resp3_watches_nothing_and_says_so() {
    let server = RedisServer::builder().config("rename-command", &["HELLO", ""]).start();
    let node = one(&server.address());
    let error = node.watch(&key("r"), None).await.unwrap_err();
    assert!(error.is_not_sent() && error.to_string().contains("RESP3"), "{error}");
    assert_eq!(acquire(&node, &claim("r")).await.unwrap(), Vote::Granted);
}
