//! A hung node that wakes carries out what it was sent meanwhile, and keeps no ghost key.

use std::future::IntoFuture as _;
use std::time::Duration;

use futures_util::FutureExt as _;
use quorate::LockManager;
use quorate_tests::Nodes;
use quorate_tests::wait::{NODE_TIMEOUT, until};

use crate::client::{LIMIT, calls, nothing_is_left, unreachable, warm_up, with_each_client};

const ROUNDS: usize = 10;

/// Each round, `act` while nodes hang, and then they wake. Each hung node is asked for the lock so often at the
/// `least`: else nothing was tested. A slow machine may need more rounds for that.
fn sweep(
    hung: &[usize],
    node_timeout: Duration,
    least: usize,
    act: impl AsyncFn(&LockManager, &Nodes),
) {
    let act = &act;
    with_each_client(|client| async move {
        let nodes = Nodes::start(3);
        // The ttl is longer than any test: a key that is gone was removed, not forgotten.
        let manager = client.builder(&nodes).node_timeout(node_timeout).build().unwrap();
        // Connects to all nodes, so that requests to a hung one wait in its socket.
        warm_up(&manager).await;
        nothing_is_left(&nodes).await;
        nodes.iter().for_each(|node| drop(node.cli(&["CONFIG", "RESETSTAT"])));
        let asked = || hung.iter().map(|at| calls(&nodes[*at], "set") as usize).min().unwrap();
        for round in 0..20 * ROUNDS {
            if round >= ROUNDS && asked() >= least {
                break;
            }
            hung.iter().for_each(|at| nodes[*at].pause());
            act(&manager, &nodes).await;
            hung.iter().for_each(|at| nodes[*at].resume());
            nothing_is_left(&nodes).await;
        }
        // A node that hung for longer than a node timeout is named. A key that was set later is still there.
        let report = manager.close(LIMIT).await;
        assert_eq!(nodes.keys_left(), [], "{report}");
        assert!(asked() >= least, "a node was asked {} times", asked());
    });
}

#[test]
fn c3_a_lock_released_while_a_node_hung_leaves_nothing_there() {
    sweep(&[0], NODE_TIMEOUT, ROUNDS, async |manager, _| {
        manager.lock("r").no_wait().await.unwrap().release().await.unwrap();
    });
}

#[test]
fn c4_a_guard_dropped_while_a_node_hung_leaves_nothing_there() {
    sweep(&[0], NODE_TIMEOUT, ROUNDS, async |manager, _| {
        drop(manager.lock("r").no_wait().await.unwrap())
    });
}

#[test]
fn c5_a_future_dropped_while_nodes_hung_leaves_nothing_there() {
    // A call that waits in the queue of its node when its future is dropped is not sent.
    sweep(&[0, 2], NODE_TIMEOUT, 0, async |manager, _| {
        let pending = manager.lock("r").no_wait().into_future().now_or_never();
        assert!(pending.is_none(), "{pending:?}");
    });
    sweep(&[0, 2], NODE_TIMEOUT, ROUNDS, async |manager, nodes| {
        let pending = tokio::spawn(manager.lock("r").no_wait().into_future());
        until("a grant", || nodes[1].get("r").is_some()).await;
        pending.abort();
        assert!(pending.await.is_err_and(|end| end.is_cancelled()));
    });
    sweep(&[0], NODE_TIMEOUT, ROUNDS, async |manager, _| {
        let guard = manager.lock("r").no_wait().await.unwrap();
        let _ = guard.release().now_or_never();
    });
}

#[test]
fn c2_a_lock_lost_to_hung_nodes_leaves_nothing_there() {
    sweep(&[0, 2], Duration::from_millis(50), ROUNDS, async |manager, _| {
        drop(unreachable(manager.lock("r").no_wait().await));
    });
}
