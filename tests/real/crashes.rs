//! Nodes crash and come back while many tasks want one lock.
//!
//! A node that forgets its keys breaks the promise (the README says so), so these nodes remember:
//! `appendonly yes`, `appendfsync always`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use quorate::{LockGuard, LockManager, ReleaseError};
use quorate_tests::wait::{now, times, until_it_says, within_limit};
use quorate_tests::{Nodes, RedisServer};
use tokio::sync::Semaphore;

use crate::client::{Client, LIMIT, on_tokio, unhurried};

const NODES: usize = 5;
const WORKERS: usize = 50;

/// Locks that have to be taken while a node is down, and again once it is back.
const LOCKS_BETWEEN: u32 = 10;

/// A crashed node comes back with the keys that it could not be asked to release. Short, so that
/// it votes for others again after 2 s.
const TTL: Duration = Duration::from_secs(2);

/// How long the keys of a wait queue live after the last refresh.
const QUEUE_TTL: Duration = Duration::from_secs(10);

#[test]
fn crashing_nodes_that_remember_lose_no_lock_with_redis() {
    crash(Client::Redis);
}

#[test]
fn crashing_nodes_that_remember_lose_no_lock_with_fred() {
    crash(Client::Fred);
}

fn crash(client: Client) {
    let nodes = Nodes::start_with(NODES, &RedisServer::builder().append_only());
    on_tokio(async {
        let crashes = times(7, 30);
        let manager = client.builder(&nodes).ttl(TTL).node_timeout(TTL / 4);
        let manager = manager.timeout(10 * LIMIT).build().unwrap();
        let shared = Arc::new(Shared::default());
        let workers: Vec<_> = (0..WORKERS)
            .map(|_| tokio::spawn(work(manager.clone(), Arc::clone(&shared))))
            .collect();
        for crash in 0..crashes {
            let node = &nodes[crash % NODES];
            node.kill();
            shared.wait_for_locks(LOCKS_BETWEEN).await;
            node.restart();
            shared.wait_for_locks(LOCKS_BETWEEN).await;
        }
        shared.is_over.store(true, Ordering::SeqCst);
        for worker in workers {
            worker.await.unwrap();
        }
        shared.judge(client, 2 * crashes * LOCKS_BETWEEN as usize);
        // The first report may name the node that came back last, if it has not been asked again.
        until_it_says("all is released", async || manager.close(LIMIT).await.is_clean()).await;
        nothing_outlives_its_ttl(client, &nodes).await;
    });
}

/// What the workers share beside the lock.
struct Shared {
    sections: Mutex<Vec<Section>>,
    locks: Semaphore,
    is_over: AtomicBool,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            sections: Mutex::default(),
            locks: Semaphore::new(0),
            is_over: AtomicBool::new(false),
        }
    }
}

/// One hold of the lock: from its acquire to its release or the end of the lease, whichever came first.
#[derive(Clone, Copy, Debug)]
struct Section {
    begin: Instant,
    end: Instant,
    /// Whether nodes no longer had it at the release, though the lease had not ended.
    was_lost: bool,
}

async fn work(manager: LockManager, shared: Arc<Shared>) {
    while !shared.is_over.load(Ordering::SeqCst) {
        let guard = manager.lock("counter").await.unwrap();
        let section = shared.hold(guard).await;
        shared.sections.lock().unwrap().push(section);
        shared.locks.add_permits(1);
    }
}

impl Shared {
    async fn hold(&self, guard: LockGuard) -> Section {
        let begin = now();
        tokio::task::yield_now().await;
        let valid_until = guard.valid_until();
        let end = now().min(valid_until);
        let released = guard.release().await;
        let was_lost = matches!(released, Err(ReleaseError::Lost(_))) && now() < valid_until;
        Section { begin, end, was_lost }
    }

    async fn wait_for_locks(&self, count: u32) {
        within_limit("more locks", self.locks.acquire_many(count)).await.unwrap().forget();
    }

    fn judge(&self, client: Client, least: usize) {
        let mut sections = self.sections.lock().unwrap().clone();
        sections.sort_by_key(|section| section.begin);
        let overlaps = sections.windows(2).filter(|pair| pair[1].begin < pair[0].end).count();
        let lost = sections.iter().filter(|section| section.was_lost).count();
        assert_eq!((overlaps, lost), (0, 0), "{client:?}: of {} locks", sections.len());
        assert!(sections.len() >= least);
    }
}

/// A key that a crashed node could not be asked to release is gone after its ttl: the node itself
/// shows when, by granting the lock. The keys of a wait queue expire by themselves.
async fn nothing_outlives_its_ttl(client: Client, nodes: &Nodes) {
    for node in nodes.iter() {
        let alone = unhurried(client.connect(&[node.address()])).build().unwrap();
        alone.lock("counter").await.unwrap().release().await.unwrap();
    }
    for (node, key) in nodes.keys_left() {
        let left = nodes[node].pttl(&key);
        let waited = key.starts_with("counter:quorate:");
        // -1 is without an end, and -2 gone by now.
        let ends = left != -1 && left <= QUEUE_TTL.as_millis() as i64;
        assert!(waited && ends, "{key} on {node}, for {left} ms");
    }
}
