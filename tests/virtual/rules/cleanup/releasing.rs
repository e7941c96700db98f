//! C7: what a release reports, and that it is sent again.

use super::*;

/// What became of a node since the lock was acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Well,
    Forgot,
    Dead,
    Hung,
}

use Fate::{Dead, Forgot, Hung, Well};

/// Other clients are told of as holders by no release: it only says what a quorum of the nodes does.
#[test]
fn c7_a_release_reports_what_a_quorum_says() {
    type IsRight = fn(&Result<(), ReleaseError>) -> bool;
    let released: IsRight = |released| released.is_ok();
    let gone: IsRight =
        |released| matches!(released, Err(ReleaseError::Lost(LeaseEnd::NotHeld(_))));
    let unconfirmed: IsRight = |released| matches!(released, Err(ReleaseError::Unconfirmed(_)));
    for (fates, is_right, took) in [
        (&[Forgot, Forgot, Well, Well, Well][..], released, Some(Duration::ZERO)),
        (&[Forgot, Forgot, Forgot, Well, Well], gone, Some(Duration::ZERO)),
        (&[Well, Well, Forgot, Forgot, Forgot], gone, Some(Duration::ZERO)),
        (&[Forgot, Well, Well, Hung, Hung], unconfirmed, Some(500 * MS)),
        (&[Dead, Dead, Well], unconfirmed, None),
    ] {
        let world = World::new(fates.len());
        let guard = world.sim.block_on(world.manager().lock("r")).unwrap();
        for (node, fate) in world.nodes.iter().zip(fates) {
            match fate {
                Well => {}
                Forgot => node.restart(),
                Dead => node.inject(Fault::Dead),
                Hung => node.inject(Fault::Hung),
            }
        }
        // Where a quorum forgot, another client may hold it by now.
        let next = world.sim.block_on(world.manager().lock("r").no_wait()).ok();
        let forgot = fates.iter().filter(|fate| **fate == Forgot).count();
        assert_eq!(next.is_some(), forgot > 2, "{fates:?}");
        let start = world.sim.elapsed();
        let result = world.sim.block_on(guard.release());
        assert!(is_right(&result), "{fates:?}: {result:?}");
        let elapsed = world.sim.elapsed() - start;
        assert!(took.is_none_or(|took| took == elapsed), "{fates:?}: {elapsed:?}");
        if let Err(ReleaseError::Unconfirmed(failure)) = &result {
            let text = failure.to_string();
            for (number, _) in (1..).zip(fates).filter(|(_, fate)| **fate == Dead) {
                assert!(text.contains(&format!("memory-{number}: connection refused")), "{text}");
            }
        }
        next.into_iter().for_each(|next| world.sim.block_on(next.release()).unwrap());
    }
}

/// For drift and safety margin the nodes still have it, but the lease has ended.
#[test]
fn c7_releasing_an_expired_lease_is_reported() {
    for (late, holders) in [(Duration::ZERO, 3), (SECOND, 0)] {
        let (world, guard) = World::new(3).held();
        world.sim.advance(guard.remaining() + late);
        assert_eq!(world.holders("r"), holders);
        let released = world.sim.block_on(guard.release());
        assert!(
            matches!(released, Err(ReleaseError::Lost(LeaseEnd::Expired { .. }))),
            "{released:?}"
        );
    }
}

#[test]
fn c7_a_release_that_meets_a_blip_is_sent_again() {
    for awaited in [true, false] {
        let (world, guard) = World::new(3).held();
        world.inject(.., Fault::Failing(error_of_reply("LOADING")));
        if awaited {
            assert!(world.sim.block_on(guard.release()).is_err());
        } else {
            drop(guard);
        }
        world.sim.advance(SECOND);
        assert_eq!(world.keys_left(), 3);
        world.heal();
        world.sim.advance(3 * SECOND);
        assert_eq!(world.keys_left(), 0, "awaited: {awaited}");
    }
}

#[test]
fn c7_a_release_that_failed_is_sent_again_only_where_the_lock_may_be() {
    let world = World::new(3);
    world.nodes[0].put("r", Value::String(b"x".to_vec()));
    let guard = world.sim.block_on(world.manager().lock("r")).unwrap();
    world.catch_up();
    let before = world.log.calls().len();
    world.inject(..2, Fault::Failing(error_of_reply("LOADING")));
    drop(world.sim.block_on(guard.release()));
    world.sim.advance(5 * SECOND);
    let released = |node: &MemoryNode| {
        let calls = world.log.calls().split_off(before);
        calls.iter().filter(|call| call.node == node.name()).count()
    };
    let released: Vec<usize> = world.nodes.iter().map(released).collect();
    assert_eq!((released[0], released[2]), (1, 1), "{released:?}");
    assert!(released[1] > 3, "{released:?}");
}

#[test]
fn c7_a_release_that_failed_is_sent_again_at_the_cleanup_bound_at_the_latest() {
    let world = World::new(1);
    let manager = world.builder().ttl(SECOND).cleanup_bound(100 * MS).build().unwrap();
    let guard = world.sim.block_on(manager.lock("r")).unwrap();
    world.nodes[0].inject(Fault::Failing(error_of_reply("LOADING")));
    drop(guard);
    world.sim.advance(20 * MS);
    world.nodes[0].heal();
    world.sim.advance(80 * MS);
    assert_eq!(world.keys_left(), 0);
}

/// The process that detached it had its grant there.
#[test]
fn a_lock_that_was_adopted_is_released_again_where_that_failed() {
    let world = World::new(3);
    let manager = world.manager();
    let guard = world.sim.block_on(manager.lock("r")).unwrap();
    world.catch_up();
    world.nodes[2].inject(Fault::Down);
    let record = guard.detach().unwrap();
    let guard = world.sim.block_on(manager.adopt(&record)).unwrap();
    world.sim.block_on(guard.release()).unwrap();
    world.sim.advance(SECOND);
    world.nodes[2].heal();
    world.sim.advance(2 * SECOND);
    assert_eq!(world.keys_left(), 0);
}

#[test]
fn c7_a_release_that_failed_is_sent_again_though_another_node_hangs() {
    for awaited in [true, false] {
        let world = World::new(3);
        let manager = world.manager();
        let guard = world.sim.block_on(manager.lock("r")).unwrap();
        world.catch_up();
        world.nodes[0].inject(Fault::Hung);
        world.nodes[1].inject(Fault::Failing(error_of_reply("LOADING")));
        if awaited {
            drop(world.sim.block_on(guard.release()));
        } else {
            drop(guard);
        }
        world.sim.advance(100 * MS);
        world.nodes[1].heal();
        world.sim.advance(SECOND);
        assert!(world.nodes[1].keys().is_empty(), "awaited: {awaited}");
        assert!(world.sim.block_on(manager.lock("r").no_wait()).is_ok());
    }
}
