//! O6, O7 and O9: locks that stay on the nodes after the work.

use quorate_core::operators::KeyState;

use super::*;

/// Rule O2.
#[test]
fn a_lock_that_is_kept_is_free_after_its_duration_and_not_earlier() {
    for (world, manager) in World::kinds(3).map(World::and_manager) {
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

/// The third node lacks the lock when its work is done, for as long as is said, and the others answer at once.
#[test]
fn o9_a_mark_stands_on_each_node_that_answers_within_a_node_timeout() {
    type Lacks = fn(&World);
    let lacks: [(&str, Lacks, bool); 8] = [
        ("slow", |world| world.inject(2.., Fault::Slow(200 * MS)), true),
        ("lost", |world| world.nodes[2].flush(), true),
        (
            "lost, and slow",
            |world| {
                world.nodes[2].flush();
                world.inject(2.., Fault::Slow(60 * MS));
            },
            true,
        ),
        // The key of a client that asked at the same time, and has lost its round.
        (
            "taken",
            |world| {
                world.occupy(2..);
                let node = world.nodes[2].clone();
                world.later(100 * MS, move || node.flush());
            },
            true,
        ),
        (
            "failing",
            |world| {
                world.inject(2.., failing("LOADING"));
                let node = world.nodes[2].clone();
                world.later(200 * MS, move || node.heal());
            },
            true,
        ),
        ("taken for ever", |world| world.occupy(2..), false),
        ("failing for ever", |world| world.inject(2.., failing("LOADING")), false),
        ("silent", |world| world.inject(2.., Fault::Hung), false),
    ];
    for (what, lacks, is_kept) in lacks {
        for new in World::KINDS {
            let (world, manager) = new(3).and_manager();
            let guard = world.run(manager.lock("r").auto_renew()).unwrap();
            lacks(&world);
            let start = world.sim.elapsed();
            let told = told(|| world.run(guard.keep(DAY)).unwrap());
            let took = world.sim.elapsed() - start;
            assert!(took <= 1_100 * MS, "{what}: {took:?}");
            let left = left(&world, "r").into_iter().map(|left| left > Some(DAY - 2 * SECOND));
            assert_eq!(left.collect::<Vec<_>>(), [true, true, is_kept], "{what}");
            let [kept] = &of("kept", &told)[..] else { panic!("{told:?}") };
            assert_eq!(kept.has("lacking"), !is_kept, "{what}");
            assert!(is_kept || kept.field("lacking") == world.nodes[2].name(), "{kept:?}");
        }
    }
}

/// A crash would leave no less. Rule O3.
#[test]
fn a_keep_that_is_dropped_or_whose_manager_is_closed_leaves_the_mark_everywhere_or_nothing() {
    for is_closed in [false, true] {
        let mut left = Vec::new();
        for polls in 0.. {
            let (world, manager) = World::new(3).and_manager();
            let mut keep = Box::pin(world.lock(&manager).keep(MINUTE));
            world.inject(.., Fault::Slow(100 * MS));
            let is_done = world.sim.block_on_for(keep.as_mut(), polls).is_some();
            if is_closed && !is_done {
                let (kept, closed) = world.run(join(keep, manager.close(5 * SECOND)));
                assert!(closed.is_clean(), "{closed}");
                let is_lost = matches!(kept, Err(ExtendError::Lost(LeaseEnd::Closed(_))));
                assert_eq!(kept.is_err(), is_lost, "{kept:?}");
                assert_eq!(kept.is_ok(), world.holders("r") == 3);
            } else {
                drop(keep);
            }
            world.advance(20 * SECOND);
            left.push(world.holders("r"));
            // The tasks of this manager are not kept waiting.
            assert!(is_closed || world.try_lock(&manager).is_ok() == (left[polls] == 0));
            if is_done {
                break;
            }
        }
        let nothing = left.iter().take_while(|left| **left == 0).count();
        assert!(nothing > 2 && left[nothing..].iter().all(|left| *left == 3), "{left:?}");
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
    let (world, manager) = World::new(3).and_manager();
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
    type End = fn(&World, &LockManager, &Client, &LockGuard);
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
        let client = Client::new(&world.sim);
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
