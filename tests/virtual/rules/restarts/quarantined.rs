//! What a quarantined node does.

use super::*;

#[test]
fn a_quarantined_node_extends_what_it_still_has_and_releases_it() {
    let world = World::after_a_quarantine(3);
    let manager = world.guarded(MAX_TTL);
    let guard = world.try_lock(&manager).unwrap();
    // Nothing is lost, but no client can know that.
    world.restart_with_data(..);
    assert_quarantined(&failure_of(world.run(manager.lock("s").no_wait())), 3);
    world.advance(TTL / 2);
    world.run(guard.extend()).unwrap();
    world.advance(TTL * 3 / 4);
    assert!(guard.is_valid());
    world.run(guard.release()).unwrap();
    world.catch_up();
    assert_eq!(world.holders("r"), 0);
    // An adoption is an extension.
    let world = World::after_a_quarantine(3);
    let manager = world.guarded(MAX_TTL);
    let record = world.try_lock(&manager).unwrap().detach().unwrap();
    world.restart_with_data(..);
    assert!(world.run(manager.adopt(&record)).unwrap().is_valid());
}

/// H3: a key that is set again on a node counts from the next extension on, in quarantine or not.
#[test]
fn a_quarantined_node_gets_the_key_back_and_keeps_others_out() {
    let world = World::after_a_quarantine(3);
    let (one, other) = (world.guarded(MAX_TTL), world.guarded(MAX_TTL));
    let guard = world.try_lock(&one).unwrap();
    world.nodes[2].restart();
    assert_eq!(world.holders("r"), 2);
    let extend_twice = || {
        for _ in 0..2 {
            world.run(guard.extend()).unwrap();
            world.catch_up();
        }
    };
    extend_twice();
    assert_eq!(world.holders("r"), 3);
    world.nodes[1].restart();
    extend_twice();
    world.nodes[0].restart();
    world.run(guard.extend()).unwrap();
    assert!(world.try_lock(&other).is_err());
    world.run(guard.release()).unwrap();
    world.catch_up();
    assert_eq!(world.holders("r"), 0);
}

#[test]
fn a_quarantined_node_neither_refuses_nor_is_taken_for_one_that_does() {
    let world = World::after_a_quarantine(3);
    let (one, other) = (world.guarded(MAX_TTL), world.guarded(MAX_TTL));
    let _held = world.try_lock(&one).unwrap();
    world.restart_with_data(..2);
    // Two have the key, and say nothing of it. One refuses.
    let failure = failure_of(world.try_lock(&other));
    assert_quarantined(&failure, 2);
    let refused =
        failure.nodes().iter().filter(|node| matches!(node.answer, Answer::Refused { .. })).count();
    assert_eq!(refused, 1);
}
