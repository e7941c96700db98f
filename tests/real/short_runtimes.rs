//! One manager in many short runtimes.

use quorate_tests::{Nodes, RedisServer};

use crate::client::{Client, assert_clean};

/// As a `static` that is used by tests which each have a runtime, or by the workers of a server.
#[test]
fn a_manager_in_short_runtimes_leaves_no_keys() {
    const RUNTIMES: usize = 200;
    let short = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for client in Client::ALL {
        let nodes = Nodes::start(3);
        let connections = || nodes.iter().map(accepted).sum::<u64>();
        let before = connections();
        let manager = crate::client::unhurried(client.connect_on_own_thread(&nodes.addresses()));
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

fn accepted(node: &RedisServer) -> u64 {
    node.info("total_connections_received").parse().unwrap()
}
