//! Waiting for a lock: in line, woken, and past nodes that hang.

use std::collections::BTreeSet;
use std::future::IntoFuture;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{join, join_all, poll_immediate};
use quorate_core::{
    Backoff, LockBackend, LockError, LockManager, Released, RetryContext, RetryStrategy, Runtime,
};
use quorate_memory::{Effect, Fault, MemoryNode, Rule, Value};

use crate::world::{MS, SECOND, World};

mod elsewhere;

fn count(world: &World, operation: &str) -> usize {
    world.log.operations().iter().filter(|done| **done == operation).count()
}

#[test]
fn waiters_of_one_process_are_served_in_the_order_they_came() {
    let world = World::new(5);
    let manager = world.manager();
    let held = world.sim.block_on(manager.lock("r")).unwrap();
    let served: Arc<Mutex<Vec<u32>>> = Arc::default();
    for number in 0..20 {
        let (manager, served, sim) = (manager.clone(), Arc::clone(&served), world.sim.clone());
        world.sim.spawn(Box::pin(async move {
            let guard = manager.lock("r").await.unwrap();
            served.lock().unwrap().push(number);
            sim.sleep_until(sim.now() + 10 * MS).await;
            let _ = guard.release().await.unwrap();
        }));
        world.catch_up();
    }
    world.sim.advance(SECOND);
    assert_eq!(world.log.operations(), ["acquire"; 5], "who waits for a neighbour sends nothing");
    let _ = world.sim.block_on(held.release()).unwrap();
    world.sim.advance(SECOND);
    assert_eq!(*served.lock().unwrap(), (0..20).collect::<Vec<_>>());
    assert_eq!(count(&world, "acquire"), 21 * 5, "a round for each, and none was lost");
}

/// How long after each release the next one of this process has the lock, where a message to a node
/// and its answer take 5 ms. Each holds it for a moment.
fn gaps(world: &World, waiters: usize, dropped: bool) -> Vec<Duration> {
    let manager = world.manager();
    let held = world.sim.block_on(manager.lock("r")).unwrap();
    for node in &world.nodes {
        node.inject(Fault::Slow(5 * MS));
    }
    let times = Arc::new(Mutex::new(vec![(world.sim.elapsed(), world.sim.elapsed())]));
    for _ in 0..waiters {
        let (sim, times, next) = (world.sim.clone(), Arc::clone(&times), manager.lock("r"));
        world.sim.spawn(Box::pin(async move {
            let guard = next.await.unwrap();
            let got = sim.elapsed();
            sim.sleep_until(sim.now() + 20 * MS).await;
            times.lock().unwrap().push((got, sim.elapsed()));
            match dropped {
                true => drop(guard),
                false => assert_eq!(guard.release().await.unwrap(), Released::Held),
            }
        }));
        world.catch_up();
    }
    match dropped {
        true => drop(held),
        false => drop(world.sim.block_on(held.release())),
    }
    world.sim.advance(SECOND);
    let times = times.lock().unwrap();
    assert_eq!(times.len(), waiters + 1);
    times.windows(2).map(|pair| pair[1].0 - pair[0].1).collect()
}

#[test]
fn the_next_one_asks_right_behind_the_release() {
    for dropped in [false, true] {
        let world = World::in_order(5);
        let gaps = gaps(&world, 8, dropped);
        // The way of the acquire, and not of the release before it; but now and then others have a
        // chance.
        let gaps: Vec<_> = gaps.iter().map(Duration::as_millis).collect();
        assert_eq!(gaps, [5, 5, 5, 10, 5, 5, 5, 10], "dropped: {dropped}");
        assert_eq!(world.log.operations().len(), 2 * 9 * 5, "one round for each");
        assert_eq!(world.keys_left(), 0);
    }
}

#[test]
fn where_nodes_may_be_reached_in_another_order_the_next_one_waits_for_the_release() {
    for world in [World::new(5), World::carrying(5)] {
        let gaps = gaps(&world, 5, false);
        assert_eq!(gaps, [10 * MS; 5], "the way of the release and the way of the acquire");
    }
}

