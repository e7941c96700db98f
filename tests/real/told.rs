//! Pushes to a holder on real nodes: its keys are gone, or it is asked to leave.
//!
//! No lease here is renewed. So nothing but a push can say what happened before the end of the lease, an hour later.

use std::future::IntoFuture;

use futures_util::future::try_join_all;
use quorate::{LeaseEnd, LockGuard, LockManager};
use quorate_tests::wait::{until, within_limit};
use quorate_tests::{Nodes, RedisServer};

use crate::client::{
    Client, assert_clean, calls, close, current_thread, nothing_is_left, on_tokio, with_each_client,
};

fn key(name: &str) -> String {
    format!("told:{name}")
}

/// How many keys a node tracks for all connections.
fn tracked(node: &RedisServer) -> usize {
    node.info("tracking_total_keys").parse().unwrap()
}

/// A lock on names that no push was ever about, once all nodes that run track them.
async fn held<const N: usize>(
    manager: &LockManager,
    nodes: &[RedisServer],
    names: [&str; N],
) -> LockGuard {
    let before: Vec<usize> = nodes.iter().map(tracked).collect();
    let guard = manager.lock(names.map(key)).await.unwrap();
    let track = || nodes.iter().zip(&before).all(|(node, before)| tracked(node) >= *before + N);
    until("tracking", track).await;
    guard
}

fn del(nodes: &[RedisServer], name: &str) {
    nodes.iter().for_each(|node| drop(node.cli(&["DEL", &key(name)])));
}

async fn is_lost_at_once(guard: &LockGuard) -> bool {
    matches!(within_limit("the end of a lease", guard.lost()).await, LeaseEnd::NotHeld(_))
}

/// The extension of several leases is one script, after which the node pushes the next change of
/// each key.
#[test]
fn p2_a_lease_that_was_extended_with_others_hears_of_its_own_key() {
    for client in Client::ALL {
        current_thread().block_on(async {
            let nodes = &Nodes::start(1);
            let manager = client.manager(nodes);
            let mut guards = Vec::new();
            for name in ["one", "two", "three"] {
                guards.push(held(&manager, nodes, [name]).await);
            }
            for _ in 0..2 {
                try_join_all(guards.iter().map(|guard| guard.extend())).await.unwrap();
            }
            // Without `PEXPIRE … GT` each has a script of its own.
            let shares = RedisServer::version() >= (7, 0);
            assert_eq!(calls(&nodes[0], "mget") > 0, shares, "{client:?}");
            for (guard, name) in guards.iter().zip(["one", "two", "three"]) {
                assert!(guard.is_valid(), "{client:?}: {name}");
                del(nodes, name);
                assert!(is_lost_at_once(guard).await);
            }
            drop(guards);
            close(&manager, nodes).await;
        });
    }
}

#[test]
fn p2_keys_that_are_deleted_or_evicted_end_the_lease_at_once() {
    with_each_client(|client| async move {
        let nodes = &Nodes::start(3);
        let manager = client.manager(nodes);
        for round in 0..5 {
            let name = &format!("{client:?}:{round}");
            let guard = held(&manager, nodes, [name]).await;
            if round > 2 {
                // The last thing that was sent about the key is ours.
                guard.extend().await.unwrap();
            }
            del(nodes, name);
            assert!(is_lost_at_once(&guard).await, "{client:?}");
        }
        let names = [&*format!("{client:?}:one"), &format!("{client:?}:other")];
        let guard = held(&manager, nodes, names).await;
        del(nodes, names[1]);
        assert!(is_lost_at_once(&guard).await, "{client:?}: of two names, the second");
        // Deleted by its release, the first name is tracked no more: else it counts below.
        drop(guard);
        nothing_is_left(nodes).await;
        let guard = held(&manager, nodes, [&format!("{client:?}:set")]).await;
        let name = key(&format!("{client:?}:set"));
        nodes.iter().for_each(|node| drop(node.cli(&["SET", &name, "another's"])));
        assert!(is_lost_at_once(&guard).await, "{client:?}");
    });
}

/// fred does not pass on the push of a flush: there the next renewal finds it.
#[test]
fn p2_a_flush_ends_the_lease_at_once() {
    let nodes = &Nodes::start(3);
    on_tokio(async {
        let manager = Client::Redis.manager(nodes);
        let guard = held(&manager, nodes, ["flush"]).await;
        nodes.iter().for_each(RedisServer::flushall);
        assert!(is_lost_at_once(&guard).await);
    });
}

#[test]
fn v9_a_holder_that_is_asked_to_leave_frees_its_mark_and_the_next_one_has_the_lock() {
    with_each_client(|client| async move {
        let nodes = &Nodes::start(3);
        let manager = client.manager(nodes);
        let operator = client.builder(nodes).label("admin").build().unwrap();
        for (round, by) in [&operator, &manager].into_iter().enumerate() {
            let name = &format!("{client:?}:asked:{round}");
            let guard = held(&manager, nodes, [name]).await;
            let waits = client.manager(nodes);
            let waits = waits.lock(key(name)).into_future();
            let next = tokio::spawn(waits);
            let revocation = by.revoke(key(name)).await.unwrap();
            assert!(revocation.is_effective(), "{client:?}: {revocation}");
            let told = within_limit("a revoke", guard.revoked()).await.unwrap();
            let label = told.as_ref().map(|label| label.as_str());
            assert_eq!(label, (round == 0).then_some("admin"), "{client:?}");
            assert!(guard.is_valid() && guard.is_at_risk() && guard.extend().await.is_err());
            guard.release().await.unwrap();
            within_limit("the next holder", next).await.unwrap().unwrap().release().await.unwrap();
            // A quorum has released. The node that is last would be counted below, and its key in the next round.
            until("the last release", || nodes.keys_left().is_empty()).await;
        }
        for manager in [&manager, &operator] {
            assert_clean(manager).await;
        }
        // A manager that is gone may have been about to ask a node what it grants.
        nothing_is_left(nodes).await;
    });
}
