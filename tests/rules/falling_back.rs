//! Nodes that will not tell when a key changes, or will not keep waiters in order: a manager does
//! without, says so once, and asks again after a minute.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use quorate_core::{
    BackendError, BackendErrorKind, Claim, Inspect, Key, LockBackend, LockManager, Place, Queue,
    Runtime, Vote, Watch, Watched,
};
use quorate_memory::{MemoryNode, Sim};
use tracing::Level;

use crate::observe::{Told, of, told};
use crate::world::{MS, SECOND};

/// A node whose user may not do one thing, for some time at least.
#[derive(Clone, Debug)]
struct Strict {
    node: MemoryNode,
    forbids: &'static str,
    /// What it says then.
    kind: BackendErrorKind,
    /// On the clock of `sim`.
    until: Option<Instant>,
    sim: Sim,
    asked: Arc<AtomicUsize>,
    /// How often it was asked, and did it.
    done: Arc<AtomicUsize>,
}

impl Strict {
    fn may(&self, operation: &'static str) -> Result<(), BackendError> {
        if operation != self.forbids {
            return Ok(());
        }
        if self.until.is_some_and(|until| self.sim.now() >= until) {
            self.done.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        self.asked.fetch_add(1, Ordering::Relaxed);
        Err(BackendError::new(self.kind, "not that"))
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

/// How three managers contend for one lock.
struct Contest {
    /// What the nodes forbid, and for how long if not for ever.
    forbids: (&'static str, Option<Duration>),
    kind: BackendErrorKind,
    /// How long each holds the lock.
    hold: Duration,
    /// How long each does not want it then.
    rest: Duration,
    time: Duration,
}

/// What has become of them.
struct Outcome {
    /// How often each had it.
    served: Vec<usize>,
    /// How often nodes were asked for what they forbid.
    asked: usize,
    /// How often nodes did what they had forbidden before.
    done: usize,
}

impl Contest {
    /// Each wants it all the time, and holds it for a moment.
    const fn hot(forbids: &'static str) -> Self {
        let kind = BackendErrorKind::Permission;
        Self { forbids: (forbids, None), kind, hold: MS, rest: Duration::ZERO, time: TEN_SECONDS }
    }

    /// Somebody waits nearly always, and little happens in an hour.
    const fn calm(forbids: &'static str, strict: Option<Duration>, time: Duration) -> Self {
        let (kind, hold) = (BackendErrorKind::Permission, Duration::from_millis(700));
        Self { forbids: (forbids, strict), kind, hold, rest: SECOND, time }
    }

    fn run(self) -> Outcome {
        let Self { forbids: (forbids, strict), kind, hold, rest, time } = self;
        let sim = Sim::new(1);
        let (asked, done) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let until = strict.map(|strict| sim.now() + strict);
        let strict = |node| Strict {
            node,
            forbids,
            kind,
            until,
            sim: sim.clone(),
            asked: Arc::clone(&asked),
            done: Arc::clone(&done),
        };
        let nodes: Vec<_> = MemoryNode::cluster(3, sim.clone()).into_iter().map(strict).collect();
        let served = Arc::new(Mutex::new(vec![0; 3]));
        for number in 0..3 {
            let manager = LockManager::builder(sim.clone(), nodes.clone()).build().unwrap();
            let (served, sim_) = (Arc::clone(&served), sim.clone());
            sim.spawn(Box::pin(async move {
                loop {
                    let Ok(guard) = manager.lock("r").wait(60 * SECOND).await else { continue };
                    served.lock().unwrap()[number] += 1;
                    sim_.sleep_until(sim_.now() + hold).await;
                    guard.release().await.ok();
                    sim_.sleep_until(sim_.now() + rest).await;
                }
            }));
        }
        sim.advance(time);
        let served = served.lock().unwrap().clone();
        let [asked, done] = [asked, done].map(|count| count.load(Ordering::Relaxed));
        Outcome { served, asked, done }
    }
}

const TEN_SECONDS: Duration = Duration::from_secs(10);

fn shown(told: &Told) -> [String; 3] {
    ["node", "operation", "kind"].map(|name| told.field(name).to_owned())
}

#[test]
fn where_waiters_may_not_stand_in_order_they_are_served_all_the_same_and_that_is_told_once() {
    let told = told(|| {
        let Outcome { served, asked, .. } = Contest::hot("queue").run();
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
        let Outcome { served, asked, .. } =
            Contest { rest: 20 * MS, ..Contest::hot("watch") }.run();
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

#[test]
fn who_forbids_it_is_asked_again_once_a_minute_and_that_is_not_told_again() {
    for (operation, most) in [("queue", 3), ("watch", 9)] {
        let mut asked = 0;
        for minutes in 0..3 {
            let time = minutes * 60 * SECOND + 50 * SECOND;
            let mut now = 0;
            let told = told(|| now = Contest::calm(operation, None, time).run().asked);
            let limit = usize::try_from(minutes + 1).unwrap() * most;
            assert!(asked < now && now <= limit, "{operation}, {minutes}: {asked}, then {now}");
            assert!(of("node cannot", &told).len() <= most, "{operation}, {minutes}");
            asked = now;
        }
    }
}

#[test]
fn what_was_forbidden_for_a_moment_is_done_again_after_a_minute() {
    for operation in ["queue", "watch"] {
        let run = |time| Contest::calm(operation, Some(10 * SECOND), time).run();
        let Outcome { asked, done, .. } = run(55 * SECOND);
        assert!(asked > 0 && done == 0, "{operation}: asked {asked} times, did it {done} times");
        let later = run(150 * SECOND);
        assert_eq!(later.asked, asked, "{operation}");
        assert!(later.done > 20, "{operation}: {} times", later.done);
    }
}

/// A connection that breaks says nothing about what a node can do.
#[test]
fn what_failed_for_a_moment_is_done_again_at_once() {
    for operation in ["queue", "watch"] {
        let kind = BackendErrorKind::Connection;
        let calm = Contest::calm(operation, Some(10 * SECOND), 30 * SECOND);
        let Outcome { asked, done, .. } = Contest { kind, ..calm }.run();
        assert!(asked > 0 && done > 0, "{operation}: asked {asked} times, did it {done} times");
    }
}

/// The keys of a queue lie in different slots of a cluster, which no later try mends.
#[test]
fn a_cluster_that_cannot_keep_them_in_order_is_asked_once_a_minute() {
    let kind = BackendErrorKind::Cluster;
    let Outcome { served, asked, .. } = Contest { kind, ..Contest::hot("queue") }.run();
    assert!(served.iter().all(|served| *served > 100), "{served:?}");
    assert_eq!(asked, 3, "the gate, by each manager");
}
