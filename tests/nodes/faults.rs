//! Nodes that are dead, stopped, back again, or the same node twice.

use std::time::Duration;

use quorate::{LockError, Released};
use quorate_tests::Nodes;
use quorate_tests::wait::within_limit;

use crate::client::{Client, LIMIT, nothing_is_left, unhurried, with_each_client};

#[test]
fn two_of_five_can_be_dead() {
    with_each_client(|client| async move {
        let nodes = Nodes::start(5);
        let manager = client.builder(&nodes).build().unwrap();
        let guard = manager.lock("r").await.unwrap();
        nodes[1].kill();
        nodes[3].kill();
        guard.extend().await.unwrap();
        assert_eq!(guard.release().await.unwrap(), Released::Held);
        for _ in 0..20 {
            let _ = manager.try_lock("r").await.unwrap().release().await.unwrap();
        }
        // What the two had granted is asked back until they answer.
        nodes[1].restart();
        nodes[3].restart();
        nothing_is_left(&manager, &nodes).await;
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
        let _ = guard.release().await.unwrap();
        assert_eq!(manager.settle(LIMIT).await, 0);
    });
}

#[test]
fn two_of_five_can_hang_and_keep_no_ghost_key_when_they_wake() {
    with_each_client(|client| async move {
        let nodes = Nodes::start(5);
        let manager = client.builder(&nodes).build().unwrap();
        // Connected before they hang, so that what is sent waits in their sockets.
        let _ = manager.lock("warm").await.unwrap().release().await.unwrap();
        nothing_is_left(&manager, &nodes).await;
        nodes[0].pause();
        nodes[2].pause();
        for _ in 0..20 {
            let guard = manager.lock("r").await.unwrap();
            guard.extend().await.unwrap();
            assert_eq!(guard.release().await.unwrap(), Released::Held);
        }
        nodes[0].resume();
        nodes[2].resume();
        nothing_is_left(&manager, &nodes).await;
    });
}

#[test]
fn three_dead_are_named_with_their_reasons_within_the_deadline() {
    with_each_client(|client| async move {
        let nodes = Nodes::start(5);
        let manager = client.builder(&nodes).build().unwrap();
        let _ = manager.lock("r").await.unwrap().release().await.unwrap();
        for node in &nodes[..3] {
            node.kill();
        }
        // The first rounds may tell of the connections that broke, and not of the new ones.
        let mut wait = Duration::from_millis(100);
        let votes = loop {
            let lost = within_limit("the deadline", manager.lock("r").wait(wait)).await;
            let Err(LockError::NoQuorum { votes }) = lost else { panic!("{client:?}: {lost:?}") };
            if votes.to_string().to_lowercase().matches("refused").count() == 3 {
                break votes;
            }
            assert!(wait < LIMIT, "{client:?}: {votes}");
            wait *= 2;
        };
        let failed: Vec<_> = votes
            .iter()
            .filter(|node| matches!(node.said, quorate::Said::Failed(_)))
            .map(|node| node.name.to_string())
            .collect();
        let dead: Vec<_> =
            nodes[..3].iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        assert_eq!(failed, dead, "{client:?}: {votes}");
    });
}

#[test]
fn nodes_that_come_back_vote_again() {
    with_each_client(|client| async move {
        let nodes = Nodes::start(3);
        let manager = client.builder(&nodes).build().unwrap();
        let _ = manager.lock("r").await.unwrap().release().await.unwrap();
        for node in nodes.iter() {
            node.kill();
        }
        assert!(manager.try_lock("r").await.is_err());
        for node in nodes.iter() {
            node.restart();
        }
        let guard = manager.lock("r").wait(LIMIT).await.unwrap();
        let _ = guard.release().await.unwrap();
        nothing_is_left(&manager, &nodes).await;
    });
}

/// While nobody used it, each node was restarted: the first lock must not pay for it.
#[test]
fn a_restart_while_idle_costs_no_lock() {
    with_each_client(|client| async move {
        let nodes = Nodes::start(3);
        let manager = client.builder(&nodes).build().unwrap();
        let _ = manager.lock("r").await.unwrap().release().await.unwrap();
        nothing_is_left(&manager, &nodes).await;
        for node in nodes.iter() {
            node.kill();
            node.restart();
        }
        let _ = manager.lock("r").wait(LIMIT).await.unwrap().release().await.unwrap();
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
        // Where the second name's answer came after the decision, the next lock knows.
        let refused = match refused {
            Ok(guard) => {
                drop(guard);
                assert_eq!(manager.settle(LIMIT).await, 0);
                manager.lock("r").await
            }
            refused => refused,
        };
        let Err(LockError::SameServer { first, second }) = refused else {
            panic!("{client:?}: {refused:?}");
        };
        assert_eq!(first, format!("127.0.0.1:{}", nodes[1].port()));
        assert_eq!(second, format!("localhost:{}", nodes[1].port()));
        nothing_is_left(&manager, &nodes).await;
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
            let _ = manager.lock("r").await.unwrap().release().await.unwrap();
            nothing_is_left(&manager, &nodes).await;
            manager
        });
        drop(first);
        quorate_examples::block_on(async {
            let guard = manager.lock("r").wait(LIMIT).await.unwrap();
            let _ = guard.release().await.unwrap();
            nothing_is_left(&manager, &nodes).await;
        });
    }
}
