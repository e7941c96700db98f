//! The wait queue on real nodes: the keys that it leaves, and what a user who may not keep it gets.

use std::time::Duration;

use quorate::backend::Entry;
use quorate::{BackendError, BackendErrorKind, Key, Resource};
use quorate_tests::RedisServer;
use quorate_tests::wait::until;

use crate::client::{unhurried, with_each_client};
use crate::watch::calls;

/// How long each key of a wait queue lives after the last refresh.
const TTL: Duration = Duration::from_secs(10);

fn key() -> Key {
    Key::new(b"", &Resource::new("r").unwrap())
}

fn entries() -> [Entry; 3] {
    ["a", "b", "c"].map(|name| Entry::new(name.as_bytes()))
}

#[test]
fn the_keys_of_a_wait_queue_expire_and_none_is_left_when_all_have_left() {
    with_each_client(|client| async move {
        let node = RedisServer::start();
        let backend = client.connect_one(&node.address());
        let mut before = None;
        for entry in entries() {
            let refreshed = backend.queue_refresh(&key(), &entry, &[key()]).await.unwrap();
            assert_eq!(refreshed.predecessor, before);
            before = Some(entry);
        }
        let keys = node.keys();
        assert_eq!(keys.len(), 5, "three entries, their order, and when they expire: {keys:?}");
        for key in keys {
            let left = node.pttl(&key);
            assert!(left > 0 && left <= TTL.as_millis() as i64, "{client:?}: {key}: {left}");
        }
        for (entry, still) in entries().iter().zip([true, true, false]) {
            assert_eq!(backend.queue_leave(&key(), entry, None).await.unwrap(), still);
        }
        assert_eq!(node.keys(), [""; 0]);
    });
}

#[test]
fn a_user_who_may_not_keep_a_queue_has_the_lock_all_the_same() {
    with_each_client(|client| async move {
        // The keys of the queue are `r:quorate:…`.
        let nodes: Vec<_> =
            (0..3).map(|_| RedisServer::builder().user("app", "on >pw ~r +@all").start()).collect();
        let addresses: Vec<_> = nodes.iter().map(|node| node.address_as("app", "pw")).collect();
        let backend = client.connect_one(&addresses[0]);
        let joined = backend.queue_refresh(&key(), &entries()[0], &[key()]).await;
        let kind = joined.as_ref().err().map(BackendError::kind);
        assert_eq!(kind, Some(BackendErrorKind::Permission), "{client:?}: {joined:?}");
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