#[test]
fn the_next_one_waits_for_the_release_where_others_were_met() {
    let world = World::in_order(5);
    // Somebody else has two nodes, so that they were seen to refuse.
    for node in &world.nodes[..2] {
        node.put("r", Value::String(b"somebody".to_vec()));
    }
    let gaps = gaps(&world, 1, false);
    assert!(gaps[0] >= 10 * MS, "{gaps:?}");
}

#[test]
fn who_came_before_the_release_after_all_asks_again_when_it_is_answered() {
    let world = World { resends: Some(50 * MS), ..World::in_order(5) };
    let manager = world.builder().retry(Backoff::default().limit(1)).build().unwrap();
    let held = world.sim.block_on(manager.lock("r")).unwrap();
    let mut next = Box::pin(manager.lock("r").into_future());
    assert!(world.sim.block_on_for(next.as_mut(), 1).is_none());
    drop(held);
    let (guard, start) = (world.sim.block_on(next), world.sim.elapsed());
    assert!(guard.unwrap().is_valid());
    assert!(start >= 50 * MS);
    assert!(world.sim.elapsed() < SECOND);
}

#[test]
fn releases_that_are_sent_again_cost_time_and_nothing_else() {
    let world = World { resends: Some(3 * MS), ..World::in_order(5) };
    let sim = &world.sim;
    let manager = world.manager();
    for node in &world.nodes {
        node.add_rule(Rule::new(Effect::Delay { least: MS, most: 5 * MS }));
    }
    let holders = Arc::<Mutex<u32>>::default();
    for _ in 0..5 {
        let (sim, manager, holders) = (sim.clone(), manager.clone(), Arc::clone(&holders));
        world.sim.spawn(Box::pin(async move {
            for _ in 0..20 {
                let guard = manager.lock("r").wait(60 * SECOND).await.unwrap();
                let before = std::mem::replace(&mut *holders.lock().unwrap(), 1);
                assert_eq!(before, 0, "two hold it");
                sim.sleep_until(sim.now() + MS).await;
                *holders.lock().unwrap() = 0;
                let _ = guard.release().await.unwrap();
            }
        }));
    }
    sim.advance(60 * SECOND);
    assert_eq!(sim.block_on(manager.settle(SECOND)), 0);
    assert!(count(&world, "acquire") >= 100 * 5, "all were served");
    assert_eq!(world.keys_left(), 0);
}

#[test]
fn a_waiter_that_is_cancelled_hands_its_turn_on() {
    for polls in 1..10 {
        let world = World::new(3);
        let manager = world.manager();
        let held = world.sim.block_on(manager.lock("r")).unwrap();
        let mut first = Box::pin(manager.lock("r").into_future());
        assert!(world.sim.block_on_for(first.as_mut(), 1).is_none());
        let mut second = Box::pin(manager.lock("r").into_future());
        assert!(world.sim.block_on_for(second.as_mut(), 1).is_none());
        let _ = world.sim.block_on(held.release()).unwrap();
        // The first is called, gets as far as so many polls take it, and is dropped.
        let got = world.sim.block_on_for(first.as_mut(), polls);
        drop(got);
        drop(first);
        let guard = world.sim.block_on(second).unwrap();
        assert!(guard.is_valid(), "after {polls} polls");
        assert!(world.sim.elapsed() < SECOND);
    }
}

#[test]
fn a_waiter_in_line_keeps_its_deadline() {
    let world = World::new(3);
    let manager = world.manager();
    let _held = world.sim.block_on(manager.lock("r")).unwrap();
    let waits = (1..=3).map(|n| manager.lock("r").wait(n * 100 * MS).into_future());
    let timed = waits.map(|wait| wait.map(|lost| (lost, world.sim.elapsed())));
    let lost = world.sim.block_on(join_all(timed));
    for (number, (lost, at)) in (1..).zip(lost) {
        let Err(error @ LockError::Held { .. }) = lost else { panic!("{lost:?}") };
        assert_eq!(error.to_string(), "locked by another guard of the same manager");
        assert_eq!(at, number * 100 * MS);
    }
}

