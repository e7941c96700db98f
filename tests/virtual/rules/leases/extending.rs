//! H1–H3: extensions and repairs, and what a guard knows without I/O.

use std::time::Duration;

use futures_util::future::join;
use quorate_core::{ExtendError, LeaseEnd, Runtime};
use quorate_memory::{Fault, MemoryNode};

use crate::telling::{of, told};
use crate::world::{HOUR, MS, SECOND, World};

#[test]
fn h1_a_failed_extension_leaves_the_lease_as_it_is() {
    let (world, guard) = World::new(5).held();
    let valid_until = guard.valid_until();
    world.inject(..3, Fault::Hung);
    let failed = world.run(guard.extend());
    assert!(matches!(failed, Err(ExtendError::NoQuorum(_))), "{failed:?}");
    assert_eq!(guard.valid_until(), valid_until);
    assert!(guard.is_valid());
    world.advance(SECOND);
    world.heal();
    world.advance(SECOND);
    assert_eq!(world.holders("r"), 5, "nothing was released");
    world.run(guard.extend()).expect("the next try may succeed");
    assert!(guard.valid_until() > valid_until);
}

/// Rules T1, H5. The promise of a node counts from its call, whenever the reply comes.
#[test]
fn h1_votes_that_come_after_their_round_move_the_lease_on() {
    for new in World::KINDS {
        let story = told(|| {
            let (world, guard) = new(3).held();
            guard.auto_renew();
            world.advance(SECOND);
            let valid_until = guard.valid_until();
            world.inject(.., Fault::Late(700 * MS));
            let failed = world.run(guard.extend());
            assert!(matches!(failed, Err(ExtendError::NoQuorum(_))), "{failed:?}");
            assert_eq!(guard.valid_until(), valid_until);
            assert!(guard.is_at_risk() && guard.lease().failed_extension().is_some());
            world.advance(300 * MS);
            assert_eq!(guard.valid_until(), valid_until + SECOND);
            assert!(!guard.is_at_risk() && guard.lease().failed_extension().is_none());
            world.advance(HOUR);
            assert!(guard.is_valid(), "no renewal is in time, and all are heard of");
            world.heal();
            world.run(guard.release()).unwrap();
        });
        let [late, failed] = ["extended late", "not extended"].map(|what| of(what, &story).len());
        assert!(late > 100 && late <= failed, "once for each: {late} of {failed}");
    }
}

#[test]
fn h1_a_lease_that_no_quorum_can_have_is_lost_at_once() {
    let (world, guard) = World::new(5).held();
    guard.auto_renew();
    world.nodes[..3].iter().for_each(MemoryNode::restart);
    let valid_until = guard.valid_until();
    let reason = world.run(guard.lost());
    assert!(matches!(reason, LeaseEnd::NotHeld(_)), "{reason:?}");
    assert!(world.sim.now() < valid_until - 5 * SECOND);
    assert!(!guard.is_valid());
    world.catch_up();
    assert_eq!(world.holders("r"), 0, "nothing was set again, and the other keys are released");
}

#[test]
fn h1_a_lease_is_lost_with_one_node_more_than_a_quorum_of_any_number_can_spare() {
    for (count, gone) in (1..=6_usize).flat_map(|count| (0..=count).map(move |gone| (count, gone)))
    {
        let (world, guard) = World::new(count).held();
        guard.auto_renew();
        world.nodes[..gone].iter().for_each(MemoryNode::restart);
        world.advance(5 * SECOND);
        assert_eq!(guard.is_valid(), count - gone > count / 2, "{gone} of {count}");
    }
}

#[test]
fn h2_a_shorter_extension_never_shortens() {
    let (world, guard) = World::new(3).held();
    world.inject(.., Fault::Late(100 * MS));
    let (long, short) = world.run(join(guard.extend_to(60 * SECOND), guard.extend_to(5 * SECOND)));
    long.unwrap();
    short.unwrap();
    assert!(guard.remaining() > 58 * SECOND);
    assert!(world.nodes.iter().all(|node| node.time_left("r") > Some(59 * SECOND)));
}

/// Rule H1.
#[test]
fn h3_an_extension_needs_a_quorum_that_still_has_the_keys() {
    let (world, guard) = World::new(5).held();
    world.nodes[..2].iter().for_each(|node| node.expire("r"));
    world.run(guard.extend()).expect("three still have it");
    world.nodes[..3].iter().for_each(|node| node.expire("r"));
    let failed = world.run(guard.extend());
    assert!(matches!(failed, Err(ExtendError::Lost(LeaseEnd::NotHeld(_)))), "{failed:?}");
    assert!(!guard.is_valid());
    world.catch_up();
    assert_eq!(world.holders("r"), 0, "no key came back, and the others are released");
    let lost = world.run(guard.lost());
    assert!(matches!(lost, LeaseEnd::NotHeld(_)), "{lost:?}");
    assert_eq!(world.sim.elapsed(), Duration::ZERO, "at once");
}

