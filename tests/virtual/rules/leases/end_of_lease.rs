//! H4–H6: the end of a lease, and how holders learn of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join;
use quorate_core::backend::Membership;
use quorate_core::{
    AdoptError, ExtendError, LeaseEnd, LockError, LockGuard, ReleaseError, Runtime,
};
use quorate_memory::{Fault, MemoryNode};

use crate::backends::answer_of;
use crate::world::{Client, HOUR, MS, SECOND, World, failing};

/// Other tasks of its holder hear of the end at once, though no node answers.
#[test]
fn a_lease_that_its_guard_ends_is_over_for_those_who_wait_for_its_end() {
    let ends: [fn(&World, LockGuard); 4] = [
        |_, guard| drop(guard),
        |_, guard| drop(guard.detach()),
        |_, guard| drop(guard.release().now_or_never()),
        |world, guard| world.sim.spawn(guard.release().map(drop).boxed()),
    ];
    for end in ends {
        let (world, guard) = World::new(3).held();
        world.inject(.., Fault::Hung);
        let heard = Arc::new(AtomicU32::new(0));
        for _ in 0..10 {
            let (lost, heard) = (guard.lease().lost(), Arc::clone(&heard));
            world.sim.spawn(Box::pin(async move {
                assert!(matches!(lost.await, LeaseEnd::Released(_) | LeaseEnd::Detached(_)));
                heard.fetch_add(1, Ordering::Relaxed);
            }));
        }
        world.advance(SECOND);
        let (lease, now) = (guard.lease(), world.sim.now());
        end(&world, guard);
        world.catch_up();
        assert_eq!(heard.load(Ordering::Relaxed), 10);
        assert!(!lease.is_valid());
        assert_eq!(lease.valid_until(), now);
    }
}

/// An answer shows that all nodes are one. No other task runs in between.
/// Rule H5.
#[test]
fn all_leases_end_with_the_answer_that_shows_nodes_without_a_vote() {
    let (world, are_one) = (World::in_order(3), Arc::new(AtomicBool::new(false)));
    let become_one = Arc::clone(&are_one);
    let manager = world.over(world.begins(move |at, node, call, runtime| {
        let id = if become_one.load(Ordering::SeqCst) { 0 } else { at }.to_string().into();
        let (group, list, gone) = ("g".into(), Vec::new(), Vec::new());
        let said = Membership { group, id, list, gone, stored: None, is_new_list: false };
        call.note_membership(&Arc::new(said));
        let answer = answer_of(node, &call, runtime);
        call.answer(answer);
        Ok(())
    }));
    let lock = |name| world.run(manager.lock(name)).unwrap();
    let (extended, other) = (lock("x"), lock("y"));
    are_one.store(true, Ordering::SeqCst);
    assert!(world.run(extended.extend()).is_err());
    assert!(!other.is_valid());
}

/// One end, with or without a listener and a renewal.
/// Rule H5.
#[test]
fn h4_a_lease_has_one_end_whatever_the_nodes_do() {
    for fault in [None, Some(Fault::Hung), Some(Fault::Down), Some(failing("LOADING"))] {
        for (is_renewed, has_listener) in
            [(false, false), (false, true), (true, false), (true, true)]
        {
            let (world, guard) = World::new(5).held();
            if is_renewed {
                guard.auto_renew();
            }
            let lost = has_listener.then(|| Box::pin(guard.lost()));
            fault.clone().into_iter().for_each(|fault| world.inject(..3, fault));
            if fault.is_none() && is_renewed {
                world.advance(HOUR);
                assert!(guard.is_valid() && lost.is_none_or(|lost| lost.now_or_never().is_none()));
                continue;
            }
            let valid_until = guard.valid_until();
            match lost {
                Some(lost) => {
                    let reason = world.run(lost);
                    assert!(matches!(reason, LeaseEnd::Expired { .. }), "{reason:?}");
                }
                None => {
                    world.advance(guard.remaining() - MS / 1_000_000);
                    assert!(guard.is_valid());
                    world.advance(MS / 1_000_000);
                }
            }
            assert_eq!(world.sim.now(), valid_until);
            assert!(!guard.is_valid());
            assert_eq!((guard.valid_until(), guard.remaining()), (valid_until, Duration::ZERO));
            // The nodes that answered last keep the key for drift and safety margin.
            assert!(fault.is_some() || world.holders("r") == 5);
            world.heal();
            let extended = world.run(guard.extend());
            let ended = matches!(extended, Err(ExtendError::Lost(LeaseEnd::Expired { .. })));
            assert!(ended && !guard.is_valid(), "{extended:?}");
            let lost = guard.lost().now_or_never();
            assert!(matches!(lost, Some(LeaseEnd::Expired { .. })), "{lost:?}");
        }
    }
}

/// Trouble that has passed is no reason.
#[test]
fn h4_the_reason_says_what_the_nodes_answered() {
    let (world, guard) = World::new(3).held();
    world.inject(..2, Fault::Hung);
    assert!(world.run(guard.extend()).is_err());
    world.heal();
    world.run(guard.extend()).unwrap();
    assert_eq!(world.run(guard.lost()).to_string(), "r: the lease expired");

    let (world, guard) = World::new(3).held();
    guard.auto_renew();
    world.inject(1.., Fault::Down);
    let reason = world.run(guard.lost()).to_string();
    assert!(reason.starts_with("r: the lease expired: 1 of 3 nodes granted"), "{reason}");
    assert!(reason.contains("memory-2: connection refused"), "{reason}");
    assert!(reason.contains("memory-3: connection refused"), "{reason}");
}

