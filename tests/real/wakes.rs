//! A hung node that wakes carries out what it was sent meanwhile, and keeps no ghost key.

use std::future::IntoFuture as _;
use std::time::Duration;

use futures_util::FutureExt as _;
use quorate::LockManager;
use quorate_tests::wait::{NODE_TIMEOUT, times, until};
use quorate_tests::{Direction, Mode, Nodes, Proxy, When};

use crate::client::{
    Client, LIMIT, calls, close, nothing_is_left, on_tokio, unhurried, unreachable, warm_up,
    with_each_client,
};

const ROUNDS: usize = 10;

/// Three nodes, of which some hang and wake in every round.
struct Ward {
    nodes: Nodes,
    manager: LockManager,
    hung: &'static [usize],
}

impl Ward {
    /// Connects to all nodes, so that requests to a hung one wait in its socket.
    async fn open(client: Client, hung: &'static [usize], node_timeout: Duration) -> Self {
        let nodes = Nodes::start(3);
        // The ttl is longer than any test: a key that is gone was removed, not forgotten.
        let manager = client.builder(&nodes).node_timeout(node_timeout).build().unwrap();
        warm_up(&manager).await;
        nothing_is_left(&nodes).await;
        for node in nodes.iter() {
            node.cli(&["CONFIG", "RESETSTAT"]);
        }
        Self { nodes, manager, hung }
    }

    fn hang(&self) {
        for node in self.hung {
            self.nodes[*node].pause();
        }
    }

    async fn wake(&self) {
        for node in self.hung {
            self.nodes[*node].resume();
        }
        nothing_is_left(&self.nodes).await;
    }

    /// Whether each hung node was asked for the lock as often: else nothing was tested. A key that was
    /// set after the last look at a node is still there.
    async fn close_asked(self, least: usize) {
        // A node that hung for longer than a node timeout is named.
        let report = self.manager.close(LIMIT).await;
        assert_eq!(self.nodes.keys_left(), [], "{report}");
        for node in self.hung {
            let asked = self.asked(*node);
            assert!(asked >= least, "node {node} was asked {asked} times");
        }
    }

    /// How often a node was asked for the lock.
    fn asked(&self, node: usize) -> usize {
        calls(&self.nodes[node], "set") as usize
    }
}

/// Each round, `act` while nodes hang, and then they wake.
fn sweep(hung: &'static [usize], least: usize, act: impl AsyncFn(&LockManager, &Nodes)) {
    let act = &act;
    with_each_client(|client| async move {
        let ward = Ward::open(client, hung, NODE_TIMEOUT).await;
        for _ in 0..ROUNDS {
            ward.hang();
            act(&ward.manager, &ward.nodes).await;
            ward.wake().await;
        }
        ward.close_asked(least).await;
    });
}

#[test]
fn c3_a_lock_released_while_a_node_hung_leaves_nothing_there() {
    sweep(&[0], ROUNDS, async |manager, _| {
        manager.lock("r").no_wait().await.unwrap().release().await.unwrap();
    });
}

#[test]
fn c4_a_guard_dropped_while_a_node_hung_leaves_nothing_there() {
    sweep(&[0], ROUNDS, async |manager, _| drop(manager.lock("r").no_wait().await.unwrap()));
}

/// A call that waits in the queue of its node when its future is dropped is not sent.
#[test]
fn c5_a_lock_dropped_at_its_first_poll_leaves_nothing_there() {
    sweep(&[0, 2], 0, async |manager, _| {
        let pending = manager.lock("r").no_wait().into_future().now_or_never();
        assert!(pending.is_none(), "{pending:?}");
    });
}

#[test]
fn c5_a_lock_dropped_after_its_first_grant_leaves_nothing_there() {
    sweep(&[0, 2], ROUNDS, async |manager, nodes| {
        let pending = tokio::spawn(manager.lock("r").no_wait().into_future());
        until("a grant", || nodes[1].get("r").is_some()).await;
        pending.abort();
        assert!(pending.await.is_err_and(|end| end.is_cancelled()));
    });
}

#[test]
fn c5_a_release_dropped_at_its_first_poll_leaves_nothing_on_a_hung_node() {
    sweep(&[0], ROUNDS, async |manager, _| {
        let guard = manager.lock("r").no_wait().await.unwrap();
        let _ = guard.release().now_or_never();
    });
}

#[test]
fn c2_a_lock_lost_to_hung_nodes_leaves_nothing_there() {
    with_each_client(|client| async move {
        let ward = Ward::open(client, &[0, 2], Duration::from_millis(50)).await;
        // A slow machine may not have sent anything by the node timeout.
        while ward.hung.iter().any(|node| ward.asked(*node) < ROUNDS) {
            ward.hang();
            unreachable(ward.manager.lock("r").no_wait().await);
            ward.wake().await;
        }
        ward.close_asked(ROUNDS).await;
    });
}

/// A connection is reset while the acquire waits in the socket of a hung node. The release has to
/// take another connection, or finds none; so the acquire may come last, and the key stays: until
/// its ttl at the most.
#[test]
fn c5_an_acquire_whose_connection_is_reset_at_a_hung_node_outlives_no_ttl() {
    for client in Client::ALL {
        for (way_back, rounds) in [(Mode::Pass, times(3, 20)), (Mode::Refuse, times(1, 5))] {
            on_tokio(reset_in_flight(client, way_back, rounds));
        }
    }
}

async fn reset_in_flight(client: Client, way_back: Mode, rounds: usize) {
    const TTL: Duration = Duration::from_secs(1);
    let nodes = Nodes::start(3);
    let proxy = Proxy::start(nodes[0].port());
    let addresses = [proxy.address(), nodes[1].address(), nodes[2].address()];
    let manager = |addresses: &[String]| {
        let builder = unhurried(client.connect(addresses)).ttl(TTL);
        builder.node_timeout(Duration::from_millis(400)).build().unwrap()
    };
    for _ in 0..rounds {
        // A new one, which remembers no failed attempt to connect.
        let all = manager(&addresses);
        warm_up(&all).await;
        nothing_is_left(&nodes).await;

        nodes[0].pause();
        let sent = proxy.passed(Direction::ToNode);
        let guard = all.lock("r").await.unwrap();
        proxy.wait_until_more_passed(Direction::ToNode, sent);
        proxy.set(Mode::Reset(When::Now));
        proxy.set(way_back);
        // However long the machine has kept us: a lease that has ended is released, too.
        let _ = guard.release().await;
        nodes[0].resume();
        // The node behind the proxy may be gone for good.
        let _ = all.close(LIMIT).await;
        proxy.set(Mode::Pass);

        let left = nodes[0].pttl("r");
        assert!(left != -1 && left <= TTL.as_millis() as i64, "{client:?}, {way_back:?}: {left}");
        // The node itself shows when the key is gone: another client gets it.
        let alone = manager(&[nodes[0].address()]);
        alone.lock("r").await.unwrap().release().await.unwrap();
        close(&alone, &nodes).await;
    }
}
