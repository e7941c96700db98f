//! W3 and the order between processes: waiters that are cancelled, or killed, anywhere in the queue.

use std::future::IntoFuture;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{join, select};
use quorate_core::{LockManager, LockRequest, Runtime};
use quorate_memory::{Fault, Operation, Value};

use super::contest::Contest;
use super::processes::{Queue, REFRESH, ROUND_TRIP, SECOND_LOOK, Scene, from};
use crate::world::{MS, SECOND, World, failing, slow, spawned};

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
            queue.scene.advance(release);
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
            queue.scene.advance(SECOND);
            gone.iter().for_each(|number| queue.waiters[*number].client.kill());
            queue.scene.advance(before);
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
            scene.advance(SECOND);
            assert!(scene.keys().is_empty(), "{story}: {:?}", scene.keys());
        }
    }
}

#[test]
fn w3_waiters_that_are_killed_under_load_cost_a_tenth_of_a_second() {
    for seed in 1..=3 {
        let mut contest = Contest::new(seed, MS);
        (0..8).for_each(|_| contest.join(1));
        contest.figures(SECOND / 2);
        // In mid-queue: a holder that is killed keeps the lock for its ttl.
        let next = contest.by_last_hold();
        let killed = [next[2], next[4]];
        killed.iter().for_each(|process| contest.processes[*process].client.kill());
        (0..2).for_each(|_| contest.join(1));
        let figures = contest.figures(SECOND);
        assert!(figures.longest_gap <= 100 * MS, "seed {seed}: {figures:?}");
        for (process, share) in figures.shares.iter().enumerate() {
            assert_eq!(*share < 0.5, killed.contains(&process), "seed {seed}: {figures:?}");
        }
    }
}

/// The entry of a cancelled task stays in the queue for the next task of its process.
#[test]
fn w3_the_next_task_of_a_process_goes_on_with_the_wait_of_a_cancelled_one() {
    for gives_up in [true, false] {
        let (scene, guard, [_, first, second]) = Scene::new(5).held();
        let (request, client) = (first.lock("r").timeout(SECOND), first.client.clone());
        first.spawn(async move {
            let dropped = if gives_up { 60 * SECOND } else { SECOND / 2 };
            drop(select(request.into_future().boxed(), client.sleep(dropped).boxed()).await);
        });
        scene.advance(100 * MS);
        let next = first.hold_once("r", 10 * MS);
        scene.advance(100 * MS);
        let other = second.hold_once("r", 10 * MS);
        scene.advance(2 * SECOND);
        drop(guard);
        scene.advance(SECOND);
        assert!(from(&next) < from(&other), "gives up: {gives_up}");
        assert!(scene.keys().is_empty(), "{:?}", scene.keys());
    }
}

#[test]
fn a_wait_whose_gates_have_all_failed_joins_a_queue_when_they_are_back() {
    for fault in [Fault::Hung, failing("LOADING the dataset")] {
        let (scene, guard, [_, waiter]) = Scene::new(5).held();
        let held = waiter.hold_once("r", MS);
        scene.advance(100 * MS);
        scene.inject(.., fault.clone());
        scene.advance(20 * SECOND);
        scene.heal();
        scene.advance(3 * SECOND);
        assert!(scene.queued() > 0, "{fault:?}: {:?}", scene.keys());
        scene.run(guard.release()).unwrap();
        scene.advance(SECOND);
        assert!(held.lock().unwrap().is_some() && scene.keys().is_empty(), "{:?}", scene.keys());
    }
}

