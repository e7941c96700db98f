//! Nodes that are dead, stopped, back again, or the same node twice.

use std::time::Duration;

use quorate::LockError;
use quorate_tests::Nodes;
use quorate_tests::wait::{eventually, within_limit};

use crate::client::{
    Client, LIMIT, close, nothing_is_left, unhurried, unreachable, warm_up, with_each_client,
};

#[test]
fn two_of_five_can_be_dead() {
    with_each_client(|client| async move {
        let nodes = Nodes::start(5);
        let manager = client.builder(&nodes).build().unwrap();
        let guard = manager.lock("r").await.unwrap();
        nodes[1].kill();
        nodes[3].kill();
        guard.extend().await.unwrap();
        guard.release().await.unwrap();
        for _ in 0..20 {
            manager.lock("r").no_wait().await.unwrap().release().await.unwrap();
        }
        // What the two had granted is released when they answer. They have forgotten it.
        nodes[1].restart();
        nodes[3].restart();
        let report = manager.close(LIMIT).await;
        assert_eq!(nodes.keys_left(), [], "{report}");
    });
}

#[test]
fn two_of_five_may_never_have_been_up() {
    with_each_client(|client| async move {
        let nodes = Nodes::start(5);
        nodes[0].kill();
        nodes[4].kill();
        let manager = client.builder(&nodes).build().unwrap();
        let guard = manager.lock("r").await.unwrap();
        guard.release().await.unwrap();
        let dead = [0, 4].map(|node| format!("127.0.0.1:{}", nodes[node].port()));
        let report = within_limit("the end of close", manager.close(100 * LIMIT)).await;
        assert!(report.nodes().all(|name| dead.iter().any(|dead| dead == name)), "{report}");
        assert_eq!(nodes.keys_left(), []);
    });
}

#[test]
fn two_of_five_can_hang_and_keep_no_ghost_key_when_they_wake() {
    with_each_client(|client| async move {
        let nodes = Nodes::start(5);
        let manager = client.builder(&nodes).build().unwrap();
        // Connected before they hang, so that requests wait in their sockets.
        warm_up(&manager).await;
        nothing_is_left(&nodes).await;
        nodes[0].pause();
        nodes[2].pause();
        for _ in 0..20 {
            let guard = manager.lock("r").await.unwrap();
            guard.extend().await.unwrap();
            guard.release().await.unwrap();
        }
        nodes[0].resume();
        nodes[2].resume();
        nothing_is_left(&nodes).await;
        close(&manager, &nodes).await;
    });
}

#[test]
fn three_dead_are_named_with_their_reasons_within_the_deadline() {
    with_each_client(|client| async move {
        let nodes = Nodes::start(5);
        let manager = client.builder(&nodes).build().unwrap();
        manager.lock("r").await.unwrap().release().await.unwrap();
        for node in &nodes[..3] {
            node.kill();
        }
        // The first rounds may report the connections that broke, and not the new ones.
        let mut wait = Duration::from_millis(100);
        let failure = loop {
            let request = manager.lock("r").timeout(wait);
            let failure = unreachable(within_limit("the deadline", request).await);
            if failure.to_string().to_lowercase().matches("refused").count() == 3 {
                break failure;
            }
            assert!(wait < LIMIT, "{client:?}: {failure}");
            wait *= 2;
        };
        let failed: Vec<_> = failure.failed_nodes().map(|node| node.name.to_string()).collect();
        let dead: Vec<_> =
            nodes[..3].iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        assert_eq!(failed, dead, "{client:?}: {failure}");
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
        for node in nodes.iter() {
            node.kill();
        }
        assert!(manager.lock("r").no_wait().await.is_err());
        for node in nodes.iter() {
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
        let manager = client.builder(&nodes).build().unwrap();
        manager.lock("r").await.unwrap().release().await.unwrap();
        nothing_is_left(&nodes).await;
        for node in nodes.iter() {
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
        let refused = manager.lock("r").await;
        // Where the second name's answer came after the decision, a later lock knows.
        let refused = match refused {
            Ok(guard) => {
                within_limit("the error", async {
                    guard.release().await.unwrap();
                    loop {
                        match manager.lock("r").await {
                            Ok(guard) => guard.release().await.unwrap(),
                            Err(error) => return Err(error),
                        }
                    }
                })
                .await
            }
            refused => refused,
        };
        let Err(LockError::SameServer { first, second }) = refused else {
            panic!("{client:?}: {refused:?}");
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
            let manager = client.builder(&nodes).build().unwrap();
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
