//! Locks that one process detaches and another adopts.

use super::*;

#[test]
fn a_lock_is_detached_and_its_validity_counts_from_the_adoption() {
    let world = World::new(5);
    let (giver, taker) = (world.manager(), world.manager());
    let guard = world.sim.block_on(giver.lock(["a", "b"])).unwrap();
    guard.auto_renew();
    let lease = guard.lease();
    world.sim.advance(2 * SECOND);
    let text = guard.detach().unwrap().encode();
    assert!(!lease.is_valid());
    assert!(matches!(world.sim.block_on(lease.lost()), LeaseEnd::Detached));
    assert_eq!(world.holders("a"), 5, "nothing is released");

    world.sim.advance(5 * SECOND);
    let record = DetachedLock::decode(&text).unwrap();
    let adopted = world.sim.block_on(taker.adopt(&record)).unwrap();
    assert_eq!(adopted.remaining(), 9398 * MS, "from now, by an extension");
    assert_eq!(adopted.keys().len(), 2);
    assert!(world.sim.block_on(giver.lock("a").no_wait()).is_err());
    world.sim.block_on(adopted.release()).unwrap();
    world.catch_up();
    assert_eq!(world.keys_left(), 0);
}

#[test]
fn adopting_a_lock_that_is_gone_is_a_typed_error() {
    let world = World::new(3);
    let (giver, taker) = (world.manager(), world.manager());
    let record = world.sim.block_on(giver.lock("r")).unwrap().detach().unwrap();
    world.sim.advance(11 * SECOND);
    let failed = world.sim.block_on(taker.adopt(&record));
    assert!(matches!(failed, Err(AdoptError::Lost(_))), "{failed:?}");
    assert_eq!(world.keys_left(), 0, "nothing came back");

    world.inject(..2, Fault::Hung);
    let failed = world.sim.block_on(taker.adopt(&record));
    assert!(matches!(failed, Err(AdoptError::NoQuorum(_))), "{failed:?}");
}

#[test]
fn a_closed_manager_adopts_nothing() {
    let world = World::new(3);
    let (giver, taker) = (world.manager(), world.manager());
    let record = world.sim.block_on(giver.lock("r")).unwrap().detach().unwrap();
    assert!(world.sim.block_on(taker.close(SECOND)).is_clean());
    let before = world.log.calls().len();
    let failed = world.sim.block_on(taker.adopt(&record));
    assert!(matches!(failed, Err(AdoptError::Closed)), "{failed:?}");
    assert_eq!(world.log.calls().len(), before, "nothing was sent");
    assert!(world.sim.block_on(giver.adopt(&record)).unwrap().is_valid(), "others can");
}

#[test]
fn h3_a_key_that_a_node_lost_is_set_again_by_the_adoption() {
    let world = World::new(3);
    let record = world.sim.block_on(world.manager().lock("r")).unwrap().detach().unwrap();
    world.nodes[0].flush();
    let guard = world.sim.block_on(world.manager().adopt(&record)).unwrap();
    // By the next extension: the adoption is decided by the other two.
    world.sim.block_on(guard.extend()).unwrap();
    world.catch_up();
    assert!(guard.is_valid());
    assert_eq!(world.holders("r"), 3);
}

#[test]
fn close_waits_for_an_adoption_in_flight() {
    let world = World::new(3);
    let record = world.sim.block_on(world.manager().lock("r")).unwrap().detach().unwrap();
    world.inject(.., Fault::Late(100 * MS));
    let taker = world.manager();
    let mut adopts = Box::pin(taker.adopt(&record));
    assert!(world.sim.block_on_for(adopts.as_mut(), 1).is_none());
    let start = world.sim.elapsed();
    let close = async { (taker.close(5 * SECOND).await.is_clean(), world.sim.elapsed() - start) };
    let (adopted, (is_clean, closed)) = world.sim.block_on(join(adopts, close));
    assert!(matches!(adopted, Err(AdoptError::Closed)), "{adopted:?}");
    assert!(closed >= 100 * MS, "closed after {closed:?}");
    assert!(is_clean);
}

/// This process does not learn of the release of a lock that it detached. So no task here waits for that.
#[test]
fn a_detached_lock_is_in_no_ones_way_in_its_first_process() {
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

/// A manager with other nodes does not know whether the lock is held.
#[test]
fn an_adopted_lock_survives_an_adoption_over_other_nodes() {
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
    sim.advance(5 * SECOND);
    assert!(guard.is_valid());
    let other = sim.block_on(over(&[0, 1, 2]).lock("r").no_wait());
    assert!(other.is_err(), "two hold it: {other:?}");
}

/// H6: the adoption was won and not kept. The next adopter has the same token.
#[test]
fn h6_an_adoption_that_is_not_kept_takes_the_lock_from_no_later_adopter() {
    let world = World::new(3);
    let record = world.sim.block_on(world.manager().lock("r")).unwrap().detach().unwrap();
    world.nodes[2].inject(Fault::Hung);
    world.inject(..2, Fault::Late(100 * MS));
    let taker = world.manager();
    let mut adopts = Box::pin(taker.adopt(&record));
    assert!(world.sim.block_on_for(adopts.as_mut(), 1).is_none());
    let (failed, _) = world.sim.block_on(join(adopts, taker.close(5 * SECOND)));
    assert!(matches!(failed, Err(AdoptError::Closed)), "{failed:?}");
    world.nodes[..2].iter().for_each(MemoryNode::heal);
    let guard = world.sim.block_on(world.manager().adopt(&record)).unwrap();
    guard.auto_renew();
    for _ in 0..200 {
        world.sim.advance(100 * MS);
        assert!(guard.is_valid());
        assert!(world.holders("r") >= 2, "{:?}", world.sim.elapsed());
    }
}

/// A record whose lock may still be held is not thrown away.
#[test]
fn q4_an_adoption_says_lost_only_if_no_quorum_can_have_the_lock() {
    let world = World::new(3);
    let record = world.sim.block_on(world.manager().lock("r")).unwrap().detach().unwrap();
    world.nodes[0].restart();
    let loading = error_of_reply("LOADING");
    world.nodes[1].inject(Fault::Failing(loading));
    let taker = world.manager();
    let failed = world.sim.block_on(taker.adopt(&record));
    assert!(matches!(failed, Err(AdoptError::NoQuorum(_))), "{failed:?}");
    world.nodes[1].heal();
    assert!(world.sim.block_on(taker.adopt(&record)).unwrap().is_valid());
}

/// The manager waits for the lock that it adopts, so that its queue has a place for the waiter only.
#[test]
fn h7_an_adopted_lock_is_released_at_its_hold_limit() {
    let world = World::complete(3);
    let record = world.sim.block_on(world.manager().lock("r").ttl(60 * SECOND)).unwrap();
    let record = record.detach().unwrap();
    let taker = world.builder().hold_limit(2 * SECOND).build().unwrap();
    let (waits, had) = (taker.lock("r"), Arc::<Mutex<bool>>::default());
    let had_it = Arc::clone(&had);
    world.sim.spawn(Box::pin(async move {
        *had_it.lock().unwrap() = waits.await.is_ok();
    }));
    world.sim.advance(100 * MS);
    let guard = world.sim.block_on(taker.adopt(&record)).unwrap();
    world.sim.advance(4 * SECOND);
    assert!(!guard.is_valid() && *had.lock().unwrap());
}
