//! The wait queue on real nodes: the keys that it leaves, and what a user who may not keep it gets.

use futures_util::future::join_all;
use quorate::BackendErrorKind;
use quorate::backend::{Choice, Entry};
use quorate_tests::wait::{times, until, within_limit};
use quorate_tests::{Nodes, RedisServer};

use crate::calls::{key, kind};
use crate::client::{Client, calls, close, unhurried, with_each, with_each_client};

/// How long each key of a wait queue lives after the last refresh.
const TTL: i64 = 10_000;

#[test]
fn the_keys_of_a_wait_queue_expire() {
    with_each_client(|client| async move {
        let node = RedisServer::start();
        let backend = client.connect_one(&node.address());
        for name in ["a", "b", "c"] {
            let entry = Entry::new(name.as_bytes());
            backend.queue_refresh(&key("r"), &entry, &[key("r")], Choice::All).await.unwrap();
        }
        let keys = node.keys();
        assert_eq!(keys.len(), 5, "three entries, their order, and when they expire: {keys:?}");
        let lives = |key| (1..=TTL).contains(&node.pttl(key));
        assert!(keys.iter().all(lives), "{client:?}: {keys:?}");
    });
}

#[test]
fn a_user_who_may_not_keep_a_queue_has_the_lock_all_the_same() {
    with_each_client(|client| async move {
        // The keys of the queue are `r:quorate:…`.
        let user = RedisServer::builder().user("app", "on >pw ~r +@all");
        let nodes = Nodes::start_with(3, &user);
        let addresses: Vec<_> = nodes.iter().map(|node| node.address_as("app", "pw")).collect();
        let backend = client.connect_one(&addresses[0]);
        let joined =
            backend.queue_refresh(&key("r"), &Entry::new(*b"a"), &[key("r")], Choice::All).await;
        assert_eq!(kind(&joined), Some(BackendErrorKind::Permission), "{client:?}: {joined:?}");
        let manager = || unhurried(client.connect(&addresses)).build().unwrap();
        let (ours, theirs) = (manager(), manager());
        let held = ours.lock("r").await.unwrap();
        let acquires = || nodes.iter().map(|node| calls(node, "set")).sum::<u64>();
        let before = acquires();
        let waits = tokio::spawn(async move { theirs.lock("r").await });
        until("a refused attempt", || acquires() > before + 2).await;
        held.release().await.unwrap();
        waits.await.unwrap().unwrap().release().await.unwrap();
    });
}

/// Tasks of one process want one lock at once.
#[test]
fn two_thousand_waiters_each_get_the_lock() {
    with_each(&Client::ALL, async |client| {
        let nodes = Nodes::start(3);
        let manager = client.manager(&nodes);
        let waiting = (0..times(300, 2_000)).map(|_| {
            let manager = manager.clone();
            tokio::spawn(async move { manager.lock("r").await.unwrap().release().await })
        });
        for waited in within_limit("all of them", join_all(waiting)).await {
            waited.unwrap().unwrap();
        }
        close(&manager, &nodes).await;
    });
}
