//! O6 and O7: locks that stay on the nodes after the work.

use quorate_core::operators::KeyState;

use super::*;

/// Rule O2.
#[test]
fn a_lock_that_is_kept_is_free_after_its_duration_and_not_earlier() {
    for world in World::kinds(3) {
        let manager = world.manager();
        let guard = world.run(manager.lock("r").auto_renew()).unwrap();
        let (lease, start) = (guard.lease(), world.sim.elapsed());
        world.advance(4 * SECOND);
        world.run(guard.keep(MINUTE)).unwrap();
        assert!(!lease.is_valid(), "it is no lease any more");
        assert!(matches!(world.run(lease.lost()), LeaseEnd::Detached(_)));
        assert_eq!(left(&world, "r"), [Some(MINUTE); 3]);
        // Neither the manager nor the drop of the lease's rest frees it.
        assert!(world.try_lock(&manager).unwrap_err().is_held());
        assert!(world.run(manager.close(SECOND)).is_clean());
        drop(lease);
        let _next = world.run(world.manager().lock("r").timeout(2 * MINUTE)).unwrap();
        let waited = world.sim.elapsed() - start;
        assert!((64 * SECOND..66 * SECOND).contains(&waited), "{waited:?}");
    }
}

/// On each name of the lock, and on each node that keeps the order of calls, whichever does not. Rule O1.
#[test]
fn a_mark_stands_on_each_name_and_node_and_excludes_each_lock_that_shares_a_name() {
    for pool in [None, Some(0), Some(1), Some(2)] {
        let world = World::complete(3);
        let nodes = (0..).zip(&world.nodes).map(|(at, node)| match pool {
            Some(pool) if pool == at => node.unordered(),
            _ => node.clone(),
        });
        let manager = LockManager::builder(nodes).runtime(world.sim.clone());
        let manager = manager.label("web-3").build().unwrap();
        world.run(world.run(manager.lock(["a", "b", "c"])).unwrap().keep(DAY)).unwrap();
        for name in ["a", "b", "c"] {
            let seen = world.run(manager.inspect(name)).unwrap();
            let marked = seen.nodes().iter().filter(|node| match &node.state {
                KeyState::Held { holder, .. } => holder.is_done(),
                _ => false,
            });
            assert!(seen.is_done(), "{name}, {pool:?}: {seen}");
            assert_eq!(marked.count(), if pool.is_some() { 2 } else { 3 }, "{name}: {seen}");
            assert_eq!(seen.label(), Some("web-3"));
        }
        for names in [&["a"][..], &["b"], &["c", "d"], &["d", "b"], &["a", "b", "c", "d"]] {
            let error = world.run(manager.lock(names).no_wait()).unwrap_err();
            assert!(error.to_string().contains(": done by \"web-3\" on "), "{names:?}: {error}");
        }
        drop(world.run(manager.lock("d").no_wait()).unwrap());
    }
}

/// The nodes of a slow network extend while the close runs.
#[test]
fn a_close_does_not_free_a_lock_that_is_being_kept() {
    for world in World::kinds(3) {
        let manager = world.manager();
        let guard = world.lock(&manager);
        world.inject(.., Fault::Slow(100 * MS));
        let (kept, closed) = world.run(join(guard.keep(MINUTE), manager.close(5 * SECOND)));
        kept.unwrap();
        assert!(closed.is_clean(), "{closed}");
        world.advance(20 * SECOND);
        assert_eq!(world.holders("r"), 3);
    }
}

#[test]
fn a_keep_that_is_dropped_goes_on_from_its_first_poll_on() {
    for polls in 0.. {
        let world = World::new(3);
        let manager = world.manager();
        let guard = world.lock(&manager);
        world.inject(.., Fault::Slow(100 * MS));
        let is_done = world.sim.block_on_for(guard.keep(MINUTE), polls).is_some();
        world.advance(20 * SECOND);
        assert_eq!(world.holders("r"), if polls == 0 { 0 } else { 3 }, "{polls} polls");
        // The tasks of this manager are not kept waiting.
        assert_eq!(world.try_lock(&manager).is_ok(), polls == 0);
        if is_done {
            assert!(polls > 1);
            break;
        }
    }
}

/// The nodes extend in time, and their answers come too late.
#[test]
fn a_keep_whose_lease_expires_meanwhile_releases_at_once() {
    let (world, guard) = World::new(3).held();
    world.advance(9_300 * MS);
    world.inject(.., Fault::Late(200 * MS));
    let failed = world.run(guard.keep(MINUTE));
    let is_expired = matches!(failed, Err(ExtendError::Lost(LeaseEnd::Expired { .. })));
    assert!(is_expired, "{failed:?}");
    world.advance(300 * MS);
    assert_eq!(left(&world, "r"), [None; 3]);
}

#[test]
fn a_keep_during_a_renewal_counts_for_its_own_duration() {
    for after in [2 * SECOND, 3 * SECOND, 3 * SECOND + 50 * MS, 3 * SECOND + 100 * MS] {
        let world = World::new(3);
        let manager = world.builder().renew_interval(3 * SECOND).build().unwrap();
        let guard = world.run(manager.lock("r").auto_renew()).unwrap();
        world.inject(.., Fault::Slow(200 * MS));
        world.advance(after);
        world.run(guard.keep(MINUTE)).unwrap();
        world.heal();
        world.advance(20 * SECOND);
        assert_eq!(world.holders("r"), 3, "after {after:?}");
    }
}

