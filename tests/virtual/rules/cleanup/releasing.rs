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
        let (world, guard) = World::new(fates.len()).held();
        for (node, fate) in world.nodes.iter().zip(fates) {
            match fate {
                Well => {}
                Forgot => node.restart(),
                Dead => node.inject(Fault::Dead),
                Hung => node.inject(Fault::Hung),
            }
        }
        // Where a quorum forgot, another client may hold it by now.
        let next = world.try_lock(&world.manager()).ok();
        let forgot = fates.iter().filter(|fate| **fate == Forgot).count();
        assert_eq!(next.is_some(), forgot > 2, "{fates:?}");
        let start = world.sim.elapsed();
        let result = world.run(guard.release());
        assert!(is_right(&result), "{fates:?}: {result:?}");
        let elapsed = world.sim.elapsed() - start;
        assert!(took.is_none_or(|took| took == elapsed), "{fates:?}: {elapsed:?}");
        if let Err(ReleaseError::Unconfirmed(failure)) = &result {
            let text = failure.to_string();
            for (number, _) in (1..).zip(fates).filter(|(_, fate)| **fate == Dead) {
                assert!(text.contains(&format!("memory-{number}: connection refused")), "{text}");
            }
        }
        next.into_iter().for_each(|next| world.run(next.release()).unwrap());
    }
}

/// For drift and safety margin the nodes still have it, but the lease has ended.
#[test]
fn c7_releasing_an_expired_lease_is_reported() {
    for (late, holders) in [(Duration::ZERO, 3), (SECOND, 0)] {
        let (world, guard) = World::new(3).held();
        world.advance(guard.remaining() + late);
        assert_eq!(world.holders("r"), holders);
        let released = world.run(guard.release());
        assert!(
            matches!(released, Err(ReleaseError::Lost(LeaseEnd::Expired { .. }))),
            "{released:?}"
        );
    }
}

/// After a blip, beside a node that hangs, and at the cleanup bound at the latest.
#[test]
fn c7_a_release_that_failed_is_sent_again() {
    let fail = || failing("LOADING");
    for (faults, bound, blip, most) in [
        (&[fail(), fail(), fail()][..], 10 * SECOND, SECOND, 3 * SECOND),
        (&[Fault::Hung, fail()], 10 * SECOND, 100 * MS, SECOND),
        (&[fail()], 100 * MS, 20 * MS, 80 * MS),
    ] {
        for awaited in [true, false] {
            let world = World::new(3);
            let ttl = if bound < SECOND { SECOND } else { 10 * SECOND };
            let manager = world.builder().ttl(ttl).cleanup_bound(bound).build().unwrap();
            let guard = world.lock(&manager);
            world.catch_up();
            for (node, fault) in world.nodes.iter().zip(faults) {
                node.inject(fault.clone());
            }
            let start = world.sim.elapsed();
            match awaited {
                true => drop(world.run(guard.release())),
                false => drop(guard),
            }
            world.advance((start + blip).saturating_sub(world.sim.elapsed()));
            let hung = usize::from(matches!(faults[0], Fault::Hung));
            assert_eq!(world.keys_left(), faults.len());
            world.nodes[hung..].iter().for_each(MemoryNode::heal);
            world.advance(most);
            assert_eq!(world.keys_left(), hung, "{faults:?}, awaited: {awaited}");
            assert!(world.try_lock(&manager).is_ok());
        }
    }
}

#[test]
fn c7_a_release_that_failed_is_sent_again_only_where_the_lock_may_be() {
    let world = World::new(3);
    world.occupy(..1);
    let guard = world.lock(&world.manager());
    world.catch_up();
    let before = world.log.calls().len();
    world.inject(..2, failing("LOADING"));
    drop(world.run(guard.release()));
    world.advance(5 * SECOND);
    let calls = world.log.calls().split_off(before);
    let released = |node: &MemoryNode| calls.iter().filter(|call| call.node == node.name()).count();
    let released: Vec<usize> = world.nodes.iter().map(released).collect();
    assert_eq!((released[0], released[2]), (1, 1), "{released:?}");
    assert!(released[1] > 3, "{released:?}");
}
