//! Watches: the second connection, its pushes and its end.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use quorate_core::backend::{AcquireOptions, CallReply, Entry, LockBackend, Operation, Vote};
use quorate_protocol::{Push, Value};
use tokio::time::{sleep, timeout};

use crate::calls::{
    TICK, TTL, acquire, asked, begin, claim, key, on, pair, runtime, watch, watching,
};

#[tokio::test(start_paused = true)]
async fn a_watch_is_registered_before_the_key_is_read() {
    let (fake, node) = pair();
    let _other = watch(&node, "other").await.unwrap();
    fake.hold(true);
    let mut asked = asked(&node, watching("k"));
    assert!((&mut asked).now_or_never().is_none());
    sleep(TICK).await;
    // The node has read the key, which then changes; the push overtakes the reply in the client.
    fake.push(Push::Key(b"k".to_vec()));
    fake.settle();
    assert!(matches!((&mut asked).await, Ok(CallReply::Watched(true))));
    timeout(TTL, asked.pushed()).await.expect("the push was missed");
}

#[tokio::test(start_paused = true)]
async fn there_is_one_connection_for_commands_and_one_for_watches() {
    let (fake, node) = on(|parts| (parts[1] == "free").then_some(Value::Nil));
    let keys = ["a", "b", "c", "d"];
    // All at once, while there is no connection yet.
    let watched = join_all(keys.map(|key| watch(&node, key))).await;
    assert_eq!(fake.connects(), 1);
    node.acquire(&claim(&["a"]), AcquireOptions::default()).await.unwrap();
    let clone = Arc::new((*node).clone());
    let _e = watch(&clone, "e").await.unwrap();
    assert!(!watch(&clone, "free").await.unwrap().0);
    assert_eq!(fake.connects(), 2, "a second watch connection was made though one is there");
    let entry = Entry::new(*b"e1");
    let watched_entry = Operation::Watch { key: key("k"), entry: Some(entry) };
    begin(&clone, watched_entry).await.unwrap();
    assert_eq!(fake.keys().last().unwrap(), "k:quorate:e1");
    drop(watched);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_connection_tells_every_watch() {
    // The client says that the connection has ended, or does not.
    for is_silent in [false, true] {
        let (fake, node) = pair();
        let mut changed = Vec::new();
        for name in ["a", "b"] {
            changed.push(Box::pin(watch(&node, name).await.unwrap().1.pushed()));
        }
        assert!(changed.iter_mut().all(|one| one.now_or_never().is_none()));
        if is_silent {
            fake.end_silently()
        } else {
            fake.end_after(0)
        }
        timeout(TTL, join_all(changed)).await.expect("no push can come");
        // The next watch makes a new connection.
        assert!(watch(&node, "a").await.unwrap().0);
        assert_eq!(fake.connects(), 2);
    }
}

#[test]
fn the_end_of_the_runtime_tells_every_watch() {
    let (one, other) = (runtime(), runtime());
    let (_, node) = one.block_on(async { pair() });
    let watched = one.block_on(async { watch(&node, "a").await.unwrap() });
    drop(one);
    other.block_on(async { timeout(TTL, watched.1.pushed()).await }).expect("no push can come");
}

#[tokio::test(start_paused = true)]
async fn a_watch_connection_is_closed_when_nobody_waits() {
    const MINUTE: Duration = Duration::from_secs(60);
    let (fake, node) = pair();
    let watched = watch(&node, "k").await.unwrap();
    sleep(3 * MINUTE).await;
    assert!(fake.is_connected(), "there is a watch");
    drop(watched);
    sleep(MINUTE / 2).await;
    assert!(fake.is_connected());
    sleep(MINUTE).await;
    assert!(!fake.is_connected());
    assert!(watch(&node, "k").await.unwrap().0);
    assert_eq!(fake.connects(), 2);
}

#[tokio::test(start_paused = true)]
async fn both_connections_of_a_node_that_is_dropped_are_closed() {
    let (fake, node) = pair();
    assert!(begin(&node, acquire("k")).await.is_ok());
    drop(watch(&node, "k").await.unwrap());
    assert_eq!((fake.connects(), fake.is_connected()), (2, true));
    drop(node);
    sleep(TICK).await;
    assert!(!fake.is_connected());
}

/// Without RESP3 the server would accept client tracking all the same, and push nothing.
#[tokio::test(start_paused = true)]
async fn a_server_or_a_connection_without_pushes_watches_nothing() {
    let (refusing, other) = on(|parts| {
        let error = "ERR Client tracking can be enabled only with RESP3";
        (parts[0] == "CLIENT").then(|| Value::Error(error.into()))
    });
    let (fake, node) = pair();
    fake.set(|state| state.is_resp2 = true);
    for node in [&other, &node] {
        let error = watch(node, "k").await.unwrap_err();
        assert!(error.is_not_sent() && error.to_string().contains("RESP3"), "{error}");
        assert!(error.is_lack(), "so that a waiter asks the gate again and again");
    }
    assert!(refusing.keys().iter().all(|key| key != "k"));
    let acquired = node.acquire(&claim(&["k"]), AcquireOptions::default()).await.unwrap();
    assert_eq!(acquired.vote, Vote::Granted);
}
