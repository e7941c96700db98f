//! A look at a lock: its report, and that it takes and writes nothing.

use std::time::Duration;

use futures_util::FutureExt;
use quorate_core::{
    BackendErrorKind,
    operators::{Inspection, KeyState, LockState, Problem},
};
use quorate_memory::{Fault, MemoryNode, Value};

use crate::world::{MS, SECOND, World, failing};

fn look(world: &World, name: &str) -> Inspection {
    world.run(world.manager().inspect(name)).unwrap()
}

/// The state, the nodes that keep the leading holder's key, and the time left.
fn told(seen: &Inspection) -> (LockState, usize, Option<Duration>) {
    (seen.state(), seen.nodes_held(), seen.time_left())
}

fn assert_told(world: &World, state: LockState, held: usize, left: Option<Duration>) {
    assert_eq!(told(&look(world, "r")), (state, held, left));
}

fn views(seen: &Inspection) -> Vec<&KeyState> {
    seen.nodes().iter().map(|node| &node.state).collect()
}

fn put(nodes: &[MemoryNode], value: &[u8]) {
    nodes.iter().for_each(|node| node.put("r", Value::String(value.to_vec())));
}

#[test]
fn nodes_that_hang_cost_one_node_timeout_however_many() {
    for hung in 1..=5 {
        for fault in [Fault::Hung, Fault::Slow(3600 * SECOND), Fault::Late(3600 * SECOND)] {
            let (world, _guard) = World::new(5).held();
            world.inject(..hung, fault.clone());
            let start = world.sim.elapsed();
            let seen = look(&world, "r");
            assert_eq!(world.sim.elapsed() - start, 500 * MS, "{hung} of 5: {fault:?}");
            let is_silent = |view: &&&KeyState| view.to_string() == "no reply within 500.0ms";
            assert_eq!(views(&seen).iter().filter(is_silent).count(), hung);
            // The answers that were there at once have aged meanwhile.
            let left = (hung <= 2).then_some(9_500 * MS);
            assert_eq!(seen.time_left(), left, "{hung} of 5: {fault:?}");
            // A check of all nodes costs no more.
            let seen = world.run(world.manager().check());
            assert_eq!(world.sim.elapsed() - start, 1_000 * MS, "{hung} of 5: {fault:?}");
            let is_silent = |(_, problem): &(_, &Problem)| matches!(problem, Problem::Failed(e) if e.kind() == BackendErrorKind::TimedOut);
            assert_eq!(seen.problems().filter(is_silent).count(), hung);
            assert_eq!(seen.has_quorum(), hung <= 2);
        }
    }
    let world = World::new(3);
    world.inject(..1, Fault::Hung);
    let manager = world.builder().node_timeout(70 * MS).build().unwrap();
    world.run(manager.inspect("r")).unwrap();
    assert_eq!(world.sim.elapsed(), 70 * MS, "the node timeout is the manager's");
}

#[test]
fn a_value_that_is_no_lock_is_neither_held_nor_free() {
    let world = World::new(3);
    world.nodes.iter().for_each(|node| node.put("r", Value::List));
    assert_told(&world, LockState::Unclear, 0, None);
    let seen = look(&world, "r");
    let is_told = |view: &&KeyState| matches!(view, KeyState::Failed(e) if e.kind() == BackendErrorKind::WrongType);
    assert!(views(&seen).iter().all(is_told), "{seen}");
    // A key of another program without a ttl is held for good.
    put(&world.nodes, b"another program's");
    let seen = look(&world, "r");
    assert_eq!(told(&seen), (LockState::Held, 3, None));
    assert_eq!(seen.to_string(), "held on 3 of 3 nodes, 2 needed, without a ttl");
    for reply in ["NOAUTH Authentication required.", "LOADING", "NOPERM"] {
        world.inject(.., failing(reply));
        assert_told(&world, LockState::Unclear, 0, None);
    }
}

/// Nor does one that is dropped leave anything behind.
#[test]
fn an_inspection_acquires_nothing_and_writes_nothing() {
    let (world, manager) = World::new(5).and_manager();
    let _guard = world.run(manager.lock(["r", "s"])).unwrap();
    put(&world.nodes[3..], b"another program's");
    world.nodes[4].put("s", Value::List);
    let stored = || -> Vec<_> {
        let of_node = |node: &MemoryNode| {
            let kept = |key: Vec<u8>| (node.get(&key), node.time_left(&key), key);
            node.keys().into_iter().map(kept).collect::<Vec<_>>()
        };
        world.nodes.iter().map(of_node).collect()
    };
    let (before, calls) = (stored(), world.log.calls());
    for name in ["r", "s", "nobody's"] {
        look(&world, name);
    }
    world.inject(.., Fault::Late(100 * MS));
    let other = world.manager();
    assert!(Box::pin(other.inspect("r")).now_or_never().is_none());
    assert!(world.run(other.close(Duration::ZERO)).is_clean(), "nothing is left to do");
    assert_eq!(stored(), before);
    assert_eq!(world.log.calls(), calls, "no node was asked for a vote");
}
