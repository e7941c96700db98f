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
