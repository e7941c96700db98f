//! What users of other lock libraries reported, and no other file here tries.

use std::process::{Command, Stdio};
use std::time::Duration;

use futures_util::future::join_all;
use quorate::ReleaseError;
use quorate_tests::wait::{times, until, within_limit};
use quorate_tests::{Nodes, RedisServer};

use crate::client::{Client, all_have, close, on_tokio, unhurried, with_each_client};

/// Tasks of one process want one lock at once, in the order in which they came.
#[test]
fn two_thousand_waiters_each_get_the_lock() {
    let waiters = times(300, 2_000);
    on_tokio(async {
        for client in Client::ALL {
            let nodes = Nodes::start(3);
            let manager = client.builder(&nodes).build().unwrap();
            let waiting = (0..waiters).map(|_| {
                let manager = manager.clone();
                tokio::spawn(async move { manager.lock("r").await.unwrap().release().await })
            });
            for waited in within_limit("all of them", join_all(waiting)).await {
                waited.unwrap().unwrap();
            }
            close(&manager, &nodes).await;
        }
    });
}

/// The nodes keep their data, so the lock stays there until it is released after all.
#[test]
fn a_failed_release_locks_its_process_not_out() {
    on_tokio(async {
        for client in Client::ALL {
            let nodes = Nodes::start_with(3, &RedisServer::builder().append_only());
            let builder = unhurried(client.connect(&nodes.addresses()));
            let manager = builder.node_timeout(Duration::from_millis(300)).build().unwrap();
            for _ in 0..3 {
                let guard = manager.lock("r").await.unwrap();
                all_have(&nodes, "r").await;
                nodes.iter().for_each(RedisServer::kill);
                let released = guard.release().await;
                assert!(matches!(released, Err(ReleaseError::Unconfirmed(_))), "{released:?}");
                nodes.iter().for_each(RedisServer::restart);
                manager.lock("r").await.unwrap().release().await.unwrap();
            }
            close(&manager, &nodes).await;
        }
    });
}

/// A connection that a child process had inherited would stay open after its manager.
#[test]
fn a_child_process_keeps_no_connection_open() {
    with_each_client(|client| async move {
        let nodes = Nodes::start(3);
        let manager = client.builder(&nodes).build().unwrap();
        let guard = manager.lock("r").await.unwrap();
        all_have(&nodes, "r").await;
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        guard.release().await.unwrap();
        close(&manager, &nodes).await;
        drop(manager);
        for node in nodes.iter() {
            // One connection asks.
            until("no connection is left", || node.info("connected_clients") == "1").await;
        }
        assert!(child.try_wait().unwrap().is_none(), "{client:?}: the child lives");
        child.kill().unwrap();
        child.wait().unwrap();
    });
}
