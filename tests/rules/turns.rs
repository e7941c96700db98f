//! Waiters in several processes take turns, quickly and without a rush.

use std::collections::BTreeSet;
use std::future::IntoFuture;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join;
use quorate_core::{
    BackendError, Claim, Inspect, Key, LockBackend, LockGuard, LockManager, Place, Queue, Runtime,
    Sighting, Vote, Watch, Watched,
};
use quorate_memory::{Effect, MemoryNode, Rule, Sim};

use crate::world::{MS, SECOND};

const MICRO: Duration = Duration::from_micros(1);

/// A node at which the attempts are counted.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    node: Asked,
    tokens: Tokens,
    /// Whether it keeps waiters in order.
    orders: bool,
}

pub(crate) type Tokens = Arc<Mutex<BTreeSet<Vec<u8>>>>;

impl Counted {
    pub(crate) fn new(node: &MemoryNode, tokens: &Tokens) -> Self {
        let node = Asked { node: node.clone(), asked: Arc::default() };
        Self { node, tokens: Arc::clone(tokens), orders: true }
    }
}

#[async_trait]
impl LockBackend for Counted {
    async fn acquire(&self, claim: &Claim) -> Result<Vote, BackendError> {
        self.tokens.lock().unwrap().insert(claim.token().as_bytes().to_vec());
        LockBackend::acquire(&self.node, claim).await
    }

    async fn extend(&self, claim: &Claim) -> Result<Vote, BackendError> {
        self.node.extend(claim).await
    }

    async fn release(&self, claim: &Claim) -> Result<Vote, BackendError> {
        LockBackend::release(&self.node, claim).await
    }

    fn inspector(&self) -> Option<&dyn Inspect> {
        Some(&self.node)
    }

    fn watcher(&self) -> Option<&dyn Watch> {
        Some(&self.node)
    }

    fn queue(&self) -> Option<&dyn Queue> {
        self.orders.then_some(&self.node)
    }
}

/// One hold: who, since when it was wanted, from when to when it was held.
#[derive(Clone, Copy, Debug)]
struct Hold {
    who: usize,
    asked: Duration,
    acquired: Duration,
    releasing: Duration,
}

struct Figures {
    holds: usize,
    /// Calls for each hold, at all nodes.
    calls: f64,
    rounds: f64,
    to_another: f64,
    gap: Duration,
    median: Duration,
    mean: Duration,
    longest: Duration,
    least: usize,
}

/// Processes with so many tasks each want one lock all the time, and hold it for `hold`.
fn contend(seed: u64, processes: usize, each: usize, hold: Duration, time: Duration) -> Figures {
    contend_where(true, seed, processes, each, hold, time)
}

/// The same, where nodes keep waiters in order or do not.
fn contend_where(
    orders: bool,
    seed: u64,
    processes: usize,
    each: usize,
    hold: Duration,
    time: Duration,
) -> Figures {
    let sim = Sim::new(seed);
    let nodes = MemoryNode::cluster(5, sim.clone());
    for node in &nodes {
        node.add_rule(Rule::new(Effect::Delay { least: 20 * MICRO, most: 50 * MICRO }));
        // Somebody's thread is not run at once.
        let late = Effect::Delay { least: 50 * MICRO, most: 2 * MS };
        node.add_rule(Rule::new(late).chance(10_000));
    }
    let tokens = Tokens::default();
    let asked = Arc::<Mutex<usize>>::default();
    let holds = Arc::<Mutex<Vec<Hold>>>::default();
    for process in 0..processes {
        let asked = |node: &MemoryNode| Asked { node: node.clone(), asked: Arc::clone(&asked) };
        let counted = |node| Counted { node: asked(node), tokens: Arc::clone(&tokens), orders };
        let nodes = nodes.iter().map(counted);
        let manager = LockManager::builder(sim.clone(), nodes).build().unwrap();
        for task in 0..each {
            let (manager, sim, holds) = (manager.clone(), sim.clone(), Arc::clone(&holds));
            let who = process * each + task;
            sim.clone().spawn(Box::pin(async move {
                loop {
                    let asked = sim.elapsed();
                    let Ok(guard) = manager.lock("r").wait(60 * SECOND).await else { continue };
                    let acquired = sim.elapsed();
                    sim.sleep_until(sim.now() + hold).await;
                    let releasing = sim.elapsed();
                    guard.release().await.ok();
                    holds.lock().unwrap().push(Hold { who, asked, acquired, releasing });
                }
            }));
        }
    }
    sim.advance(time);
    let mut holds = holds.lock().unwrap().clone();
    holds.sort_by_key(|hold| hold.acquired);
    let each_hold = |count: usize| count as f64 / holds.len() as f64;
    let (calls, rounds) = (*asked.lock().unwrap(), tokens.lock().unwrap().len());
    figures(&holds, each_hold(calls), each_hold(rounds), processes * each)
}

