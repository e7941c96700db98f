//! Ten thousand calls at once. In a program of its own, which runs alone: its two bursts are compared.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "client.rs"]
#[allow(dead_code, unused_imports, reason = "this program needs a part of it")]
mod client;

use futures_util::future::join_all;
use quorate::{LockGuard, LockManager};
use quorate_tests::Nodes;
use quorate_tests::wait::{LIMIT, LONG_TTL, NODE_TIMEOUT, now};

use crate::client::{Client, assert_clean, on_tokio};

/// Releases that wait behind thousands of others in this process have a node timeout more. The node timeout is less
/// than all of them take, as a first burst shows.
#[test]
fn ten_thousand_releases_at_once_are_confirmed() {
    for client in Client::ALL {
        on_tokio(async {
            let nodes = Nodes::start(3);
            let manager = |node_timeout| {
                let builder = LockManager::builder(client.connect(&nodes.addresses()));
                let builder = builder.ttl(LONG_TTL).wait_timeout(LIMIT).node_timeout(node_timeout);
                builder.build().unwrap()
            };
            let unhurried = manager(NODE_TIMEOUT);
            let guards = ten_thousand(&unhurried).await;
            let start = now();
            assert_eq!(failures(guards).await, [""; 0], "{client:?}");
            let hurried = manager((now() - start).mul_f32(0.8));
            let guards = ten_thousand(&hurried).await;
            let failures = failures(guards).await;
            assert_eq!(failures.first(), None, "{client:?}: {} failed", failures.len());
            for manager in [unhurried, hurried] {
                assert_clean(&manager).await;
            }
            assert_eq!(nodes.keys_left(), []);
        });
    }
}

async fn ten_thousand(manager: &LockManager) -> Vec<LockGuard> {
    const BURST: usize = 1_000;
    let mut guards = Vec::new();
    for burst in 0..10 {
        let locks = (0..BURST).map(|task| {
            let manager = manager.clone();
            tokio::spawn(async move { manager.lock(format!("r:{burst}:{task}")).await })
        });
        guards.extend(join_all(locks).await.into_iter().map(|lock| lock.unwrap().unwrap()));
    }
    guards
}

/// Releases all at once. Returns why a release was not confirmed.
async fn failures(guards: Vec<LockGuard>) -> Vec<String> {
    let releases = guards.into_iter().map(|guard| tokio::spawn(guard.release()));
    let released = join_all(releases).await.into_iter();
    released.filter_map(|released| released.unwrap().err()).map(|error| error.to_string()).collect()
}
