//! The nodes change while processes lock: by the procedure of the guide, and against it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorate_core::{Lease, LockManager, Runtime};
use quorate_memory::{Fault, MemoryNode, Sim};

use crate::world::{MS, SECOND, World};

const TTL: Duration = SECOND;

const PROCESSES: usize = 4;

const SEEDS: u64 = 10;

/// Processes that lock one name again and again, each with one of the lists of nodes.
#[derive(Clone)]
struct Change {
    sim: Sim,
    nodes: Vec<MemoryNode>,
    lists: Arc<[&'static str]>,
    /// The list with which a process starts now.
    newest: Arc<AtomicUsize>,
    /// How many processes run with each list.
    running: Arc<[AtomicUsize]>,
    leases: Arc<Mutex<Vec<Lease>>>,
    overlaps: Arc<AtomicUsize>,
}

impl Change {
    fn new(seed: u64, lists: &[&'static str]) -> Self {
        let sim = Sim::new(seed);
        let nodes = MemoryNode::cluster(6, sim.clone());
        let running = lists.iter().map(|_| AtomicUsize::new(0)).collect();
        let (newest, leases, overlaps) = Default::default();
        Self { sim, nodes, lists: lists.into(), newest, running, leases, overlaps }
    }

    /// Runs a process, which starts again with the newest list.
    async fn process(self) {
        loop {
            let list = self.newest.load(Ordering::Relaxed);
            self.running[list].fetch_add(1, Ordering::Relaxed);
            let client = self.sim.client(0);
            let nodes = self.lists[list].bytes().map(|name| usize::from(name - b'a'));
            let nodes = nodes.map(|node| self.nodes[node].seen_by(&client));
            let locks = LockManager::builder(nodes).runtime(client.clone()).ttl(TTL);
            let locks = locks.build().unwrap();
            while self.newest.load(Ordering::Relaxed) == list || self.sim.random_below(4) > 0 {
                if let Ok(guard) = locks.lock("r").auto_renew().timeout(SECOND).await {
                    self.judge(guard.lease());
                    let _ = guard.run(self.pause(2 * TTL)).await;
                }
                self.pause(TTL / 8).await;
            }
            let _ = locks.close(SECOND).await;
            self.running[list].fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Notes a lease, and whether another one is valid.
    fn judge(&self, lease: Lease) {
        let mut leases = self.leases.lock().unwrap();
        let is_held = leases.iter().any(Lease::is_valid);
        self.overlaps.fetch_add(usize::from(is_held), Ordering::Relaxed);
        leases.push(lease);
    }

    /// One node after the other does not answer for a time. None forgets anything.
    async fn trouble(self) {
        loop {
            let node = &self.nodes[usize::try_from(self.sim.random_below(6)).unwrap()];
            node.inject(if self.sim.random_below(2) == 0 { Fault::Down } else { Fault::Hung });
            self.pause(2 * TTL).await;
            node.heal();
        }
    }

    fn pause(&self, most: Duration) -> impl Future<Output = ()> + Send + use<> {
        let most = u64::try_from(most.as_micros()).unwrap();
        self.sim.sleep(Duration::from_micros(self.sim.random_below(most)))
    }

    /// The next list is used when all processes have the one before, and a ttl has passed; or at once.
    fn run(self, waits: bool) -> (usize, usize) {
        for _ in 0..PROCESSES {
            self.sim.spawn(Box::pin(self.clone().process()));
        }
        self.sim.spawn(Box::pin(self.clone().trouble()));
        for list in 0..self.lists.len() {
            self.newest.store(list, Ordering::Relaxed);
            self.sim.advance(MS);
            let is_over = || self.running[list].load(Ordering::Relaxed) == PROCESSES;
            while waits && !is_over() {
                self.sim.advance(TTL / 8);
            }
            self.sim.advance(if waits { TTL } else { TTL / 2 });
        }
        self.sim.advance(10 * TTL);
        let locked = self.leases.lock().unwrap().len();
        (locked, self.overlaps.load(Ordering::Relaxed))
    }
}

/// The table of the guide.
#[test]
fn a_change_of_nodes_by_the_procedure_has_one_holder_and_another_change_has_two() {
    for (lists, waits, is_safe) in [
        (&["abc", "abcd", "bcd"][..], true, true),
        (&["abcd", "bcde"], true, true),
        (&["abc", "abcd", "bcd"], false, false),
        (&["abc", "bcd"], true, false),
    ] {
        let story = format!("{lists:?}, {waits}");
        let figures: Vec<_> = (0..SEEDS).map(|seed| Change::new(seed, lists).run(waits)).collect();
        let locked: usize = figures.iter().map(|(locked, _)| locked).sum();
        let overlaps: usize = figures.iter().map(|(_, overlaps)| overlaps).sum();
        assert!(locked > 80, "{story}: {locked} locks");
        assert_eq!(overlaps == 0, is_safe, "{story}: {overlaps} of {locked} overlap");
    }
}

/// One replaced of three: a lock on a and b, and another one on c and d.
#[test]
fn a_node_of_three_that_is_replaced_at_once_makes_two_holders() {
    let world = World::new(4);
    let list = |from: usize| world.over(world.spies().into_iter().skip(from).take(3));
    let (old, new) = (list(0), list(1));
    world.inject(2..3, Fault::Down);
    let one = world.lock(&old);
    world.heal();
    let other = world.lock(&new);
    assert!(one.is_valid() && other.is_valid());
}

/// Whether each quorum of the one list has a node in common with each quorum of the other.
fn meet(one: u32, other: u32) -> bool {
    let quorums = |list: u32| {
        let is_quorum =
            move |some: &u32| some & !list == 0 && some.count_ones() * 2 > list.count_ones();
        (0..1 << 9).filter(is_quorum).collect::<Vec<_>>()
    };
    quorums(one).iter().all(|some| quorums(other).iter().all(|others| some & others != 0))
}

#[test]
fn quorums_meet_after_one_node_more_or_less_and_not_after_one_of_an_odd_number_is_replaced() {
    for count in 1..=7_u32 {
        let list = (1 << count) - 1;
        assert!(meet(list, list | 1 << count), "one more than {count}");
        assert!(count == 1 || meet(list, list >> 1), "one less than {count}");
        assert_eq!(meet(list, list << 1), count % 2 == 0, "one of {count} is replaced");
        assert_eq!(meet(list, (1 << (count + 2)) - 1), count % 2 == 0, "two more than {count}");
    }
}
