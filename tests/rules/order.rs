//! Waiters of several processes stand in the order in which they came.

use std::future::IntoFuture;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::join;
use quorate_core::{
    BackendError, Claim, Inspect, Key, LockBackend, LockManager, Place, Queue, Runtime, Vote,
    Watch, Watched,
};
use quorate_memory::{Effect, Fault, MemoryNode, Operation, Rule, Sim};

use crate::passing::haunt;
use crate::turns::{Counted, Tokens};
use crate::world::{MS, SECOND};

const MICRO: Duration = Duration::from_micros(1);

/// Nodes to which a message takes a moment.
pub(crate) fn nodes(sim: &Sim) -> Vec<MemoryNode> {
    let nodes = MemoryNode::cluster(5, sim.clone());
    for node in &nodes {
        node.add_rule(Rule::new(Effect::Delay { least: 20 * MICRO, most: 50 * MICRO }));
    }
    nodes
}

/// The manager of another process.
pub(crate) fn process(sim: &Sim, nodes: &[MemoryNode]) -> LockManager {
    LockManager::builder(sim.clone(), nodes.to_vec()).build().unwrap()
}

/// So many processes want one lock all the time, each for a moment. How often each had it.
fn contend(sim: &Sim, nodes: &[MemoryNode], processes: usize) -> Arc<Mutex<Vec<u32>>> {
    contend_for(MS, sim, nodes, processes)
}

/// The same, each for that long.
pub(crate) fn contend_for(
    hold: Duration,
    sim: &Sim,
    nodes: &[MemoryNode],
    processes: usize,
) -> Arc<Mutex<Vec<u32>>> {
    let served = Arc::new(Mutex::new(vec![0; processes]));
    for number in 0..processes {
        let (manager, served, sim_) = (process(sim, nodes), Arc::clone(&served), sim.clone());
        sim.spawn(Box::pin(async move {
            loop {
                let Ok(guard) = manager.lock("r").wait(60 * SECOND).await else { continue };
                served.lock().unwrap()[number] += 1;
                sim_.sleep_until(sim_.now() + hold).await;
                guard.release().await.ok();
            }
        }));
    }
    served
}

/// No message is late.
const NOBODY: (usize, Duration) = (0, Duration::ZERO);

/// Eight waiters come one after the other, and those of `impatient` give up before the lock is
/// released. Who had it, in order, if each has it for `hold`, and messages to one node and from it are
/// `late`, and all others a little.
fn served(hold: Duration, impatient: &[usize], (place, late): (usize, Duration)) -> Vec<usize> {
    let sim = Sim::new(3);
    let nodes = nodes(&sim);
    let (late, mixed) = (
        Effect::Delay { least: late, most: late },
        Effect::Delay { least: Duration::ZERO, most: late / 4 },
    );
    nodes[place].add_rule(Rule::new(late));
    nodes.iter().for_each(|node| node.add_rule(Rule::new(mixed)));
    let held = sim.block_on(process(&sim, &nodes).lock("r")).unwrap();
    let served = Arc::<Mutex<Vec<usize>>>::default();
    for number in 0..8 {
        let (manager, served) = (process(&sim, &nodes), Arc::clone(&served));
        let wait = if impatient.contains(&number) { 200 * MS } else { 60 * SECOND };
        let waits = manager.lock("r").wait(wait).into_future();
        let sim_ = sim.clone();
        sim.spawn(Box::pin(async move {
            let Ok(guard) = waits.await else { return };
            served.lock().unwrap().push(number);
            sim_.sleep_until(sim_.now() + hold).await;
            let _ = guard.release().await.unwrap();
            drop(manager);
        }));
        sim.advance(5 * MS);
    }
    sim.advance(400 * MS);
    assert!(served.lock().unwrap().is_empty());
    let _ = sim.block_on(held.release()).unwrap();
    sim.advance(8 * hold + SECOND);
    assert!(nodes.iter().all(|node| node.keys().is_empty()), "something is left on a node");
    let served = served.lock().unwrap();
    served.clone()
}

#[test]
fn waiters_of_several_processes_are_served_in_the_order_in_which_they_came() {
    for hold in [200 * MICRO, MS, 100 * MS] {
        assert_eq!(served(hold, &[], NOBODY), [0, 1, 2, 3, 4, 5, 6, 7], "held for {hold:?}");
    }
}

#[test]
fn news_that_come_late_from_one_node_change_no_order() {
    for late in (0..5).flat_map(|node| [(node, 3 * MS), (node, 8 * MS)]) {
        assert_eq!(served(100 * MS, &[], late), [0, 1, 2, 3, 4, 5, 6, 7], "late by {late:?}");
    }
}

#[test]
fn who_gives_up_waiting_leaves_the_others_in_order_and_nothing_on_the_nodes() {
    for hold in [200 * MICRO, MS, 100 * MS] {
        for (impatient, patient) in [
            (&[0][..], &[1, 2, 3, 4, 5, 6, 7][..]),
            (&[3], &[0, 1, 2, 4, 5, 6, 7]),
            (&[7], &[0, 1, 2, 3, 4, 5, 6]),
        ] {
            assert_eq!(served(hold, impatient, NOBODY), patient, "held for {hold:?}");
        }
    }
}