#[test]
fn a_holder_in_this_process_that_never_lets_go_is_outlived() {
    let world = World::new(3);
    let manager = world.manager();
    std::mem::forget(world.sim.block_on(manager.lock("r").ttl(2 * SECOND)).unwrap());
    let guard = world.sim.block_on(manager.lock("r")).unwrap();
    assert!(guard.is_valid());
    let elapsed = world.sim.elapsed();
    assert!(elapsed >= 2 * SECOND && elapsed < 3 * SECOND, "{elapsed:?}");
}

#[test]
fn a_lock_that_was_handed_over_is_waited_for_at_the_nodes() {
    let world = World::new(3);
    let manager = world.manager();
    let record = world.sim.block_on(manager.lock("r")).unwrap().hand_over();
    let lost = world.sim.block_on(manager.lock("r").wait(SECOND));
    assert!(matches!(lost, Err(LockError::Held { .. })), "{lost:?}");
    let adopted = world.sim.block_on(world.manager().adopt(&record)).unwrap();
    assert!(adopted.is_valid());
}

/// Two who want the same two, named in another order, and one of each.
#[test]
fn waiters_for_several_keys_never_wait_for_each_other() {
    let world = World::new(3);
    let manager = world.manager();
    let sim = &world.sim;
    let work = |names: Vec<&'static str>| {
        let manager = manager.clone();
        async move {
            for _ in 0..20 {
                let guard = manager.lock(names.clone()).await.unwrap();
                sim.sleep_until(sim.now() + MS).await;
                let _ = guard.release().await.unwrap();
            }
        }
    };
    let all =
        [vec!["a", "b"], vec!["b", "a"], vec!["a"], vec!["b"], vec!["b", "c"], vec!["c", "a"]];
    world.sim.block_on(join_all(all.map(work)));
    assert!(world.sim.elapsed() < SECOND, "{:?}", world.sim.elapsed());
}

#[test]
fn a_node_that_hangs_is_left_alone_but_for_a_probe() {
    for world in [World::new(5), World::carrying(5)] {
        let manager = world.manager();
        drop(world.sim.block_on(manager.lock("r")).unwrap());
        world.sim.settle();
        world.nodes[0].inject(Fault::Hung);
        let of_it =
            |world: &World| world.log.calls().iter().filter(|call| call.node == "memory-1").count();
        let before = of_it(&world);
        let asked = |world: &World| of_it(world) - before;
        for _ in 0..1000 {
            let guard = world.sim.block_on(manager.lock("r")).unwrap();
            let _ = world.sim.block_on(guard.release()).unwrap();
            world.sim.advance(10 * MS);
        }
        // Fifty before it was clear, and one in every half of a second of the ten.
        assert!((50..80).contains(&asked(&world)), "{}", asked(&world));
        let guard = world.sim.block_on(manager.lock("r")).unwrap();
        let _ = world.sim.block_on(guard.release()).unwrap();
        world.nodes[0].heal();
        world.sim.advance(SECOND);
        let before = asked(&world);
        for _ in 0..10 {
            drop(world.sim.block_on(manager.lock("r")).unwrap());
            world.sim.advance(10 * MS);
        }
        assert_eq!(asked(&world) - before, 20, "it is back: acquire and release, ten times");
        world.sim.settle();
        assert_eq!(world.keys_left(), 0);
    }
}

