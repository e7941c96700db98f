//! What users of lock libraries and other test suites found, each as a test of its name: the third list.

use std::future::IntoFuture;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{join, join_all};
use quorate_core::backend::Capabilities;
use quorate_core::error::InvalidRequest;
use quorate_core::{ExtendError, InvalidResource, LockError, LockGuard, Lost, Runtime};
use quorate_memory::{Effect, Fault, Operation, Rule};

use crate::waiting::processes::{REFRESH, Scene};
use crate::world::{MS, SECOND, World};

const MARGIN: Duration = Duration::from_millis(500);
const HOUR: Duration = Duration::from_secs(3600);

/// Why a lease ends by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    NotRenewed,
    RenewalsFail,
    HoldLimit,
}

/// A holder that stops late is alone for the margin, whoever comes next.
#[test]
fn a_lapsed_lease_keeps_its_margin() {
    for end in [End::NotRenewed, End::RenewalsFail, End::HoldLimit] {
        for (is_other, guard_goes) in [(false, false), (false, true), (true, false), (true, true)] {
            let row = format!("{end:?}, another process: {is_other}, the guard goes: {guard_goes}");
            let scene = Scene::new(5);
            let (holder, other) = (scene.process(), scene.process());
            let mut request = holder.lock("r").ttl(10 * SECOND);
            if end == End::HoldLimit {
                request = request.hold_limit(4 * SECOND);
            }
            let guard = scene.sim.block_on(request).unwrap();
            if end == End::RenewalsFail {
                guard.auto_renew();
                for node in &scene.nodes {
                    node.add_rule(Rule::new(Effect::DropRequest).on(Operation::Extend));
                }
            }
            let next = if is_other { &other } else { &holder }.hold_once("r", MS);
            let lost = scene.sim.block_on(guard.lost());
            assert_eq!(matches!(lost, Lost::HoldLimit), end == End::HoldLimit, "{row}: {lost:?}");
            let ended = holder.client.now();
            assert_eq!(guard.valid_until(), ended, "{row}");
            if guard_goes {
                scene.sim.advance(MARGIN / 5);
                drop(guard);
                scene.sim.advance(MARGIN / 5);
                assert!(next.lock().unwrap().is_some(), "{row}: its holder has stopped");
            } else {
                scene.sim.advance(2 * SECOND);
                let from = next.lock().unwrap().expect("the margin is over").from;
                let waited = from - ended;
                assert!(waited >= MARGIN && waited < MARGIN + 20 * MS, "{row}: {waited:?}");
            }
        }
    }
}

#[test]
fn reserved_names_are_refused() {
    for prefix in ["", "app:"] {
        let world = World::new(3);
        let manager = world.builder().key_prefix(prefix).build().unwrap();
        let reserved = [
            "quorate:fence:3",
            "quorate:guard:epoch",
            "quorate:",
            "r:quorate:waiters",
            ":quorate:",
        ];
        for name in reserved {
            for names in [vec![name], vec!["a", name, "z"]] {
                let refused = world.sim.block_on(manager.lock(names.clone()));
                assert!(
                    matches!(
                        refused,
                        Err(LockError::Invalid(InvalidRequest::Resource(
                            InvalidResource::Reserved
                        )))
                    ),
                    "{prefix}{names:?}: {refused:?}"
                );
            }
        }
        assert!(world.log.calls().is_empty(), "nothing was sent");
        for name in ["quorate", "quorate-1", "r:quorate", "requorate:r"] {
            drop(world.sim.block_on(manager.lock(name)).unwrap());
        }
    }
}

/// A node that was down when its lock was released, with a ttl of an hour.
#[test]
fn a_node_that_is_back_is_released_at_once() {
    for world in [World::new(3), World::in_order(3), World::complete(3)] {
        for (away, asks_another) in [(SECOND, true), (60 * SECOND, true), (60 * SECOND, false)] {
            let manager = world.manager();
            let guard = world.sim.block_on(manager.lock("r").ttl(HOUR)).unwrap();
            world.catch_up();
            world.nodes[0].inject(Fault::Down);
            world.sim.block_on(guard.release()).unwrap();
            world.sim.advance(away + 7 * MS);
            world.nodes[0].heal();
            assert!(world.nodes[0].get("r").is_some());
            if asks_another {
                // It has answered something.
                drop(world.sim.block_on(manager.lock("s")).unwrap());
                world.catch_up();
            } else {
                world.sim.advance(500 * MS);
            }
            assert!(world.nodes[0].keys().is_empty(), "{away:?}, {asks_another}");
        }
    }
}

