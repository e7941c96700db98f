//! A4: which error a caller gets, and its text on each node.

use std::future::IntoFuture;
use std::time::Duration;

use futures_util::future::{join, join_all};
use quorate_core::error::{Answer, Closed, NodeAnswer};
use quorate_core::{LeaseEnd, LockError, LockManager, LockRequest, ReleaseError};
use quorate_memory::{Fault, MemoryNode, Operation};

use crate::waiting::processes::Scene;
use crate::world::{Client, HOUR, MS, SECOND, World, failing, failure_of, slow};

#[test]
fn a4_permanent_errors_end_a_lock_at_once() {
    for reply in [
        "NOAUTH Authentication required.",
        "WRONGPASS invalid username-password pair",
        "WRONGTYPE",
        "NOPERM this user has no permissions to run the 'set' command",
        "ERR unknown command 'EVALSHA'",
    ] {
        for (world, manager) in World::kinds(5).map(World::and_manager) {
            world.inject(..3, failing(reply));
            for request in [manager.lock("r"), manager.lock("r").wait_forever()] {
                let failed = world.run(request).unwrap_err();
                assert!(matches!(failed, LockError::NoQuorum(_)), "{failed}");
                assert!(failed.is_permanent() && !failed.is_held(), "{failed}");
                assert!(world.sim.elapsed() <= 4 * MS, "{reply}: {:?}", world.sim.elapsed());
            }
        }
    }
    // On no more nodes than a quorum can spare they end nothing, and a node that is gone may come back.
    for (third, is_locked) in [(None, true), (Some(Fault::Dead), false)] {
        let world = World::complete(5);
        world.inject(..2, failing("NOAUTH Authentication required."));
        third.into_iter().for_each(|fault| world.inject(2..3, fault));
        match world.run(world.manager().lock("r")) {
            Ok(_) => assert!(is_locked),
            Err(lost) => {
                assert!(!is_locked && matches!(lost, LockError::NoQuorum(_)), "{lost}");
                assert!(!lost.is_permanent() && world.sim.elapsed() >= 30 * SECOND, "{lost}");
            }
        }
    }
}

/// The round is lost before the second of these errors comes.
#[test]
fn a4_permanent_errors_that_come_late_end_a_lock_as_well() {
    for (world, waits) in World::KINDS.into_iter().flat_map(|new| [(new, true), (new, false)]) {
        let world = world(3);
        world.inject(..1, failing("LOADING Redis is loading the dataset"));
        world.inject(1.., failing("NOAUTH Authentication required."));
        world.add_rule(2.., slow(MS / 2));
        let request = world.manager().lock("r");
        let failed = world.run(if waits { request } else { request.no_wait() }).unwrap_err();
        assert!(failed.is_permanent(), "{failed}");
        assert!(world.sim.elapsed() < 100 * MS, "{:?}", world.sim.elapsed());
    }
}

#[test]
fn a4_a_lock_always_has_a_deadline() {
    for (world, manager) in World::kinds(3).map(World::and_manager) {
        world.occupy(..);
        let lost = world.run(manager.lock("r"));
        assert!(matches!(lost, Err(LockError::Held(_))), "{lost:?}");
        let elapsed = world.sim.elapsed();
        assert!(elapsed >= 30 * SECOND && elapsed <= 30 * SECOND + 2 * MS, "{elapsed:?}");

        world.inject(.., Fault::Hung);
        for timeout in [MS, 700 * MS, 3 * SECOND] {
            let start = world.sim.elapsed();
            let lost = world.run(manager.lock("other").timeout(timeout));
            assert!(matches!(lost, Err(LockError::NoQuorum(_))), "{timeout:?}: {lost:?}");
            let took = world.sim.elapsed() - start;
            // C8: the error waits for answers to its undo, as long as the round took or 2 ms.
            let undo = timeout.clamp(2 * MS, 500 * MS);
            assert!(took <= timeout + undo, "{took:?} of {timeout:?}");
        }
    }
}

