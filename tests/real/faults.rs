//! Nodes that are dead, back again, or the same node twice. `matrix.rs` has every subset of them.

use std::time::Duration;

use quorate::LockError;
use quorate_tests::Nodes;
use quorate_tests::wait::within_limit;

use crate::client::{close, nothing_is_left, unhurried, with_each_client};

#[test]
fn nodes_that_come_back_vote_again() {
    with_each_client(|client| async move {
        let nodes = Nodes::start(3);
        // A release that failed is sent again after a node timeout.
        let builder = client.builder(&nodes).node_timeout(Duration::from_secs(1));
        let manager = builder.build().unwrap();
        manager.lock("r").await.unwrap().release().await.unwrap();
        for node in &nodes {
            node.kill();
        }
        assert!(manager.lock("r").no_wait().await.is_err());
        for node in &nodes {
            node.restart();
        }
        let each_votes = async {
            loop {
                let guard = manager.lock("r").await.unwrap();
                let have = nodes.iter().filter(|node| node.get("r").is_some()).count();
                guard.release().await.unwrap();
                if have == nodes.len() {
                    return;
                }
            }
        };
        within_limit("a vote of each node", each_votes).await;
        close(&manager, &nodes).await;
    });
}

/// Each node was restarted while it was idle: the first lock must not pay for it.
#[test]
fn a_restart_while_idle_costs_no_lock() {
    with_each_client(|client| async move {
        let nodes = Nodes::start(3);
        let manager = client.manager(&nodes);
        manager.lock("r").await.unwrap().release().await.unwrap();
        nothing_is_left(&nodes).await;
        for node in &nodes {
            node.kill();
            node.restart();
        }
        manager.lock("r").await.unwrap().release().await.unwrap();
    });
}

#[test]
fn q6_one_server_under_two_addresses_is_refused() {
    with_each_client(|client| async move {
        let nodes = Nodes::start(2);
        let addresses = [
            nodes[0].address(),
            nodes[1].address(),
            format!("redis://localhost:{}", nodes[1].port()),
        ];
        let backends = client.connect(&addresses);
        let manager = unhurried(backends).build().unwrap();
        // Where the second name's answer came after the decision, or during a round, a later lock knows.
        let refused = within_limit("the error", async {
            loop {
                match manager.lock("r").await {
                    Ok(guard) => guard.release().await.unwrap(),
                    Err(LockError::NoQuorum(failure)) => {
                        assert!(failure.to_string().contains("this is the same server as"));
                    }
                    Err(error) => return error,
                }
            }
        })
        .await;
        let LockError::SameServer { first, second } = refused else {
            panic!("{client:?}: {refused}");
        };
        assert_eq!(first, format!("127.0.0.1:{}", nodes[1].port()));
        assert_eq!(second, format!("localhost:{}", nodes[1].port()));
        close(&manager, &nodes).await;
    });
}
