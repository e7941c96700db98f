//! Locks that another process goes on with.

use super::*;

#[test]
fn a_lock_is_handed_over_and_measured_anew() {
    let world = World::new(5);
    let (giver, taker) = (world.manager(), world.manager());
    let guard = world.sim.block_on(giver.lock(["a", "b"])).unwrap();
    guard.auto_renew();
    let lease = guard.lease();
    world.sim.advance(2 * SECOND);
    let text = guard.detach().unwrap().encode();
    assert!(!lease.is_valid());
    assert!(matches!(world.sim.block_on(lease.lost()), Lost::HandedOver));
    assert_eq!(world.holders("a"), 5, "nothing is released");

    world.sim.advance(5 * SECOND);
    let record = DetachedLock::decode(&text).unwrap();
    let adopted = world.sim.block_on(taker.adopt(&record)).unwrap();
    assert_eq!(adopted.remaining(), 9898 * MS, "from now, by an extension");
    assert_eq!(adopted.keys().len(), 2);
    assert!(world.sim.block_on(giver.lock("a").no_wait()).is_err());
    world.sim.block_on(adopted.release()).unwrap();
    world.catch_up();
    assert_eq!(world.keys_left(), 0);
}

#[test]
fn adopting_what_is_over_is_a_typed_error() {
    let world = World::new(3);
    let (giver, taker) = (world.manager(), world.manager());
    let record = world.sim.block_on(giver.lock("r")).unwrap().detach().unwrap();
    world.sim.advance(11 * SECOND);
    let failed = world.sim.block_on(taker.adopt(&record));
    assert!(matches!(failed, Err(AdoptError::Lost(_))), "{failed:?}");
    assert_eq!(world.keys_left(), 0, "nothing came back");

    hang(&world, 2);
    let failed = world.sim.block_on(taker.adopt(&record));
    assert!(matches!(failed, Err(AdoptError::Unreachable(_))), "{failed:?}");
}

#[test]
fn a_record_that_could_not_be_adopted_can_be_tried_again() {
    let world = World::new(3);
    let manager = world.manager();
    let record = world.sim.block_on(manager.lock("r")).unwrap().detach().unwrap();
    hang(&world, 2);
    assert!(world.sim.block_on(manager.adopt(&record)).is_err());
    heal(&world);
    let guard = world.sim.block_on(manager.adopt(&record)).unwrap();
    assert!(guard.is_valid());
}

#[test]
fn a_closed_manager_adopts_nothing() {
    let world = World::new(3);
    let (giver, taker) = (world.manager(), world.manager());
    let record = world.sim.block_on(giver.lock("r")).unwrap().detach().unwrap();
    world.sim.block_on(taker.close(SECOND));
    let before = world.log.calls().len();
    let failed = world.sim.block_on(taker.adopt(&record));
    assert!(matches!(failed, Err(AdoptError::Closed)), "{failed:?}");
    assert_eq!(world.log.calls().len(), before, "nothing was sent");
    assert!(world.sim.block_on(giver.adopt(&record)).unwrap().is_valid(), "others can");
}

#[test]
fn h4_a_lock_is_not_adopted_for_no_time_and_the_record_goes_on() {
    let world = World::new(3);
    let record =
        world.sim.block_on(world.manager().lock("r").ttl(60 * SECOND)).unwrap().detach().unwrap();
    let short = world.builder().ttl(SECOND).hold_limit(150 * MS).build().unwrap();
    let refused = world.sim.block_on(short.adopt(&record));
    assert!(matches!(refused, Err(AdoptError::HoldLimit { .. })), "{refused:?}");
    assert!(world.sim.block_on(world.manager().adopt(&record)).is_ok());
}

#[test]
fn a_key_that_a_node_lost_is_set_again_by_the_adoption_if_repairs_are_wanted() {
    for repairs in [true, false] {
        let world = World::new(3);
        let record = world.sim.block_on(world.manager().lock("r")).unwrap().detach().unwrap();
        world.nodes[0].flush();
        let taker = match repairs {
            true => world.manager(),
            false => world.builder().without_repair().build().unwrap(),
        };
        let guard = world.sim.block_on(taker.adopt(&record)).unwrap();
        world.catch_up();
        assert!(guard.is_valid());
        assert_eq!(world.holders("r"), if repairs { 3 } else { 2 });
    }
}

#[test]
fn close_waits_for_an_adoption_that_is_under_way() {
    let world = World::new(3);
    let record = world.sim.block_on(world.manager().lock("r")).unwrap().detach().unwrap();
    for node in &world.nodes {
        node.inject(Fault::Late(100 * MS));
    }
    let taker = world.manager();
    let mut adopts = Box::pin(taker.adopt(&record));
    assert!(world.sim.block_on_for(adopts.as_mut(), 1).is_none());
    let start = world.sim.elapsed();
    let close = async { (taker.close(5 * SECOND).await, world.sim.elapsed() - start) };
    let (adopted, (left, closed)) = world.sim.block_on(join(adopts, close));
    assert!(matches!(adopted, Err(AdoptError::Closed)), "{adopted:?}");
    assert!(closed >= 100 * MS, "closed after {closed:?}");
    assert_eq!(left, 0);
}

/// Of a lock that was handed over, this process does not hear when it is given back. So nobody here
/// waits for that, though somebody still looks at the lease that it had.
#[test]
fn a_lock_that_was_handed_over_is_in_nobodys_way_here() {
    for waits_before in [false, true] {
        let world = World::new(3);
        let (giver, taker) = (world.manager(), world.manager());
        let guard = world.sim.block_on(giver.lock("r")).unwrap();
        let lease = guard.lease();
        let had = Arc::<Mutex<Option<Duration>>>::default();
        let waits = || {
            let (giver, had, sim) = (giver.clone(), Arc::clone(&had), world.sim.clone());
            world.sim.spawn(Box::pin(async move {
                let guard = giver.lock("r").await.unwrap();
                *had.lock().unwrap() = Some(sim.elapsed());
                drop(guard);
            }));
        };
        if waits_before {
            waits();
            world.catch_up();
        }
        let record = guard.detach().unwrap();
        let adopted = world.sim.block_on(taker.adopt(&record)).unwrap();
        world.sim.block_on(adopted.release()).unwrap();
        let free = world.sim.elapsed();
        if !waits_before {
            waits();
        }
        world.sim.advance(SECOND);
        let waited = had.lock().unwrap().map(|had| had - free);
        assert!(waited.is_some_and(|waited| waited < 50 * MS), "{waited:?}");
        drop(lease);
    }
}

/// Whoever has other nodes does not know whether anybody holds it.
#[test]
fn a_lock_that_was_adopted_survives_one_who_would_adopt_it_over_other_nodes() {
    let sim = Sim::new(1);
    let nodes = MemoryNode::cluster(6, sim.clone());
    let over = |which: &[usize]| {
        let some: Vec<_> = which.iter().map(|node| nodes[*node].clone()).collect();
        LockManager::builder(some).runtime(sim.clone()).build().unwrap()
    };
    let record = sim.block_on(over(&[0, 1, 2]).lock("r")).unwrap().detach().unwrap();
    let guard = sim.block_on(over(&[0, 1, 2]).adopt(&record)).unwrap();
    let failed = sim.block_on(over(&[0, 1, 3, 4, 5]).adopt(&record));
    assert!(matches!(failed, Err(AdoptError::Lost(_))), "{failed:?}");
    sim.settle();
    assert!(guard.is_valid());
    let other = sim.block_on(over(&[0, 1, 2]).lock("r").no_wait());
    assert!(other.is_err(), "two hold it: {other:?}");
}
