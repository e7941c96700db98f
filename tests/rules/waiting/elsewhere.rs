//! Waiting for what somebody in another process has.

use super::*;

/// Waits so long between two rounds that only being told explains being quick.
#[derive(Debug)]
struct Patient;

impl RetryStrategy for Patient {
    fn delay(&self, _: &RetryContext) -> Option<Duration> {
        Some(20 * SECOND)
    }
}

/// Two managers that know nothing of each other, on nodes that can be watched.
fn strangers(world: &World) -> [LockManager; 2] {
    let manager = || LockManager::builder(world.sim.clone(), world.nodes.clone()).retry(Patient);
    [manager().build().unwrap(), manager().build().unwrap()]
}

#[test]
fn a_waiter_elsewhere_is_woken_by_the_release() {
    for (dead, hung) in [(0, 0), (1, 1), (2, 0), (0, 2)] {
        let world = World::new(5);
        let [holder, waiter] = strangers(&world);
        for (place, node) in world.nodes.iter().enumerate() {
            match place {
                _ if place < dead => node.inject(Fault::Dead),
                _ if place < dead + hung => node.inject(Fault::Hung),
                _ => {}
            }
        }
        let held = world.sim.block_on(holder.lock("r")).unwrap();
        held.keep_alive();
        let releases = async {
            world.sim.sleep_until(world.sim.now() + 17 * SECOND).await;
            let _ = held.release().await.unwrap();
            world.sim.elapsed()
        };
        let waits = waiter.lock("r").wait(60 * SECOND).into_future();
        let waits = waits.map(|guard| (guard.unwrap(), world.sim.elapsed()));
        let (released, (guard, got)) = world.sim.block_on(join(releases, waits));
        assert!(guard.is_valid());
        assert!(
            got - released < 2 * SECOND,
            "{got:?} after {released:?}, {dead} dead, {hung} hung"
        );
    }
}

#[test]
fn a_waiter_elsewhere_is_there_when_the_holder_has_vanished() {
    let world = World::new(5);
    let [holder, waiter] = strangers(&world);
    std::mem::forget(world.sim.block_on(holder.lock("r")).unwrap());
    let guard = world.sim.block_on(waiter.lock("r")).unwrap();
    assert!(guard.is_valid());
    let elapsed = world.sim.elapsed();
    assert!(elapsed >= 10 * SECOND && elapsed < 10 * SECOND + 50 * MS, "{elapsed:?}");
}

/// The first node of every order keeps somebody's key, and the others are a quorum.
#[test]
fn a_gate_that_stays_shut_keeps_nobody_out() {
    for shut in 0..5 {
        let world = World::new(5);
        let [holder, waiter] = strangers(&world);
        world.nodes[shut].put("r", Value::String(b"a ghost".to_vec()));
        let held = world.sim.block_on(holder.lock("r")).unwrap();
        let releases = async {
            world.sim.sleep_until(world.sim.now() + SECOND).await;
            let _ = held.release().await.unwrap();
        };
        let waits = waiter.lock("r").into_future();
        let ((), guard) = world.sim.block_on(join(releases, waits));
        assert!(guard.unwrap().is_valid());
        assert!(world.sim.elapsed() < 2 * SECOND, "{shut}: {:?}", world.sim.elapsed());
    }
}

#[test]
fn where_too_few_nodes_can_be_watched_a_waiter_polls() {
    let world = World::new(5);
    let held = world.sim.block_on(world.manager().lock("r")).unwrap();
    let builder = || LockManager::builder(world.sim.clone(), world.nodes.clone());
    let managers = [world.manager(), builder().without_watching().build().unwrap()];
    for manager in managers {
        assert!(world.sim.block_on(manager.lock("r").wait(SECOND)).is_err());
    }
    let releases = async {
        world.sim.sleep_until(world.sim.now() + SECOND).await;
        let _ = held.release().await.unwrap();
        world.sim.elapsed()
    };
    let polls = builder().without_watching().build().unwrap();
    let waits = polls.lock("r").into_future();
    let waits = waits.map(|guard| (guard.unwrap(), world.sim.elapsed()));
    let (released, (_guard, got)) = world.sim.block_on(join(releases, waits));
    assert!(got - released <= 250 * MS, "the longest delay of the default strategy");
}

