//! W3 and the order between processes: waiters that are cancelled, or killed, anywhere in the queue.

use std::future::IntoFuture;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::select;
use quorate_memory::Fault;
use quorate_protocol::error_of_reply;

use super::processes::{Held, Queue, REFRESH, ROUND_TRIP, SECOND_LOOK, Scene};
use crate::world::{MS, SECOND};

const WAITERS: usize = 6;

fn queue(hold: Duration, timeout: impl Fn(usize) -> Duration) -> Queue {
    Queue::new(Scene::new(5), WAITERS, hold, timeout)
}

fn all_but(gone: &[usize]) -> Vec<usize> {
    (0..WAITERS).filter(|number| !gone.contains(number)).collect()
}

fn long(_: usize) -> Duration {
    600 * SECOND
}

#[test]
fn waiters_of_several_processes_are_served_in_the_order_in_which_they_came() {
    for hold in [MS / 5, MS, 100 * MS] {
        let (order, gaps, scene) = queue(hold, long).release();
        assert_eq!(order, all_but(&[]), "held for {hold:?}");
        // The release, the push, and an acquire. The next waiter has to learn first that it is next.
        let most = if hold < MS { 3 * ROUND_TRIP } else { 2 * ROUND_TRIP };
        assert!(gaps.iter().all(|gap| *gap <= most), "held for {hold:?}: {gaps:?}");
        assert!(scene.keys().is_empty(), "{:?}", scene.keys());
    }
}

#[test]
fn w3_a_cancelled_waiter_delays_no_other() {
    // Before the release, in the moments around it, and while another waiter has the lock.
    let release = 100 * MS;
    let moments = [-50_000, -1_000, -600, -400, -200, 0, 200, 300, 400, 600, 800, 5_000];
    for moment in moments {
        for gone in [vec![0], vec![1], vec![3], vec![5], vec![0, 1], vec![2, 3]] {
            let cancels = |number| {
                let (came, released) = (5 * MS * number as u32, 5 * MS * WAITERS as u32 + release);
                let at = released.as_micros().checked_add_signed(moment).unwrap();
                match gone.contains(&number) {
                    true => Duration::from_micros(at.try_into().unwrap()) - came,
                    false => 600 * SECOND,
                }
            };
            let queue = queue(2 * MS, cancels);
            queue.scene.sim.advance(release);
            let (order, gaps, scene) = queue.release();
            let story = format!("{gone:?} left {moment} µs after the release: {order:?} {gaps:?}");
            let others: Vec<_> = order.iter().copied().filter(|one| !gone.contains(one)).collect();
            assert_eq!(others, all_but(&gone), "{story}");
            // At most a release, the push, an attempt that is undone, another push, a refresh, an acquire.
            assert!(gaps.iter().all(|gap| *gap <= 6 * ROUND_TRIP), "{story}");
            assert!(scene.keys().is_empty(), "{:?}", scene.keys());
        }
    }
}

#[test]
fn w3_a_killed_waiter_delays_the_others_by_one_refresh_and_its_keys_are_gone_after_10_s() {
    for before in [100 * MS, 3 * SECOND] {
        for gone in [vec![0], vec![1], vec![3], vec![5], vec![0, 1], vec![1, 3]] {
            let queue = queue(2 * MS, long);
            queue.scene.sim.advance(SECOND);
            gone.iter().for_each(|number| queue.waiters[*number].client.kill());
            queue.scene.sim.advance(before);
            let (order, gaps, scene) = queue.release();
            let story = format!("{gone:?} were killed {before:?} before the release");
            let mut served = order.clone();
            served.sort_unstable();
            assert_eq!(served, all_but(&gone), "{story}");
            let most = REFRESH + SECOND_LOOK + 5 * ROUND_TRIP;
            assert!(gaps.iter().all(|gap| *gap <= most), "{story}: {gaps:?}");
            // Once the entries have expired, nothing is to be seen of them.
            if before > 2 * SECOND + REFRESH {
                assert_eq!(order, all_but(&gone), "{story}");
                assert!(gaps.iter().all(|gap| *gap <= 5 * ROUND_TRIP), "{story}: {gaps:?}");
            }
            // 10 s after the last refresh of the others.
            scene.sim.advance(SECOND);
            assert!(scene.keys().is_empty(), "{story}: {:?}", scene.keys());
        }
    }
}