fn figures(holds: &[Hold], calls: f64, rounds: f64, contenders: usize) -> Figures {
    let pairs = || holds.windows(2).map(|pair| (pair[0], pair[1]));
    let mut gaps: Vec<_> = pairs().map(|(one, next)| next.acquired - one.releasing).collect();
    gaps.sort();
    let another = pairs().filter(|(one, next)| one.who != next.who).count();
    let mut waits: Vec<_> = holds.iter().map(|hold| hold.acquired - hold.asked).collect();
    waits.sort();
    let served = |who| holds.iter().filter(|hold| hold.who == who).count();
    Figures {
        holds: holds.len(),
        calls,
        rounds,
        to_another: another as f64 / gaps.len() as f64,
        gap: gaps[gaps.len() / 2],
        median: waits[waits.len() / 2],
        mean: waits.iter().sum::<Duration>() / waits.len() as u32,
        longest: waits[waits.len() - 1],
        least: (0..contenders).map(served).min().unwrap(),
    }
}

/// The same in a few worlds.
fn worlds(processes: usize, each: usize, hold: Duration) -> Vec<Figures> {
    (1..=3).map(|seed| contend(seed, processes, each, hold, 250 * hold)).collect()
}

fn median(worlds: &[Figures], figure: impl Fn(&Figures) -> f64) -> f64 {
    let mut figures: Vec<f64> = worlds.iter().map(figure).collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

#[test]
fn two_processes_take_turns_however_short_they_hold_it() {
    for hold in [200 * MICRO, 600 * MICRO, MS, 30 * MS] {
        let worlds = worlds(2, 1, hold);
        let to_another = median(&worlds, |world| world.to_another);
        assert!(to_another > 0.93, "held for {hold:?}: {to_another}");
        let longest = median(&worlds, |world| world.longest.div_duration_f64(world.mean));
        assert!(longest < 8.0, "held for {hold:?}: {longest} times the mean");
    }
}

#[test]
fn three_processes_have_the_lock_about_equally_often_however_short_they_hold_it() {
    for hold in [200 * MICRO, 600 * MICRO, MS] {
        let worlds = worlds(3, 1, hold);
        let least = median(&worlds, |world| 3.0 * world.least as f64 / world.holds as f64);
        assert!(least > 0.9, "held for {hold:?}: the least served has {least} of its share");
    }
}

#[test]
fn eight_processes_have_the_lock_about_equally_often_and_none_waits_for_long() {
    for hold in [MS, 30 * MS] {
        let worlds = worlds(8, 1, hold);
        let to_another = median(&worlds, |world| world.to_another);
        assert!(to_another > 0.99, "{to_another}");
        let least = median(&worlds, |world| 8.0 * world.least as f64 / world.holds as f64);
        assert!(least > 0.9, "the least served: {least} of its share");
        let longest = median(&worlds, |world| world.longest.div_duration_f64(world.mean));
        assert!(longest < 2.5, "the longest wait: {longest} times the mean");
    }
}

#[test]
fn a_process_that_is_far_from_the_nodes_is_not_kept_out() {
    for each in [1, 4] {
        let sim = Sim::new(1);
        let nodes = MemoryNode::cluster(5, sim.clone());
        let served = [0, 1].map(|_| Arc::<Mutex<usize>>::default());
        for ((way, tasks), served) in [(20, each), (300, 1)].into_iter().zip(&served) {
            let client = sim.client(0);
            let delay = Effect::Delay { least: way * MICRO, most: way * MICRO };
            let nodes = nodes.iter().map(|node| {
                node.add_rule(Rule::new(delay).client(&client));
                node.seen_by(&client)
            });
            let manager = LockManager::builder(sim.clone(), nodes).build().unwrap();
            for _ in 0..tasks {
                let (manager, sim, served) = (manager.clone(), sim.clone(), Arc::clone(served));
                sim.clone().spawn(Box::pin(async move {
                    loop {
                        let Ok(guard) = manager.lock("r").wait(60 * SECOND).await else { continue };
                        // For less than the way of the other.
                        sim.sleep_until(sim.now() + 100 * MICRO).await;
                        guard.release().await.ok();
                        *served.lock().unwrap() += 1;
                    }
                }));
            }
        }
        sim.advance(SECOND);
        let [near, far] = served.map(|served| *served.lock().unwrap());
        assert!(far * 5 > near, "{far} times, beside {near} of {each} that are near");
    }
}

#[test]
fn most_who_ask_are_let_in() {
    for (processes, each, most) in [(2, 1, 1.1), (8, 1, 1.2), (10, 5, 1.2)] {
        let worlds = (1..=5).map(|seed| contend(seed, processes, each, MS, 250 * MS));
        let rounds = median(&worlds.collect::<Vec<_>>(), |world| world.rounds);
        assert!(rounds < most, "{processes} processes: {rounds} rounds for a lock");
    }
}

#[test]
fn where_no_node_keeps_them_in_order_they_ask_one_node_and_all_have_the_lock() {
    let worlds: Vec<_> =
        (1..=5).map(|seed| contend_where(false, seed, 8, 1, MS, 500 * MS)).collect();
    let calls = median(&worlds, |world| world.calls);
    assert!(calls < 40.0, "{calls} calls for a lock");
    let least = median(&worlds, |world| 8.0 * world.least as f64 / world.holds as f64);
    assert!(least > 0.4, "the least served: {least} of its share");
}

#[test]
fn those_far_behind_ask_nothing() {
    let calls = |processes| median(&worlds(processes, 1, MS), |world| world.calls);
    let (few, many) = (calls(3), calls(12));
    assert!(many < 1.5 * few, "{few} calls for each hold of 3 processes, {many} for each of 12");
}

#[test]
fn those_far_behind_ask_little_however_long_it_is_held() {
    for (hold, little) in [(10 * MS, 0.5), (50 * MS, 1.5), (400 * MS, 5.0)] {
        let [few, many] =
            [3, 15].map(|processes| median(&worlds(processes, 1, hold), |world| world.calls));
        let more = (many - few) / 12.0;
        assert!(more < little, "{more} calls by each who waits, for each hold of {hold:?}");
    }
}

#[test]
fn the_next_one_has_the_lock_a_few_messages_after_the_release() {
    let alone = contend(1, 1, 1, MS, 100 * MS).median;
    for processes in [2, 8] {
        let gap = contend(1, processes, 1, MS, 300 * MS).gap;
        assert!(gap < 2 * alone, "{gap:?} after it, while an acquire takes {alone:?}");
    }
}

/// Somebody holds the lock, and so many wait for it, each in a process. How often nodes were asked.
fn waited_for(sim: &Sim, waiters: usize) -> (LockGuard, Arc<Mutex<usize>>) {
    let nodes = MemoryNode::cluster(5, sim.clone());
    let asked = Arc::<Mutex<usize>>::default();
    let manager = || {
        let nodes =
            nodes.iter().map(|node| Asked { node: node.clone(), asked: Arc::clone(&asked) });
        LockManager::builder(sim.clone(), nodes).ttl(60 * SECOND).build().unwrap()
    };
    let held = sim.block_on(manager().lock("r")).unwrap();
    for _ in 0..waiters {
        let waits = manager().lock("r").wait(60 * SECOND).into_future();
        sim.spawn(Box::pin(async move { drop(waits.await) }));
    }
    sim.advance(SECOND);
    (held, asked)
}

#[test]
fn who_waits_for_long_sends_nothing() {
    let sim = Sim::new(1);
    let (_held, asked) = waited_for(&sim, 8);
    let before = *asked.lock().unwrap();
    assert!(before > 0);
    sim.advance(30 * SECOND);
    assert_eq!(*asked.lock().unwrap(), before);
}

#[test]
fn who_waits_for_long_asks_little_when_the_lock_is_prolonged() {
    const WAITERS: usize = 12;
    let sim = Sim::new(1);
    let (held, asked) = waited_for(&sim, WAITERS);
    let before = *asked.lock().unwrap();
    sim.block_on(held.extend()).unwrap();
    sim.advance(SECOND);
    let more = *asked.lock().unwrap() - before;
    assert!(more < 40 + 4 * WAITERS, "{more} calls for one extension");
}

/// It would take time from the one who is about to have the lock, and has enough.
#[test]
fn who_stood_in_line_for_long_pauses_before_it_stands_there_again() {
    for (hold, pauses) in [(2 * MS, false), (15 * MS, true)] {
        let sim = Sim::new(1);
        let nodes = MemoryNode::cluster(5, sim.clone());
        let manager = || LockManager::builder(sim.clone(), nodes.clone()).build().unwrap();
        let (other, waits) = (manager(), manager());
        let held = sim.block_on(other.lock("r")).unwrap();
        let releases = async {
            sim.sleep_until(sim.now() + hold).await;
            let _ = held.release().await.unwrap();
        };
        let (guard, ()) = sim.block_on(join(waits.lock("r").into_future(), releases));
        let _ = sim.block_on(guard.unwrap().release()).unwrap();
        let released = sim.elapsed();
        let _again = sim.block_on(waits.lock("r")).unwrap();
        assert_eq!(sim.elapsed() - released >= MS, pauses, "after it had waited for {hold:?}");
    }
}

/// A node that counts all that it is asked.
#[derive(Clone, Debug)]
struct Asked {
    node: MemoryNode,
    asked: Arc<Mutex<usize>>,
}

impl Asked {
    fn node(&self) -> &MemoryNode {
        *self.asked.lock().unwrap() += 1;
        &self.node
    }
}

#[async_trait]
impl LockBackend for Asked {
    async fn acquire(&self, claim: &Claim) -> Result<Vote, BackendError> {
        LockBackend::acquire(self.node(), claim).await
    }

    async fn extend(&self, claim: &Claim) -> Result<Vote, BackendError> {
        self.node().extend(claim).await
    }

    async fn release(&self, claim: &Claim) -> Result<Vote, BackendError> {
        LockBackend::release(self.node(), claim).await
    }

    fn inspector(&self) -> Option<&dyn Inspect> {
        Some(self)
    }

    fn watcher(&self) -> Option<&dyn Watch> {
        Some(self)
    }

    fn queue(&self) -> Option<&dyn Queue> {
        Some(self)
    }
}

#[async_trait]
impl Inspect for Asked {
    async fn inspect(&self, key: &Key) -> Result<Option<Sighting>, BackendError> {
        self.node().inspect(key).await
    }
}

#[async_trait]
impl Queue for Asked {
    async fn join(&self, key: &Key, place: &Place) -> Result<Option<Place>, BackendError> {
        self.node().join(key, place).await
    }

    async fn leave(
        &self,
        key: &Key,
        place: &Place,
        before: Option<&Place>,
    ) -> Result<(), BackendError> {
        self.node().leave(key, place, before).await
    }
}

#[async_trait]
impl Watch for Asked {
    async fn look(&self, key: &Key) -> Result<Watched, BackendError> {
        self.node().look(key).await
    }
}
