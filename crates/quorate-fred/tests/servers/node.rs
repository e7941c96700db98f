//! Logins, hung servers, watches, and a cluster of one.

use futures_util::future::join_all;
use futures_util::poll;
use quorate_core::backend::{AcquireOptions, LockBackend, ReleaseOptions};
use quorate_core::{BackendErrorKind, FenceHint, Vote};
use quorate_tests::RedisServer;
use quorate_tests::wait::{until, within_limit};

use crate::{claim, key, node_at};

#[tokio::test]
async fn a_user_of_one_database_logs_in() {
    let server = RedisServer::builder().user("ann", "on >pa/ss ~* +@all").start();
    let address = format!("redis://ann:pa%2Fss@127.0.0.1:{}/3", server.port());
    let (node, claim) = (node_at(&address), claim("k"));
    assert_eq!(node.name(), format!("127.0.0.1:{}/3", server.port()));
    let acquired = node.acquire(&claim, AcquireOptions::default()).await.unwrap();
    assert_eq!(acquired.vote, Vote::Granted);
    assert!(node.watch(&key("k"), None).await.unwrap().is_held());
    assert!(server.info("db3").starts_with("keys=1,"));

    let address = format!("redis://ann:hunter2@127.0.0.1:{}", server.port());
    let node = node_at(&address);
    let error = node.acquire(&claim, AcquireOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Auth, "{error}");
    assert!(error.is_not_sent() && !format!("{node:?} {error:?}").contains("hunter2"));
}

#[cfg(feature = "unix-sockets")]
#[tokio::test]
async fn a_unix_socket_is_a_node() {
    let server = RedisServer::builder().unix_socket().start();
    let node = node_at(&server.address());
    let acquired = node.acquire(&claim("k"), AcquireOptions::default()).await.unwrap();
    assert_eq!(acquired.vote, Vote::Granted);
    assert_eq!(server.keys(), ["k"]);
}

/// The release behind an acquire on a stopped server has left, too: no key stays when it goes on (C3).
#[tokio::test]
async fn c3_a_server_that_was_stopped_executes_an_acquire_and_then_its_release() {
    let server = RedisServer::start();
    let node = node_at(&server.address());
    node.server_id().await.unwrap();
    server.pause();
    let claims: Vec<_> = (0..50).map(|number| claim(&number.to_string())).collect();
    let acquires = claims.iter().map(|claim| node.acquire(claim, AcquireOptions::default()));
    let mut acquires = join_all(acquires);
    assert!(poll!(&mut acquires).is_pending());
    let releases = claims.iter().map(|claim| node.release(claim, ReleaseOptions::default()));
    let mut releases = join_all(releases);
    assert!(poll!(&mut releases).is_pending());
    server.resume();
    for acquired in within_limit("the acquires", acquires).await {
        assert_eq!(acquired.unwrap().vote, Vote::Granted);
    }
    for released in within_limit("the releases", releases).await {
        assert_eq!(released.unwrap().vote, Vote::Granted);
    }
    assert!(server.keys().is_empty());
}

/// fred keeps the last 32 pushes. A key that is absent is not read again.
#[tokio::test]
async fn more_changes_at_once_than_fred_keeps_wake_every_watch() {
    let server = RedisServer::start();
    let node = node_at(&server.address());
    let names: Vec<String> = (0..300).map(|number| format!("k{number}")).collect();
    let mut changed = Vec::new();
    for name in &names {
        let watched = node.watch(&key(name), None).await.unwrap();
        assert!(!watched.is_held());
        changed.push(watched.changed());
    }
    let pairs = names.iter().flat_map(|name| [name, "x"]);
    let words: Vec<&str> = ["MSET"].into_iter().chain(pairs).collect();
    assert_eq!(server.cli(&words).error(), None);
    within_limit("the end of every watch", join_all(changed)).await;
}

#[tokio::test]
async fn a_watch_ends_with_a_flush_and_with_its_server() {
    let server = RedisServer::start();
    let node = node_at(&server.address());
    server.set("k", "x");
    let watched = node.watch(&key("k"), None).await.unwrap();
    server.flushall();
    within_limit("the end of the watch", watched.changed()).await;
    let watched = node.watch(&key("k"), None).await.unwrap();
    assert!(!watched.is_held());
    server.kill();
    within_limit("the end of the watch", watched.changed()).await;
}

#[tokio::test]
async fn a_server_that_lets_nobody_in_says_so() {
    let server = RedisServer::builder().config("maxclients", &["1"]).start();
    let _only = server.connect();
    let node = node_at(&server.address());
    let error = node.acquire(&claim("k"), AcquireOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Connection, "{error}");
    assert!(error.is_not_sent(), "{error}");
}

#[tokio::test]
async fn fenced_on_a_cluster_of_one_says_why() {
    let server = RedisServer::builder().config("cluster-enabled", &["yes"]).start();
    let node = node_at(&server.address());
    let claim = claim("k");
    // It serves no slots yet. fred ends the connection after this reply.
    let error = node.acquire(&claim, AcquireOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Cluster, "{error}");
    assert!(error.to_string().starts_with("CLUSTERDOWN"), "{error}");

    let slots: Vec<String> = (0..16_384).map(|slot| slot.to_string()).collect();
    let words = ["CLUSTER", "ADDSLOTS"].into_iter().chain(slots.iter().map(String::as_str));
    assert_eq!(server.cli(&words.collect::<Vec<_>>()).error(), None);
    until("a cluster", || server.cli(&["CLUSTER", "INFO"]).text().starts_with("cluster_state:ok"))
        .await;
    let mut options = AcquireOptions::default();
    let acquired = node.acquire(&claim, options).await.unwrap();
    assert_eq!(acquired.vote, Vote::Granted);
    options.fencing = FenceHint::new(1);
    let error = node.acquire(&claim, options).await.unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::CrossSlot, "{error}");
    assert!(error.to_string().contains("without a fencing token"), "{error}");
    let released = node.release(&claim, ReleaseOptions::default()).await.unwrap();
    assert_eq!(released.vote, Vote::Granted);
}