/// A user who may not write the keys of places, say.
#[test]
fn where_no_node_keeps_them_in_order_all_are_served_all_the_same() {
    for effect in [Effect::Cut, Effect::DropRequest, Effect::DropReply] {
        let sim = Sim::new(5);
        let nodes = nodes(&sim);
        for node in &nodes {
            node.add_rule(Rule::new(effect).on(Operation::Queue));
        }
        let served = contend(&sim, &nodes, 4);
        sim.advance(4 * SECOND);
        let served = served.lock().unwrap();
        assert!(served.iter().all(|served| *served > 10), "{effect:?}: {served:?}");
    }
}

#[test]
fn a_waiter_that_is_dropped_at_any_moment_leaves_no_place() {
    let sim = Sim::new(9);
    let nodes = nodes(&sim);
    // One message overtakes another.
    let late = Effect::Delay { least: Duration::ZERO, most: MS };
    nodes.iter().for_each(|node| node.add_rule(Rule::new(late).on(Operation::Queue)));
    let manager = process(&sim, &nodes);
    let held = sim.block_on(process(&sim, &nodes).lock("r")).unwrap();
    held.keep_alive();
    for time in 0..200 {
        let waits = manager.lock("r").wait(60 * SECOND).into_future().map(drop);
        let given_up = sim.sleep_until(sim.now() + 10 * time * MICRO);
        sim.block_on(futures_util::future::select(Box::pin(waits), given_up));
        sim.advance(100 * MS);
        let left: Vec<_> = nodes.iter().map(|node| node.keys().len()).collect();
        assert_eq!(left, [1; 5], "the lock of the holder and nothing else, after {time}0 µs");
    }
    let (released, got) = sim.block_on(join(held.release(), manager.lock("r").into_future()));
    assert!(released.is_ok() && got.is_ok());
}

#[test]
fn places_that_have_ended_are_taken_anew_and_nobody_rushes() {
    let sim = Sim::new(2);
    let nodes = nodes(&sim);
    let held = sim.block_on(process(&sim, &nodes).lock("r")).unwrap();
    held.keep_alive();
    let (times, tokens) = (Arc::<Mutex<Vec<Duration>>>::default(), Tokens::default());
    for _ in 0..8 {
        let nodes = nodes.iter().map(|node| Counted::new(node, &tokens));
        let manager = LockManager::builder(sim.clone(), nodes).build().unwrap();
        let (times, sim_) = (Arc::clone(&times), sim.clone());
        sim.spawn(Box::pin(async move {
            let guard = manager.lock("r").wait(600 * SECOND).await.unwrap();
            times.lock().unwrap().push(sim_.elapsed());
            sim_.sleep_until(sim_.now() + MS).await;
            let _ = guard.release().await.unwrap();
        }));
        sim.advance(SECOND);
    }
    sim.advance(2 * Place::TTL);
    let before = tokens.lock().unwrap().len();
    let _ = sim.block_on(held.release()).unwrap();
    let released = sim.elapsed();
    sim.advance(SECOND);
    let times = times.lock().unwrap();
    let last = times[7] - released;
    assert!(last < 8 * (MS + MS), "the last of eight after {last:?}");
    let rounds = tokens.lock().unwrap().len() - before;
    assert!(rounds <= 10, "{rounds} rounds");
    assert!(nodes.iter().all(|node| node.keys().is_empty()), "something is left on a node");
}

#[test]
fn a_place_that_could_not_be_given_up_at_once_is_given_up_later() {
    let sim = Sim::new(4);
    let nodes = nodes(&sim);
    let (ours, theirs) = (process(&sim, &nodes), process(&sim, &nodes));
    let held = sim.block_on(ours.lock("r")).unwrap();
    sim.spawn(Box::pin(theirs.lock("r").wait(20 * MS).into_future().map(drop)));
    sim.advance(10 * MS);
    let waits_at = |node: &&MemoryNode| node.keys().len() == 3;
    assert_eq!(nodes.iter().filter(waits_at).count(), 1);
    let loading = BackendError::from_reply("LOADING Redis is loading the dataset in memory");
    nodes.iter().for_each(|node| node.inject(Fault::Failing(loading.clone())));
    sim.advance(SECOND);
    nodes.iter().for_each(MemoryNode::heal);
    assert_eq!(nodes.iter().filter(waits_at).count(), 1);
    assert_eq!(sim.block_on(theirs.settle(5 * SECOND)), 0);
    assert_eq!(nodes.iter().filter(waits_at).count(), 0);
    let _ = sim.block_on(held.release()).unwrap();
}

