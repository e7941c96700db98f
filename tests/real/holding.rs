//! Leases that are renewed on real nodes while these fail one after the other.

use std::time::Duration;
use std::{fmt, thread};

use quorate::{LockError, LockGuard, LockManager};
use quorate_tests::wait::{LIMIT, eventually, times};
use quorate_tests::{Nodes, RedisServer};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::client::{Client, assert_clean, calls, close, on_tokio};

/// One is kept alive by its guard, the other by `with`.
const LOCKS: [&str; 2] = ["kept", "worked"];

/// Both clients at once, as most of it is waiting.
fn for_both_clients(check: impl Fn(Client, Client) + Sync) {
    thread::scope(|scope| {
        scope.spawn(|| check(Client::Redis, Client::Fred));
        scope.spawn(|| check(Client::Fred, Client::Redis));
    });
}

type Waiting = JoinHandle<Result<LockGuard, LockError>>;

/// A manager over the other client that waits for both locks.
fn contend(manager: &LockManager) -> [Waiting; 2] {
    LOCKS.map(|lock| tokio::spawn(manager.lock(lock).timeout(10 * LIMIT).into_future()))
}

async fn succeed(waiting: [Waiting; 2]) {
    for lock in waiting {
        lock.await.unwrap().unwrap().release().await.unwrap();
    }
}

#[test]
fn leases_last_while_nodes_fail_one_by_one_and_no_rival_gets_the_lock() {
    for_both_clients(|client, rival| {
        let nodes = &Nodes::start(5);
        on_tokio(async {
            let rival = rival.manager(nodes);
            let builder = client.builder(nodes).renew_interval(Duration::from_millis(20));
            let manager = builder.build().unwrap();
            let kept = manager.lock(LOCKS[0]).await.unwrap();
            kept.auto_renew();
            let (stop, mut stopped) = watch::channel(());
            let mut work = stopped.clone();
            let work = manager.with(LOCKS[1], async move |_| work.changed().await.is_err());
            let work = tokio::spawn(work);
            let waits = thread::scope(|scope| {
                let runtime = tokio::runtime::Handle::current();
                let failing = scope.spawn(move || {
                    let tokens = LOCKS.map(|lock| token_on_all(nodes, lock));
                    let _entered = runtime.enter();
                    let waits = contend(&rival);
                    fail_one_by_one(nodes, &tokens);
                    assert!(waits.iter().all(|wait| !wait.is_finished()), "a rival had a lock");
                    drop(stop);
                    (rival, waits)
                });
                tokio::task::block_in_place(|| failing.join().unwrap())
            });
            kept.run(async { stopped.changed().await }).await.unwrap().unwrap_err();
            assert!(work.await.unwrap().unwrap(), "{client:?}: the body ran to its end");
            kept.release().await.unwrap();
            let (rival, waits) = waits;
            succeed(waits).await;
            assert_clean(&rival).await;
            close(&manager, nodes).await;
        });
    });
}

/// One node is killed and comes back empty, the next one is stopped, and so on.
fn fail_one_by_one(nodes: &Nodes, tokens: &[Vec<u8>; 2]) {
    for turn in 0..times(7, 60) {
        let node = &nodes[turn % nodes.len()];
        if turn % 2 == 0 {
            node.kill();
            wait_for_renewals(&nodes[(turn + 1) % nodes.len()]);
            node.restart();
        } else {
            node.pause();
            wait_for_renewals(&nodes[(turn + 1) % nodes.len()]);
            node.resume();
        }
        // All five have it before the next one fails: nothing but a repair brings it back.
        eventually(HasKeys(node, tokens), || {
            LOCKS.iter().zip(tokens).all(|(lock, token)| node.get(lock).as_ref() == Some(token))
        });
    }
}

/// A node that is to get its keys back; `Display` is what it has, and its connections.
struct HasKeys<'a>(&'a RedisServer, &'a [Vec<u8>; 2]);

impl fmt::Display for HasKeys<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(node, tokens) = self;
        let kept = LOCKS.map(|lock| node.get(lock));
        let clients = node.cli(&["CLIENT", "LIST"]);
        write!(f, "{node} has {kept:?}, and not {tokens:?}; its clients: {}", clients.text())
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
