//! Watches: the second connection, what is pushed, and when it ends.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use quorate_core::backend::{AcquireOptions, Entry, LockBackend, Vote};
use quorate_protocol::{Push, Value};
use tokio::time::{sleep, timeout};

use crate::calls::{TICK, TTL, claim, key, node};
use crate::fake::{Fake, granting};

#[tokio::test(start_paused = true)]
async fn a_watch_is_registered_before_the_key_is_read() {
    let fake = Fake::new();
    let node = node(&fake);
    let _other = node.watch(&key("other"), None).await.unwrap();
    fake.hold();
    let lock = key("k");
    let mut watch = node.watch(&lock, None);
    assert!(watch.as_mut().now_or_never().is_none());
    sleep(TICK).await;
    // The node has read the key, which then changes; the push overtakes the reply in the client.
    fake.push(Push::Key(b"k".to_vec()));
    fake.settle();
    let watched = watch.await.unwrap();
    assert!(watched.is_held());
    timeout(TTL, watched.changed()).await.expect("the push was missed");
}

#[tokio::test(start_paused = true)]
async fn a_push_is_about_its_key_or_about_all() {
    let fake = Fake::new();
    let node = node(&fake);
    for (push, told) in [
        (Push::Key(b"a".to_vec()), [true, false]),
        (Push::AllKeys, [true, true]),
        (Push::ConnectionLost, [true, true]),
    ] {
        let mut changed = Vec::new();
        for name in ["a", "b"] {
            changed.push(Box::pin(node.watch(&key(name), None).await.unwrap().changed()));
        }
        fake.push(push.clone());
        let is_told = changed.iter_mut().map(|changed| changed.now_or_never().is_some());
        assert_eq!(is_told.collect::<Vec<_>>(), told, "{push:?}");
    }
}

/// A client that does not pass on the push of a flush would leave a waiter asleep.
#[tokio::test(start_paused = true)]
async fn a_flush_that_is_not_pushed_ends_a_watch_all_the_same() {
    for pushes_flushes in [true, false] {
        let fake = Fake::new();
        if !pushes_flushes {
            fake.miss_flushes();
        }
        let node = node(&fake);
        for _ in 0..3 {
            let changed = node.watch(&key("k"), None).await.unwrap().changed();
            let told = timeout(Duration::from_secs(3), changed).await;
            assert_eq!(told.is_err(), pushes_flushes);
        }
        assert_eq!(fake.connects(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn there_is_one_connection_for_commands_and_one_for_watches() {
    let fake = Fake::with(|parts| match parts[1].as_str() {
        "free" => Value::Nil,
        _ => granting(parts),
    });
    let node = node(&fake);
    let keys = ["a", "b", "c", "d"].map(key);
    // All at once, while there is no connection yet.
    let watched = join_all(keys.iter().map(|key| node.watch(key, None))).await;
    assert_eq!(fake.connects(), 1);
    node.acquire(&claim(&["a"]), AcquireOptions::default()).await.unwrap();
    let clone = (*node).clone();
    let _e = clone.watch(&key("e"), None).await.unwrap();
    assert!(!clone.watch(&key("free"), None).await.unwrap().is_held());
    assert_eq!(fake.connects(), 2, "a second watch connection was made though one is there");
    let entry = Entry::new(*b"e1");
    let _entry = clone.watch(&key("k"), Some(&entry)).await.unwrap();
    assert_eq!(fake.keys().last().unwrap(), "k:quorate:e1");
    drop(watched);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_connection_tells_every_watch() {
    let fake = Fake::new();
    let node = node(&fake);
    let mut changed = Vec::new();
    for name in ["a", "b"] {
        changed.push(Box::pin(node.watch(&key(name), None).await.unwrap().changed()));
    }
    for one in &mut changed {
        assert!(one.now_or_never().is_none());
    }
    fake.end_after(0);
    join_all(changed).await;
    // The next watch makes a new connection.
    assert!(node.watch(&key("a"), None).await.unwrap().is_held());
    assert_eq!(fake.connects(), 2);
}

/// The client does not say that the connection has ended.
#[tokio::test(start_paused = true)]
async fn the_silent_end_of_the_connection_tells_every_watch() {
    let fake = Fake::new();
    let node = node(&fake);
    let changed = node.watch(&key("a"), None).await.unwrap().changed();
    fake.end_silently();
    timeout(TTL, changed).await.expect("no push can come");
}

#[test]
fn the_end_of_the_runtime_tells_every_watch() {
    let build = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().start_paused(true).build().unwrap()
    };
    let (one, other) = (build(), build());
    let node = one.block_on(async { node(&Fake::new()) });
    let watched = one.block_on(async { node.watch(&key("a"), None).await.unwrap() });
    drop(one);
    other.block_on(async { timeout(TTL, watched.changed()).await }).expect("no push can come");
}

#[tokio::test(start_paused = true)]
async fn a_watch_connection_is_closed_when_nobody_waits() {
    const MINUTE: Duration = Duration::from_secs(60);
    let fake = Fake::new();
    let node = node(&fake);
    let watched = node.watch(&key("k"), None).await.unwrap();
    sleep(3 * MINUTE).await;
    assert!(fake.is_connected(), "there is a watch");
    drop(watched);
    sleep(MINUTE / 2).await;
    assert!(fake.is_connected());
    sleep(MINUTE).await;
    assert!(!fake.is_connected());
    assert!(node.watch(&key("k"), None).await.unwrap().is_held());
    assert_eq!(fake.connects(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_track_keys_says_so() {
    let fake = Fake::with_setup(|parts| match parts[0].as_str() {
        "CLIENT" => Value::Error("ERR Client tracking can be enabled only with RESP3".into()),
        _ => granting(parts),
    });
    let error = node(&fake).watch(&key("k"), None).await.unwrap_err();
    assert!(error.is_not_sent() && error.to_string().contains("RESP3"), "{error}");
    assert!(fake.keys().iter().all(|key| key != "k"));
}

/// The server would accept client tracking all the same, and push nothing.
#[tokio::test(start_paused = true)]
async fn a_connection_without_pushes_watches_nothing() {
    let fake = Fake::new();
    fake.use_resp2();
    let node = node(&fake);
    let error = node.watch(&key("k"), None).await.unwrap_err();
    assert!(error.is_not_sent() && error.to_string().contains("RESP3"), "{error}");
    let acquired = node.acquire(&claim(&["k"]), AcquireOptions::default()).await.unwrap();
    assert_eq!(acquired.vote, Vote::Granted);
}
