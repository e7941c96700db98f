//! H3–H7: leases that live as long as the work, and who is told when they do not.

use std::error::Error;
use std::future::{IntoFuture, pending, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::future::{Either, join, join3, select};
use quorate_core::{
    AdoptError, BuildError, ExtendError, HandOver, LockError, LockManager, Lost, Released,
    RetryContext, RetryStrategy, Runtime, Stopped, WithError,
};
use quorate_memory::Fault;

use crate::world::{MS, Paused, SECOND, World};

const HOUR: Duration = Duration::from_secs(3600);
const MARGIN: Duration = Duration::from_millis(500);

fn hang(world: &World, nodes: usize) {
    for node in &world.nodes[..nodes] {
        node.inject(Fault::Hung);
    }
}

/// Waits long between two rounds.
#[derive(Debug)]
struct Patient;

impl RetryStrategy for Patient {
    fn delay(&self, _: &RetryContext) -> Option<Duration> {
        Some(20 * SECOND)
    }
}

fn heal(world: &World) {
    for node in &world.nodes {
        node.heal();
    }
}

#[test]
fn h4_lost_resolves_before_the_lease_ends_whatever_the_nodes_do() {
    let loading = quorate_core::BackendError::from_reply("LOADING");
    for fault in [None, Some(Fault::Hung), Some(Fault::Dead), Some(Fault::Failing(loading))] {
        for kept_alive in [false, true] {
            let world = World::new(5);
            let guard = world.sim.block_on(world.manager().lock("r")).unwrap();
            if kept_alive {
                guard.keep_alive();
            }
            for node in &world.nodes[..3] {
                fault.clone().into_iter().for_each(|fault| node.inject(fault));
            }
            let lost = guard.lost();
            if fault.is_none() && kept_alive {
                let later = world.sim.sleep_until(world.sim.now() + HOUR);
                let first = world.sim.block_on(select(Box::pin(lost), later));
                assert!(matches!(first, Either::Right(_)), "it lives");
                assert!(guard.is_valid());
                continue;
            }
            let valid_until = guard.valid_until();
            let reason = world.sim.block_on(lost);
            assert!(matches!(reason, Lost::Expired { .. }), "{reason:?}");
            assert_eq!(world.sim.now(), valid_until - MARGIN);
            assert!(!guard.is_valid(), "whoever was told is told for good");
            assert_eq!(guard.valid_until(), valid_until, "and knows how much time is left");
            assert_eq!(guard.remaining(), Duration::ZERO);
            heal(&world);
            let extended = world.sim.block_on(guard.extend());
            assert!(matches!(extended, Err(ExtendError::Expired { .. })), "{extended:?}");
            assert!(!guard.is_valid());
        }
    }
}

#[test]
fn h4_the_reason_says_what_the_nodes_said() {
    let world = World::new(3);
    let guard = world.sim.block_on(world.manager().lock("r")).unwrap();
    guard.keep_alive();
    for node in &world.nodes[..2] {
        node.inject(Fault::Dead);
    }
    let reason = world.sim.block_on(guard.lost()).to_string();
    assert!(reason.starts_with("the lease ran out: 1 of 3 nodes granted"), "{reason}");
    assert!(reason.contains("memory-1: connection refused"), "{reason}");
    assert!(reason.contains("memory-2: connection refused"), "{reason}");
}

#[test]
fn h4_trouble_that_has_passed_is_no_reason() {
    let world = World::new(3);
    let guard = world.sim.block_on(world.manager().lock("r")).unwrap();
    hang(&world, 2);
    assert!(world.sim.block_on(guard.extend()).is_err());
    heal(&world);
    world.sim.block_on(guard.extend()).unwrap();
    let reason = world.sim.block_on(guard.lost()).to_string();
    assert_eq!(reason, "the lease ran out: nobody extended it");
}

#[test]
fn h4_a_lease_that_ran_out_in_a_pause_is_lost_at_the_first_look() {
    let world = World::new(3);
    let client = Paused::new(&world.sim);
    let manager = LockManager::builder(client.clone(), world.nodes.clone()).build().unwrap();
    let guard = world.sim.block_on(manager.lock("r")).unwrap();
    guard.keep_alive();
    let lost = guard.lost();
    client.pause(20 * SECOND);
    assert!(!guard.is_valid(), "though no task ran");
    let reason = world.sim.block_on(lost);
    assert!(matches!(reason, Lost::Expired { .. }), "{reason:?}");
}

#[test]
fn h4_every_holder_of_the_future_is_told() {
    let world = World::new(3);
    let guard = world.sim.block_on(world.manager().lock("r")).unwrap();
    let told = Arc::new(AtomicU32::new(0));
    for _ in 0..10 {
        let (lost, told) = (guard.lease().lost(), Arc::clone(&told));
        world.sim.spawn(Box::pin(async move {
            assert!(matches!(lost.await, Lost::Released));
            told.fetch_add(1, Ordering::Relaxed);
        }));
    }
    world.catch_up();
    let lease = guard.lease();
    world.sim.block_on(guard.release()).unwrap();
    world.catch_up();
    assert_eq!(told.load(Ordering::Relaxed), 10);
    assert!(!lease.is_valid());
}

#[test]
fn h5_a_renewal_is_tried_until_the_margin() {
    let world = World::new(3);
    let guard = world.sim.block_on(world.manager().lock("r")).unwrap();
    guard.keep_alive();
    hang(&world, 2);
    world.sim.advance(guard.remaining() - MARGIN - 100 * MS);
    assert!(guard.is_valid(), "many renewals have failed, and the lease still holds");
    let tries = world.log.operations().iter().filter(|done| **done == "extend").count();
    assert!(tries > 6, "{tries} calls");
    heal(&world);
    world.sim.advance(HOUR);
    assert!(guard.is_valid(), "the last try was in time");
}

#[test]
fn h5_a_lease_that_no_quorum_can_have_is_lost_at_once() {
    let world = World::new(5);
    let guard = world.sim.block_on(world.manager().lock("r")).unwrap();
    guard.keep_alive();
    for node in &world.nodes[..3] {
        node.restart();
    }
    let valid_until = guard.valid_until();
    let reason = world.sim.block_on(guard.lost());
    assert!(matches!(reason, Lost::NotHeld { .. }), "{reason:?}");
    assert!(world.sim.now() < valid_until - 5 * SECOND);
    assert_eq!(world.holders("r"), 2, "nothing was set again");
}

#[test]
fn h6_no_renewal_is_under_way_when_the_release_begins() {
    for dropped in [false, true] {
        let world = World::new(3);
        let guard = world.sim.block_on(world.manager().lock("r")).unwrap();
        guard.keep_alive();
        for node in &world.nodes {
            node.inject(Fault::Late(300 * MS));
        }
        // Into the middle of a renewal.
        while !world.log.operations().contains(&"extend") {
            world.sim.advance(MS);
        }
        match dropped {
            true => drop(guard),
            false => drop(world.sim.block_on(guard.release())),
        }
        world.sim.settle();
        let operations = world.log.operations();
        let last_extend = operations.iter().rposition(|done| *done == "extend").unwrap();
        let releases = operations.iter().position(|done| *done == "release").unwrap();
        assert!(last_extend < releases, "{operations:?}");
        assert_eq!(world.keys_left(), 0);
        world.sim.advance(HOUR);
        assert_eq!(world.log.operations(), operations, "nothing goes on");
    }
}

/// A node forgot the key, answers the extension late, and by then the lock is being released.
#[test]
fn h6_a_repair_never_comes_after_the_release() {
    for release_after in [0, 50, 99, 100, 101, 150, 199, 200, 201, 300] {
        let world = World::new(3);
        let guard = world.sim.block_on(world.manager().lock("r")).unwrap();
        world.catch_up();
        world.nodes[0].restart();
        world.nodes[0].inject(Fault::Late(100 * MS));
        world.sim.block_on(guard.extend()).unwrap();
        world.sim.advance(release_after * MS);
        drop(guard);
        world.sim.advance(SECOND);
        assert_eq!(world.keys_left(), 0, "released after {release_after} ms");
    }
}

#[test]
fn h3_nodes_that_lost_the_key_get_it_back_and_count_from_the_next_time() {
    let world = World::new(5);
    let guard = world.sim.block_on(world.manager().lock("r")).unwrap();
    world.catch_up();
    world.nodes[0].restart();
    world.nodes[1].restart();
    world.sim.block_on(guard.extend()).expect("three still have it");
    world.catch_up();
    assert_eq!(world.holders("r"), 5);
    // The other three: those that were repaired are among the quorum now.
    world.nodes[2].restart();
    world.nodes[3].restart();
    world.sim.block_on(guard.extend()).expect("three have it");
}

/// Its answer takes so long that the lease is over by then.
#[test]
fn h3_a_node_is_not_repaired_after_the_end_of_the_lease() {
    let world = World::new(3);
    let guard = world.sim.block_on(world.manager().lock("r")).unwrap();
    world.catch_up();
    world.nodes[0].restart();
    world.nodes[0].inject(Fault::Late(9_950 * MS));
    world.sim.block_on(guard.extend()).unwrap();
    world.sim.advance(11 * SECOND);
    assert!(!guard.is_valid());
    assert_eq!(world.keys_left(), 0);
}

#[test]
fn h3_what_somebody_else_has_taken_meanwhile_is_left_to_them() {
    let world = World::new(3);
    let guard = world.sim.block_on(world.manager().lock("r")).unwrap();
    world.catch_up();
    world.nodes[0].put("r", quorate_memory::Value::String(b"theirs".to_vec()));
    world.sim.block_on(guard.extend()).unwrap();
    world.catch_up();
    let theirs = world.nodes[0].get("r");
    assert_eq!(theirs, Some(quorate_memory::Value::String(b"theirs".to_vec())));
}

#[test]
fn h3_repair_can_be_left_out() {
    let world = World::new(5);
    let manager = world.builder().without_repair().build().unwrap();
    let guard = world.sim.block_on(manager.lock("r")).unwrap();
    world.catch_up();
    world.nodes[0].restart();
    world.sim.block_on(guard.extend()).unwrap();
    world.sim.advance(SECOND);
    assert_eq!(world.holders("r"), 4);
}

#[test]
fn h7_a_hold_limit_ends_the_lease_however_often_it_is_extended() {
    let world = World::new(3);
    let manager = world.manager();
    let guard = world.sim.block_on(manager.lock("r").hold_limit(60 * SECOND)).unwrap();
    guard.keep_alive();
    let start = world.sim.now();
    world.sim.advance(58 * SECOND);
    assert!(guard.is_valid());
    world.sim.block_on(guard.extend_to(HOUR)).unwrap();
    assert_eq!(guard.valid_until(), start + 60 * SECOND);
    assert!(matches!(world.sim.block_on(guard.lost()), Lost::HoldLimit));
    assert_eq!(world.sim.now(), start + 60 * SECOND - MARGIN);

    let short = world.sim.block_on(manager.lock("s").hold_limit(MARGIN));
    assert!(matches!(short, Err(LockError::HoldLimit { .. })), "{short:?}");
}

#[test]
fn t3_intervals_that_leave_no_second_try_are_refused() {
    let builder = || World::new(3).builder();
    let refused = |builder: quorate_core::LockManagerBuilder| builder.build().unwrap_err();
    let most = refused(builder().renew_every(9 * SECOND));
    assert!(
        matches!(most, BuildError::RenewInterval { most, .. } if most == 8398 * MS),
        "{most:?}"
    );
    assert!(builder().renew_every(8398 * MS).build().is_ok());
    for builder in [builder().renew_every(Duration::ZERO), builder().renew_every(Duration::MAX)] {
        assert!(matches!(refused(builder), BuildError::RenewInterval { .. }));
    }
    for builder in [builder().margin(Duration::ZERO), builder().margin(Duration::MAX)] {
        assert!(matches!(refused(builder), BuildError::Margin { .. }));
    }
    assert!(matches!(refused(builder().hold_limit(MARGIN)), BuildError::HoldLimit { .. }));
    assert!(builder().hold_limit(Duration::MAX).build().is_ok());
}

#[test]
fn run_stops_a_future_when_the_lease_is_lost() {
    let world = World::new(3);
    let guard = world.sim.block_on(world.manager().lock("r")).unwrap();
    assert_eq!(world.sim.block_on(guard.run(ready(7))).unwrap(), 7);
    let flag = Arc::new(());
    let held = Arc::clone(&flag);
    let work = guard.run(async move {
        pending::<()>().await;
        drop(held);
    });
    let valid_until = guard.valid_until();
    let mut work = Box::pin(work);
    let Err(Stopped { reason: Lost::Expired { .. }, value: None }) =
        world.sim.block_on(work.as_mut())
    else {
        panic!("it never ends by itself");
    };
    assert_eq!(Arc::strong_count(&flag), 1, "the work is dropped, not only left");
    assert_eq!(world.sim.now(), valid_until - MARGIN);
}

#[test]
fn run_gives_the_value_of_work_that_ended_too_late() {
    let world = World::new(3);
    let client = Paused::new(&world.sim);
    let manager = LockManager::builder(client.clone(), world.nodes.clone()).build().unwrap();
    let guard = world.sim.block_on(manager.lock("r")).unwrap();
    let blocking = guard.run(async {
        client.pause(20 * SECOND);
        7
    });
    let stopped = world.sim.block_on(blocking).unwrap_err();
    assert!(matches!(stopped, Stopped { reason: Lost::Expired { .. }, value: Some(7) }));
}

#[test]
fn with_renews_for_as_long_as_the_body_runs_and_then_releases() {
    let world = World::new(5);
    let manager = world.manager();
    let sim = world.sim.clone();
    let value = world.sim.block_on(manager.with("r", async |lease| {
        for _ in 0..100 {
            sim.sleep_until(sim.now() + 3 * SECOND).await;
            assert!(lease.is_valid());
            assert_eq!(lease.keys()[0].as_bytes(), b"r");
        }
        7
    }));
    assert_eq!(value.unwrap(), 7);
    world.catch_up();
    assert_eq!(world.keys_left(), 0);
    assert!(world.sim.elapsed() < 301 * SECOND, "the body was not held up");
}

#[test]
fn with_drops_the_body_before_the_lease_ends_and_says_why() {
    let world = World::new(5);
    let manager = world.manager();
    let (sim, nodes) = (world.sim.clone(), world.nodes.clone());
    let ended = Arc::new(std::sync::Mutex::new(None));
    let end = Arc::clone(&ended);
    let failed = world.sim.block_on(manager.with("r", async move |lease| {
        nodes[..3].iter().for_each(|node| node.inject(Fault::Hung));
        loop {
            *end.lock().unwrap() = Some((sim.now(), lease.valid_until()));
            sim.sleep_until(sim.now() + MS).await;
        }
    }));
    let Err(WithError::<()>::Lost(Stopped { reason, value: None })) = failed else {
        panic!("the body never ends by itself");
    };
    let text = reason.to_string();
    assert!(text.contains("memory-1: no answer within"), "{text}");
    let (last, valid_until) = ended.lock().unwrap().unwrap();
    assert!(last <= valid_until - MARGIN);
    assert!(world.sim.now() <= valid_until - MARGIN, "the caller knows at once");
}

#[test]
fn with_tells_what_it_knows_when_the_lock_is_not_had() {
    let world = World::new(3);
    let manager = world.manager();
    let _held = world.sim.block_on(manager.lock("r")).unwrap();
    let request = manager.try_lock("r").with(async |_| panic!("not run"));
    let failed: Result<(), _> = world.sim.block_on(request);
    assert!(matches!(failed, Err(WithError::Lock(LockError::Held { .. }))), "{failed:?}");
}

/// The nodes lost it while the body ran, and no renewal was due: the release tells.
#[test]
fn with_tells_of_a_loss_that_only_the_release_sees() {
    let world = World::new(3);
    let manager = world.manager();
    let nodes = world.nodes.clone();
    let done = world.sim.block_on(manager.with("r", async |_| {
        nodes[..2].iter().for_each(quorate_memory::MemoryNode::restart);
        7
    }));
    let Err(WithError::Lost(Stopped { reason: Lost::NotHeld { .. }, value: Some(7) })) = &done
    else {
        panic!("{done:?}");
    };
    let boxed: Box<dyn Error + Send + Sync> = done.unwrap_err().without_value().into();
    assert!(boxed.to_string().starts_with("stopped: the lock is gone: "), "{boxed}");
}

/// Else it would hang.
#[test]
#[should_panic(expected = "is a lease kept alive? use `advance`")]
fn a_world_with_a_lease_that_is_kept_alive_does_not_settle() {
    let world = World::new(1);
    let guard = world.sim.block_on(world.manager().lock("r")).unwrap();
    guard.keep_alive();
    world.sim.settle();
}

#[test]
fn with_releases_before_a_panic_of_the_body_goes_on() {
    let world = World::new(3);
    let manager = world.manager();
    let body = manager.with("r", async |_| -> () { panic!("on purpose") });
    let panicked = catch_unwind(AssertUnwindSafe(|| world.sim.block_on(body)));
    let panic = panicked.unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"on purpose"));
    assert_eq!(world.keys_left(), 0, "at that moment");
}

