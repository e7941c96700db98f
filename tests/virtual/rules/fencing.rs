//! Fencing tokens: unique, rising with every later holder, whatever happens on the way.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use quorate_core::backend::FenceHint;
use quorate_core::error::{Answer, InvalidRequest};
use quorate_core::{
    BackendErrorKind, FencingToken, Lease, LockBackend, LockError, LockGuard, LockManager, Runtime,
};
use quorate_memory::{Effect, Fault, MemoryNode, Operation, Rule, Sim, Value};
use quorate_tests::keys::counter;

use crate::backends::Odd;
use crate::world::{Client, MS, SECOND, World, failure_of};

mod numbers;
mod order;

const HOUR: u64 = 3_600_000_000;

fn number(node: &MemoryNode, name: &str) -> Option<u64> {
    match node.get(counter(name))? {
        Value::String(digits) => String::from_utf8(digits).unwrap().parse().ok(),
        other => panic!("{other:?}"),
    }
}

fn put(node: &MemoryNode, name: &str, text: &str) {
    node.put(counter(name), Value::String(text.into()));
}

/// Sets the numbers of "r".
fn stand_at(world: &World, numbers: &[u64]) {
    for (node, number) in world.nodes.iter().zip(numbers) {
        put(node, "r", &number.to_string());
    }
}

fn numbers(world: &World) -> Vec<Option<u64>> {
    world.nodes.iter().map(|node| number(node, "r")).collect()
}

/// A manager whose wall clock stands at 1970, so that numbers are counted one by one.
fn counting(world: &World) -> LockManager {
    hinting(world, 0)
}

fn hinting(world: &World, hint: u64) -> LockManager {
    world.builder().runtime(Client::showing(&world.sim, move || hint)).build().unwrap()
}

/// The lock "r" with a token.
fn lock(world: &World, manager: &LockManager) -> LockGuard {
    world.run(manager.lock("r").fenced()).unwrap()
}

/// Releases, and runs what is in the background.
fn release(world: &World, guard: LockGuard) {
    world.run(guard.release()).unwrap();
    world.advance(SECOND);
}

fn token(guard: &LockGuard) -> u64 {
    guard.fencing_token().unwrap().get()
}

fn lock_keys_left(world: &World) -> usize {
    let keys = world.nodes.iter().flat_map(MemoryNode::keys);
    keys.filter(|key| !key.starts_with(b"quorate:fence:")).count()
}

#[test]
fn nodes_that_agree_give_a_token_in_one_round_trip() {
    for nodes in 1..=7 {
        let (world, manager) = World::new(nodes).and_manager();
        world.inject(.., Fault::Slow(10 * MS));
        let mut last = 0;
        for round in 1..=3 {
            let start = world.sim.elapsed();
            let guard = lock(&world, &manager);
            assert_eq!(world.sim.elapsed() - start, 10 * MS, "one way, and instant answers");
            assert!(token(&guard) > last);
            last = token(&guard);
            release(&world, guard);
            assert_eq!(world.log.count("fenced acquire"), round * nodes);
            assert_eq!(world.log.count("fenced release"), round * nodes);
        }
        assert_eq!(world.log.operations().len(), 6 * nodes, "and nothing else");
        assert_eq!(lock_keys_left(&world), 0);
    }
}

/// In each form of a last call, with the settings of the request. Rule FT1.
#[test]
fn a_fenced_request_gives_its_token_with_the_guard_or_to_the_body() {
    let (world, manager) = World::new(3).and_manager();
    let request = || manager.lock("r").label("web-3").with_token();
    let mut tokens = Vec::new();
    let mut note = |lease: &Lease, token: FencingToken| {
        assert_eq!(lease.fencing_token(), Some(token));
        tokens.push(token);
    };
    let (guard, token) = world.run(request()).unwrap();
    note(&guard.lease(), token);
    assert!(world.run(request().try_now()).unwrap().is_none(), "it is held");
    release(&world, guard);
    let (guard, token) = world.run(request().try_now()).unwrap().unwrap();
    note(&guard.lease(), token);
    release(&world, guard);
    world.run(request().with(async |lease, token| note(&lease, token))).unwrap();
    let leading = request().lead(|lease, token| {
        note(&lease, token);
        ready(7)
    });
    assert_eq!(world.run(leading).unwrap(), Some(7));
    let (permit, token) = world.run(manager.permit("r", 1).with_token()).unwrap();
    assert_eq!(permit.fencing_token(), Some(token));
    drop(permit);
    assert!(tokens.is_sorted_by(|one, next| one < next) && tokens.len() == 4, "{tokens:?}");
    // A period is a name of its own.
    let done = request().once_per(SECOND, async |lease, token| {
        assert_eq!(lease.fencing_token(), Some(token));
        Ok::<_, ()>(())
    });
    assert_eq!(world.run(done).unwrap(), Some(Ok(())));
    let read = manager.read("r").with_token();
    assert!(matches!(world.run(read), Err(LockError::Invalid(_))));
}

#[test]
fn without_asking_there_is_no_token_and_nothing_is_stored_for_one() {
    let (world, guard) = World::new(3).held();
    assert_eq!(guard.fencing_token(), None);
    assert_eq!(guard.lease().fencing_token(), None);
    world.catch_up();
    assert_eq!(world.keys_left(), 3);
    release(&world, guard);
    assert_eq!(world.log.operations(), [["acquire"; 3], ["release"; 3]].concat());
    assert_eq!(world.keys_left(), 0);
}

/// The quorum is one node that lags and one that does not, or the third replies after the decision: the release brings
/// the others forward to the highest number.
#[test]
fn a_laggard_is_raised_before_the_token_is_given_and_by_the_release() {
    for (before, third, given, decided, released) in [
        ([3, 21, 21], Fault::Hung, 22, [Some(22), Some(22), Some(21)], 22),
        ([10, 10, 50], Fault::Late(100 * MS), 11, [Some(11), Some(11), Some(51)], 51),
    ] {
        let world = World::new(3);
        let manager = counting(&world);
        stand_at(&world, &before);
        world.inject(2.., third);
        let guard = lock(&world, &manager);
        assert_eq!(token(&guard), given, "decided without the third");
        assert_eq!(numbers(&world), decided, "both have it before the token is given");
        world.heal();
        world.advance(SECOND);
        let raised = world.log.count("raise");
        release(&world, guard);
        assert_eq!(numbers(&world), [Some(released); 3]);
        assert_eq!(token(&lock(&world, &manager)), released + 1);
        assert_eq!(world.log.count("raise"), raised);
    }
}

#[test]
fn a_node_that_cannot_fence_is_a_typed_error_and_nothing_is_sent() {
    let world = World::new(3);
    let mut nodes: Vec<Arc<dyn LockBackend>> =
        world.spies().into_iter().map(|spy| Arc::new(spy) as _).collect();
    nodes[1] = Arc::new(Odd::new(&world.nodes[1]));
    let manager = LockManager::builder(nodes).runtime(world.sim.clone()).build().unwrap();
    for failed in
        [world.run(manager.lock("r").fenced()), world.run(manager.lock("r").no_wait().fenced())]
    {
        let Err(LockError::Invalid(InvalidRequest::Fencing { node })) = failed else {
            panic!("{failed:?}")
        };
        assert_eq!(node, "node 2");
    }
    assert_eq!(world.log.calls(), []);
    assert_eq!(world.sim.elapsed(), Duration::ZERO);
    assert!(world.run(manager.lock("r")).is_ok());
}
