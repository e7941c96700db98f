//! Nodes that are dead, back again, or the same node twice. `matrix.rs` has every subset of them.

use std::time::Duration;

use quorate::LockError;
use quorate_tests::Nodes;
use quorate_tests::wait::{eventually, within_limit};

use crate::client::{Client, LIMIT, close, nothing_is_left, unhurried, with_each_client};

/// An extension and many rounds, without two nodes of five. What the two had granted is released when they answer.
/// They have forgotten it.
#[test]
fn two_of_five_can_be_dead() {
    with_each_client(|client| async move {
        let nodes = Nodes::start(5);
        let manager = client.manager(&nodes);
        let guard = manager.lock("r").await.unwrap();
        nodes[1].kill();
        nodes[3].kill();
        guard.extend().await.unwrap();
        guard.release().await.unwrap();
        for _ in 0..20 {
            manager.lock("r").no_wait().await.unwrap().release().await.unwrap();
        }
        nodes[1].restart();
        nodes[3].restart();
        let report = manager.close(LIMIT).await;
        assert_eq!(nodes.keys_left(), [], "{report}");
    });
}

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
        // Where the second name's answer came after the decision, a later lock knows.
        let refused = within_limit("the error", async {
            loop {
                match manager.lock("r").await {
                    Ok(guard) => guard.release().await.unwrap(),
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

/// The connections died with the runtime; the manager goes on, in no runtime at all.
#[test]
fn a_manager_survives_the_runtime_that_its_connections_were_made_in() {
    for client in Client::ALL {
        let nodes = Nodes::start(3);
        let first = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let manager = first.block_on(async {
            let manager = client.manager(&nodes);
            manager.lock("r").await.unwrap().release().await.unwrap();
            nothing_is_left(&nodes).await;
            manager
        });
        drop(first);
        quorate_examples::block_on(async {
            let guard = manager.lock("r").await.unwrap();
            guard.release().await.unwrap();
        });
        // Not with `client::close`, which needs a runtime where the first report names a node.
        let closes = || quorate_examples::block_on(manager.close(LIMIT)).is_clean();
        eventually("all is released", closes);
        assert_eq!(nodes.keys_left(), []);
    }
}