#[test]
fn a3_with_polls_the_body_while_a_renewal_waits() {
    let world = World::new(3);
    let manager = world.manager();
    let (sim, nodes) = (world.sim.clone(), world.nodes.clone());
    let ticks = world.sim.block_on(manager.with("r", async |_| {
        nodes[..2].iter().for_each(|node| node.inject(Fault::Slow(400 * MS)));
        let mut ticks = 0;
        while sim.elapsed() < 20 * SECOND {
            let before = sim.elapsed();
            sim.sleep_until(sim.now() + 10 * MS).await;
            assert_eq!(sim.elapsed() - before, 10 * MS);
            ticks += 1;
        }
        ticks
    }));
    assert_eq!(ticks.unwrap(), 2000);
}

#[test]
fn with_spawns_nothing_while_the_body_runs() {
    let world = World::new(5);
    let manager = world.manager();
    let (sim, nodes) = (world.sim.clone(), world.nodes.clone());
    nodes[4].inject(Fault::Slow(100 * MS));
    let inner = manager.clone();
    let idle = world.sim.block_on(manager.with("r", async |_| {
        sim.sleep_until(sim.now() + 30 * SECOND).await;
        inner.settle(Duration::ZERO).await
    }));
    assert_eq!(idle.unwrap(), 0, "late answers are heard in the caller's own task");
}

