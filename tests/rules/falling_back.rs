//! Nodes that will not tell when a key changes, or will not keep waiters in order: a manager does
//! without, and says so once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use quorate_core::{
    BackendError, BackendErrorKind, Claim, Inspect, Key, LockBackend, LockManager, Place, Queue,
    Runtime, Vote, Watch, Watched,
};
use quorate_memory::{MemoryNode, Sim};
use tracing::Level;

use crate::observe::{Told, of, told};
use crate::world::{MS, SECOND};

/// A node whose user may not do one thing.
#[derive(Clone, Debug)]
struct Strict {
    node: MemoryNode,
    forbids: &'static str,
    asked: Arc<AtomicUsize>,
}

impl Strict {
    fn may(&self, operation: &'static str) -> Result<(), BackendError> {
        if operation != self.forbids {
            return Ok(());
        }
        self.asked.fetch_add(1, Ordering::Relaxed);
        Err(BackendError::new(BackendErrorKind::Permission, "NOPERM you may not"))
    }
}

#[async_trait]
impl LockBackend for Strict {
    async fn acquire(&self, claim: &Claim) -> Result<Vote, BackendError> {
        LockBackend::acquire(&self.node, claim).await
    }

    async fn extend(&self, claim: &Claim) -> Result<Vote, BackendError> {
        self.node.extend(claim).await
    }

    async fn release(&self, claim: &Claim) -> Result<Vote, BackendError> {
        LockBackend::release(&self.node, claim).await
    }

    fn name(&self) -> Option<&str> {
        Some(self.node.name())
    }

    fn inspector(&self) -> Option<&dyn Inspect> {
        Some(&self.node)
    }

    fn watcher(&self) -> Option<&dyn Watch> {
        Some(self)
    }

    fn queue(&self) -> Option<&dyn Queue> {
        Some(self)
    }
}

#[async_trait]
impl Watch for Strict {
    async fn look(&self, key: &Key) -> Result<Watched, BackendError> {
        self.may("watch")?;
        self.node.look(key).await
    }
}

#[async_trait]
impl Queue for Strict {
    async fn join(&self, key: &Key, place: &Place) -> Result<Option<Place>, BackendError> {
        self.may("queue")?;
        self.node.join(key, place).await
    }

    async fn leave(
        &self,
        key: &Key,
        place: &Place,
        before: Option<&Place>,
    ) -> Result<(), BackendError> {
        self.node.leave(key, place, before).await
    }
}

/// Three managers contend for one lock, each time for a moment, and do not want it for `rest` then. How
/// often each had it, and how often
/// nodes were asked for what they forbid.
fn contend(forbids: &'static str, rest: Duration) -> (Vec<usize>, usize) {
    let sim = Sim::new(1);
    let asked = Arc::<AtomicUsize>::default();
    let strict = |node| Strict { node, forbids, asked: Arc::clone(&asked) };
    let nodes: Vec<_> = MemoryNode::cluster(3, sim.clone()).into_iter().map(strict).collect();
    let served = Arc::new(Mutex::new(vec![0; 3]));
    for number in 0..3 {
        let manager = LockManager::builder(sim.clone(), nodes.clone()).build().unwrap();
        let (served, sim_) = (Arc::clone(&served), sim.clone());
        sim.spawn(Box::pin(async move {
            loop {
                let Ok(guard) = manager.lock("r").wait(60 * SECOND).await else { continue };
                served.lock().unwrap()[number] += 1;
                sim_.sleep_until(sim_.now() + MS).await;
                guard.release().await.ok();
                sim_.sleep_until(sim_.now() + rest).await;
            }
        }));
    }
    sim.advance(10 * SECOND);
    let served = served.lock().unwrap().clone();
    (served, asked.load(Ordering::Relaxed))
}

fn shown(told: &Told) -> [String; 3] {
    ["node", "operation", "kind"].map(|name| told.field(name).to_owned())
}

#[test]
fn where_waiters_may_not_stand_in_order_they_are_served_all_the_same_and_that_is_told_once() {
    let told = told(|| {
        let (served, asked) = contend("queue", Duration::ZERO);
        assert!(served.iter().all(|served| *served > 100), "{served:?}");
        // The gate, by each manager.
        assert_eq!(asked, 3);
    });
    let cannot = of("node cannot", &told);
    assert_eq!(cannot.len(), 3, "{cannot:#?}");
    for one in cannot {
        assert_eq!(shown(&one)[1..], ["queue", "Permission"]);
        assert_eq!(one.level, Level::WARN);
    }
}

#[test]
fn where_keys_may_not_be_watched_waiters_poll_and_that_is_told_once() {
    let told = told(|| {
        let (served, asked) = contend("watch", 20 * MS);
        assert!(served.iter().all(|served| *served > 10), "{served:?}");
        assert!(asked <= 9, "each node by each manager, and {asked} times");
    });
    let mut cannot: Vec<_> = of("node cannot", &told).iter().map(shown).collect();
    cannot.sort();
    assert!(cannot.len() >= 3 && cannot.len() <= 9, "{cannot:#?}");
    for node in ["memory-1", "memory-2", "memory-3"] {
        let of_node = cannot.iter().filter(|one| one[0] == node).count();
        assert!(of_node <= 3, "{node}, by three managers: {cannot:#?}");
    }
    assert!(cannot.iter().all(|one| one[1..] == ["watch", "Permission"]));
}