#[test]
fn h4_a_lease_that_expired_in_a_pause_is_lost_at_the_first_look() {
    let world = World::new(3);
    let client = Client::new(&world.sim);
    let guard = world.lock(&world.builder().runtime(client.clone()).build().unwrap());
    guard.auto_renew();
    let lost = guard.lost();
    client.pause(20 * SECOND);
    assert!(!guard.is_valid(), "though no task ran");
    let reason = world.run(lost);
    assert!(matches!(reason, LeaseEnd::Expired { .. }), "{reason:?}");
}

#[test]
fn h5_a_renewal_is_tried_until_the_end() {
    let (world, guard) = World::new(3).held();
    guard.auto_renew();
    world.inject(..2, Fault::Hung);
    world.advance(guard.remaining() - 100 * MS);
    assert!(guard.is_valid(), "many renewals have failed, and the lease still holds");
    let tries = world.log.count("extend");
    assert!(tries > 6, "{tries} calls");
    world.heal();
    world.advance(HOUR);
    assert!(guard.is_valid(), "the last try was in time");
}

#[test]
fn h6_no_renewal_is_in_flight_when_the_release_begins() {
    for dropped in [false, true] {
        let (world, guard) = World::new(3).held();
        guard.auto_renew();
        world.inject(.., Fault::Late(300 * MS));
        // A renewal is in flight.
        while !world.log.operations().contains(&"extend") {
            world.advance(MS);
        }
        match dropped {
            true => drop(guard),
            false => drop(world.run(guard.release())),
        }
        world.sim.settle();
        let operations = world.log.operations();
        let last_extend = operations.iter().rposition(|done| *done == "extend").unwrap();
        let releases = operations.iter().position(|done| *done == "release").unwrap();
        assert!(last_extend < releases, "{operations:?}");
        assert_eq!(world.keys_left(), 0);
        world.advance(HOUR);
        assert_eq!(world.log.operations(), operations, "nothing goes on");
    }
}

/// The adoption was won and not kept. The next adopter has the same token.
#[test]
fn h6_an_adoption_that_is_not_kept_takes_the_lock_from_no_later_adopter() {
    let world = World::new(3);
    let record = world.detached();
    world.inject(2.., Fault::Hung);
    world.inject(..2, Fault::Late(100 * MS));
    let taker = world.manager();
    let mut adopts = Box::pin(taker.adopt(&record));
    assert!(world.sim.block_on_for(adopts.as_mut(), 1).is_none());
    let (failed, _) = world.run(join(adopts, taker.close(5 * SECOND)));
    assert!(matches!(failed, Err(AdoptError::Lock(LockError::Closed(_)))), "{failed:?}");
    world.nodes[..2].iter().for_each(MemoryNode::heal);
    let guard = world.run(world.manager().adopt(&record)).unwrap();
    guard.auto_renew();
    for _ in 0..200 {
        world.advance(100 * MS);
        assert!(guard.is_valid());
        assert!(world.holders("r") >= 2, "{:?}", world.sim.elapsed());
    }
}

/// The adopter hears of its win after the end of the lease, and before that of the keys.
#[test]
fn h6_an_adoption_that_expires_before_its_adopter_hears_of_it_releases_nothing() {
    for world in World::KINDS {
        let world = world(3);
        let record = world.detached();
        world.inject(.., Fault::Late(10 * MS));
        let taker = world.manager();
        let mut adopts = Box::pin(taker.adopt(&record));
        assert!(world.sim.block_on_for(adopts.as_mut(), 1).is_none());
        world.advance(9_600 * MS);
        let failed = world.run(adopts);
        assert!(matches!(failed, Err(AdoptError::Lock(LockError::NoQuorum(_)))), "{failed:?}");
        let guard = world.run(taker.adopt(&record)).unwrap();
        world.advance(5 * SECOND);
        assert!(guard.is_valid() && world.holders("r") == 3);
    }
}

/// Two renewals go without C. Then it is well again, and B loses the key. Rule H5.
#[test]
fn a_renewal_is_planned_anew_where_the_end_moves_back() {
    for is_renewed_alone in [true, false] {
        let world = World::complete(3);
        let client = world.sim.client(0);
        let manager = world.over(world.nodes.iter().map(|node| node.pushing().seen_by(&client)));
        let guard = world.lock(&manager);
        guard.auto_renew();
        world.advance(SECOND);
        world.inject(2.., failing("LOADING"));
        match is_renewed_alone {
            true => world.advance(5_500 * MS),
            false => world.run(guard.extend_to(60 * SECOND)).unwrap(),
        }
        world.heal();
        world.nodes[1].expire("r");
        world.nodes[1].push_for_nothing();
        world.advance(60 * SECOND);
        assert!(guard.is_valid(), "{is_renewed_alone}: all nodes are well");
    }
}

/// The promise of C has run out while A and B renewed. B loses the key, and nobody hears of it.
/// Rules C7, H5.
#[test]
fn a_release_of_a_lock_that_one_node_of_three_has_says_lost() {
    for new in [World::new, World::in_order] {
        let (world, guard) = new(3).held();
        guard.auto_renew();
        world.advance(SECOND);
        world.inject(2.., failing("LOADING"));
        world.advance(12 * SECOND);
        world.heal();
        world.nodes[1].expire("r");
        assert!(guard.is_valid());
        let released = world.run(guard.release());
        assert!(matches!(released, Err(ReleaseError::Lost(_))), "{released:?}");
    }
}