#[test]
fn a_wait_that_begins_without_a_gate_joins_when_one_is_back() {
    let scene = Scene::new(5);
    let (holder, waiter) =
        (scene.process(), scene.process_with(|builder| builder.node_timeout(50 * MS)));
    let guard = scene.sim.block_on(holder.lock("r").ttl(60 * SECOND)).unwrap();
    for node in &scene.nodes {
        node.add_rule(Rule::new(Effect::DropRequest).on(Operation::Queue));
    }
    // It asks one gate after the other, and all are skipped.
    let first = waiter.locks.lock("r").timeout(400 * MS).into_future();
    assert!(scene.sim.block_on(first).unwrap_err().is_held());
    scene.forget_sent();
    let held = waiter.hold_once("r", MS);
    scene.sim.advance(100 * MS);
    assert_eq!(scene.count(Operation::Queue), 0, "no gate is left");
    let way = crate::waiting::processes::ROUND_TRIP / 2;
    for node in &scene.nodes {
        node.clear_rules();
        node.add_rule(Rule::new(Effect::Delay { least: way, most: way }));
    }
    scene.sim.advance(SECOND + REFRESH);
    scene.gate("r");
    scene.sim.advance(2 * REFRESH);
    let before = holder.client.now();
    scene.sim.block_on(guard.release()).unwrap();
    scene.sim.advance(SECOND);
    let gap = held.lock().unwrap().expect("it got the lock").from - before;
    assert!(gap < 2 * MS, "woken by the push: {gap:?}");
}

/// Task 1 has `a`, task 2 wants both, and task 1 wants `b` as well.
#[test]
fn a_nested_lock_in_sorted_order_is_no_deadlock() {
    for world in [World::new(3), World::in_order(3), World::complete(3)] {
        let (manager, sim) = (world.manager(), &world.sim);
        let outer = sim.block_on(manager.lock("a")).unwrap();
        let mut both = Box::pin(manager.lock(["b", "a"]).into_future());
        assert!(sim.block_on_for(both.as_mut(), 1).is_none());
        let nested = async {
            let inner = manager.lock("b").await.unwrap();
            sim.sleep(MS).await;
            inner.release().await.unwrap();
            outer.release().await.unwrap();
        };
        let (both, ()) = sim.block_on(join(both, nested));
        sim.block_on(both.unwrap().release()).unwrap();
        assert!(sim.elapsed() < 20 * MS, "{:?}", sim.elapsed());
    }
}

#[test]
fn the_smallest_validity_does_not_spin() {
    let world = World::new(3);
    for ttl in (1..=3).map(|millis| millis * MS) {
        assert!(world.builder().ttl(ttl).build().is_err(), "{ttl:?}");
        let refused = world.sim.block_on(world.manager().lock("r").ttl(ttl));
        assert!(matches!(refused, Err(LockError::Invalid(InvalidRequest::Ttl(_)))), "{refused:?}");
    }
    assert!(world.log.calls().is_empty());
    let manager = world.builder().ttl(4 * MS).build().unwrap();
    let guard = world.sim.block_on(manager.lock("r")).unwrap();
    guard.auto_renew();
    world.sim.advance(SECOND);
    assert!(guard.is_valid());
    let extended = world.log.operations().iter().filter(|done| **done == "extend").count() / 3;
    // Four in a validity of 1.56 ms.
    assert!(extended < 2_600, "{extended} rounds in a second");
    // And while no node answers.
    world.nodes.iter().for_each(|node| node.inject(Fault::Hung));
    world.sim.advance(SECOND);
    assert!(!guard.is_valid());
    assert!(world.log.operations().len() < 3 * 2_600 + 100);
}

/// Another process has the lock, and one of three nodes is silent.
#[test]
fn held_is_never_told_as_no_quorum() {
    for timeout in [3, 20, 100, 499, 500, 501, 700, 1_500] {
        for silent in 0..3 {
            let scene = Scene::new(3);
            let (holder, waiter) = (scene.process(), scene.process());
            scene.nodes[silent].inject(Fault::Hung);
            let _held = scene.sim.block_on(holder.lock("r").ttl(HOUR)).unwrap();
            let requests = (0..5).map(|_| waiter.locks.lock("r").timeout(timeout * MS));
            let errors = scene.sim.block_on(join_all(requests.map(IntoFuture::into_future)));
            for error in errors.into_iter().map(Result::unwrap_err) {
                assert!(error.is_held(), "node {silent} is silent, {timeout} ms: {error}");
            }
            let refused = scene.sim.block_on(waiter.locks.lock("r").no_wait()).unwrap_err();
            assert!(refused.is_held(), "node {silent} is silent: {refused}");
        }
    }
    // A guard or an earlier task of this manager is in the way, also without any time.
    let world = World::complete(3);
    let manager = world.manager();
    let guard = world.sim.block_on(manager.lock("r").ttl(HOUR)).unwrap();
    for timeout in [Duration::ZERO, MS] {
        let error = world.sim.block_on(manager.lock("r").timeout(timeout)).unwrap_err();
        assert!(error.is_held(), "{error}");
    }
    world.sim.block_on(guard.release()).unwrap();
}