#[test]
fn a_lock_is_handed_over_and_measured_anew() {
    let world = World::new(5);
    let (giver, taker) = (world.manager(), world.manager());
    let guard = world.sim.block_on(giver.lock(["a", "b"])).unwrap();
    guard.keep_alive();
    let lease = guard.lease();
    world.sim.advance(2 * SECOND);
    let text = guard.hand_over().encode();
    assert!(!lease.is_valid());
    assert!(matches!(world.sim.block_on(lease.lost()), Lost::HandedOver));
    assert_eq!(world.holders("a"), 5, "nothing is released");

    world.sim.advance(5 * SECOND);
    let record = HandOver::decode(&text).unwrap();
    let adopted = world.sim.block_on(taker.adopt(&record)).unwrap();
    assert_eq!(adopted.remaining(), 9898 * MS, "from now, by an extension");
    assert_eq!(adopted.keys().len(), 2);
    assert!(world.sim.block_on(giver.try_lock("a")).is_err());
    assert_eq!(world.sim.block_on(adopted.release()).unwrap(), Released::Held);
    world.catch_up();
    assert_eq!(world.keys_left(), 0);
}

#[test]
fn adopting_what_is_over_is_a_typed_error() {
    let world = World::new(3);
    let (giver, taker) = (world.manager(), world.manager());
    let record = world.sim.block_on(giver.lock("r")).unwrap().hand_over();
    world.sim.advance(11 * SECOND);
    let failed = world.sim.block_on(taker.adopt(&record));
    assert!(matches!(failed, Err(AdoptError::NotHeld { .. })), "{failed:?}");
    assert_eq!(world.keys_left(), 0, "nothing came back");

    hang(&world, 2);
    let failed = world.sim.block_on(taker.adopt(&record));
    assert!(matches!(failed, Err(AdoptError::NoQuorum { .. })), "{failed:?}");
}

