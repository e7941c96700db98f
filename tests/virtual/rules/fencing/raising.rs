//! Nodes that gave different numbers are brought to the highest.

use super::*;

/// It was granted on nodes that differ, its raise is in flight for longer than its ttl, and by then
/// another client holds the lock.
#[test]
fn a_raise_that_comes_after_the_next_holder_outranks_nobody() {
    let world = World::new(3);
    let manager = counting(&world);
    stand_at(&world, &[10, 1000, 20]);
    for node in &world.nodes {
        let late = Effect::Delay { least: 20 * SECOND, most: 20 * SECOND };
        node.add_rule(Rule::new(late).on(Operation::Raise));
    }
    let zombie = world.sim.block_on(manager.lock("r").no_wait().fenced().ttl(SECOND));
    assert!(matches!(zombie, Err(LockError::NoQuorum(_))), "{zombie:?}");
    world.nodes.iter().for_each(MemoryNode::clear_rules);
    world.sim.advance(2 * SECOND);
    // Without the node from which the zombie has its high number.
    world.nodes[1].inject(Fault::Down);
    let next = world.builder().fencing_hint(|| 0).build().unwrap();
    let guard = world.sim.block_on(next.lock("r").fenced().ttl(60 * SECOND)).unwrap();
    assert!(token(&guard) < 1001);
    let before = numbers(&world);
    world.sim.advance(30 * SECOND);
    assert!(guard.is_valid());
    assert_eq!(numbers(&world), before, "the zombie's raise has come and changed nothing");
}

/// A grant says that the key is ours there; it is a vote only with the number that is raised to.
#[test]
fn a_grant_that_comes_during_a_raise_is_a_vote_with_its_number_alone() {
    for (third, is_vote) in [(20, false), (30, true)] {
        let world = World::new(3);
        let manager = counting(&world);
        stand_at(&world, &[30, 10, third]);
        world.nodes[2].inject(Fault::Slow(50 * MS));
        for node in &world.nodes {
            node.add_rule(Rule::new(Effect::DropRequest).on(Operation::Raise));
        }
        let locked = world.sim.block_on(manager.lock("r").no_wait().fenced());
        if is_vote {
            assert_eq!((token(&locked.unwrap()), world.sim.elapsed()), (31, 50 * MS));
            assert_eq!(count(&world, "raise"), 1, "the third has voted by itself");
        } else {
            assert_eq!(failure_of(locked).granted(), 1);
        }
    }
}

#[test]
fn a_raise_ends_within_the_node_timeout_of_its_round() {
    let world = World::new(3);
    let manager = counting(&world);
    stand_at(&world, &[3, 2, 1]);
    world.inject(.., Fault::Late(300 * MS));
    // Each fan-out alone would do; both take longer than a node may.
    let failed = world.sim.block_on(manager.lock("r").no_wait().fenced());
    assert_eq!(failure_of(failed).waited(), 500 * MS, "both within one node timeout");
    world.sim.advance(2 * SECOND);
    assert_eq!(lock_keys_left(&world), 0);
}

#[test]
fn t2_a_token_that_is_agreed_on_after_the_validity_is_a_loss() {
    let world = World::new(3);
    let client = Paused::new(&world.sim);
    let nodes = world.nodes.clone();
    let builder = LockManager::builder(nodes).runtime(client.clone());
    let manager = builder.fencing_hint(|| 0).build().unwrap();
    stand_at(&world, &[1, 2, 3]);
    world.inject(.., Fault::Slow(10 * MS));
    // The acquire has been granted and the raise is in flight. The client goes on after the validity that
    // counts from the acquire, and before one that would count from the raise.
    let sim = world.sim.clone();
    world.sim.spawn(Box::pin(async move {
        sim.sleep_until(sim.now() + 15 * MS).await;
        client.pause(9_385 * MS);
    }));
    let lost = world.sim.block_on(manager.lock("r").no_wait().fenced());
    assert!(matches!(lost, Err(LockError::NoQuorum(_))), "{lost:?}");
    world.sim.advance(SECOND);
    assert_eq!(lock_keys_left(&world), 0);
}

#[test]
fn a_quorum_without_a_token_is_unreachable_and_the_next_attempt_has_one() {
    let world = World::new(3);
    let manager = counting(&world);
    stand_at(&world, &[1, 2, 3]);
    world.inject(.., Fault::Slow(100 * MS));
    // Keys vanish between the acquires and the raises.
    let nodes = world.nodes.clone();
    let sim = world.sim.clone();
    world.sim.spawn(Box::pin(async move {
        sim.sleep_until(sim.now() + 150 * MS).await;
        nodes[0].expire("r");
        nodes[1].expire("r");
    }));
    let failed = world.sim.block_on(manager.lock("r").no_wait().fenced());
    let failure = failure_of(failed);
    assert_eq!(failure.granted(), 1, "{failure}");
    world.sim.advance(SECOND);
    let guard = lock(&world, &manager);
    assert!(token(&guard) >= 4);
    world.sim.settle_and_release(guard);
    assert_eq!(lock_keys_left(&world), 0);
}

/// It failed to raise a number, not to release.
#[test]
fn a_node_that_failed_to_raise_is_released_once() {
    for waits in [false, true] {
        let world = World::new(3);
        let manager = counting(&world);
        stand_at(&world, &[30, 10, 20]);
        for node in &world.nodes {
            node.add_rule(Rule::new(Effect::Cut).on(Operation::Raise));
        }
        if waits {
            drop(world.sim.block_on(manager.lock("r").fenced()));
        } else {
            failure_of(world.sim.block_on(manager.lock("r").no_wait().fenced()));
        }
        world.sim.advance(10 * SECOND);
        assert!(count(&world, "raise") > 0);
        let rounds = count(&world, "fenced acquire") / 3;
        assert_eq!(rounds, 1 + usize::from(waits));
        let released = count(&world, "release") + count(&world, "fenced release");
        assert_eq!(released, 3 * rounds);
        assert_eq!(lock_keys_left(&world), 0);
    }
}