/// Calls that were given up say nothing about a node that nobody has asked since.
#[test]
fn a_node_whose_calls_were_all_given_up_is_asked_as_any_other() {
    let world = World::new(3);
    let manager = world.manager();
    drop(world.sim.block_on(manager.lock("r")).unwrap());
    world.sim.settle();
    world.nodes[0].inject(Fault::Hung);
    drop(world.sim.block_on(manager.lock("r")).unwrap());
    world.sim.advance(60 * SECOND);
    assert_eq!(world.sim.block_on(manager.settle(Duration::ZERO)), 0, "all were given up");
    let (names, before) = (["a", "b", "c"], world.log.calls().len());
    let tries = names.map(|name| manager.try_lock(name).into_future());
    assert!(world.sim.block_on(join_all(tries)).iter().all(Result::is_ok));
    let asked = world.log.calls().split_off(before);
    let first = asked.iter().filter(|call| call.node == world.nodes[0].name());
    assert_eq!(first.filter(|call| call.operation == "acquire").count(), names.len());
}

#[test]
fn nodes_that_hang_are_asked_all_the_same_if_the_others_are_no_quorum() {
    let world = World::new(3);
    let manager = world.manager();
    for node in &world.nodes[..2] {
        node.inject(Fault::Hung);
    }
    for _ in 0..3 {
        assert!(world.sim.block_on(manager.try_lock("r")).is_err());
    }
    // By now they are known to hang, and all of this is within one node timeout.
    let (names, before) = (["a", "b", "c", "d"], world.log.calls().len());
    let tries = names.map(|name| manager.try_lock(name).into_future());
    assert!(world.sim.block_on(join_all(tries)).iter().all(Result::is_err));
    let asked = world.log.calls().split_off(before);
    for node in &world.nodes {
        let acquires = asked.iter().filter(|call| call.operation == "acquire");
        let acquires = acquires.filter(|call| Some(&*call.node) == LockBackend::name(node));
        assert_eq!(acquires.count(), names.len(), "{node:?}");
    }
    world.nodes.iter().for_each(MemoryNode::heal);
    world.catch_up();
    drop(world.sim.block_on(manager.try_lock("r")).expect("at once"));
}

#[test]
fn the_error_says_that_a_node_was_left_alone() {
    let world = World::new(3);
    let manager = world.manager();
    world.nodes[0].inject(Fault::Hung);
    drop(world.sim.block_on(manager.lock("warm")).unwrap());
    world.sim.advance(600 * MS);
    drop(world.sim.block_on(manager.lock("probe")).unwrap());
    let _held = world.sim.block_on(world.manager().lock("r")).unwrap();
    let lost = world.sim.block_on(manager.try_lock("r")).unwrap_err().to_string();
    assert!(lost.contains("memory-1: not asked: it has not answered for"), "{lost}");
}

/// The first round may take one node timeout, also behind another of the same process.
#[test]
fn who_waits_for_less_than_the_nodes_take_has_a_whole_round_when_its_turn_comes() {
    let world = World::new(3);
    let manager = world.manager();
    let held = world.sim.block_on(manager.lock("r")).unwrap();
    world.catch_up();
    let mut next = Box::pin(manager.lock("r").wait(20 * MS).into_future());
    assert!(world.sim.block_on_for(next.as_mut(), 1).is_none());
    let _ = world.sim.block_on(held.release()).unwrap();
    world.catch_up();
    for node in &world.nodes {
        node.inject(Fault::Late(100 * MS));
    }
    assert!(world.sim.block_on(next).is_ok());
    assert_eq!(world.sim.elapsed(), 100 * MS);
}

/// However long whoever was in front has left of the time to wait.
#[test]
fn q5_a_round_behind_another_of_the_same_process_takes_one_node_timeout_at_the_most() {
    let world = World::new(3);
    let manager = world.manager();
    let held = world.sim.block_on(manager.lock("r")).unwrap();
    world.catch_up();
    let next = manager.lock("r").wait(10 * SECOND);
    let mut next = Box::pin(next.retry(Backoff::new(MS, MS)).into_future());
    assert!(world.sim.block_on_for(next.as_mut(), 1).is_none());
    let _ = world.sim.block_on(held.release()).unwrap();
    world.catch_up();
    for node in &world.nodes[..2] {
        node.inject(Fault::Hung);
    }
    assert!(world.sim.block_on(next).is_err());
    let rounds = world.log.tokens().len() - 1;
    assert!(rounds >= 5, "{rounds} rounds in ten seconds");
}