#[test]
fn a_record_that_could_not_be_adopted_can_be_tried_again() {
    let world = World::new(3);
    let manager = world.manager();
    let record = world.sim.block_on(manager.lock("r")).unwrap().hand_over();
    hang(&world, 2);
    assert!(world.sim.block_on(manager.adopt(&record)).is_err());
    heal(&world);
    let guard = world.sim.block_on(manager.adopt(&record)).unwrap();
    assert!(guard.is_valid());
}

#[test]
fn close_releases_what_is_held_and_ends_who_waits() {
    let world = World::new(3);
    let manager = world.manager();
    let kept = world.sim.block_on(manager.lock("kept")).unwrap();
    kept.keep_alive();
    let held = world.sim.block_on(manager.lock("held")).unwrap();
    std::mem::forget(world.sim.block_on(manager.lock("forgotten")).unwrap());
    let lost = kept.lost();
    let waits = manager.lock("held").retry(Patient);
    let close = async {
        world.sim.sleep_until(world.sim.now() + SECOND).await;
        manager.close(5 * SECOND).await
    };
    let (waited, left) = world.sim.block_on(join(waits.into_future(), close));
    assert!(matches!(waited, Err(LockError::Closed)), "{waited:?}");
    assert_eq!(left, 0);
    assert_eq!(world.sim.elapsed(), SECOND + MARGIN, "the forgotten one has its margin");
    assert_eq!(world.keys_left(), 0, "at the moment that close returns");
    assert!(matches!(world.sim.block_on(lost), Lost::Closed));
    assert!(!held.is_valid());
    assert!(matches!(world.sim.block_on(held.extend()), Err(ExtendError::Ended(Lost::Closed))));
    assert_eq!(world.sim.block_on(held.release()).unwrap(), Released::Unsure);
    drop(kept);
    for failed in [
        world.sim.block_on(manager.lock("r")).unwrap_err(),
        world.sim.block_on(manager.clone().try_lock("r")).unwrap_err(),
    ] {
        assert!(matches!(failed, LockError::Closed));
    }
    assert_eq!(world.sim.block_on(manager.close(SECOND)), 0, "twice is no harm");
    world.sim.advance(HOUR);
    assert_eq!(world.keys_left(), 0);
}

