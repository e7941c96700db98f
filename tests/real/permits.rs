//! Permits on real nodes, through each client and a pool.

use futures_util::future::join_all;
use quorate::{LockGuard, LockManager, LockRequest};
use quorate_tests::wait::LONG_TTL;
use quorate_tests::{Nodes, RedisServer};

use crate::client::{Client, LIMIT, close_all, on_tokio};
use crate::working::share;

const PERMITS: usize = 3;

fn permit(manager: &LockManager) -> LockRequest {
    manager.permit("p", PERMITS).ttl(LONG_TTL).timeout(LIMIT)
}

fn name_of(guard: &LockGuard) -> String {
    guard.keys()[0].to_string()
}

#[test]
fn s1_processes_share_permits_through_each_client() {
    share("permits");
}

/// All permits are held. Each in turn is released, and the waiter has it.
#[test]
fn s2_a_waiter_has_the_permit_that_is_released() {
    for client in Client::WITH_POOL {
        let nodes = Nodes::start(3);
        on_tokio(async {
            let (manager, other) = (client.manager(&nodes), client.manager(&nodes));
            let mut guards = join_all([(); 3].map(|()| permit(&manager).into_future())).await;
            assert!(other.permit("p", PERMITS).no_wait().await.unwrap_err().is_held());
            for _ in 0..3 {
                let guard = guards.remove(0).unwrap();
                let name = name_of(&guard);
                let waits = tokio::spawn(permit(&other).into_future());
                // It waits in the queue of the first permit.
                let waiters = quorate_tests::keys::waiters("p#1");
                let is_there = |node: &RedisServer| node.cli(&["EXISTS", &waiters]).integer() == 1;
                quorate_tests::wait::until("it waits", || nodes.iter().any(is_there)).await;
                guard.release().await.unwrap();
                let next = waits.await.unwrap().unwrap();
                assert_eq!(name_of(&next), name, "{client:?}");
                guards.push(Ok(next));
            }
            drop(guards);
            close_all([&manager, &other], &nodes).await;
        });
    }
}

/// None holds one and waits for the other.
#[test]
fn s6_two_managers_that_want_both_permits_have_them_in_turn() {
    share("both permits");
}
