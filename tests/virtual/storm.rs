//! A storm on four threads: two managers with six tasks each compete for three keys, and give up at random.
//!
//! Virtual time has one thread. Here replies, timers, dropped futures and dropped guards of one attempt meet on
//! several. Of each key there is one holder at a time, no waiter is forgotten, and nothing is left on the nodes.
//!
//! `QUORATE_STORM_HOLDS` is how many holds are made; the default is 1,000, and 20,000 in the scheduled job.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use quorate::memory::{Effect, MemoryNode, Rule};
use quorate::runtime::TokioRuntime;
use quorate::{LockGuard, LockManager};
use quorate_tests::dice::Dice;
use quorate_tests::wait::{LIMIT, for_turns, times, within_limit};

const KEYS: [&str; 3] = ["a", "b", "c"];

/// What all tasks share.
struct Storm {
    holders: [AtomicUsize; KEYS.len()],
    holds: AtomicU64,
    given_up: AtomicU64,
    wanted: u64,
}

impl Storm {
    fn new() -> Arc<Self> {
        let wanted = env::var("QUORATE_STORM_HOLDS").ok();
        let wanted = wanted.map(|wanted| wanted.parse().expect("a number of holds"));
        let wanted = wanted.unwrap_or_else(|| times(1_000, 20_000));
        let (holders, holds, given_up) = Default::default();
        Arc::new(Self { holders, holds, given_up, wanted })
    }

    /// Holds the lock of these keys, while no other task may.
    async fn hold(&self, guard: LockGuard, keys: &[usize], dice: &Dice) {
        for key in keys {
            let others = self.holders[*key].fetch_add(1, Ordering::SeqCst);
            assert_eq!(others, 0, "{} has two holders", KEYS[*key]);
        }
        for _ in 0..dice.below(4) {
            tokio::task::yield_now().await;
        }
        assert!(guard.is_valid());
        for key in keys {
            self.holders[*key].fetch_sub(1, Ordering::SeqCst);
        }
        self.holds.fetch_add(1, Ordering::SeqCst);
        match dice.below(4) {
            0 => drop(guard),
            // The release goes on when its future is dropped.
            1 => drop(for_turns(Some(1), guard.release()).await),
            2 => {
                let extended = guard.extend().await;
                assert!(extended.is_ok(), "{extended:?}");
                guard.release().await.unwrap();
            }
            _ => guard.release().await.unwrap(),
        }
    }

    async fn run(&self, locks: LockManager, dice: Dice) {
        while self.holds.load(Ordering::SeqCst) < self.wanted {
            let first = dice.below(KEYS.len());
            let keys = match dice.below(4) {
                0 => vec![first, (first + 1) % KEYS.len()],
                _ => vec![first],
            };
            let mut request = locks.lock(keys.iter().map(|key| KEYS[*key]).collect::<Vec<_>>());
            if dice.below(2) == 0 {
                request = request.auto_renew();
            }
            let patience = (dice.below(3) == 0).then(|| dice.below(200));
            match for_turns(patience, request.timeout(LIMIT)).await {
                Some(guard) => self.hold(guard.unwrap(), &keys, &dice).await,
                None => drop(self.given_up.fetch_add(1, Ordering::SeqCst)),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_storm_on_four_threads_has_one_holder_at_a_time_and_leaves_nothing() {
    for is_ordered in [true, false] {
        let storm = Storm::new();
        let nodes = MemoryNode::cluster(3, TokioRuntime::new());
        for node in &nodes {
            let delay = Effect::Delay { least: Duration::ZERO, most: Duration::from_micros(200) };
            node.add_rule(Rule::new(delay).chance(300_000));
        }
        let used =
            nodes.iter().map(|node| if is_ordered { node.clone() } else { node.unordered() });
        let used: Vec<MemoryNode> = used.collect();
        let locks = [0, 1].map(|_| LockManager::builder(used.clone()).build().unwrap());
        let tasks = (0..12).map(|number| {
            let (storm, locks) = (Arc::clone(&storm), locks[number % 2].clone());
            // The choices are the same in each run, the interleaving of the threads is not.
            tokio::spawn(async move { storm.run(locks, Dice::new(number as u64)).await })
        });
        let tasks: Vec<_> = tasks.collect();
        for task in tasks {
            within_limit("a task", task).await.unwrap();
        }
        assert!(storm.given_up.load(Ordering::SeqCst) > 0);
        for locks in locks {
            let report = locks.close(LIMIT).await;
            assert!(report.is_clean(), "{report}");
        }
        for node in &nodes {
            assert_eq!(node.keys(), [b""; 0], "{}", node.name());
        }
    }
}