#[test]
fn a4_a_request_that_waits_forever_outlasts_holders_and_nodes() {
    for world in [World::new(3), World::complete(3)] {
        let manager = world.builder().wait_timeout(SECOND).build().unwrap();
        let guard = world.run(world.manager().lock("r")).unwrap();
        guard.auto_renew();
        let ends = async {
            world.sim.sleep(HOUR).await;
            world.inject(..2, Fault::Dead);
            drop(guard);
            world.sim.sleep(HOUR).await;
            world.heal();
        };
        let waits = manager.lock("r").wait_forever().into_future();
        let (waited, ()) = world.run(join(waits, ends));
        assert!(waited.is_ok_and(|guard| guard.is_valid()));
        assert!(world.sim.elapsed() >= 2 * HOUR);
    }
}

/// The process is stopped between two attempts, until its caller waits no longer.
#[test]
fn a4_no_attempt_is_made_after_the_deadline() {
    let world = World::new(3);
    world.occupy(..);
    let client = Client::new(&world.sim);
    let manager = world.builder().runtime(client.clone()).build().unwrap();
    let mut request = manager.lock("r").timeout(SECOND).into_future();
    assert!(world.sim.block_on_for(&mut request, 1).is_none());
    assert_eq!(world.log.count("acquire"), 3);
    client.pause(10 * SECOND);
    let lost = world.run(request);
    assert!(matches!(lost, Err(LockError::Held(_))), "{lost:?}");
    assert_eq!(world.log.count("acquire"), 3);
}

#[test]
fn a4_a_transient_error_is_waited_for() {
    for reply in ["LOADING x", "READONLY x", "OOM x", "MISCONF x", "CLUSTERDOWN x", "ERR else"] {
        // A replica that stays one for a second is permanent.
        let (lasts, most) = match reply {
            "READONLY x" => (900 * MS, 2 * SECOND),
            _ => (2 * SECOND, 3 * SECOND),
        };
        for world in World::kinds(3) {
            world.inject(.., failing(reply));
            let nodes = world.nodes.clone();
            world.later(lasts, move || nodes.iter().for_each(MemoryNode::heal));
            assert!(world.run(world.manager().lock("r")).is_ok(), "{reply}");
            let elapsed = world.sim.elapsed();
            assert!(elapsed <= most, "{reply}: {elapsed:?}");
        }
    }
}

/// After a round that the deadline cut short, the error is that of the round before: a refusal says more than silence.
#[test]
fn a4_a_deadline_in_mid_round_does_not_hide_who_held_it() {
    for (world, timeout) in
        World::KINDS.into_iter().flat_map(|new| (50..900).step_by(7).map(move |time| (new, time)))
    {
        let world = world(3);
        world.occupy(..);
        world.inject(.., Fault::Slow(100 * MS));
        let lost = world.run(world.manager().lock("r").timeout(timeout * MS)).unwrap_err();
        assert_eq!(lost.is_held(), timeout >= 100, "{timeout}: {lost}");
        let elapsed = world.sim.elapsed();
        // And the answers to the undo (C8).
        assert!(elapsed >= timeout.min(100) * MS && elapsed <= (timeout + 100) * MS, "{elapsed:?}");
    }
}

/// Others wait, so the first thing that is sent is the question to the gate.
#[test]
fn a4_without_a_round_a_lock_is_held_only_if_the_gate_has_said_so() {
    let requests: [fn(&LockManager) -> LockRequest; 2] =
        [|locks| locks.lock("r"), |locks| locks.lock_any(["r", "s"])];
    for (request, gate_hangs) in requests.into_iter().flat_map(|it| [(it, false), (it, true)]) {
        let (scene, [first, second]) = Scene::new(5).and_processes();
        // A process that locks it again and again asks the gate behind its releases.
        let guard = scene.run(request(&first.locks)).unwrap();
        scene.run(guard.release()).unwrap();
        scene.advance(300 * MS);
        let guard = scene.run(request(&first.locks)).unwrap();
        let _others = ["r", "s"].map(|name| scene.run(second.lock(name).no_wait()));
        let next = request(&second.locks).timeout(HOUR).into_future();
        second.spawn(async move { std::mem::forget(next.await) });
        scene.advance(500 * MS);
        let gate = scene.gate("r");
        scene.run(guard.release()).unwrap();
        scene.advance(300 * MS);
        if gate_hangs {
            scene.nodes[gate].inject(Fault::Hung);
        }
        scene.forget_sent();
        let failed = scene.run(request(&first.locks).timeout(250 * MS)).unwrap_err();
        assert_eq!(scene.count(Operation::Acquire), 0, "no node was asked to vote");
        assert_eq!(failed.is_held(), !gate_hangs, "{failed}");
        assert_eq!(matches!(failed, LockError::NoQuorum(_)), gate_hangs, "{failed}");
        let nodes = failed.failure().unwrap().nodes();
        let is_unasked = |node: &NodeAnswer| matches!(node.answer, Answer::NotAsked);
        assert!(nodes.len() == 5 && nodes.iter().all(is_unasked), "{failed}");
    }
}

