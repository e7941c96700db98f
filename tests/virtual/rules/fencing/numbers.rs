//! What becomes of the number that a node keeps.

use super::*;

/// Nor does one clock that is far in the future. Rule FT1.
#[test]
fn clocks_that_are_an_hour_apart_change_no_order() {
    let world = World::new(3);
    let now = Sim::new(0).unix_micros();
    let [behind, ahead, wild] =
        [now, now + HOUR, FenceHint::MAX.get()].map(|hint| hinting(&world, hint));
    let mut last = 0;
    for manager in [&behind, &ahead, &behind, &ahead, &behind, &behind, &wild, &behind] {
        let guard = lock(&world, manager);
        assert!(token(&guard) > last, "{} after {last}", token(&guard));
        last = token(&guard);
        release(&world, guard);
    }
    assert_eq!(last, (1 << 52) + 1);
    assert_eq!(world.log.count("raise"), 0, "nor a round trip, while the nodes agree");
}

#[test]
fn a_hint_over_the_limit_is_a_typed_error_and_nothing_is_sent() {
    let world = World::new(3);
    let broken = hinting(&world, FenceHint::MAX.get() + 1);
    let failed = world.run(broken.lock("r").fenced());
    assert!(
        matches!(failed, Err(LockError::Invalid(InvalidRequest::FencingHint { hint })) if hint == (1 << 52) + 1)
    );
    assert_eq!(world.log.calls(), []);
    assert!(world.run(broken.lock("r")).is_ok(), "without a token it plays no part");
}

/// Every node lost its number, one after the other, and was repaired.
#[test]
fn a_number_that_all_nodes_lost_is_brought_back_by_the_release() {
    let world = World::new(3);
    let ahead = hinting(&world, 1_000_000);
    let guard = lock(&world, &ahead);
    world.catch_up();
    for node in &world.nodes {
        node.restart();
        world.run(guard.extend()).unwrap();
        world.advance(MS);
    }
    assert_eq!((world.holders("r"), numbers(&world)), (3, vec![None; 3]));
    let before = token(&guard);
    world.run(guard.release()).unwrap();
    let behind = hinting(&world, 1);
    let guard = lock(&world, &behind);
    assert!(token(&guard) > before, "{} after {before}", token(&guard));
}

#[test]
fn a_number_that_has_come_to_its_end_is_an_error_and_takes_nothing() {
    let world = World::new(3);
    let manager = counting(&world);
    stand_at(&world, &[(1 << 53) - 2; 3]);
    let guard = lock(&world, &manager);
    assert_eq!(guard.fencing_token(), Some(FencingToken::MAX));
    release(&world, guard);
    let start = world.sim.elapsed();
    let failure = failure_of(world.run(manager.lock("r").fenced()));
    assert!(world.sim.elapsed() - start <= 2 * MS, "waiting would not help");
    assert!(failure.failed_nodes().count() >= 2, "{failure}");
    for node in failure.failed_nodes() {
        let Answer::Failed(error) = &node.answer else { panic!("{node:?}") };
        assert_eq!(error.kind(), BackendErrorKind::Fence);
        assert!(error.to_string().contains("no number is left"), "{error}");
    }
    world.catch_up();
    assert_eq!(lock_keys_left(&world), 0);
    assert_eq!(numbers(&world), [Some((1 << 53) - 1); 3]);
    assert!(world.run(manager.lock("r")).is_ok(), "a lock without a token is to be had");
}

/// An adopter knows the token, and not the number of each node.
#[test]
fn the_release_of_an_adopted_lock_leaves_no_node_behind_its_token() {
    let world = World::new(3);
    let manager = counting(&world);
    stand_at(&world, &[70, 70, 70]);
    let guard = lock(&world, &manager);
    world.catch_up();
    let acquired = token(&guard);
    let record = guard.detach().unwrap();
    put(&world.nodes[0], "r", "5");
    let guard = world.run(counting(&world).adopt(&record)).unwrap();
    assert_eq!(token(&guard), acquired);
    release(&world, guard);
    assert_eq!(numbers(&world), [Some(acquired); 3]);
}
