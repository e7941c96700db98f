//! V7: a lock is taken from the holder that was seen, and from no other.

use futures_util::future::join;
use quorate_core::operators::Inspection;

use super::*;

/// A revoke or a delete of the holder that was seen.
async fn take_seen(locks: &LockManager, seen: &Inspection, deletes: bool) -> Revocation {
    match deletes {
        true => locks.delete_seen("r", seen).await.unwrap(),
        false => locks.revoke_seen("r", seen).await.unwrap(),
    }
}

fn see(world: &World) -> Inspection {
    world.run(world.manager().inspect("r")).unwrap()
}

fn take_from(world: &World, seen: &Inspection, deletes: bool) -> Revocation {
    world.run(take_seen(&world.manager(), seen, deletes))
}

#[test]
fn v7_the_holder_that_was_seen_loses_the_lock() {
    for deletes in [false, true] {
        let (world, guard) = World::complete(3).held();
        let seen = see(&world);
        world.run(guard.extend()).unwrap();
        let taken = take_from(&world, &seen, deletes);
        assert!(taken.is_effective(), "{taken}");
        assert_eq!(taken.found().state(), LockState::Held);
        assert!(is_lost(&world.run(guard.extend())), "{taken}");
        assert_eq!(world.holders("r"), if deletes { 0 } else { 3 });
    }
}

#[test]
fn v7_the_next_holder_keeps_the_lock() {
    for (world, deletes) in World::kinds(3).into_iter().flat_map(|world| {
        let [first, second] = [World::new(3), world];
        [(first, true), (second, false)]
    }) {
        let guard = world.lock(&world.manager());
        let seen = see(&world);
        world.run(guard.release()).unwrap();
        world.catch_up();
        let next = world.builder().label("web-4").build().unwrap();
        let next = world.lock(&next);
        world.catch_up();
        let before = (values(&world), times_left(&world));
        let taken = take_from(&world, &seen, deletes);
        assert!(!taken.is_effective(), "{taken}");
        assert_eq!(taken.found().label(), Some("web-4"), "it says who has it now");
        assert!(taken.to_string().contains("held, 10.0s left, of another, left alone"), "{taken}");
        assert_eq!((values(&world), times_left(&world)), before);
        world.run(next.extend()).unwrap();
    }
}

/// What each of three nodes keeps: the holder that was seen, the next one, or nothing.
#[test]
fn v7_each_node_compares_for_itself() {
    let own = |node: &MemoryNode, value: &[u8]| node.put("r", Value::String(value.to_vec()));
    for kept in 0..27 {
        let place = |at: u32| kept / 3_i32.pow(at) % 3;
        let (world, _guard) = World::in_order(3).held();
        let seen = see(&world);
        for (at, node) in (0..).zip(&world.nodes) {
            match place(at) {
                0 => {}
                1 => own(node, b"next"),
                _ => node.expire("r"),
            }
        }
        let taken = take_from(&world, &seen, true);
        let count = |what| (0..3).filter(|at| place(*at) == what).count();
        assert_eq!(taken.is_effective(), count(0) >= 2, "{kept}: {taken}");
        assert_eq!(world.holders("r"), count(1), "{kept}: {taken}");
    }
}

/// The next one acquires while the revoke is in flight.
#[test]
fn v7_a_holder_that_comes_meanwhile_keeps_the_lock() {
    for deletes in [false, true] {
        let (world, guard) = World::complete(3).held();
        let seen = see(&world);
        world.add_rule(.., slow(100 * MS).on(Operation::Revoke));
        let (operator, next) = (world.manager(), world.manager());
        let change = async {
            guard.release().await.unwrap();
            next.lock("r").await
        };
        let (taken, next) = world.run(join(take_seen(&operator, &seen, deletes), change));
        assert!(!taken.is_effective(), "{taken}");
        world.run(next.unwrap().extend()).unwrap();
    }
}

#[test]
fn v7_nothing_seen_is_nothing_done() {
    let world = World::complete(3);
    let seen = see(&world);
    assert!(seen.holders().is_empty());
    let guard = world.lock(&world.manager());
    world.catch_up();
    for deletes in [false, true] {
        let taken = take_from(&world, &seen, deletes);
        assert!(!taken.is_effective() && world.holders("r") == 3, "{taken}");
    }
    world.run(guard.extend()).unwrap();
}

/// Readers that were seen, and one that was not.
#[test]
fn v7_a_reader_that_was_not_seen_keeps_all() {
    for deletes in [false, true] {
        let world = World::complete(3);
        let read = || world.run(world.manager().read("r")).unwrap();
        let [first, second] = [read(), read()];
        world.catch_up();
        let seen = see(&world);
        assert_eq!(seen.holders().len(), 2);
        let third = read();
        world.catch_up();
        let taken = take_from(&world, &seen, deletes);
        assert!(!taken.is_effective(), "{taken}");
        assert!(taken.to_string().contains("3 readers, of another, left alone"), "{taken}");
        [&first, &second, &third].iter().for_each(|guard| world.run(guard.extend()).unwrap());
        // Fewer than were seen.
        [second, third].into_iter().for_each(|guard| world.run(guard.release()).unwrap());
        world.catch_up();
        let taken = take_from(&world, &seen, deletes);
        assert!(taken.is_effective(), "{taken}");
        assert!(is_lost(&world.run(first.extend())));
    }
}
