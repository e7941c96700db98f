//! A look at a lock: what it reports, and that it takes and writes nothing.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::poll_immediate;
use quorate_core::backend::Capabilities;
use quorate_core::{
    BackendErrorKind, Inspection, InvalidResource, KeyState, LockBackend, LockManager, LockState,
};
use quorate_memory::{Effect, Fault, MemoryNode, Operation, Rule, Value};
use quorate_protocol::error_of_reply;

use crate::backends::Odd;
use crate::world::{MS, SECOND, World};

fn look(world: &World, name: &str) -> Inspection {
    world.sim.block_on(world.manager().inspect(name)).unwrap()
}

/// The state, the nodes that keep the leading holder's key, and the time left.
fn told(seen: &Inspection) -> (LockState, usize, Option<Duration>) {
    (seen.state(), seen.nodes_held(), seen.time_left())
}

/// Everything that the nodes keep, and until when.
fn stored(world: &World) -> Vec<(Vec<u8>, Option<Value>, Option<Duration>)> {
    let of_node = |node: &MemoryNode| {
        let keys = node.keys().into_iter();
        let node = node.clone();
        keys.map(move |key| (key.clone(), node.get(&key), node.time_left(&key)))
    };
    world.nodes.iter().flat_map(of_node).collect()
}

fn put(nodes: &[MemoryNode], value: &[u8]) {
    for node in nodes {
        node.put("r", Value::String(value.to_vec()));
    }
}

#[test]
fn a_lock_on_all_nodes_is_held_until_its_ttl_is_over() {
    let world = World::new(5);
    assert_eq!(told(&look(&world, "r")), (LockState::Free, 0, None));
    let guard = world.sim.block_on(world.manager().lock("r")).unwrap();
    assert_eq!(told(&look(&world, "r")), (LockState::Held, 5, Some(10 * SECOND)));
    world.sim.advance(4 * SECOND);
    let seen = look(&world, "r");
    assert_eq!(told(&seen), (LockState::Held, 5, Some(6 * SECOND)));
    assert!(seen.time_left() > Some(guard.remaining()), "the holder has to stop first");
    world.sim.block_on(guard.extend()).unwrap();
    assert_eq!(told(&look(&world, "r")), (LockState::Held, 5, Some(10 * SECOND)));
    world.sim.block_on(guard.release()).unwrap();
    assert_eq!(told(&look(&world, "r")), (LockState::Free, 0, None));
}

#[test]
fn a_lock_on_a_bare_quorum_is_held_and_the_other_nodes_are_shown_with_their_reasons() {
    let world = World::new(5);
    world.nodes[3].inject(Fault::Dead);
    world.nodes[4].inject(Fault::Hung);
    let manager = world.manager();
    let _guard = world.sim.block_on(manager.lock("r")).unwrap();
    let seen = look(&world, "r");
    assert_eq!((seen.state(), seen.nodes_held()), (LockState::Held, 3));
    let views: Vec<_> = seen.nodes().iter().map(|node| &node.state).collect();
    assert!(matches!(
        views[..3],
        [KeyState::Held { .. }, KeyState::Held { .. }, KeyState::Held { .. }]
    ));
    assert!(matches!(views[3], KeyState::Failed(e) if e.kind() == BackendErrorKind::Connection));
    assert!(matches!(views[4], KeyState::NoReply { waited, .. } if *waited == 500 * MS));
    assert_eq!(
        seen.to_string(),
        "held on 3 of 5 nodes, 3 needed, 9.5s left; memory-4: connection refused; \
         memory-5: no reply within 500.0ms"
    );
    // One more, and what the rest say is no quorum's word.
    world.nodes[0].inject(Fault::Down);
    assert_eq!(told(&look(&world, "r")), (LockState::Unclear, 2, None));
}