#[test]
fn w3_a_request_that_gives_up_has_left_the_wait_queue_when_its_error_is_returned() {
    let requests: [fn(&LockManager) -> LockRequest; 3] =
        [|locks| locks.lock("r"), |locks| locks.read("r"), |locks| locks.lock_any(["r", "s"])];
    // A task of its process goes on with its entry. Then nothing has to leave.
    for (request, goes_on) in requests.into_iter().flat_map(|it| [(it, false), (it, true)]) {
        let (scene, [holder, waiter]) = Scene::new(3).and_processes();
        let _held = ["r", "s"].map(|name| scene.run(holder.lock(name).ttl(60 * SECOND)).unwrap());
        let waits = scene.begun(request(&waiter.locks).timeout(5 * SECOND));
        let next = request(&waiter.locks).timeout(60 * SECOND).into_future();
        waiter.spawn(async move { drop(if goes_on { Some(next.await) } else { None }) });
        let start = scene.sim.elapsed();
        let looks = scene.sim.sleep(2 * SECOND).map(|()| scene.queued());
        let waits = waits.map(|refused| (refused.is_err(), scene.queued() > 0));
        let (waiting, after) = scene.run(join(looks, waits));
        assert!(waiting > 0, "it waits in the queue");
        assert_eq!(after, (true, goes_on));
        let leaves = if goes_on { Duration::ZERO } else { ROUND_TRIP };
        assert_eq!(scene.sim.elapsed() - start, 5 * SECOND + leaves, "goes on: {goes_on}");
    }
}

/// Its task is busy with something else. Its node timeout is longer than an entry lasts without a refresh.
#[test]
fn w3_a_waiter_that_is_not_polled_keeps_its_place() {
    for timeout in [500 * MS, 3 * SECOND] {
        let (scene, guard, [_, second]) = Scene::new(3).held();
        let first = scene.process_with(|builder| builder.node_timeout(timeout));
        let mut waits = first.lock("r").into_future().boxed();
        scene.keeps_waiting(&mut waits, 5 * MS);
        let second = second.hold_once("r", MS);
        scene.advance(10 * SECOND);
        let queue = scene.nodes[scene.gate("r")].get("r:quorate:waiters");
        assert!(matches!(&queue, Some(Value::OrderedSet(all)) if all.len() == 2), "{queue:?}");
        scene.run(guard.release()).unwrap();
        let next = scene.run(waits).unwrap();
        assert!(second.lock().unwrap().is_none(), "node timeout {timeout:?}");
        scene.run(next.release()).unwrap();
        scene.advance(SECOND);
        assert!(second.lock().unwrap().is_some());
    }
}

/// The gate hangs, and never answers it. The entry is not there any longer than its keys last.
#[test]
fn w3_a_leave_that_is_never_answered_is_forgotten_when_the_entry_has_expired() {
    let (scene, _guard, [_, waiter]) = Scene::new(3).held();
    waiter.hold_within("r", MS, 100 * MS);
    scene.advance(50 * MS);
    let gate = scene.gate("r");
    scene.nodes[gate].inject(Fault::Hung);
    scene.advance(9 * SECOND);
    let report = scene.run(waiter.locks.close(SECOND));
    assert_eq!(report.nodes().collect::<Vec<_>>(), [scene.nodes[gate].name()]);
    scene.advance(2 * SECOND);
    let report = scene.run(waiter.locks.close(SECOND));
    assert!(report.is_clean(), "{report}");
}

/// The connections keep no order, and the REFRESH takes longer than the calls behind it.
#[test]
fn w3_a_leave_never_overtakes_its_refresh() {
    let mut entries = 0;
    for moment in 0..30 {
        let (world, _held, _, waits) = World::waiting_over_a_pool(moment * 100 * MS, 2 * SECOND);
        let node = &world.nodes[0];
        entries += usize::from(node.keys().len() > 1);
        node.heal();
        drop(waits);
        // An entry that came back would be there for two seconds.
        world.advance(SECOND);
        assert_eq!(node.keys(), [b"r".to_vec()], "{moment:?}");
    }
    assert!(entries > 0, "it never joined the queue");
}

/// The same, and a watch that was given up is answered while the REFRESH is under way.
#[test]
fn w3_a_leave_waits_for_its_refresh_and_for_no_other_reply() {
    let world = World::pool();
    let node = &world.nodes[0];
    let _held = world.run(world.manager().lock("r").ttl(60 * SECOND)).unwrap();
    node.add_rule(slow(100 * MS).on(Operation::Watch));
    let builder = world.builder().node_timeout(150 * MS).backoff(60 * SECOND, 60 * SECOND);
    let manager = builder.build().unwrap();
    let mut waits = manager.lock("r").into_future().boxed();
    world.keeps_waiting(&mut waits, 100 * MS);
    node.add_rule(slow(400 * MS).on(Operation::Queue));
    world.keeps_waiting(&mut waits, 70 * MS);
    node.clear_rules();
    drop(waits);
    world.advance(SECOND);
    assert_eq!(node.keys(), [b"r".to_vec()]);
}

