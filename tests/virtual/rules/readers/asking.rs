//! The gate says with its vote whether a writer waits: while that is awaited, and when it comes.

use std::future::IntoFuture;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures_util::future::select;
use quorate_core::backend::Operation as Asks;
use quorate_core::{LockRequest, Runtime};
use quorate_memory::Operation;
use quorate_protocol::error_of_reply;

use super::is_held;
use crate::backends::{Begins, begin};
use crate::waiting::processes::{ROUND_TRIP, Scene};
use crate::world::{MS, SECOND, World, slow};

/// When the round is won, and the answer of the gate is still awaited.
const ASKING: Duration = Duration::from_micros(600);

/// The node that is the gate, whether somebody waits or not.
pub(super) fn gate(scene: &Scene) -> usize {
    let [holder, waiter] = [(); 2].map(|()| scene.process());
    let held = scene.run(holder.lock("r")).unwrap();
    let _held = waiter.hold_once("r", MS);
    scene.advance(100 * MS);
    let gate = scene.gate("r");
    drop(held);
    scene.advance(20 * SECOND);
    assert_eq!(scene.keys(), [""; 0]);
    gate
}

/// A request of a reader that has won its round, and awaits the gate.
fn asking(scene: &Scene) -> <LockRequest as IntoFuture>::IntoFuture {
    scene.nodes[gate(scene)].add_rule(slow(MS).on(Operation::Acquire));
    let reader = scene.process();
    let mut request = reader.locks.read("r").no_wait().into_future();
    scene.run(select(&mut request, reader.client.sleep(ASKING)));
    assert!(!scene.keys().is_empty(), "the round is won");
    request
}

/// Rule C5.
#[test]
fn a_reader_that_is_dropped_while_it_awaits_the_gate_leaves_no_key() {
    let scene = Scene::new(3);
    drop(asking(&scene));
    scene.advance(10 * MS);
    assert_eq!(scene.keys(), [""; 0]);
}

/// The request is not polled until the lease is over.
/// Rule T2.
#[test]
fn a_win_that_expired_while_the_gate_was_awaited_is_none() {
    let scene = Scene::new(3);
    let request = asking(&scene);
    scene.advance(20 * SECOND);
    let error = scene.run(request).unwrap_err();
    assert!(!error.is_held(), "{error}");
}

/// The gate answers before the round is lost. The next reader of the process waits before its first attempt.
/// Rule RW1.
#[test]
fn an_answer_that_is_there_when_the_round_is_lost_is_not_thrown_away() {
    let (scene, _held, [_, writer, reader]) = Scene::new(3).held();
    let _waiting = writer.hold_once("r", 50 * MS);
    scene.advance(5 * MS);
    let others = (1..3).map(|place| &scene.nodes[(scene.gate("r") + place) % 3]);
    others.for_each(|node| node.add_rule(slow(MS / 10).client(&reader.client)));
    // In its first round, a process learns which node is the gate.
    for _ in 0..2 {
        assert!(is_held(scene.run(reader.locks.read("r").no_wait())));
    }
    scene.forget_sent();
    let waits = |request: LockRequest| request.timeout(10 * MS);
    assert!(is_held(scene.run(waits(reader.locks.read("r")))));
    let sent = scene.sent();
    let first = sent.iter().find(|sent| sent.process == Some(reader.client.id()));
    assert_eq!(first.map(|sent| sent.operation), Some(Operation::Queue));
}

/// The round is won just before the deadline, and no gate answers.
/// Rule RW1.
#[test]
fn the_gate_is_awaited_for_no_longer_than_a_round_behind_the_deadline() {
    for is_new in [true, false] {
        let scene = Scene::new(3);
        let (gate, reader) = (gate(&scene), scene.process());
        let way = 20 * MS;
        scene.add_rule(.., slow(way));
        if is_new {
            // It knows no gate yet when the round is won.
            scene.add_rule(.., slow(10 * SECOND).on(Operation::ServerId));
        } else {
            drop(scene.run(reader.locks.read("r")).unwrap());
            scene.advance(SECOND);
        }
        scene.nodes[gate].add_rule(slow(10 * SECOND).on(Operation::Acquire));
        let (start, took) = (reader.client.now(), 2 * way + ROUND_TRIP);
        let timeout = took + MS;
        let guard = scene.run(reader.locks.read("r").timeout(timeout)).unwrap();
        let waited = reader.client.now() - start;
        assert!(waited >= 2 * took, "a gate was awaited: {waited:?}");
        assert!(waited <= timeout + took, "{waited:?}");
        drop(guard);
    }
}

/// The gate says behind the deadline that a writer waits, and no node answers the undo.
/// Rule C8.
#[test]
fn the_gate_and_the_undo_are_awaited_for_no_longer_than_a_round_behind_the_deadline() {
    let (scene, [holder, writer, reader]) = Scene::new(3).and_processes();
    let _reading = scene.run(holder.locks.read("r").ttl(60 * SECOND)).unwrap();
    let _waiting = writer.hold_once("r", 50 * MS);
    scene.advance(5 * MS);
    // It learns which node is the gate, and forgets what that has said.
    assert!(is_held(scene.run(reader.locks.read("r").no_wait())));
    scene.advance(2 * SECOND);
    let (gate, way) = (scene.gate("r"), 20 * MS);
    for (place, node) in scene.nodes.iter().enumerate() {
        let by = if place == gate { 2 * way } else { way };
        node.add_rule(slow(by).on(Operation::Acquire).client(&reader.client));
        node.add_rule(slow(10 * SECOND).on(Operation::Release).client(&reader.client));
    }
    let (start, took) = (reader.client.now(), 2 * way + ROUND_TRIP);
    let timeout = took + MS;
    assert!(is_held(scene.run(reader.locks.read("r").timeout(timeout))));
    let waited = reader.client.now() - start;
    assert!(waited >= 4 * way, "the gate was awaited: {waited:?}");
    assert!(waited <= timeout + took, "{waited:?}");
}

/// The user may not look into the queue: a node refuses the acquire that asks, and learns it.
/// Rule RW1.
#[test]
fn a_reader_that_may_not_ask_reads() {
    for nodes in [1, 3] {
        let world = World::complete(nodes);
        let nodes = world.nodes.iter().map(|node| {
            let may_ask = AtomicBool::new(true);
            Begins::new(node, move |node, call, runtime| match call.operation() {
                Asks::Acquire(_, options) if options.asks && may_ask.swap(false, Relaxed) => {
                    Err(call.not_sent(error_of_reply("NOPERM this user has no permissions")))
                }
                _ => begin(node, call, runtime),
            })
        });
        let manager = world.over(nodes.collect::<Vec<_>>());
        assert!(world.run(manager.read("r").no_wait()).unwrap().is_valid());
    }
}
