//! The queue of waiters on real nodes: what it leaves there, and who may keep it.

use std::sync::Arc;

use quorate::{BackendError, BackendErrorKind, Key, LockBackend, Place, Queue, Resource};
use quorate_core::runtime::os_random;
use quorate_tests::RedisServer;
use quorate_tests::wait::until;

use crate::client::{Client, unhurried, with_each_client};
use crate::watch::calls;

fn one(client: Client, address: &str) -> Arc<dyn LockBackend> {
    client.connect(&[address.to_owned()]).remove(0)
}

fn queue(backend: &Arc<dyn LockBackend>) -> &dyn Queue {
    backend.queue().expect("it keeps waiters in order")
}

fn key() -> Key {
    Key::new(b"", &Resource::new("r").unwrap())
}

fn place() -> Place {
    Place::draw(os_random).unwrap()
}

#[test]
fn places_end_by_themselves_and_none_is_left_when_all_have_left() {
    with_each_client(|client| async move {
        let node = RedisServer::start();
        let backend = one(client, &node.address());
        let places = [place(), place(), place()];
        let mut before = None;
        for place in &places {
            assert_eq!(queue(&backend).join(&key(), place).await.unwrap(), before);
            before = Some(place.clone());
        }
        let keys = node.keys();
        assert_eq!(keys.len(), 4, "three places, and which is the last");
        for key in keys {
            let left = node.pttl(&key);
            assert!(left > 0 && left <= Place::TTL.as_millis() as i64, "{client:?}: {left}");
        }
        for place in &places {
            queue(&backend).leave(&key(), place, None).await.unwrap();
        }
        assert_eq!(node.keys(), [""; 0]);
    });
}

#[test]
fn who_may_not_keep_places_is_told_so_and_has_the_lock_all_the_same() {
    with_each_client(|client| async move {
        let nodes: Vec<_> = (0..3)
            .map(|_| RedisServer::builder().user("app", "on >pw ~r* +@all").start())
            .collect();
        let addresses: Vec<_> = nodes.iter().map(|node| node.address_as("app", "pw")).collect();
        let joined = queue(&one(client, &addresses[0])).join(&key(), &place()).await;
        let kind = joined.as_ref().err().map(BackendError::kind);
        assert_eq!(kind, Some(BackendErrorKind::Permission), "{client:?}: {joined:?}");
        let manager = || {
            let nodes = client.connect(&addresses);
            unhurried(nodes).build().unwrap()
        };
        let (ours, theirs) = (manager(), manager());
        let held = ours.lock("r").await.unwrap();
        let waits = tokio::spawn(async move { theirs.lock("r").await });
        // Somebody else's key is looked at before it is refused.
        let looked_at = || nodes.iter().map(|node| calls(node, "get")).sum::<u64>() >= 2;
        until("two looks at the lock", looked_at).await;
        let _ = held.release().await.unwrap();
        let _ = waits.await.unwrap().unwrap().release().await.unwrap();
    });
}
