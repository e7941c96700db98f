//! The restart guard on failovers in which no process restarts.

use futures_util::future::join_all;
use quorate_tests::keys::EPOCH;
use quorate_tests::wait::{LONG_TTL, until, until_it_says};
use quorate_tests::{Mode, Proxy, RedisServer};

use crate::client::{Client, on_tokio, warm_up, with_each};
use crate::guard::{end_quarantine, is_quarantined, manager, pass_quarantine};

/// A failover to a replica that lacks a lock, since its link was cut, and back. No process restarts, and nothing
/// is locked at the other server.
#[test]
fn the_restart_guard_sees_a_failover_there_and_back() {
    on_tokio(join_all(Client::ALL.map(async |client| {
        let node = RedisServer::start();
        let link = Proxy::start(node.port());
        let other = RedisServer::builder().replica_of(link.port()).start();
        // Over a pool: with pushes the first holder hears of it.
        let one = manager(Client::Pool, &[node.address()], LONG_TTL);
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

        let next = manager(client, &[node.address()], LONG_TTL);
        is_quarantined(&next).await;
        assert!(guard.is_valid());
        // Once: from then on the epoch is that of the promoted server.
        end_quarantine(&node);
        next.lock("s").no_wait().await.unwrap().release().await.unwrap();
    })));
}

/// The name of a node leads to the promoted server, and no connection to the old primary ends.
#[test]
fn a_connection_to_a_demoted_primary_is_left() {
    with_each(&Client::WITH_POOL, async |client| {
        let (old, new) = (RedisServer::start(), RedisServer::start());
        let name = Proxy::start(old.port());
        let locks = client.manager_at(&name.address());
        warm_up(&locks).await;
        new.cli(&["REPLICAOF", "127.0.0.1", &old.port().to_string()]);
        new.wait_until_in_sync();
        new.cli(&["REPLICAOF", "NO", "ONE"]);
        old.cli(&["REPLICAOF", "127.0.0.1", &new.port().to_string()]);
        old.wait_until_in_sync();
        name.lead_to(new.port());
        // The first replies say that the server is a replica.
        let mut locked = None;
        until_it_says("the lock", async || {
            locked = locks.lock("after").no_wait().await.ok();
            locked.is_some()
        })
        .await;
        assert!(new.get("after").is_some(), "{client:?}");
        locked.unwrap().release().await.unwrap();
    });
}
