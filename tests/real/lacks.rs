//! Connections without client tracking: the nodes answer all the same, and a close leaves nothing on them.

use std::future::IntoFuture;
use std::time::Duration;

use quorate_tests::wait::{LONG_TTL, until};
use quorate_tests::{Nodes, RedisServer};

use crate::client::{Client, all_have, current_thread};

const NODES: usize = 3;

/// The password of the user.
const SECRET: &str = "SECRET";

/// Nodes with a user who may not use client tracking, and nodes that speak RESP2 only.
fn nodes() -> [Nodes; 2] {
    let user = |rights| {
        let rules = format!("on >{SECRET} ~* &* +@all {rights}");
        RedisServer::builder().user("locker", &rules)
    };
    let resp2 = user("").config("rename-command", &["HELLO", ""]);
    [user("-client|tracking"), resp2].map(|builder| Nodes::start_with(NODES, &builder))
}

/// A lock is held for longer than until its first look, while another process waits for it.
/// Rules C8, W1.
#[test]
fn nodes_without_client_tracking_answer_and_are_clean_at_a_close() {
    for (nodes, lacks) in nodes().into_iter().zip(["the right", "RESP3"]) {
        let address = |node: &RedisServer| node.address_as("locker", SECRET);
        let addresses: Vec<String> = nodes.iter().map(address).collect();
        for client in Client::WITH_POOL {
            // Whoever ends the process at once ends its connections.
            current_thread().block_on(async {
                let place = format!("{client:?} without {lacks}");
                let manager = || client.builder_of(&addresses).build().unwrap();
                let (one, other) = (manager(), manager());
                let held = one.lock("r").await.unwrap();
                all_have(&nodes, "r").await;
                let end = LONG_TTL - Duration::from_millis(300);
                until("the first look is due", || {
                    nodes.iter().all(|node| node.pttl("r") <= end.as_millis() as i64)
                })
                .await;
                let known = one.readiness();
                assert!(known.has_quorum(), "{place}: {known}");
                let failed: Vec<_> =
                    known.nodes().iter().filter_map(|one| one.failure.as_ref()).collect();
                assert!(failed.is_empty(), "{place}: {failed:?}");

                let waits = tokio::spawn(other.lock("r").into_future());
                // The entry of a process that polls.
                let polls = |node: &RedisServer| {
                    let entries = node.cli(&["ZRANGE", "r:quorate:waiters", "0", "-1"]).array();
                    entries.into_iter().any(|entry| entry.text().starts_with('p'))
                };
                until("the other process polls", || nodes.iter().any(polls)).await;
                let known = other.readiness();
                assert!(known.has_quorum(), "{place}: {known}");
                let report = other.close(LONG_TTL).await;
                assert!(report.is_clean(), "{place}: {report}");
                assert!(waits.await.unwrap().is_err());

                drop(held);
                let report = one.close(LONG_TTL).await;
                assert_eq!(
                    (report.to_string(), nodes.keys_left()),
                    ("all released".into(), vec![])
                );
            });
        }
    }
}
