//! The restart guard on failovers in which no process restarts.

use futures_util::future::join_all;
use quorate::LockGuard;
use quorate_tests::keys::EPOCH;
use quorate_tests::wait::{LONG_TTL, until};
use quorate_tests::{Mode, Proxy, RedisServer};

use crate::client::{Client, on_tokio, warm_up};
use crate::guard::{end_quarantine, is_quarantined, manager, pass_quarantine};

/// The second replication id of a server that was never promoted, or has forgotten that it was.
const NO_REPLICATION_ID: &str = "0000000000000000000000000000000000000000";

/// A primary that was a replica for a time, and forgot a lock by that.
struct ThereAndBack {
    node: RedisServer,
    /// The primary meanwhile.
    other: RedisServer,
    /// Was granted before the failover, and is not replicated.
    guard: LockGuard,
}

/// A failover to a replica that lacks a lock, since its link was cut, and back. No process restarts, and nothing
/// is locked at the other server.
async fn there_and_back(client: Client) -> ThereAndBack {
    let node = RedisServer::start();
    let link = Proxy::start(node.port());
    let other = RedisServer::builder().replica_of(link.port()).start();
    let one = manager(client, &[node.address()], LONG_TTL);
    pass_quarantine(&one, &node).await;
    warm_up(&one).await;
    until("the epoch", || other.keys() == [EPOCH]).await;
    let epoch = node.get(EPOCH);

    link.set(Mode::Refuse);
    let guard = one.lock("r").await.unwrap();
    assert_eq!(other.get("r"), None, "it is not replicated");
    other.cli(&["REPLICAOF", "NO", "ONE"]);
    node.cli(&["REPLICAOF", "127.0.0.1", &other.port().to_string()]);
    node.wait_until_in_sync();
    node.cli(&["REPLICAOF", "NO", "ONE"]);
    assert_eq!(node.keys(), [EPOCH], "it forgot");
    assert_eq!(node.get(EPOCH), epoch, "nothing was locked at the other");
    ThereAndBack { node, other, guard }
}

#[test]
fn the_restart_guard_sees_a_failover_there_and_back() {
    on_tokio(join_all(Client::ALL.map(async |client| {
        // Over a pool: with pushes the first holder hears of it.
        let ThereAndBack { node, other: _other, guard } = there_and_back(Client::Pool).await;
        let next = manager(client, &[node.address()], LONG_TTL);
        is_quarantined(&next).await;
        assert!(guard.is_valid());
        // Once: from then on the epoch is that of the promoted server.
        end_quarantine(&node);
        next.lock("s").no_wait().await.unwrap().release().await.unwrap();
    })));
}

/// A needless quarantine. With the default of an hour it comes once, an hour after the promotion.
#[test]
fn a_promoted_server_that_drops_its_backlog_is_quarantined_once_more() {
    on_tokio(async {
        let ThereAndBack { node, other: _other, .. } = there_and_back(Client::Redis).await;
        let next = manager(Client::Redis, &[node.address()], LONG_TTL);
        pass_quarantine(&next, &node).await;
        // It has no replicas, and forgets that it was promoted.
        node.cli(&["CONFIG", "SET", "repl-backlog-ttl", "1"]);
        until("the end of the backlog", || node.info("master_replid2") == NO_REPLICATION_ID).await;
        is_quarantined(&next).await;
    });
}
