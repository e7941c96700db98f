//! What a manager knows of its nodes without asking them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use quorate_core::backend::Claim;
use quorate_core::{BackendError, BackendErrorKind, LockManager, operators::Readiness};
use quorate_memory::Fault;

use crate::backends::begin;
use crate::telling::told;
use crate::world::{HOUR, MS, SECOND, World, failing};

fn answering(known: &Readiness) -> Vec<bool> {
    known.nodes().iter().map(|node| node.is_answering).collect()
}

/// Locks and releases once.
fn lock(world: &World, manager: &LockManager) {
    if let Ok(guard) = world.run(manager.lock("r").no_wait()) {
        let _ = world.run(guard.release());
    }
    world.advance(SECOND);
}

#[test]
fn a_node_answers_lately_by_its_latest_call() {
    for new in World::KINDS {
        for fault in [Fault::Dead, Fault::Hung, failing("LOADING")] {
            let (world, manager) = new(3).and_manager();
            let is_known = |expected: [bool; 3]| {
                let sent = world.log.calls().len();
                let known = manager.readiness();
                assert_eq!(answering(&known), expected, "{fault:?}");
                let count = expected.iter().filter(|is| **is).count();
                assert_eq!((known.answering(), known.has_quorum()), (count, count >= 2));
                assert_eq!(world.log.calls().len(), sent, "a look without I/O");
                known.to_string()
            };
            is_known([false; 3]);
            lock(&world, &manager);
            assert_eq!(is_known([true; 3]), "3 of 3 nodes answer, 2 needed");
            // However long ago that was.
            world.advance(HOUR);
            is_known([true; 3]);
            world.inject(1..2, fault.clone());
            lock(&world, &manager);
            assert_eq!(
                is_known([true, false, true]),
                "2 of 3 nodes answer, 2 needed; memory-2 does not"
            );
            world.inject(..2, fault.clone());
            lock(&world, &manager);
            is_known([false, false, true]);
            world.heal();
            world.advance(20 * SECOND);
            lock(&world, &manager);
            is_known([true; 3]);
        }
    }
}

/// One call hangs, and the others are answered one after the other.
#[test]
fn a_node_that_answers_others_answers_however_long_one_call_waits() {
    let world = World::complete(3);
    let kept = Mutex::new(Vec::new());
    let manager = world.over(world.begins(move |at, node, call, runtime| {
        let hangs = |claim: &Claim| claim.keys()[0].as_bytes() == b"hangs";
        if at != 1 || !call.claim().is_some_and(hangs) {
            return begin(node, call, runtime);
        }
        kept.lock().unwrap().push(call);
        Ok(())
    }));
    lock(&world, &manager);
    let _held = world.run(manager.lock("hangs").ttl(HOUR)).unwrap();
    for _ in 0..10 {
        world.advance(400 * MS);
        assert_eq!(answering(&manager.readiness()), [true; 3]);
        world.run(world.lock(&manager).release()).unwrap();
        world.catch_up();
    }
    world.advance(499 * MS);
    assert_eq!(answering(&manager.readiness()), [true; 3]);
    world.advance(MS);
    assert_eq!(answering(&manager.readiness()), [true, false, true]);
    world.run(world.lock(&manager).release()).unwrap();
    world.catch_up();
    assert_eq!(answering(&manager.readiness()), [true; 3]);
}

/// While a node was away, none of its calls left, or each was lost. It has answered since, and nothing is in flight.
#[test]
fn a_manager_that_is_idle_after_an_outage_is_ready() {
    for (outages, is_sent) in [(1, false), (3, false), (3, true)] {
        let world = World::complete(3);
        let is_away = Arc::<AtomicBool>::default();
        let is_gone = Arc::clone(&is_away);
        let manager = world.over(world.begins(move |at, node, call, runtime| {
            if at != 1 || !is_gone.load(Ordering::Relaxed) {
                return begin(node, call, runtime);
            }
            let error = BackendError::new(BackendErrorKind::Connection, "away");
            if is_sent {
                call.answer(Err(error));
                return Ok(());
            }
            Err(call.not_sent(error))
        }));
        for _ in 0..outages {
            is_away.store(true, Ordering::Relaxed);
            lock(&world, &manager);
            assert_eq!(answering(&manager.readiness()), [true, false, true]);
            is_away.store(false, Ordering::Relaxed);
            world.advance(20 * SECOND);
            lock(&world, &manager);
            for _ in 0..2 {
                assert_eq!(answering(&manager.readiness()), [true; 3], "{outages}, {is_sent}");
                world.advance(HOUR);
            }
        }
        // A guard that is held keeps no node waiting, either.
        let _guard = world.lock(&manager);
        world.advance(SECOND);
        assert_eq!(answering(&manager.readiness()), [true; 3]);
        assert!(world.run(manager.close(SECOND)).is_clean());
    }
}

/// So that a manager which has locked nothing yet can be ready, and an idle one says when a node
/// fails.
#[test]
fn the_answers_to_an_operator_count() {
    let asks: [fn(&World, &LockManager); 3] = [
        |world, manager| drop(world.run(manager.check())),
        |world, manager| drop(world.run(manager.inspect("r"))),
        |world, manager| drop(world.run(manager.revoke("r"))),
    ];
    for (place, ask) in asks.into_iter().enumerate() {
        for fault in [Fault::Hung, Fault::Dead, failing("LOADING")] {
            let events = told(|| {
                let (world, manager) = World::complete(3).and_manager();
                for fault in [Fault::Hung, fault.clone()] {
                    world.inject(..1, fault.clone());
                    ask(&world, &manager);
                    assert_eq!(answering(&manager.readiness()), [false, true, true], "{fault:?}");
                    world.heal();
                    world.advance(10 * SECOND);
                    ask(&world, &manager);
                    assert_eq!(answering(&manager.readiness()), [true; 3], "{place}, {fault:?}");
                }
            });
            let changes = events.iter().filter(|event| event.what.starts_with("node "));
            let changes: Vec<&str> = changes.map(|event| event.what.as_str()).collect();
            let expected = ["node failing", "node recovered"].repeat(2);
            assert_eq!(changes, expected, "{place}, {fault:?}");
        }
    }
}
