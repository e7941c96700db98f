//! Marks on real nodes: locks that are kept, and work that is done once per period.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use quorate::LockManager;
use quorate_tests::Nodes;
use quorate_tests::wait::{LONG_TTL, until, until_it_says};

use crate::client::{Client, LIMIT, all_have, assert_clean, on_tokio};

const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The managers of several processes: two with each client.
fn managers(nodes: &Nodes) -> Vec<LockManager> {
    let clients = Client::WITH_POOL.into_iter().chain(Client::WITH_POOL);
    clients.map(|client| client.manager(nodes)).collect()
}

/// On how many nodes the key lives for over `least`, and at most `most`.
fn lasts(nodes: &Nodes, key: &str, least: Duration, most: Duration) -> usize {
    let left = nodes.iter().map(|node| u128::try_from(node.pttl(key)).unwrap_or_default());
    left.filter(|left| *left > least.as_millis() && *left <= most.as_millis()).count()
}

#[test]
fn a_lock_is_kept_for_its_duration() {
    for client in Client::WITH_POOL {
        let nodes = Nodes::start(3);
        on_tokio(async {
            let (manager, other) = (client.manager(&nodes), client.manager(&nodes));
            // Longer than a lease, and longer than any ttl of a lock.
            for (name, duration) in [("job", 3 * LONG_TTL), ("once", 2 * YEAR)] {
                let guard = manager.lock(name).await.unwrap();
                all_have(&nodes, name).await;
                guard.auto_renew();
                guard.keep(duration).await.unwrap();
                let is_kept = || lasts(&nodes, name, duration - LONG_TTL, duration) == 3;
                until("each node keeps it", is_kept).await;
                assert!(other.lock(name).no_wait().await.unwrap_err().is_held(), "{client:?}");
            }
            // And until then.
            let guard = manager.lock("short").ttl(Duration::from_secs(2)).await.unwrap();
            guard.keep(Duration::from_millis(2_100)).await.unwrap();
            let next = other.lock("short").timeout(LIMIT).await.unwrap();
            next.release().await.unwrap();
            // No close frees it.
            for manager in [manager, other] {
                assert_clean(&manager).await;
            }
            let mut left: Vec<_> = nodes.keys_left().into_iter().map(|(_, key)| key).collect();
            left.sort();
            assert_eq!(left, ["job", "job", "job", "once", "once", "once"], "{client:?}");
        });
    }
}

#[test]
fn o1_processes_that_ask_together_run_a_period_once() {
    let nodes = &Nodes::start(3);
    on_tokio(async {
        let managers = managers(nodes);
        for job in 0..10 {
            let (name, runs) = (format!("job:{job}"), AtomicU32::new(0));
            let ask = || {
                join_all(managers.iter().map(|manager| {
                    manager.once_per(&*name, YEAR, async |lease| {
                        assert!(lease.is_valid());
                        match runs.fetch_add(1, Ordering::SeqCst) {
                            0 => Err("the first run fails"),
                            _ => Ok(()),
                        }
                    })
                }))
            };
            // Those that ask at the same moment may all be refused.
            until_it_says("it was run", async || {
                let asked = ask().await.into_iter().map(Result::unwrap);
                asked.flatten().any(|run| run.is_ok())
            })
            .await;
            assert!(ask().await.into_iter().all(|asked| asked.unwrap().is_none()));
            assert_eq!(runs.load(Ordering::SeqCst), 2, "one that failed, and one that succeeded");
            let left = nodes.keys_left().into_iter().map(|(_, key)| key);
            let key = left.into_iter().find(|key| key.starts_with(&*name)).unwrap();
            // A node that had refused the winner may be without it.
            assert!(lasts(nodes, &key, YEAR, 2 * YEAR) >= 2, "a quorum has the mark");
        }
        for manager in managers {
            assert_clean(&manager).await;
        }
    });
}
