//! Nodes that are dead, back again, or the same node twice. `matrix.rs` has every subset of them.

use quorate::LockError;
use quorate_tests::wait::within_limit;
use quorate_tests::{Nodes, RedisServer};

use crate::client::{all_have, close, nothing_is_left, unhurried, with_each_client};

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