#[test]
fn w3_the_keys_of_killed_waiters_are_gone_10_s_later() {
    // While others wait, and where no other does.
    for gone in [vec![2], (0..WAITERS).collect()] {
        let queue = queue(MS, long);
        let (scene, gate) = (&queue.scene, queue.scene.gate("r"));
        for _ in 0..20 {
            scene.sim.advance(SECOND / 3);
            let entries = scene.nodes[gate].keys().len() - 3;
            assert_eq!(entries, WAITERS, "besides the lock and the queue: {:?}", scene.keys());
        }
        gone.iter().for_each(|number| queue.waiters[*number].client.kill());
        scene.sim.advance(10 * SECOND);
        let entries = WAITERS - gone.len();
        let helpers = if entries > 0 { entries + 2 } else { 0 };
        assert_eq!(scene.nodes[gate].keys().len(), 1 + helpers, "{:?}", scene.keys());
    }
}

#[test]
fn a_waiter_that_is_dropped_at_any_moment_leaves_no_key() {
    let scene = Scene::new(5);
    let process = scene.process();
    let _guard = scene.sim.block_on(scene.process().lock("r").ttl(600 * SECOND)).unwrap();
    for polls in 0..40 {
        drop(scene.sim.block_on_for(process.lock("r").into_future(), polls));
        scene.sim.advance(MS);
        assert_eq!(scene.keys(), ["r"; 5], "the lock of the holder and nothing else: {polls}");
    }
}

#[test]
fn an_entry_that_could_not_leave_expires() {
    let scene = Scene::new(5);
    let _guard = scene.sim.block_on(scene.process().lock("r").ttl(600 * SECOND)).unwrap();
    let waiter = scene.process();
    waiter.spawn({
        let request = waiter.lock("r").timeout(100 * MS);
        async move { drop(request.await) }
    });
    scene.sim.advance(50 * MS);
    let gate = scene.gate("r");
    let error = error_of_reply("LOADING Redis is loading the dataset");
    scene.nodes[gate].inject(Fault::Failing(error));
    scene.sim.advance(SECOND);
    scene.nodes[gate].heal();
    assert_eq!(scene.keys().len(), 5 + 3, "the queue and the entry: {:?}", scene.keys());
    scene.sim.advance(10 * SECOND);
    assert_eq!(scene.keys(), ["r"; 5]);
}

/// W3: the entry of a cancelled task stays in the queue for the next task of its process.
#[test]
fn w3_the_next_task_of_a_process_goes_on_with_the_wait_of_a_cancelled_one() {
    for gives_up in [true, false] {
        let scene = Scene::new(5);
        let guard = scene.sim.block_on(scene.process().lock("r").ttl(60 * SECOND)).unwrap();
        let (first, second) = (scene.process(), scene.process());
        let (request, client) = (first.lock("r").timeout(SECOND), first.client.clone());
        first.spawn(async move {
            let dropped = if gives_up { 60 * SECOND } else { SECOND / 2 };
            drop(select(request.into_future().boxed(), client.sleep(dropped).boxed()).await);
        });
        scene.sim.advance(100 * MS);
        let next = first.hold_once("r", 10 * MS);
        scene.sim.advance(100 * MS);
        let other = second.hold_once("r", 10 * MS);
        scene.sim.advance(2 * SECOND);
        drop(guard);
        scene.sim.advance(SECOND);
        let from = |held: &Arc<Mutex<Option<Held>>>| held.lock().unwrap().as_ref().unwrap().from;
        assert!(from(&next) < from(&other), "gives up: {gives_up}");
        assert!(scene.keys().is_empty(), "{:?}", scene.keys());
    }
}

#[test]
fn a_wait_whose_gates_have_all_failed_joins_a_queue_when_they_are_back() {
    for fault in [Fault::Hung, Fault::Failing(error_of_reply("LOADING the dataset"))] {
        let scene = Scene::new(5);
        let guard = scene.sim.block_on(scene.process().lock("r").ttl(60 * SECOND)).unwrap();
        let held = scene.process().hold_once("r", MS);
        scene.sim.advance(100 * MS);
        scene.inject(.., fault.clone());
        scene.sim.advance(20 * SECOND);
        scene.heal();
        scene.sim.advance(3 * SECOND);
        let is_queued = scene.keys().iter().any(|key| key.ends_with(":waiters"));
        assert!(is_queued, "{fault:?}: {:?}", scene.keys());
        scene.sim.block_on(guard.release()).unwrap();
        scene.sim.advance(SECOND);
        assert!(held.lock().unwrap().is_some() && scene.keys().is_empty(), "{:?}", scene.keys());
    }
}