/// H4: as with any other loss.
#[test]
fn h4_work_under_a_lock_has_the_margin_to_stop_when_the_manager_closes() {
    for (work, bound, freed) in [
        (100 * MS, 5 * SECOND, 100 * MS),
        (2 * SECOND, 5 * SECOND, MARGIN),
        (2 * SECOND, 400 * MS, 200 * MS),
    ] {
        let world = World::new(3);
        let (manager, other, sim) = (world.manager(), world.manager(), world.sim.clone());
        let guard = world.sim.block_on(manager.lock("r")).unwrap();
        let lost = guard.lost();
        let worker = async {
            assert!(matches!(lost.await, Lost::Closed));
            assert!(sim.elapsed().is_zero(), "it is told at once");
            assert!(!guard.is_valid());
            sim.sleep_until(sim.now() + work).await;
            drop(guard);
        };
        let next = async {
            let guard = other.lock("r").await.unwrap();
            let at = sim.elapsed();
            guard.release().await.unwrap();
            at
        };
        let closes = async { (manager.close(bound).await, sim.elapsed()) };
        let ((), at, (left, closed)) = world.sim.block_on(join3(worker, next, closes));
        assert_eq!((left, closed), (0, freed), "{work:?}, {bound:?}");
        assert!(at >= freed, "another had it after {at:?}, not {freed:?}");
    }
}

