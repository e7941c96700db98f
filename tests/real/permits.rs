//! Permits on real nodes, through each client and a pool.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use quorate::{FencingToken, LockGuard, LockManager, LockRequest};
use quorate_tests::wait::LONG_TTL;
use quorate_tests::{Nodes, RedisServer};

use crate::client::{Client, LIMIT, assert_clean, close, nothing_is_left, on_tokio};

/// The node timeout of a test in which a node hangs.
const SHORT: Duration = Duration::from_millis(500);

const PERMITS: usize = 3;

fn permit(manager: &LockManager) -> LockRequest {
    manager.permit("p", PERMITS).ttl(LONG_TTL).timeout(LIMIT)
}

fn name_of(guard: &LockGuard) -> String {
    guard.keys()[0].to_string()
}

/// Who has what, and the last token of each permit.
#[derive(Default)]
struct Board {
    tokens: Mutex<BTreeMap<String, Option<FencingToken>>>,
    holders: Mutex<Vec<String>>,
    had: AtomicUsize,
}

impl Board {
    /// Each of four tasks of each manager has five permits.
    async fn share(&self, managers: &[LockManager]) {
        let task = async |manager: &LockManager| {
            for _ in 0..5 {
                let guard = permit(manager).fenced().await.unwrap();
                let (name, token) = (name_of(&guard), guard.fencing_token());
                let before = self.tokens.lock().unwrap().insert(name.clone(), token);
                assert!(before.flatten() < token, "{name}");
                {
                    let mut holders = self.holders.lock().unwrap();
                    assert!(!holders.contains(&name), "{name} has two holders");
                    holders.push(name.clone());
                    assert!(holders.len() <= PERMITS, "{holders:?}");
                }
                // Others come between.
                tokio::task::yield_now().await;
                assert!(guard.is_valid());
                self.holders.lock().unwrap().retain(|other| *other != name);
                guard.release().await.unwrap();
                self.had.fetch_add(1, Ordering::SeqCst);
            }
        };
        join_all(managers.iter().flat_map(|manager| [manager; 4]).map(task)).await;
        assert_eq!(self.had.swap(0, Ordering::SeqCst), managers.len() * 20);
    }
}

#[test]
fn s1_processes_share_permits_through_each_client() {
    let nodes = &Nodes::start(3);
    let each = Client::WITH_POOL.map(|client| vec![client, client]);
    for clients in each.into_iter().chain([Client::WITH_POOL.to_vec()]) {
        on_tokio(async {
            let managers: Vec<_> = clients.iter().map(|client| client.manager(nodes)).collect();
            Board::default().share(&managers).await;
            for manager in managers {
                assert_clean(&manager).await;
            }
        });
        let left = nodes.keys_left().into_iter().filter(|(_, key)| !key.contains("quorate:fence"));
        assert_eq!(left.collect::<Vec<_>>(), [], "{clients:?}");
    }
}

#[test]
fn s1_permits_go_round_while_a_node_is_dead() {
    for client in Client::WITH_POOL {
        let nodes = Nodes::start(3);
        on_tokio(async {
            // A gate that does not answer costs a node timeout.
            let manager = || client.builder(&nodes).node_timeout(SHORT).build().unwrap();
            let managers = [manager(), manager()];
            let board = Board::default();
            board.share(&managers).await;
            nodes[0].pause();
            board.share(&managers).await;
            nodes[0].resume();
        });
    }
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
            close(&other, &nodes).await;
            nothing_is_left(&nodes).await;
        });
    }
}
