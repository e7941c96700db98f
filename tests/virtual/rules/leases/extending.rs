//! H1–H3: extensions and repairs, and what a guard knows without I/O.

use std::time::Duration;

use quorate_core::{ExtendError, LeaseEnd};
use quorate_memory::{Fault, MemoryNode};

use crate::telling::{of, told};
use crate::world::{HOUR, MS, SECOND, World};

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