#[test]
fn who_closes_again_does_not_put_off_what_was_closed() {
    let world = World::new(3);
    let manager = world.manager();
    let guard = world.sim.block_on(manager.lock("r")).unwrap();
    let again = async {
        world.sim.sleep_until(world.sim.now() + 100 * MS).await;
        manager.close(60 * SECOND).await
    };
    let first = async { (manager.close(400 * MS).await, world.keys_left()) };
    let (first, again) = world.sim.block_on(join(first, again));
    assert_eq!((first.1, again), (0, 0), "released after half of the bound");
    drop(guard);
}

#[test]
fn a_release_in_time_after_close_tells_that_the_lock_was_held() {
    let world = World::new(3);
    let manager = world.manager();
    let guard = world.sim.block_on(manager.lock("r")).unwrap();
    let release = async {
        assert!(matches!(guard.lost().await, Lost::Closed));
        guard.release().await.unwrap()
    };
    let (released, left) = world.sim.block_on(join(release, manager.close(SECOND)));
    assert_eq!((released, left, world.keys_left()), (Released::Held, 0, 0));
}

#[test]
fn close_waits_for_a_release_that_is_under_way() {
    let world = World::new(3);
    for node in &world.nodes {
        node.inject(Fault::Slow(100 * MS));
    }
    let manager = world.manager();
    let guard = world.sim.block_on(manager.lock("r")).unwrap();
    let mut release = Box::pin(guard.release());
    assert!(world.sim.block_on_for(release.as_mut(), 1).is_none());
    let close = async { (manager.close(5 * SECOND).await, world.keys_left()) };
    let (_, left) = world.sim.block_on(join(release, close));
    assert_eq!(left, (0, 0), "at the moment that close returns");
}

