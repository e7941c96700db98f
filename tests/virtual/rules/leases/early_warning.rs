//! The early warning of a lease whose extension has failed, while it is still valid.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Either, select};
use quorate_core::{LeaseEnd, LockGuard};
use quorate_memory::Fault;

use crate::world::{SECOND, World, failing};

type Risk = Result<Duration, LeaseEnd>;

/// What the warning says by now, if anything.
fn look(world: &World, guard: &LockGuard) -> Option<Risk> {
    let found = world.sim.block_on_for(guard.at_risk().boxed(), 1);
    let is_at_risk = matches!(found, Some(Ok(_)));
    assert_eq!([guard.is_at_risk(), guard.lease().is_at_risk()], [is_at_risk; 2]);
    found
}

#[test]
fn a_renewal_that_fails_puts_a_lease_at_risk_until_one_succeeds() {
    for new in World::KINDS {
        for fault in [Fault::Hung, failing("LOADING")] {
            let world = new(3);
            let guard = world.run(world.manager().lock("r").auto_renew()).unwrap();
            world.advance(SECOND);
            assert!(look(&world, &guard).is_none(), "nothing has failed");
            assert!(guard.lease().failed_extension().is_none());
            world.inject(..2, fault.clone());
            let warned = guard.lease().at_risk();
            let left = world.run(warned).unwrap();
            assert!(guard.is_valid());
            assert_eq!(left, guard.remaining(), "the warning comes with the failure");
            assert!(left > 5 * SECOND, "{left:?} of a validity of 9.4 s");
            let why = guard.lease().failed_extension().unwrap();
            assert_eq!(why.failed_nodes().count(), 2, "{why}");
            // As long as the risk lasts, at once, with the time left by then.
            world.advance(SECOND);
            assert_eq!(look(&world, &guard).unwrap().unwrap(), guard.remaining());

            world.heal();
            world.advance(3 * SECOND);
            assert!(look(&world, &guard).is_none(), "{fault:?}: a renewal has succeeded");
            assert!(guard.lease().failed_extension().is_none());
            let next = guard.at_risk().boxed();
            let undisturbed = world.run(select(next, world.sim.sleep(60 * SECOND)));
            let Either::Right(((), next)) = undisturbed else { panic!("no renewal failed") };
            world.inject(..2, fault);
            assert!(world.run(next).is_ok(), "the next failure");
        }
    }
}

#[test]
fn a_lease_that_ends_is_at_risk_no_longer_and_the_warning_says_why_it_ended() {
    type End = fn(&World, LockGuard);
    let ends: [(&str, End); 4] = [
        ("the lease expired", |world, guard| {
            world.advance(10 * SECOND);
            drop(guard);
        }),
        ("the lock was released", |world, guard| world.run(guard.release()).unwrap()),
        ("the lock was detached", |_, guard| drop(guard.detach().unwrap())),
        ("the keys are gone", |world, guard| {
            world.nodes.iter().for_each(|node| node.expire("r"));
            world.run(guard.extend()).unwrap_err();
        }),
    ];
    for (why, end) in ends {
        for is_at_risk in [false, true] {
            let (world, guard) = World::new(3).held();
            if is_at_risk {
                world.inject(.., failing("LOADING"));
                world.run(guard.extend()).unwrap_err();
                world.heal();
            }
            let lease = guard.lease();
            let warned = lease.at_risk();
            end(&world, guard);
            let ended = world.run(warned).unwrap_err().to_string();
            assert!(ended.starts_with(&format!("r: {why}")), "{ended}");
            assert!(!lease.is_at_risk() && !lease.is_valid());
        }
    }
}