/// The first REFRESH hangs, and a later one comes back before it. The LEAVE behind the first is not wanted any more.
#[test]
fn w3_a_leave_that_was_held_back_takes_no_later_entry_away() {
    let world = World::pool();
    let node = &world.nodes[0];
    let held = world.run(world.manager().lock("r").ttl(60 * SECOND)).unwrap();
    node.add_rule(slow(2 * SECOND).on(Operation::Queue));
    let managers = [(); 2].map(|()| world.builder().node_timeout(150 * MS).build().unwrap());
    let waiters = managers.each_ref().map(|manager| {
        let request = manager.lock("r").timeout(60 * SECOND);
        let waiter = spawned(&world.sim, request.into_future());
        world.advance(100 * MS);
        node.clear_rules();
        world.advance(3 * SECOND);
        waiter
    });
    world.run(held.release()).unwrap();
    world.advance(SECOND);
    assert_eq!(waiters.map(|waiter| waiter.lock().unwrap().is_some()), [true, false]);
}

/// Another task of the process wants "a" and "b". It goes on with the ticket of "b", and waits at the gate of "a".
#[test]
fn w3_a_wait_for_a_name_ends_when_the_next_task_wants_another_one_first() {
    let (scene, [holder, own, other]) = Scene::new(3).and_processes();
    let _kept = scene.run(holder.lock("a").ttl(60 * SECOND)).unwrap();
    let guard = scene.run(holder.lock("b").ttl(60 * SECOND)).unwrap();
    own.hold_within("b", MS, SECOND);
    scene.advance(100 * MS);
    let both = own.locks.lock(["a", "b"]).timeout(60 * SECOND).into_future();
    own.spawn(both.map(drop));
    scene.advance(100 * MS);
    let held = other.hold_once("b", MS);
    scene.advance(1300 * MS);
    let queue = scene.nodes[scene.gate("b")].get("b:quorate:waiters");
    assert!(matches!(&queue, Some(Value::OrderedSet(all)) if all.len() == 1), "{queue:?}");
    let released = holder.client.now();
    scene.run(guard.release()).unwrap();
    scene.advance(SECOND);
    assert!(from(&held) - released <= 3 * ROUND_TRIP);
}

#[test]
fn w3_a_waiter_that_is_cancelled_at_any_poll_hands_its_turn_on() {
    for (world, polls) in World::KINDS.into_iter().flat_map(|new| (0..10).map(move |n| (new, n))) {
        let world = world(3);
        world.inject(.., Fault::Slow(MS));
        let manager = world.manager();
        let held = world.lock(&manager);
        let mut first = world.begun(manager.lock("r"));
        let second = spawned(&world.sim, manager.lock("r").into_future());
        world.catch_up();
        world.run(held.release()).unwrap();
        world.catch_up();
        drop((world.sim.block_on_for(first.as_mut(), polls), first));
        assert!(second.lock().unwrap().is_none(), "the first task was woken, and has the turn");
        // The undo, and an acquire.
        world.advance(5 * MS);
        let guard = second.lock().unwrap().take().expect("it has its turn").unwrap();
        assert!(guard.is_valid(), "after {polls} polls");
        drop(guard);
        world.sim.settle();
        assert_eq!(world.keys_left(), 0, "after {polls} polls");
    }
}

#[test]
fn w3_waiters_that_gave_up_in_the_local_queue_hold_nobody_up() {
    for given_up in [&[0][..], &[1], &[0, 1], &[1, 2]] {
        let (world, manager) = World::complete(3).and_manager();
        let held = world.lock(&manager);
        let waiters: Vec<_> = (0..4).map(|_| world.begun(manager.lock("r"))).collect();
        let kept = waiters.into_iter().enumerate().filter(|(at, _)| !given_up.contains(at));
        let kept: Vec<_> = kept.collect();
        world.run(held.release()).unwrap();
        for (_, waiter) in kept {
            world.run(world.run(waiter).unwrap().release()).unwrap();
        }
        assert_eq!(world.sim.elapsed(), Duration::ZERO, "{given_up:?}");
    }
}
