//! Nodes that gave different numbers are brought to the highest.

use super::*;

/// Rule A4.
#[test]
fn a_quorum_without_a_token_is_unreachable_and_the_next_attempt_has_one() {
    let world = World::new(3);
    let manager = counting(&world);
    stand_at(&world, &[1, 2, 3]);
    world.inject(.., Fault::Slow(100 * MS));
    // Keys vanish between the acquires and the raises.
    let nodes = world.nodes.clone();
    world.later(150 * MS, move || nodes[..2].iter().for_each(|node| node.expire("r")));
    let failed = world.run(manager.lock("r").no_wait().fenced());
    let failure = failure_of(failed);
    assert_eq!(failure.granted(), 1, "{failure}");
    world.advance(SECOND);
    let guard = lock(&world, &manager);
    assert!(token(&guard) >= 4);
    release(&world, guard);
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
            drop(world.run(manager.lock("r").fenced()));
        } else {
            failure_of(world.run(manager.lock("r").no_wait().fenced()));
        }
        world.advance(10 * SECOND);
        assert!(world.log.count("raise") > 0);
        let rounds = world.log.count("fenced acquire") / 3;
        assert_eq!(rounds, 1 + usize::from(waits));
        let released = world.log.count("release") + world.log.count("fenced release");
        assert_eq!(released, 3 * rounds);
        assert_eq!(lock_keys_left(&world), 0);
    }
}
