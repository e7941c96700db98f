//! Nodes that are dead, back again, or the same node twice. `matrix.rs` has every subset of them.

use std::time::Duration;

use quorate::{LockError, ReleaseError};
use quorate_tests::wait::within_limit;
use quorate_tests::{Nodes, RedisServer};

use crate::client::{
    Client, all_have, assert_clean, close, nothing_is_left, unhurried, with_each, with_each_client,
};

/// The nodes keep their data, so the lock stays there until it is released after all.
#[test]
fn a_failed_release_locks_its_process_not_out_and_nodes_that_come_back_vote_again() {
    with_each(&Client::ALL, async |client| {
        let nodes = Nodes::start_with(3, &RedisServer::builder().append_only());
        let builder = client.builder(&nodes).node_timeout(Duration::from_millis(300));
        let manager = builder.build().unwrap();
        // A node votes again once it is connected.
        let held_by_all = async || loop {
            let guard = manager.lock("r").await.unwrap();
            if nodes.iter().all(|node| node.get("r").is_some()) {
                return guard;
            }
            guard.release().await.unwrap();
        };
        for _ in 0..3 {
            let guard = within_limit("a vote of each node", held_by_all()).await;
            nodes.iter().for_each(RedisServer::kill);
            let released = guard.release().await;
            assert!(matches!(released, Err(ReleaseError::Unconfirmed(_))), "{released:?}");
            nodes.iter().for_each(RedisServer::restart);
        }
        manager.lock("r").await.unwrap().release().await.unwrap();
        assert_clean(&manager).await;
        // An entry of the wait queue that was to leave when its node was killed expires by itself.
        nothing_is_left(&nodes).await;
    });
}

/// Each node was restarted while it was idle: the first lock must not pay for it.
#[test]
fn a_restart_while_idle_costs_no_lock() {
    with_each_client(|client| async move {
        let nodes = Nodes::start(3);
        let manager = client.manager(&nodes);
        let guard = manager.lock("r").await.unwrap();
        all_have(&nodes, "r").await;
        guard.release().await.unwrap();
        nothing_is_left(&nodes).await;
        nodes.iter().for_each(RedisServer::restart);
        manager.lock("r").await.unwrap().release().await.unwrap();
    });
}

#[test]
fn q6_one_server_under_two_addresses_is_refused() {
    with_each_client(|client| async move {
        let nodes = Nodes::start(2);
        let twice = format!("redis://localhost:{}", nodes[1].port());
        let addresses = [nodes[0].address(), nodes[1].address(), twice];
        let manager = unhurried(client.connect(&addresses)).build().unwrap();
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
        });
        let LockError::SameServer { first, second } = refused.await else { panic!("{client:?}") };
        assert_eq!(first, format!("127.0.0.1:{}", nodes[1].port()));
        assert_eq!(second, format!("localhost:{}", nodes[1].port()));
        close(&manager, &nodes).await;
    });
}
