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
    assert!(matches!(zombie, Err(LockError::Unreachable(_))), "{zombie:?}");
    for node in &world.nodes {
        node.clear_rules();
    }
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

#[test]
fn only_the_holder_of_the_key_raises_a_number() {
    let world = World::new(1);
    let node = &world.nodes[0];
    let (zombie, holder) = (claim(&["r"], 1), claim(&["r"], 2));
    let none = FenceHint::default();
    let acquire = |claim| acquire(&world, node, claim, none);
    let raise = |claim, to| world.sim.block_on(node.raise(claim, at(to))).unwrap().vote;
    assert_eq!(raise(&holder, 9), Vote::Refused, "nobody's key");
    assert_eq!(acquire(&zombie), granted(1));
    node.expire("r");
    assert_eq!(acquire(&holder), granted(2));
    assert_eq!(raise(&zombie, 9), Vote::Refused);
    let released = release(&world, node, &zombie, 9);
    assert_eq!((released, number(node, "r")), (Vote::Refused, Some(2)));
    assert_eq!(raise(&holder, 1), Vote::Refused, "it never falls");
    assert_eq!(raise(&holder, 2), Vote::Granted, "it has voted that");
    assert_eq!(raise(&holder, 5), Vote::Granted);
    assert_eq!(number(node, "r"), Some(5));
    let released = release(&world, node, &holder, 7);
    assert_eq!((released, number(node, "r")), (Vote::Granted, Some(7)));
}

/// The counterexample to `F <= t` without a bump in the grant, and to the highest answer as the
/// token without votes for it.
#[test]
fn a_grant_always_raises_so_no_number_is_voted_for_two() {
    let world = World::new(3);
    let none = FenceHint::default();
    let [a, b] = [1, 2].map(|holder| claim(&["r"], holder));
    let grant = |node: usize, claim| acquire(&world, &world.nodes[node], claim, none);
    // A has the first node and loses it; B has the first and the third.
    assert_eq!(grant(0, &a), granted(1));
    world.nodes[0].expire("r");
    assert_eq!(grant(1, &a), granted(1));
    assert_eq!((grant(0, &b), grant(2, &b)), (granted(2), granted(1)));
    let raised = world.sim.block_on(world.nodes[2].raise(&b, at(2)));
    assert_eq!(raised.unwrap().vote, Vote::Granted, "B has 2");
    // B's key on the third node vanishes, and A's late request comes.
    world.nodes[2].expire("r");
    assert_eq!(grant(2, &a), granted(3), "not 2: that has been voted for B");
    let raised = world.sim.block_on(world.nodes[2].raise(&a, at(2)));
    assert_eq!(raised.unwrap().vote, Vote::Refused);
}

#[test]
fn a_raise_ends_within_the_node_timeout_of_its_round() {
    let world = World::new(3);
    let manager = counting(&world);
    stand_at(&world, &[3, 2, 1]);
    for node in &world.nodes {
        node.inject(Fault::Late(300 * MS));
    }
    // Each fan-out alone would do; both take longer than a node may.
    let failed = world.sim.block_on(manager.lock("r").no_wait().fenced());
    assert_eq!(failure_of(failed).waited(), 500 * MS, "both within one node timeout");
    world.sim.advance(2 * SECOND);
    assert_eq!(lock_keys_left(&world), 0);
}

/// It says that the key is ours there, not that it stands at the number that is raised to.
#[test]
fn a_grant_that_comes_during_a_raise_is_no_vote_for_it() {
    let world = World::new(3);
    let manager = counting(&world);
    stand_at(&world, &[30, 10, 20]);
    world.nodes[2].inject(Fault::Slow(50 * MS));
    for node in &world.nodes {
        node.add_rule(Rule::new(Effect::DropRequest).on(Operation::Raise));
    }
    let failed = world.sim.block_on(manager.lock("r").no_wait().fenced());
    let failure = failure_of(failed);
    assert_eq!(failure.granted(), 1, "{failure}");
}

#[test]
fn a_grant_that_comes_during_a_raise_with_its_number_is_a_vote() {
    let world = World::new(3);
    let manager = counting(&world);
    stand_at(&world, &[30, 10, 30]);
    world.nodes[2].inject(Fault::Slow(50 * MS));
    for node in &world.nodes {
        node.add_rule(Rule::new(Effect::DropRequest).on(Operation::Raise));
    }
    let guard = world.sim.block_on(manager.lock("r").no_wait().fenced()).unwrap();
    assert_eq!((token(&guard), world.sim.elapsed()), (31, 50 * MS));
    assert_eq!(count(&world, "raise"), 1, "the third has voted by itself");
}

#[test]
fn t2_a_token_that_is_agreed_on_after_the_validity_is_a_loss() {
    let world = World::new(3);
    let client = Paused::new(&world.sim);
    let nodes = world.nodes.clone();
    let builder = LockManager::builder(nodes).runtime(client.clone());
    let manager = builder.fencing_hint(|| 0).build().unwrap();
    stand_at(&world, &[1, 2, 3]);
    for node in &world.nodes {
        node.inject(Fault::Slow(10 * MS));
    }
    // The acquire has been granted and the raise is in flight. The client goes on after the validity that
    // counts from the acquire, and before one that would count from the raise.
    let sim = world.sim.clone();
    world.sim.spawn(Box::pin(async move {
        sim.sleep_until(sim.now() + 15 * MS).await;
        client.pause(9_385 * MS);
    }));
    let lost = world.sim.block_on(manager.lock("r").no_wait().fenced());
    assert!(matches!(lost, Err(LockError::Unreachable(_))), "{lost:?}");
    world.sim.advance(SECOND);
    assert_eq!(lock_keys_left(&world), 0);
}

#[test]
fn a_quorum_without_a_token_is_unreachable_and_the_next_attempt_has_one() {
    let world = World::new(3);
    let manager = counting(&world);
    stand_at(&world, &[1, 2, 3]);
    for node in &world.nodes {
        node.inject(Fault::Slow(100 * MS));
    }
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