#[test]
fn h3_nothing_is_sent_once_the_lease_is_over() {
    let (world, guard) = World::new(3).held();
    world.advance(guard.remaining() - 10 * MS);
    world.inject(.., Fault::Hung);
    let start = world.sim.elapsed();
    assert!(world.run(guard.extend()).is_err());
    assert_eq!(world.sim.elapsed() - start, 10 * MS, "it is not waited for beyond the lease");
    let sent = world.log.operations();
    let failed = world.run(guard.extend());
    let Err(error @ ExtendError::Lost(LeaseEnd::Expired { .. })) = failed else {
        panic!("{failed:?}")
    };
    let text = error.to_string();
    assert!(text.starts_with("r: not extended, since the lease expired"), "{text}");
    assert_eq!(world.log.operations(), sent);
}

#[test]
fn h3_nodes_that_lost_the_key_get_it_back_and_count_from_the_next_time() {
    let (world, guard) = World::new(5).held();
    world.catch_up();
    world.nodes[..2].iter().for_each(MemoryNode::restart);
    world.run(guard.extend()).expect("three still have it");
    world.catch_up();
    assert_eq!(world.holders("r"), 5);
    // The other three: the repaired nodes are among the quorum now.
    world.nodes[2..4].iter().for_each(MemoryNode::restart);
    world.run(guard.extend()).expect("three have it");
    // The node of an adopter, too.
    world.catch_up();
    let record = guard.detach().unwrap();
    world.nodes[0].restart();
    let guard = world.run(world.manager().adopt(&record)).unwrap();
    world.run(guard.extend()).unwrap();
    world.catch_up();
    assert_eq!(world.holders("r"), 5);
}

/// The reply to a repair arrives in the next round, which asks for a longer ttl.
#[test]
fn h3_a_repair_is_no_vote_in_the_next_round() {
    let (world, guard) = World::new(3).held();
    world.catch_up();
    world.nodes[0].restart();
    world.inject(..1, Fault::Late(100 * MS));
    world.run(guard.extend()).unwrap();
    world.advance(150 * MS);
    assert_eq!(world.holders("r"), 3, "its repair is in flight");
    world.inject(2.., Fault::Hung);
    world.run(guard.extend_to(60 * SECOND)).unwrap();
    let is_extended = |node: &&MemoryNode| node.time_left("r") > Some(59 * SECOND);
    assert_eq!(world.nodes.iter().filter(is_extended).count(), 2, "a quorum backs the lease");
}

/// Its reply takes so long that the lease has ended by then.
#[test]
fn h3_a_node_is_not_repaired_after_the_end_of_the_lease() {
    let (world, guard) = World::new(3).held();
    world.catch_up();
    world.nodes[0].restart();
    world.inject(..1, Fault::Late(9_450 * MS));
    world.run(guard.extend()).unwrap();
    world.advance(11 * SECOND);
    assert!(!guard.is_valid());
    assert_eq!(world.keys_left(), 0);
}

/// The other nodes decide each round before this one answers.
#[test]
fn h3_a_node_that_answers_after_each_round_gets_its_keys_back() {
    let world = World::in_order(5);
    let guard = world.lock(&world.builder().renew_interval(50 * MS).build().unwrap());
    guard.auto_renew();
    world.advance(SECOND);
    world.nodes[4].restart();
    world.inject(4.., Fault::Late(30 * MS));
    assert_eq!(world.holders("r"), 4);
    world.advance(SECOND);
    assert_eq!(world.holders("r"), 5);
}

/// The lease ends where a quorum of promises ends: of two nodes that are left, with that of the
/// repaired one.
#[test]
fn h3_a_node_that_is_repaired_for_less_promises_no_more_than_that() {
    let world = World::new(3);
    let guard = world.run(world.manager().lock("r").ttl(60 * SECOND)).unwrap();
    world.catch_up();
    world.nodes[0].flush();
    for _ in 0..2 {
        world.run(guard.extend_to(10 * SECOND)).unwrap();
        world.catch_up();
    }
    assert_eq!(world.holders("r"), 3);
    assert!(guard.remaining() > 50 * SECOND, "two nodes keep it for a minute");
    world.nodes[1].flush();
    world.run(guard.extend_to(10 * SECOND)).unwrap();
    let left = guard.remaining();
    assert!(left > 9 * SECOND && left < 10 * SECOND, "{left:?}");
    world.advance(11 * SECOND);
    assert!(!guard.is_valid());
}

/// One node at a time loses its data, all five in turn.
#[test]
fn h3_a_lease_of_an_hour_outlives_rolling_restarts() {
    let (world, guard) = World::new(5).held();
    guard.auto_renew();
    for (restarts, node) in world.nodes.iter().cycle().take(514).enumerate() {
        // Two renewals at least.
        world.advance(7 * SECOND);
        assert!(guard.is_valid(), "after {restarts} restarts");
        node.restart();
    }
    drop(guard);
    world.catch_up();
    assert_eq!(world.keys_left(), 0, "nothing of it stays");
}

/// The second caller hears of the round after the next one has failed.
/// Rule A2.
#[test]
fn a_won_extension_is_won_for_all_its_callers() {
    let (world, guard) = World::new(3).held();
    world.inject(.., Fault::Late(100 * MS));
    let mut shared = Box::pin(guard.extend());
    assert!(world.sim.block_on_for(shared.as_mut(), 1).is_none(), "it is in the round");
    world.run(guard.extend()).unwrap();
    world.inject(.., Fault::Down);
    let failed = world.run(guard.extend());
    assert!(matches!(failed, Err(ExtendError::NoQuorum(_))), "{failed:?}");
    world.run(shared).expect("its round was won");
    assert!(guard.is_valid());
}
