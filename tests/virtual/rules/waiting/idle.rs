//! W1: while there are waiters, a free lock is not idle for longer than one refresh.

use std::future::IntoFuture;
use std::sync::atomic::Ordering;
use std::time::Duration;

use quorate_core::Runtime;
use quorate_core::backend::{AcquireOptions, LockBackend, Vote};
use quorate_memory::{Fault, MemoryNode, Value};

use super::processes::{Queue, REFRESH, ROUND_TRIP, SECOND_LOOK, Scene, from};
use crate::world::{MS, SECOND, World, claim, failing, spawned};

/// One refresh, the second look, and a few round trips.
const IDLE: Duration =
    REFRESH.saturating_add(SECOND_LOOK).saturating_add(ROUND_TRIP.saturating_mul(5));

const NODE_TIMEOUT: Duration = Duration::from_millis(500);

/// What happens to the gate.
type Trouble = (&'static str, fn(&MemoryNode));

const TROUBLES: [Trouble; 6] = [
    ("nothing", |_| ()),
    ("it dies", |gate| gate.inject(Fault::Dead)),
    ("it stops with its data", |gate| gate.inject(Fault::Down)),
    ("it hangs", |gate| gate.inject(Fault::Hung)),
    ("it restarts empty", MemoryNode::restart),
    ("it is flushed", MemoryNode::flush),
];

/// So many wait for a second.
fn queue(waiters: usize) -> Queue {
    let queue = Queue::new(Scene::new(5), waiters, 30 * MS, |_| 600 * SECOND);
    queue.scene.advance(SECOND);
    queue
}

fn gate(queue: &Queue) -> &MemoryNode {
    &queue.scene.nodes[queue.scene.gate("r")]
}

/// Releases. Returns for how long the lock was free before each of so many waiters had it.
fn idle_times(queue: Queue) -> Vec<Duration> {
    let waiters = queue.waiters.len();
    let (order, idle, _) = queue.release();
    assert_eq!(order.len(), waiters, "each got it: {order:?}");
    idle
}

#[test]
fn w1_a_free_lock_is_not_idle_longer_than_a_refresh() {
    for (trouble, befall) in TROUBLES {
        for loses_pushes in [false, true] {
            for (before, after) in [(700, 0), (0, 700), (0, 0)] {
                let queue = queue(3);
                queue.scene.quirk.loses_pushes.store(loses_pushes, Ordering::Relaxed);
                queue.scene.advance(before * MS);
                befall(gate(&queue));
                queue.scene.advance(after * MS);
                let idle = idle_times(queue);
                // The gate of each waiter is silent once.
                let silent = if trouble == "it hangs" { NODE_TIMEOUT } else { Duration::ZERO };
                let story = format!("{trouble}, {after} ms before, no push: {loses_pushes}");
                assert!(idle.iter().all(|idle| *idle <= IDLE + silent), "{story}: {idle:?}");
            }
        }
    }
}

#[test]
fn w1_a_free_lock_is_not_idle_longer_than_a_refresh_when_a_waiter_is_cancelled_at_any_poll() {
    for loses_pushes in [false, true] {
        let mut has_won = false;
        for polls in 1..60 {
            let queue = queue(0);
            let scene = &queue.scene;
            scene.quirk.loses_pushes.store(loses_pushes, Ordering::Relaxed);
            let (sim, first) = (scene.sim.clone(), scene.process());
            let mut wait = Box::pin(first.lock("r").into_future());
            assert!(sim.block_on_for(wait.as_mut(), 1).is_none());
            sim.advance(5 * MS);
            let second = scene.process().hold_once("r", MS);
            // The release comes while the first waiter is polled.
            let (holder, guard) = (queue.holder.client.clone(), queue.guard);
            let free = spawned(&queue.holder.client, async move {
                holder.sleep(2 * SECOND).await;
                guard.release().await.unwrap();
                holder.now()
            });
            let won = sim.block_on_for(wait.as_mut(), polls);
            has_won |= won.is_some();
            drop((won, wait));
            let dropped = sim.now();
            sim.advance(10 * SECOND);
            let held = second.lock().unwrap().expect("it got it");
            let free = free.lock().unwrap().expect("it was released").max(dropped);
            let idle = held.from.saturating_duration_since(free);
            assert!(idle <= IDLE, "after {polls} polls, no push: {loses_pushes}: {idle:?}");
        }
        assert!(has_won, "some are cancelled after they won");
    }
}

/// The first waiter watches the lock, the others each the entry before their own.
#[test]
fn w1_a_push_that_overtakes_the_answer_to_its_watch_counts() {
    let scene = Scene::new(5);
    scene.quirk.pushes_overtake.store(true, Ordering::Relaxed);
    let (holder, waiters) = (scene.process(), [scene.process(), scene.process()]);
    let guard = scene.run(holder.lock("r").ttl(60 * SECOND)).unwrap();
    let held = waiters.map(|waiter| waiter.hold_once("r", MS));
    // Its watch has reached the gate, and no node timeout has passed.
    scene.advance(50 * MS);
    let free = holder.client.now();
    scene.run(guard.release()).unwrap();
    scene.advance(5 * SECOND);
    let mut from = held.map(|held| from(&held).saturating_duration_since(free));
    from.sort_unstable();
    assert!(from[0] <= 3 * ROUND_TRIP && from[1] <= from[0] + MS + 6 * ROUND_TRIP, "{from:?}");
}

/// It is the best gate, so it is tried again and again. Meanwhile the request waits at the next one.
#[test]
fn w1_a_gate_that_goes_on_failing_costs_no_push_of_the_next_one() {
    for moment in 0..4 {
        let queue = queue(1);
        gate(&queue).inject(failing("LOADING the dataset"));
        queue.scene.advance(5 * SECOND + moment * 250 * MS);
        let idle = idle_times(queue);
        assert!(idle[0] <= 2 * ROUND_TRIP, "{moment}: {idle:?}");
    }
}

#[test]
fn w1_a_stale_key_at_the_gate_keeps_waiters_out_for_its_ttl() {
    for ttl in [Some(3 * SECOND), None] {
        let queue = queue(2);
        let gate = gate(&queue);
        gate.expire("r");
        match ttl {
            Some(ttl) => {
                let claim = claim(&["r"], 7, ttl);
                let acquired = queue.scene.run(gate.acquire(&claim, AcquireOptions::default()));
                assert_eq!(acquired.unwrap().vote, Vote::Granted);
            }
            // No Redlock client writes one, and it would stop all waiters for good.
            None => gate.put("r", Value::String(b"another program's".to_vec())),
        }
        let idle = idle_times(queue);
        assert!(idle[0] <= ttl.unwrap_or_default() + IDLE && idle[1] <= IDLE, "{ttl:?}: {idle:?}");
    }
}

/// It began to wait while no task had the lease, so there was nothing to watch.
#[test]
fn w1_a_task_that_came_while_another_competed_outlives_its_lease() {
    for (world, manager) in World::kinds(3).map(World::and_manager) {
        world.inject(.., Fault::Slow(100 * MS));
        let first = world.begun(manager.lock("r").ttl(2 * SECOND));
        let second = world.begun(manager.lock("r"));
        std::mem::forget(world.run(first).unwrap());
        assert!(world.run(second).unwrap().is_valid());
        assert!(world.sim.elapsed() <= 3 * SECOND, "{:?}", world.sim.elapsed());
    }
}

/// Another process waits as well, so the next task goes on when the gate has answered the hint.
#[test]
fn w1_a_task_behind_a_release_does_not_wait_for_a_node_that_hangs() {
    let (scene, [process, other]) = Scene::new(3).and_processes();
    let guard = scene.run(process.lock("r")).unwrap();
    let theirs = other.hold_once("r", 10 * MS);
    scene.advance(50 * MS);
    let gate = scene.gate("r");
    let ours = process.hold_once("r", 10 * MS);
    scene.advance(50 * MS);
    let hung = (0..3).find(|node| *node != gate).unwrap();
    scene.nodes[hung].inject(Fault::Hung);
    let free = process.client.now();
    scene.run(guard.release()).unwrap();
    scene.advance(2 * SECOND);
    let latest = from(&ours).max(from(&theirs)).saturating_duration_since(free);
    assert!(latest < 100 * MS, "{latest:?}");
}

/// The holder has a quorum without the gate. The gate says that the lock is free, and the others refuse the waiter.
#[test]
fn w1_a_misled_waiter_looks_again_before_its_next_refresh() {
    let (scene, guard, [_, waiter]) = Scene::new(3).held();
    let held = waiter.hold_once("r", MS);
    scene.advance(5 * MS);
    scene.nodes[scene.gate("r")].expire("r");
    scene.advance(20 * MS);
    scene.run(guard.release()).unwrap();
    scene.advance(100 * MS);
    assert!(held.lock().unwrap().is_some());
}

/// Two nodes grant, two refuse, and one hangs: the nodes that answer have answered.
#[test]
fn w1_a_split_vote_beside_a_hung_node_costs_no_node_timeout() {
    let (scene, [holder, waiter]) = Scene::new(5).and_processes();
    let guard = scene.run(holder.lock("r")).unwrap();
    let first = waiter.hold_once("r", MS);
    scene.advance(50 * MS);
    let gate = scene.gate("r");
    scene.run(guard.release()).unwrap();
    scene.advance(50 * MS);
    assert!(first.lock().unwrap().is_some());
    let mut others = scene.nodes.iter().enumerate().filter(|(node, _)| *node != gate);
    others.next().unwrap().1.inject(Fault::Hung);
    let taken: Vec<_> = others.take(2).map(|(_, node)| node).collect();
    let theirs = claim(&["r"], 7, SECOND);
    for node in &taken {
        let acquire = node.acquire(&theirs, AcquireOptions::default());
        assert_eq!(scene.run(acquire).unwrap().vote, Vote::Granted);
    }
    let start = waiter.client.now();
    let held = waiter.hold_once("r", MS);
    scene.advance(MS);
    taken.iter().for_each(|node| node.expire("r"));
    scene.advance(2 * SECOND);
    let waited = from(&held).saturating_duration_since(start);
    assert!(waited < 20 * MS, "{waited:?}");
}
