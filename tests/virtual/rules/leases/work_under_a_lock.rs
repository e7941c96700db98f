//! Work under a lock: `with`, and `run` under a guard.

use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use quorate_core::{LeaseEnd, LockError, Runtime, Stopped, WithError};
use quorate_memory::{Fault, MemoryNode};

use crate::world::{Client, MS, SECOND, World};

/// At the end of the lease the work is dropped.
#[test]
fn run_stops_a_future_when_the_lease_is_lost() {
    let world = World::new(3);
    let guard = world.lock(&world.manager());
    let flag = Arc::new(());
    let held = Arc::clone(&flag);
    let mut work = Box::pin(guard.run(async move {
        pending::<()>().await;
        drop(held);
    }));
    let valid_until = guard.valid_until();
    let Err(Stopped { reason: LeaseEnd::Expired { .. } }) = world.run(work.as_mut()) else {
        panic!("it never ends by itself");
    };
    assert_eq!(Arc::strong_count(&flag), 1, "the work is dropped, not only left");
    assert_eq!(world.sim.now(), valid_until);
}

/// The work blocks its thread beyond the end of a lease: of one guard, and of each of several permits. Rule H4.
#[test]
fn work_that_ends_after_a_lease_gives_no_value() {
    type Work<'a> = &'a dyn Fn(Duration) -> Result<u32, Stopped>;
    let check = |work: Work<'_>, name: Option<&str>| {
        assert_eq!(work(Duration::ZERO).unwrap(), 7);
        let stopped = work(10 * SECOND).unwrap_err();
        assert!(matches!(stopped.reason, LeaseEnd::Expired { .. }), "{stopped}");
        let of = stopped.reason.names()[0].to_string();
        assert!(name.is_none_or(|name| of == name), "{of}");
    };
    let world = World::new(3);
    let client = Client::new(&world.sim);
    let manager = world.builder().runtime(client.clone()).build().unwrap();
    let blocks = |time| {
        let client = client.clone();
        async move {
            client.pause(time);
            7
        }
    };
    let guard = world.lock(&manager);
    check(&|time| world.run(guard.run(blocks(time))), Some("r"));
    for first in 0..3 {
        let permits = world.run(manager.permit("p", 3).several(3)).unwrap();
        for (_, part) in permits.parts().iter().enumerate().filter(|(at, _)| *at != first) {
            world.run(part.extend_to(60 * SECOND)).unwrap();
        }
        let ends = permits.parts()[first].keys()[0].to_string();
        check(&|time| world.run(permits.run(blocks(time))), Some(&ends));
        drop(permits);
        world.advance(60 * SECOND);
    }
}

#[test]
fn with_renews_for_as_long_as_the_body_runs_and_then_releases() {
    let world = World::new(5);
    let sim = world.sim.clone();
    let value = world.run(world.manager().with("r", async |lease| {
        for _ in 0..100 {
            sim.sleep(3 * SECOND).await;
            assert!(lease.is_valid());
            assert_eq!(lease.keys()[0].as_bytes(), b"r");
        }
        7
    }));
    assert_eq!(value.unwrap(), 7);
    world.catch_up();
    assert_eq!(world.keys_left(), 0);
    assert!(world.sim.elapsed() < 301 * SECOND, "nothing delayed the body");
}

#[test]
fn with_drops_the_body_before_the_lease_ends_and_says_why() {
    let world = World::new(5);
    let (sim, nodes) = (world.sim.clone(), world.nodes.clone());
    let ended = Arc::new(Mutex::new(None));
    let end = Arc::clone(&ended);
    let failed: Result<(), _> = world.run(world.manager().with("r", async move |lease| {
        nodes[..3].iter().for_each(|node| node.inject(Fault::Hung));
        loop {
            *end.lock().unwrap() = Some((sim.now(), lease.valid_until()));
            sim.sleep(MS).await;
        }
    }));
    let Err(WithError::Lost(Stopped { reason })) = failed else {
        panic!("the body never ends by itself");
    };
    let text = reason.to_string();
    assert!(text.contains("memory-1: no reply"), "{text}");
    let (last, valid_until) = ended.lock().unwrap().unwrap();
    assert!(last <= valid_until);
    assert!(world.sim.now() <= valid_until, "the caller knows at once");
}

/// It was not acquired; and the nodes lost it while the body ran, and no renewal was due.
#[test]
fn with_reports_why_the_lock_was_not_acquired_and_a_loss_that_only_the_release_finds() {
    let (world, manager) = World::new(3).and_manager();
    let held = world.lock(&manager);
    let request = manager.lock("r").no_wait().with(async |_| panic!("not run"));
    let failed: Result<(), _> = world.run(request);
    assert!(matches!(failed, Err(WithError::Lock(LockError::Held(_)))), "{failed:?}");
    world.run(held.release()).unwrap();
    let nodes = world.nodes.clone();
    let done = world.run(manager.with("r", async |_| {
        nodes[..2].iter().for_each(MemoryNode::restart);
        7
    }));
    let Err(WithError::Lost(Stopped { reason: LeaseEnd::NotHeld(_) })) = &done else {
        panic!("{done:?}");
    };
    let boxed: Box<dyn std::error::Error + Send + Sync> = done.unwrap_err().into();
    assert!(
        boxed.to_string().starts_with("r: the work was stopped: the keys are gone: "),
        "{boxed}"
    );
}

#[test]
fn with_releases_when_the_body_panics() {
    let world = World::new(3);
    let body = world.manager().with("r", async |_| -> () { panic!("on purpose") });
    let panicked = catch_unwind(AssertUnwindSafe(|| world.run(body)));
    assert_eq!(panicked.unwrap_err().downcast_ref::<&str>(), Some(&"on purpose"));
    world.catch_up();
    assert_eq!(world.keys_left(), 0);
}

#[test]
fn a3_with_polls_the_body_while_a_renewal_waits() {
    let world = World::new(3);
    let (sim, nodes) = (world.sim.clone(), world.nodes.clone());
    let ticks = world.run(world.manager().with("r", async |_| {
        nodes[..2].iter().for_each(|node| node.inject(Fault::Slow(400 * MS)));
        let mut ticks = 0;
        while sim.elapsed() < 20 * SECOND {
            let before = sim.elapsed();
            sim.sleep(10 * MS).await;
            assert_eq!(sim.elapsed() - before, 10 * MS);
            ticks += 1;
        }
        ticks
    }));
    assert_eq!(ticks.unwrap(), 2000);
}

#[test]
fn with_ends_at_a_close_and_a_release_in_flight_does_not() {
    let (world, manager) = World::new(3).and_manager();
    let stopped = world.run(manager.with("r", async |_| {
        assert!(manager.close(SECOND).now_or_never().is_none());
        7
    }));
    let Err(WithError::Lost(Stopped { reason: LeaseEnd::Closed(_) })) = stopped else {
        panic!("{stopped:?}");
    };

    world.inject(.., Fault::Slow(100 * MS));
    let manager = world.manager();
    let closes = manager.clone();
    let done = world.run(manager.with("r", async |_| {
        world.later(50 * MS, move || drop(closes.close(SECOND).now_or_never()));
        7
    }));
    assert_eq!(done.unwrap(), 7);
    assert!(world.try_lock(&manager).unwrap_err().is_closed(), "by now");
}