/// A thousand tasks of one manager, for each of which the turn comes at some time, or too late.
#[test]
fn held_is_never_told_as_no_quorum_to_a_thousand_tasks() {
    let scene = Scene::new(3);
    let process = scene.process();
    let sim = &scene.sim;
    let tasks = (0..1_000).map(|_| async {
        match process.locks.lock("r").timeout(SECOND).await {
            Ok(guard) => {
                sim.sleep(5 * MS).await;
                guard.release().await.unwrap();
                true
            }
            Err(error) => {
                assert!(error.is_held(), "{error}");
                false
            }
        }
    });
    let had = sim.block_on(join_all(tasks)).into_iter().filter(|had| *had).count();
    assert!(had > 100 && had < 900, "{had}");
}

/// The second caller hears of the round after the next one has failed.
#[test]
fn a_won_extension_is_won_for_all_its_callers() {
    let world = World::new(3);
    let guard: LockGuard = world.sim.block_on(world.manager().lock("r")).unwrap();
    world.nodes.iter().for_each(|node| node.inject(Fault::Late(100 * MS)));
    let failed: Arc<Mutex<Option<ExtendError>>> = Arc::default();
    let mut shared = Box::pin(guard.extend());
    let first = async {
        guard.extend().await.unwrap();
        world.nodes.iter().for_each(|node| node.inject(Fault::Down));
        *failed.lock().unwrap() = guard.extend().await.err();
    };
    assert!(world.sim.block_on_for(shared.as_mut(), 1).is_none(), "it is in the round");
    world.sim.block_on(first);
    assert!(matches!(*failed.lock().unwrap(), Some(ExtendError::Unreachable(_))));
    world.sim.block_on(shared).expect("its round was won");
    assert!(guard.is_valid());
}

/// A process over a pool, one without pushes, and one that can do nothing, beside others that can do everything.
#[test]
fn processes_with_other_abilities_are_not_starved() {
    let pool = Capabilities::ORDERED | Capabilities::WATCH;
    for (others, hold) in [(3, MS), (7, MS), (3, 100 * MS), (7, 100 * MS)] {
        for lacks in [pool, Capabilities::WATCH] {
            let scene = Scene::new(5);
            let odd = scene.process_on(move |node| node.without(lacks), |builder| builder);
            let mut processes = vec![odd];
            processes.extend((0..others).map(|_| scene.process()));
            let served = Arc::new(Mutex::new(vec![0; processes.len()]));
            for (number, process) in processes.iter().enumerate() {
                let (ours, served) = (process.clone(), Arc::clone(&served));
                process.spawn(async move {
                    loop {
                        let guard = ours.lock("r").await.unwrap();
                        served.lock().unwrap()[number] += 1;
                        ours.client.sleep(hold).await;
                        guard.release().await.unwrap();
                    }
                });
            }
            scene.sim.advance(if hold == MS { 3 * SECOND } else { 20 * SECOND });
            let served = served.lock().unwrap();
            let fair = served.iter().sum::<usize>() / served.len();
            let story = format!("{lacks:?} beside {others}, {hold:?}: {served:?}");
            assert!(served.iter().all(|one| *one * 2 >= fair && fair > 0), "{story}");
        }
    }
}

/// Both rank the nodes by server id and key.
#[test]
fn the_order_of_the_nodes_does_not_matter() {
    let scene = Scene::new(5);
    let orders = [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 4, 0, 3, 1], [3, 0, 4, 1, 2]];
    let processes = orders.map(|order| scene.process_listing(&order));
    let holds: Arc<Mutex<Vec<(usize, Duration)>>> = Arc::default();
    for (number, process) in processes.iter().enumerate() {
        let (ours, holds, sim) = (process.clone(), Arc::clone(&holds), scene.sim.clone());
        process.spawn(async move {
            loop {
                let guard = ours.lock("r").await.unwrap();
                holds.lock().unwrap().push((number, sim.elapsed()));
                ours.client.sleep(MS).await;
                guard.release().await.unwrap();
            }
        });
    }
    // The server ids are known after the first answers.
    scene.sim.advance(SECOND);
    holds.lock().unwrap().clear();
    scene.sim.advance(4 * SECOND);
    let holds = holds.lock().unwrap();
    for number in 0..orders.len() {
        let own = || holds.iter().filter(|hold| hold.0 == number).map(|hold| hold.1);
        let share = own().count() * orders.len() * 100 / holds.len();
        assert!(share >= 50, "process {number} has {share} % of its fair share");
        let waits = own().zip(own().skip(1)).map(|(one, next)| next - one);
        assert!(waits.max().unwrap() < SECOND, "process {number}");
    }
}