/// Two of three nodes do not answer a release. No client holds the lock any more.
/// Rules Q4, A4.
#[test]
fn unreachable_nodes_are_never_reported_as_held() {
    for fault in [Fault::Hung, Fault::Down, failing("LOADING")] {
        for timeout in [1, 100, 299, 301, 499, 500, 501, 900].map(|millis| millis * MS) {
            for (world, manager) in World::kinds(3).map(World::and_manager) {
                let guard = world.lock(&manager);
                world.catch_up();
                world.inject(..2, fault.clone());
                let released = world.run(guard.release());
                assert!(matches!(released, Err(ReleaseError::Unconfirmed(_))), "{released:?}");
                let failure = failure_of(world.run(manager.lock("r").timeout(timeout)));
                let named = |name: &str| failure.nodes().iter().any(|node| *node.name == *name);
                let is_named = ["memory-1", "memory-2"].into_iter().all(named);
                assert!(is_named, "{fault:?}, {timeout:?}: {failure}");
            }
        }
    }
}

/// Another process has the lock, and one of three nodes is silent.
#[test]
fn held_is_never_told_as_no_quorum() {
    for timeout in [3, 20, 100, 499, 500, 501, 700, 1_500] {
        for silent in 0..3 {
            let (scene, [holder, waiter]) = Scene::new(3).and_processes();
            scene.nodes[silent].inject(Fault::Hung);
            let _held = scene.run(holder.lock("r").ttl(HOUR)).unwrap();
            let requests = (0..5).map(|_| waiter.locks.lock("r").timeout(timeout * MS));
            let errors = scene.run(join_all(requests.map(IntoFuture::into_future)));
            let refused = scene.run(waiter.locks.lock("r").no_wait());
            for error in errors.into_iter().chain([refused]).map(Result::unwrap_err) {
                assert!(error.is_held(), "node {silent} is silent, {timeout} ms: {error}");
            }
        }
    }
    // A guard or an earlier task of this manager is in the way, also without any time.
    let (world, manager) = World::complete(3).and_manager();
    let _guard = world.run(manager.lock("r").ttl(HOUR)).unwrap();
    for timeout in [Duration::ZERO, MS] {
        let error = world.run(manager.lock("r").timeout(timeout)).unwrap_err();
        assert!(error.is_held(), "{error}");
    }
}

/// Whatever libraries a service wraps its errors with.
#[test]
fn the_loss_of_a_lock_is_found_through_anyhow_and_eyre() {
    let stopped = || {
        let world = World::new(3);
        let stopped = world.run(world.manager().with("customer:7", async |_| {
            world.nodes.iter().for_each(MemoryNode::restart);
        }));
        stopped.unwrap_err()
    };
    let anyhow = anyhow::Error::from(stopped()).context("customer 7").context("the import failed");
    let eyre = eyre::Report::from(stopped()).wrap_err("customer 7").wrap_err("the import failed");
    let found = [quorate_core::lost(&*anyhow), quorate_core::lost(&*eyre)];
    for end in found {
        assert!(matches!(end, Some(LeaseEnd::NotHeld(_))), "{end:?}");
        assert_eq!(end.unwrap().names()[0].to_string(), "customer:7");
    }
    let other = anyhow::Error::from(LockError::from(Closed)).context("the import failed");
    assert!(quorate_core::lost(&*other).is_none());
}