#[test]
fn close_keeps_to_its_bound_and_goes_on_in_the_background() {
    let world = World::new(3);
    let manager = world.manager();
    let _guard = world.sim.block_on(manager.lock("r")).unwrap();
    hang(&world, 3);
    let start = world.sim.elapsed();
    assert_eq!(world.sim.block_on(manager.close(2 * SECOND)), 1);
    assert_eq!(world.sim.elapsed() - start, 2 * SECOND);
    heal(&world);
    world.catch_up();
    assert_eq!(world.keys_left(), 0);
}

/// A round that is open while the manager closes wins nothing.
#[test]
fn close_leaves_no_lock_that_was_just_being_taken() {
    for polls in 0..8 {
        let world = World::new(3);
        for node in &world.nodes {
            node.inject(Fault::Late(100 * MS));
        }
        let manager = world.manager();
        let mut taking = Box::pin(manager.lock("r").into_future());
        for _ in 0..polls {
            let _ = world.sim.block_on_for(taking.as_mut(), 1);
        }
        let close = async { (manager.close(5 * SECOND).await, world.keys_left()) };
        let (taken, left) = world.sim.block_on(join(taking, close));
        assert_eq!(left, (0, 0), "at the moment that close returns");
        assert!(taken.is_ok() || matches!(taken, Err(LockError::Closed)));
        assert!(taken.is_err() || !taken.as_ref().unwrap().is_valid());
        drop(taken);
        world.sim.advance(SECOND);
        assert_eq!(world.keys_left(), 0, "after {polls} polls");
    }
}