/// Longer ways than a waiter that is near would wait for an answer.
#[test]
fn processes_that_are_all_far_from_the_nodes_have_the_lock_in_turn() {
    for way in [8, 15, 25, 60].map(|way| way * MS) {
        let sim = Sim::new(6);
        let nodes = MemoryNode::cluster(5, sim.clone());
        let delay = Effect::Delay { least: way, most: way + way / 10 };
        nodes.iter().for_each(|node| node.add_rule(Rule::new(delay)));
        let served = contend(&sim, &nodes, 3);
        sim.advance(1000 * way);
        let served = served.lock().unwrap();
        // Each time the lock goes a few ways.
        let all: u32 = served.iter().sum();
        assert!(all > 60 && served.iter().all(|served| 5 * served > all), "{way:?}: {served:?}");
    }
}

#[test]
fn a_lock_that_nobody_else_wants_is_had_in_little_time_however_often() {
    let sim = Sim::new(1);
    let nodes = nodes(&sim);
    let manager = process(&sim, &nodes);
    for wait in [MS, 5 * MS, 30 * MS] {
        for time in 0..300 {
            let guard = sim.block_on(manager.lock("r").wait(wait).into_future());
            let guard = guard.unwrap_or_else(|error| panic!("{wait:?}, {time}: {error}"));
            let _ = sim.block_on(guard.release()).unwrap();
        }
    }
}

/// A node that tells of the lock later than it could, as Redis does of keys that have expired.
#[derive(Clone, Debug)]
struct Lazy {
    node: MemoryNode,
    sim: Sim,
    late: Duration,
    /// Whether it tells how long the lock lasts.
    inspects: bool,
}

#[async_trait]
impl LockBackend for Lazy {
    async fn acquire(&self, claim: &Claim) -> Result<Vote, BackendError> {
        LockBackend::acquire(&self.node, claim).await
    }

    async fn extend(&self, claim: &Claim) -> Result<Vote, BackendError> {
        self.node.extend(claim).await
    }

    async fn release(&self, claim: &Claim) -> Result<Vote, BackendError> {
        LockBackend::release(&self.node, claim).await
    }

    fn inspector(&self) -> Option<&dyn Inspect> {
        self.inspects.then_some(&self.node)
    }

    fn queue(&self) -> Option<&dyn Queue> {
        Some(&self.node)
    }

    fn watcher(&self) -> Option<&dyn Watch> {
        Some(self)
    }
}

#[async_trait]
impl Watch for Lazy {
    async fn look(&self, key: &Key) -> Result<Watched, BackendError> {
        let seen = self.node.look(key).await?;
        if key.as_bytes() != b"r" {
            return Ok(seen);
        }
        let (holder, sim, late) = (seen.holder().cloned(), self.sim.clone(), self.late);
        Ok(Watched::new(holder, async move {
            seen.changed().await?;
            sim.sleep_until(sim.now() + late).await;
            Ok(())
        }))
    }
}

fn lazy_process(sim: &Sim, nodes: &[MemoryNode], late: Duration, inspects: bool) -> LockManager {
    let lazy = |node: &MemoryNode| Lazy { node: node.clone(), sim: sim.clone(), late, inspects };
    LockManager::builder(sim.clone(), nodes.iter().map(lazy)).build().unwrap()
}

#[test]
fn nodes_that_only_watch_are_enough_to_pass_by_a_place_that_nobody_answers_for() {
    let sim = Sim::new(1);
    let nodes = nodes(&sim);
    let held = sim.block_on(process(&sim, &nodes).lock("r")).unwrap();
    haunt(&sim, &nodes, 1);
    let waits = lazy_process(&sim, &nodes, Duration::ZERO, false);
    let waits = waits.lock("r").wait(60 * SECOND).into_future();
    let releases = async {
        sim.sleep_until(sim.now() + SECOND).await;
        let _ = held.release().await.unwrap();
    };
    let begun = sim.elapsed();
    let (_guard, ()) = sim.block_on(join(waits, releases));
    let waited = sim.elapsed() - begun;
    assert!(waited < SECOND + 80 * MS, "{waited:?}");
}

#[test]
fn waiters_are_served_in_their_order_too_when_the_holder_has_vanished() {
    for seed in 1..=5 {
        let sim = Sim::new(seed);
        let nodes = nodes(&sim);
        std::mem::forget(sim.block_on(process(&sim, &nodes).lock("r")).unwrap());
        let served = Arc::<Mutex<Vec<usize>>>::default();
        for number in 0..6 {
            let manager = lazy_process(&sim, &nodes, 100 * MS, true);
            let served = Arc::clone(&served);
            sim.spawn(Box::pin(async move {
                // It is kept: who is next is not told by its release.
                let guard = manager.lock("r").wait(60 * SECOND).await.unwrap();
                served.lock().unwrap().push(number);
                std::mem::forget(guard);
            }));
            sim.advance(5 * MS);
        }
        sim.advance(55 * SECOND);
        assert_eq!(*served.lock().unwrap(), [0, 1, 2, 3, 4], "seed {seed}");
    }
}