#[test]
fn a_keep_without_a_quorum_releases_what_it_has() {
    for fault in [Fault::Hung, Fault::Dead, Fault::Down] {
        let (world, guard) = World::new(3).held();
        world.inject(1.., fault.clone());
        let failed = world.run(guard.keep(MINUTE));
        let Err(ExtendError::NoQuorum(failure)) = failed else { panic!("{failed:?}") };
        assert_eq!(failure.granted(), 1);
        world.heal();
        world.advance(5 * SECOND);
        assert_eq!(left(&world, "r"), [None; 3], "{fault:?}");
    }
}

#[test]
fn o6_a_lock_is_kept_for_any_duration_and_no_limit_of_leases_bounds_it() {
    let century = 36_500 * DAY;
    for (duration, expected) in [
        // The ttl is longer.
        (Duration::ZERO, 10 * SECOND),
        (Duration::from_nanos(1), 10 * SECOND),
        (10 * SECOND + Duration::from_nanos(1), 10 * SECOND + MS),
        (730 * DAY, 730 * DAY),
        (century, century),
        (Duration::MAX, century),
    ] {
        let world = World::new(3);
        let builder = world.builder().restart_guard(10 * SECOND).hold_limit(5 * SECOND);
        let manager = builder.build().unwrap();
        world.try_lock(&manager).map(drop).unwrap_err();
        world.advance(20 * SECOND);
        world.run(world.lock(&manager).keep(duration)).unwrap();
        assert_eq!(left(&world, "r"), [Some(expected); 3], "{duration:?}");
    }
}

#[test]
fn o6_a_period_under_a_second_or_over_a_day_is_refused() {
    let world = World::new(3);
    let manager = world.manager();
    let tick = Duration::from_nanos(1);
    for (name, period, is_valid) in [
        ("job", Duration::ZERO, false),
        ("job", SECOND - tick, false),
        ("job", SECOND, true),
        ("job", DAY, true),
        ("job", DAY + tick, false),
        ("job", 7 * DAY, false),
        ("job", 30 * DAY, false),
        ("job", Duration::MAX, false),
        ("", SECOND, false),
    ] {
        let before = world.log.calls().len();
        match world.run(manager.once_per(name, period, async |_| Ok::<_, ()>(()))) {
            Ok(ran) => assert!(is_valid && ran.is_some(), "{period:?}"),
            Err(WithError::Lock(error @ LockError::Invalid(_))) => {
                assert!(!is_valid && error.is_permanent(), "{period:?}: {error}");
                assert!(name.is_empty() || error.to_string().contains("a week or a month"));
                assert_eq!(world.log.calls().len(), before, "nothing was sent");
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn o7_a_lease_that_has_ended_keeps_nothing() {
    type End = fn(&World, &LockManager, &Paused, &LockGuard);
    let ends: [(&str, End); 5] = [
        ("the lease expired", |_, _, client, _| client.pause(9_600 * MS)),
        ("the lease expired", |world, _, _, guard| drop(world.run(guard.lost()))),
        ("the keys are gone", |world, _, _, guard| {
            lose(world);
            world.run(guard.extend()).unwrap_err();
        }),
        // It is the extension that finds it.
        ("the keys are gone", |world, _, _, _| lose(world)),
        ("the lock manager is closed", |world, manager, _, _| {
            world.sim.block_on_for(manager.close(SECOND), 1);
        }),
    ];
    for (why, end) in ends {
        let world = World::new(3);
        let client = Paused::new(&world.sim);
        let manager = world.builder().runtime(client.clone()).build().unwrap();
        let guard = world.lock(&manager);
        end(&world, &manager, &client, &guard);
        let mut failed = Ok(());
        let told = told(|| failed = world.run(guard.keep(MINUTE)));
        let Err(ExtendError::Lost(lost)) = &failed else { panic!("{failed:?}") };
        assert!(lost.to_string().starts_with(&format!("r: {why}")), "{lost}");
        assert_eq!(of("not kept", &told).len(), 1, "{why}");
        world.catch_up();
        assert_eq!(world.keys_left(), 0, "{why}");
    }
}

/// Nobody has looked at the lease since it expired.
#[test]
fn o7_the_error_for_an_expired_lease_says_what_the_nodes_answered_last() {
    let world = World::new(3);
    let client = Paused::new(&world.sim);
    let manager = world.builder().runtime(client.clone()).build().unwrap();
    let guard = world.lock(&manager);
    world.inject(..2, Fault::Dead);
    world.run(guard.extend()).unwrap_err();
    client.pause(9_600 * MS);
    let failed = world.run(guard.keep(MINUTE));
    let Err(ExtendError::Lost(LeaseEnd::Expired { last, .. })) = &failed else {
        panic!("{failed:?}")
    };
    assert_eq!(last.nodes().len(), 3, "{last}");
}