#[test]
fn the_lock_ends_when_the_quorum_does_not_with_the_first_node_or_the_last() {
    let world = World::new(5);
    let guard = world.sim.block_on(world.manager().lock("r").ttl(10 * SECOND)).unwrap();
    for (node, ahead) in world.nodes.iter().zip([0, 1, 2, 3, 4]) {
        node.jump(ahead * SECOND);
    }
    assert_eq!(told(&look(&world, "r")), (LockState::Held, 5, Some(8 * SECOND)));
    world.sim.advance(8 * SECOND - MS);
    assert_eq!(told(&look(&world, "r")), (LockState::Held, 3, Some(MS)));
    world.sim.advance(MS);
    assert_eq!(told(&look(&world, "r")), (LockState::Free, 2, None));
    drop(guard);
}

#[test]
fn split_votes_are_no_lock_and_not_free() {
    let world = World::new(5);
    put(&world.nodes[..2], b"s3cret of one");
    put(&world.nodes[2..4], b"s3cret of another");
    let seen = look(&world, "r");
    assert_eq!(told(&seen), (LockState::Unclear, 2, None));
    let holders: Vec<_> = seen
        .nodes()
        .iter()
        .filter_map(|node| match &node.state {
            KeyState::Held { holder, .. } => Some(holder),
            _ => None,
        })
        .collect();
    assert!(holders[0] == holders[1] && holders[2] == holders[3], "who shares a holder is told");
    assert!(holders[1] != holders[2], "and who does not");
    let printed = format!("{seen} {seen:?}");
    assert!(!printed.contains("s3cret"), "{printed}");
    assert!(printed.contains("memory-4: holder 2, without a ttl; memory-5: free"), "{printed}");

    // What a lost round has left on a minority does not make it held, nor keep others out.
    world.nodes[2].expire("r");
    world.nodes[3].expire("r");
    assert_eq!(told(&look(&world, "r")), (LockState::Free, 2, None));
    let locked = world.sim.block_on(world.manager().lock("r").no_wait());
    assert!(locked.is_ok(), "it was told to be free: {locked:?}");
}

#[test]
fn nodes_that_hang_cost_one_node_timeout_however_many() {
    for hung in 1..=5 {
        for fault in [Fault::Hung, Fault::Slow(3600 * SECOND), Fault::Late(3600 * SECOND)] {
            let (world, guard) = World::new(5).held();
            world.inject(..hung, fault.clone());
            let start = world.sim.elapsed();
            let seen = look(&world, "r");
            assert_eq!(world.sim.elapsed() - start, 500 * MS, "{hung} of 5: {fault:?}");
            let silent =
                seen.nodes().iter().filter(|node| matches!(node.state, KeyState::NoReply { .. }));
            assert_eq!(silent.count(), hung);
            // The answers that were there at once have aged meanwhile.
            let left = (hung <= 2).then_some(9_500 * MS);
            assert_eq!(seen.time_left(), left, "{hung} of 5: {fault:?}");
            drop(guard);
        }
    }
    let world = World::new(3);
    world.nodes[0].inject(Fault::Hung);
    let manager = world.builder().node_timeout(70 * MS).build().unwrap();
    world.sim.block_on(manager.inspect("r")).unwrap();
    assert_eq!(world.sim.elapsed(), 70 * MS, "the node timeout is the manager's");
}

#[test]
fn a_key_of_another_program_without_a_ttl_is_held_for_good() {
    let world = World::new(3);
    put(&world.nodes, b"another program's");
    let seen = look(&world, "r");
    assert_eq!(told(&seen), (LockState::Held, 3, None));
    assert_eq!(seen.to_string(), "held on 3 of 3 nodes, 2 needed, without a ttl");
}

#[test]
fn q4_a_value_that_is_no_lock_is_neither_held_nor_free() {
    let world = World::new(3);
    world.nodes.iter().for_each(|node| node.put("r", Value::List));
    let seen = look(&world, "r");
    assert_eq!(told(&seen), (LockState::Unclear, 0, None));
    for node in seen.nodes() {
        let KeyState::Failed(error) = &node.state else { panic!("{seen}") };
        assert_eq!(error.kind(), BackendErrorKind::WrongType);
    }
    for reply in ["NOAUTH Authentication required.", "LOADING", "NOPERM"] {
        let world = World::new(3);
        world.inject(.., Fault::Failing(error_of_reply(reply)));
        assert_eq!(told(&look(&world, "r")), (LockState::Unclear, 0, None), "{reply}");
    }
}