#[test]
fn the_node_that_waiters_watch_is_asked_first_to_release() {
    let world = World { watches: true, ..World::new(5) };
    let manager = world.manager();
    let first = |name: &str, operation: &str| {
        let calls = world.log.calls();
        let mut meant = calls.iter().rev().filter(|call| call.operation == operation);
        let node = meant.nth(4).map(|call| call.node.clone());
        node.unwrap_or_else(|| panic!("{name}: five nodes were asked to {operation}"))
    };
    let mut gates = BTreeSet::new();
    for number in 0..20 {
        let name = format!("r:{number}");
        let held = world.sim.block_on(manager.lock(&*name)).unwrap();
        let _ = world.sim.block_on(held.release()).unwrap();
        world.catch_up();
        world.sim.advance(SECOND);
        let gate = first(&name, "release");
        assert_eq!(gate, first(&name, "acquire"));
        // A waiter elsewhere that is woken asks this one before the others.
        let held = world.sim.block_on(manager.lock(&*name)).unwrap();
        let elsewhere = world.manager();
        let mut waits = Box::pin(elsewhere.lock(&*name).into_future());
        assert!(world.sim.block_on(poll_immediate(waits.as_mut())).is_none());
        world.sim.advance(SECOND);
        drop(held);
        let before = world.log.calls().len();
        drop(world.sim.block_on(waits).unwrap());
        let asked = world.log.calls().split_off(before);
        let woken = asked.into_iter().find(|call| call.operation == "acquire").unwrap();
        assert_eq!(woken.node, gate, "{name}");
        world.sim.advance(SECOND);
        gates.insert(gate);
    }
    assert!(gates.len() > 3, "not the same one for all locks: {gates:?}");
}

#[test]
fn who_is_told_of_a_release_need_not_be_able_to_poll_in_time() {
    let world = World { watches: true, ..World::new(3) };
    let held = world.sim.block_on(world.manager().lock("r")).unwrap();
    let late = Backoff::new(3600 * SECOND, 3600 * SECOND);
    let waiter = world.builder().retry(late).build().unwrap();
    let releases = async {
        world.sim.sleep_until(world.sim.now() + SECOND).await;
        let _ = held.release().await.unwrap();
    };
    let waits = waiter.lock("r").wait(5 * SECOND).into_future();
    let ((), guard) = world.sim.block_on(join(releases, waits));
    assert!(guard.unwrap().is_valid());
    assert!(world.sim.elapsed() < 2 * SECOND);
}

#[test]
fn who_can_neither_be_told_nor_poll_in_time_hears_it_at_once() {
    let world = World::new(3);
    let _held = world.sim.block_on(world.manager().lock("r")).unwrap();
    for node in &world.nodes {
        node.inject(Fault::Late(100 * MS));
    }
    let late = Backoff::new(3600 * SECOND, 3600 * SECOND);
    let waiter = world.builder().retry(late).build().unwrap();
    let failed = world.sim.block_on(waiter.lock("r").wait(5 * SECOND));
    assert!(matches!(failed, Err(LockError::Held { .. })), "{failed:?}");
    assert_eq!(world.sim.elapsed(), 100 * MS, "with the answers, and not after the cleanup");
}

/// Nodes that granted in the lost round are free as well.
#[test]
fn who_had_some_of_the_nodes_is_woken_by_those_that_were_missing() {
    let world = World { watches: true, ..World::new(5) };
    for node in &world.nodes[..3] {
        node.put("r", Value::String(b"somebody".to_vec()));
    }
    let frees = async {
        world.sim.sleep_until(world.sim.now() + SECOND).await;
        world.nodes[0].expire("r");
    };
    let waiter = world.builder().retry(Backoff::new(8 * SECOND, 8 * SECOND)).build().unwrap();
    let waits = waiter.lock("r").into_future();
    let ((), guard) = world.sim.block_on(join(frees, waits));
    assert!(guard.unwrap().is_valid());
    assert!(world.sim.elapsed() < 2 * SECOND, "{:?}", world.sim.elapsed());
}

#[test]
fn who_does_not_want_to_watch_is_told_nothing() {
    let world = World { watches: true, ..World::new(3) };
    let _held = world.sim.block_on(world.manager().lock("r")).unwrap();
    let late = Backoff::new(3600 * SECOND, 3600 * SECOND);
    let waiter = world.builder().without_watching().retry(late).build().unwrap();
    let failed = world.sim.block_on(waiter.lock("r").wait(5 * SECOND));
    assert!(matches!(failed, Err(LockError::Held { .. })), "{failed:?}");
    assert_eq!(world.sim.elapsed(), Duration::ZERO, "it could not poll in time");
}

/// What is left to be told by is not enough, and does not change.
#[test]
fn who_loses_the_connections_over_which_it_would_be_told_asks_again() {
    let world = World { watches: true, ..World::new(3) };
    world.nodes[2].put("r", Value::String(b"somebody".to_vec()));
    let _held = world.sim.block_on(world.manager().lock("r").ttl(60 * SECOND)).unwrap();
    let (sim, nodes) = (&world.sim, &world.nodes[..2]);
    let breaks = async {
        sim.sleep_until(sim.now() + SECOND).await;
        nodes.iter().for_each(|node| node.inject(Fault::Down));
        sim.sleep_until(sim.now() + 100 * MS).await;
        nodes.iter().for_each(MemoryNode::heal);
        sim.sleep_until(sim.now() + SECOND).await;
        nodes.iter().for_each(|node| node.expire("r"));
    };
    let waiter = world.builder().retry(Backoff::new(100 * MS, 100 * MS)).build().unwrap();
    let ((), guard) = sim.block_on(join(breaks, waiter.lock("r").into_future()));
    assert!(guard.unwrap().is_valid());
    assert!(sim.elapsed() < 3 * SECOND, "{:?}", sim.elapsed());
}
