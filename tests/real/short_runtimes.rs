//! One manager in many short runtimes.

use std::sync::Arc;

use quorate::LockBackend;
use quorate_tests::{Nodes, RedisServer};
use tokio::runtime::{Builder, Runtime};

use crate::client::{Client, all_have, assert_clean, nothing_is_left, unhurried};
use crate::events;

/// As a `static` that is used by tests which each have a runtime, or by the workers of a server.
#[test]
fn a_manager_in_short_runtimes_leaves_no_keys() {
    const RUNTIMES: usize = 200;
    for client in Client::ALL {
        let nodes = Nodes::start(3);
        let connections = || nodes.iter().map(accepted).sum::<u64>();
        let before = connections();
        let manager = unhurried(client.connect_on_own_thread(&nodes.addresses()));
        let manager = manager.build().unwrap();
        for turn in 0..RUNTIMES {
            short().block_on(async {
                let dropped = manager.lock(format!("dropped:{turn}")).await.unwrap();
                let released = manager.lock(format!("released:{turn}")).await.unwrap();
                drop(dropped);
                released.release().await.unwrap();
            });
        }
        // And the runtime ends while the releases are in flight.
        short().block_on(assert_clean(&manager));
        assert_eq!(nodes.keys_left(), [], "{client:?}");
        let made = connections() - before - nodes.len() as u64;
        assert!(made < RUNTIMES as u64, "{client:?}: {made} connections");
    }
}

/// The first call after the end of a runtime says what helps: once for each node.
#[test]
fn a_runtime_that_ended_under_its_connections_is_reported() {
    const RUNTIMES: usize = 4;
    events::listen();
    for client in Client::ALL {
        type Connect = fn(Client, &[String]) -> Vec<Arc<dyn LockBackend>>;
        let ways: [(Connect, usize); 2] =
            [(Client::connect, RUNTIMES - 1), (Client::connect_on_own_thread, 0)];
        for (connect, expected) in ways {
            let nodes = Nodes::start(3);
            let manager = unhurried(connect(client, &nodes.addresses())).build().unwrap();
            for turn in 0..RUNTIMES {
                short().block_on(async {
                    let key = format!("turn:{turn}");
                    let guard = manager.lock(&*key).await.unwrap();
                    all_have(&nodes, &key).await;
                    guard.release().await.unwrap();
                    nothing_is_left(&nodes).await;
                });
            }
            for node in nodes.iter() {
                let warnings = events::warnings("runtime ended", node.port());
                assert_eq!(warnings.len(), expected, "{client:?}: {warnings:?}");
                assert!(warnings.iter().all(|it| it.text.contains("own_thread()")), "{warnings:?}");
            }
        }
    }
}

fn short() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn accepted(node: &RedisServer) -> u64 {
    node.info("total_connections_received").parse().unwrap()
}
