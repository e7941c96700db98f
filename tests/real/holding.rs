//! Leases that are renewed on real nodes while these fail one after the other.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use quorate_tests::wait::{LIMIT, eventually, times};
use quorate_tests::{Nodes, RedisServer};
use tokio::sync::watch;

use crate::client::{Client, assert_clean, calls, close, on_tokio};

/// One is kept alive by its guard, the other by `with`.
const LOCKS: [&str; 2] = ["kept", "worked"];

/// Both clients at once, as most of it is waiting. The rival is a manager over the other client.
#[test]
fn leases_last_while_nodes_fail_one_by_one_and_no_rival_gets_the_lock() {
    thread::scope(|scope| {
        scope.spawn(|| on_tokio(outlast(Client::Redis, Client::Fred)));
        scope.spawn(|| on_tokio(outlast(Client::Fred, Client::Redis)));
    });
}

async fn outlast(client: Client, rival: Client) {
    let nodes = Arc::new(Nodes::start(5));
    let rival = rival.manager(&nodes);
    let builder = client.builder(&nodes).renew_interval(Duration::from_millis(20));
    let manager = builder.build().unwrap();
    let kept = manager.lock(LOCKS[0]).await.unwrap();
    kept.auto_renew();
    let (stop, mut stopped) = watch::channel(());
    let mut work = stopped.clone();
    let work = manager.with(LOCKS[1], async move |_| work.changed().await.is_err());
    let work = tokio::spawn(work);
    let tokens = LOCKS.map(|lock| token_on_all(&nodes, lock));
    let waits = LOCKS.map(|lock| tokio::spawn(rival.lock(lock).timeout(10 * LIMIT).into_future()));
    let failing = Arc::clone(&nodes);
    let failing = tokio::task::spawn_blocking(move || {
        fail_one_by_one(&failing, &tokens);
        assert!(waits.iter().all(|wait| !wait.is_finished()), "a rival had a lock");
        drop(stop);
        waits
    });
    kept.run(async { stopped.changed().await }).await.unwrap().unwrap_err();
    assert!(work.await.unwrap().unwrap(), "{client:?}: the body ran to its end");
    kept.release().await.unwrap();
    for wait in failing.await.unwrap() {
        wait.await.unwrap().unwrap().release().await.unwrap();
    }
    assert_clean(&rival).await;
    close(&manager, &nodes).await;
}

/// One node is killed and comes back empty, the next one is stopped, and so on.
fn fail_one_by_one(nodes: &Nodes, tokens: &[Vec<u8>; 2]) {
    for turn in 0..times(7, 60) {
        let node = &nodes[turn % nodes.len()];
        let is_killed = turn % 2 == 0;
        if is_killed {
            node.kill()
        } else {
            node.pause()
        }
        wait_for_renewals(&nodes[(turn + 1) % nodes.len()]);
        if is_killed {
            node.restart()
        } else {
            node.resume()
        }
        // All five have it before the next one fails: nothing but a repair brings it back.
        eventually(format_args!("{node} has {tokens:?}"), || {
            LOCKS.iter().zip(tokens).all(|(lock, token)| node.get(lock).as_ref() == Some(token))
        });
    }
}

/// Renewals go on at a node while another one is away.
fn wait_for_renewals(node: &RedisServer) {
    let before = calls(node, "pexpire");
    eventually("ten renewals", || calls(node, "pexpire") >= before + 10);
}

/// What the nodes keep for a lock, once all of them do.
fn token_on_all(nodes: &Nodes, lock: &str) -> Vec<u8> {
    let kept = || nodes.iter().map(|node| node.get(lock)).collect::<Option<Vec<_>>>();
    eventually("a lock is on all nodes", || {
        kept().is_some_and(|tokens| tokens.iter().all(|token| *token == tokens[0]))
    });
    kept().unwrap().remove(0)
}