#[test]
fn an_inspection_acquires_nothing_and_writes_nothing() {
    let world = World::new(5);
    let manager = world.manager();
    let _guard = world.sim.block_on(manager.lock(["r", "s"])).unwrap();
    put(&world.nodes[3..], b"another program's");
    world.nodes[4].put("s", Value::List);
    let (before, calls) = (stored(&world), world.log.calls());
    for name in ["r", "s", "nobody's"] {
        look(&world, name);
    }
    assert_eq!(stored(&world), before);
    assert_eq!(world.log.calls(), calls, "no node was asked for a vote");
}

#[test]
fn c5_an_inspection_that_is_dropped_leaves_nothing_behind() {
    let world = World::new(3);
    world.inject(.., Fault::Late(100 * MS));
    let manager = world.manager();
    world.sim.block_on(async {
        assert!(poll_immediate(pin!(manager.inspect("r"))).await.is_none());
    });
    assert!(world.sim.block_on(manager.close(Duration::ZERO)).is_clean(), "nothing is left to do");
    world.sim.advance(SECOND);
    assert_eq!(world.keys_left(), 0);
}

#[test]
fn the_prefix_applies_and_several_resources_are_inspected_name_by_name() {
    let world = World::new(3);
    let manager = world.builder().key_prefix("app:").build().unwrap();
    let _guard = world.sim.block_on(manager.lock(["r", "s"])).unwrap();
    for (name, state) in [("r", LockState::Held), ("s", LockState::Held), ("t", LockState::Free)] {
        assert_eq!(world.sim.block_on(manager.inspect(name)).unwrap().state(), state, "{name}");
    }
    assert_eq!(look(&world, "r").state(), LockState::Free, "without the prefix it is another");
    assert_eq!(look(&world, "app:r").state(), LockState::Held);
}

#[test]
fn a_name_that_cannot_be_locked_cannot_be_inspected() {
    let world = World::new(3);
    let refused = world.sim.block_on(world.manager().inspect("")).unwrap_err();
    assert_eq!(refused, InvalidResource::Empty);
}

#[test]
fn a_lost_call_is_a_silent_node_and_a_broken_connection_a_failed_one() {
    let world = World::new(3);
    let _guard = world.sim.block_on(world.manager().lock("r")).unwrap();
    world.nodes[0].add_rule(Rule::new(Effect::DropReply).on(Operation::Inspect));
    world.nodes[1].add_rule(Rule::new(Effect::Cut).on(Operation::Inspect));
    world.nodes[2].add_rule(Rule::new(Effect::Duplicate(MS)).on(Operation::Inspect));
    let seen = look(&world, "r");
    let views: Vec<_> = seen.nodes().iter().map(|node| &node.state).collect();
    assert!(
        matches!(views[..], [KeyState::NoReply { .. }, KeyState::Failed(_), KeyState::Held { .. }]),
        "{seen:?}"
    );
}

#[test]
fn a_backend_that_cannot_inspect_or_panics_affects_no_other() {
    let world = World::new(5);
    let cannot = Odd::new(&world.nodes[0]);
    let panics = Odd::new(&world.nodes[1]).able(Capabilities::INSPECT);
    let panics = panics.noting(|method| assert!(method != "inspect", "on purpose"));
    let mut nodes: Vec<Arc<dyn LockBackend>> = vec![Arc::new(cannot), Arc::new(panics)];
    nodes.extend(world.nodes[2..].iter().map(|node| Arc::new(node.clone()) as _));
    let manager = LockManager::builder(nodes).runtime(world.sim.clone()).build().unwrap();
    let _guard = world.sim.block_on(manager.lock("r")).unwrap();
    let seen = world.sim.block_on(manager.inspect("r")).unwrap();
    assert_eq!((seen.state(), seen.nodes_held()), (LockState::Held, 3));
    assert_eq!(
        seen.to_string(),
        "held on 3 of 5 nodes, 3 needed, 10.0s left; node 1: this node cannot be inspected; \
         node 2: the backend panicked"
    );
}
