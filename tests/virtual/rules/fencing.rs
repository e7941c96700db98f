//! Fencing tokens: unique, rising with every later holder, whatever happens on the way.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorate_core::backend::{AcquireOptions, Claim, FenceHint, Reply, Vote};
use quorate_core::error::{Answer, InvalidRequest, QuorumFailure};
use quorate_core::resource::{Key, Resource, Token};
use quorate_core::{
    BackendErrorKind, DetachedLock, FencedCell, FencingToken, LockBackend, LockError, LockGuard,
    LockManager, Runtime,
};
use quorate_memory::{Effect, Fault, MemoryNode, Operation, Rule, Sim, Value};

use crate::world::{MS, Paused, SECOND, World};

mod numbers;
mod raising;
mod several;
mod storms;
mod unable;

const HOUR: u64 = 3_600_000_000;

fn key(name: &str) -> Key {
    Key::new(b"", &Resource::new(name).unwrap())
}

/// The key of the number of `key`, by FNV-1a, as every version has it.
fn counter(key: &Key) -> String {
    let mix = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    let hash = key.as_bytes().iter().fold(0x811c_9dc5, mix);
    format!("quorate:fence:{}", (hash ^ (hash >> 16)) % 1024)
}

fn number(node: &MemoryNode, name: &str) -> Option<u64> {
    match node.get(counter(&key(name)))? {
        Value::String(digits) => String::from_utf8(digits).unwrap().parse().ok(),
        other => panic!("{other:?}"),
    }
}

fn put(node: &MemoryNode, name: &str, text: &str) {
    node.put(counter(&key(name)), Value::String(text.into()));
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
    world.builder().fencing_hint(|| 0).build().unwrap()
}

fn lock(world: &World, manager: &LockManager) -> LockGuard {
    world.sim.block_on(manager.lock("r").fenced()).unwrap()
}

fn token(guard: &LockGuard) -> u64 {
    guard.fencing_token().unwrap().get()
}

fn lock_keys_left(world: &World) -> usize {
    let keys = world.nodes.iter().flat_map(MemoryNode::keys);
    keys.filter(|key| !key.starts_with(b"quorate:fence:")).count()
}

fn count(world: &World, operation: &str) -> usize {
    world.log.operations().iter().filter(|done| **done == operation).count()
}

fn claim(names: &[&str], holder: u8) -> Claim {
    let token = Token::draw(|bytes| {
        bytes.fill(holder);
        Ok(())
    });
    let keys: Vec<Key> = names.iter().map(|name| key(name)).collect();
    Claim::new(keys, token.unwrap(), (10 * SECOND).try_into().unwrap())
}

/// Acquires on one node.
fn acquire(world: &World, node: &MemoryNode, claim: &Claim, hint: FenceHint) -> Reply {
    let mut options = AcquireOptions::default();
    options.fencing = Some(hint);
    let mut reply = world.sim.block_on(node.acquire(claim, options)).unwrap();
    reply.server = None;
    reply
}

fn granted(number: u64) -> Reply {
    let mut acquired = Reply::new(Vote::Granted);
    acquired.number = FencingToken::new(number);
    acquired
}

fn failure_of<T: Debug>(failed: Result<T, LockError>) -> QuorumFailure {
    match failed {
        Err(LockError::NoQuorum(failure)) => failure,
        other => panic!("{other:?}"),
    }
}

#[test]
fn nodes_that_agree_give_a_token_in_one_round_trip() {
    for nodes in 1..=7 {
        let world = World::new(nodes);
        world.inject(.., Fault::Slow(10 * MS));
        let manager = world.manager();
        let mut last = 0;
        for round in 1..=3 {
            let start = world.sim.elapsed();
            let guard = lock(&world, &manager);
            assert_eq!(world.sim.elapsed() - start, 10 * MS, "one way, and instant answers");
            assert!(token(&guard) > last);
            last = token(&guard);
            world.sim.settle_and_release(guard);
            assert_eq!(count(&world, "fenced acquire"), round * nodes);
            assert_eq!(count(&world, "fenced release"), round * nodes);
        }
        assert_eq!(world.log.operations().len(), 6 * nodes, "and nothing else");
        assert_eq!(lock_keys_left(&world), 0);
    }
}

#[test]
fn nodes_that_differ_are_raised_to_the_highest_in_one_more() {
    for hints in [false, true] {
        let world = World::new(5);
        let manager = if hints { world.manager() } else { counting(&world) };
        let base = if hints { 3_000_000_000_000_000 } else { 0 };
        stand_at(&world, &[base + 5, base + 9, base + 1, base + 9, base + 9]);
        world.inject(..3, Fault::Slow(10 * MS));
        world.inject(3.., Fault::Slow(40 * MS));
        let before = world.sim.now();
        let guard = lock(&world, &manager);
        assert_eq!(token(&guard), base + 10);
        assert_eq!(world.sim.elapsed(), 20 * MS);
        assert_eq!(count(&world, "raise"), 2, "a node that gave the highest has voted");
        assert_eq!(guard.valid_until(), before + 9398 * MS, "counted from the first round trip");
        world.sim.settle_and_release(guard);
        assert_eq!(numbers(&world), [Some(base + 10); 5]);
        // They agree from now on.
        let raised = count(&world, "raise");
        assert_eq!(token(&lock(&world, &manager)), base + 11);
        assert_eq!(count(&world, "raise"), raised);
    }
}

#[test]
fn without_asking_there_is_no_token_and_nothing_is_stored_for_one() {
    let (world, guard) = World::new(3).held();
    assert_eq!(guard.fencing_token(), None);
    assert_eq!(guard.lease().fencing_token(), None);
    world.catch_up();
    assert_eq!(world.keys_left(), 3);
    world.sim.settle_and_release(guard);
    assert_eq!(world.log.operations(), [["acquire"; 3], ["release"; 3]].concat());
    assert_eq!(world.keys_left(), 0);
}

#[test]
fn holders_with_and_without_a_token_exclude_each_other() {
    let world = World::new(3);
    let (one, other) = (world.manager(), world.manager());
    let plain = world.sim.block_on(one.lock("r")).unwrap();
    let refused = world.sim.block_on(other.lock("r").no_wait().fenced());
    assert!(matches!(refused, Err(LockError::Held(_))), "{refused:?}");
    world.sim.settle_and_release(plain);
    let fenced = world.sim.block_on(one.lock("r").no_wait().fenced()).unwrap();
    let refused = world.sim.block_on(other.lock("r").no_wait());
    assert!(matches!(refused, Err(LockError::Held(_))), "{refused:?}");
    world.sim.settle_and_release(fenced);
    assert_eq!(lock_keys_left(&world), 0);
}

#[test]
fn a_node_that_was_away_costs_one_raise_and_then_agrees_again() {
    let world = World::new(3);
    let manager = counting(&world);
    world.sim.settle_and_release(lock(&world, &manager));
    world.nodes[0].inject(Fault::Down);
    for _ in 0..20 {
        world.sim.settle_and_release(lock(&world, &manager));
    }
    assert_eq!(numbers(&world), [Some(1), Some(21), Some(21)]);
    assert_eq!(count(&world, "raise"), 0);
    world.nodes[0].heal();
    let guard = lock(&world, &manager);
    assert_eq!(token(&guard), 22);
    world.sim.settle_and_release(guard);
    assert_eq!(numbers(&world), [Some(22); 3]);
    let raises = count(&world, "raise");
    assert!(raises <= 1, "{raises}");
    assert_eq!(token(&lock(&world, &manager)), 23);
    assert_eq!(count(&world, "raise"), raises);
}

/// Two of three, so that the one that lags and one that does not are the quorum.
#[test]
fn a_laggard_in_the_quorum_is_raised_before_the_token_is_given() {
    let world = World::new(3);
    let manager = counting(&world);
    stand_at(&world, &[3, 21, 21]);
    world.nodes[2].inject(Fault::Hung);
    let guard = lock(&world, &manager);
    assert_eq!(token(&guard), 22);
    assert_eq!(numbers(&world)[..2], [Some(22); 2], "both have it before the token is given");
    drop(guard);
}

/// A reply after the decision brings a higher number than the token: the release raises the others.
#[test]
fn a_number_that_comes_after_the_decision_is_brought_forward_by_the_release() {
    let world = World::new(3);
    let manager = counting(&world);
    stand_at(&world, &[10, 10, 50]);
    world.nodes[2].inject(Fault::Late(100 * MS));
    let guard = lock(&world, &manager);
    assert_eq!(token(&guard), 11, "decided without the third");
    world.sim.advance(SECOND);
    world.sim.settle_and_release(guard);
    assert_eq!(numbers(&world), [Some(51); 3]);
    assert_eq!(token(&lock(&world, &manager)), 52);
    assert_eq!(count(&world, "raise"), 0);
}

#[test]
fn the_token_stays_through_extensions_and_goes_along_in_a_record() {
    let world = World::new(5);
    let (giver, taker) = (world.manager(), world.manager());
    let guard = lock(&world, &giver);
    let first = guard.fencing_token().unwrap();
    for _ in 0..3 {
        world.sim.advance(3 * SECOND);
        world.sim.block_on(guard.extend()).unwrap();
        assert_eq!(guard.fencing_token(), Some(first));
    }
    let lease = guard.lease();
    let record: DetachedLock = guard.detach().unwrap().encode().parse().unwrap();
    assert!(!lease.is_valid());
    let adopted = world.sim.block_on(taker.adopt(&record)).unwrap();
    assert_eq!(adopted.fencing_token(), Some(first));
    world.sim.block_on(adopted.extend()).unwrap();
    assert_eq!(adopted.fencing_token(), Some(first));
    world.sim.settle_and_release(adopted);
    assert!(lock(&world, &giver).fencing_token().unwrap() > first);
}

#[test]
fn work_under_a_lock_sees_the_token() {
    let world = World::new(3);
    let seen = world
        .sim
        .block_on(world.manager().lock("r").fenced().with(async |lease| lease.fencing_token()));
    assert!(seen.unwrap().is_some());
    let request = world.manager().lock("r").no_wait().fenced();
    let seen = world.sim.block_on(request.with(async |lease| lease.fencing_token()));
    assert!(seen.unwrap().is_some());
}

#[test]
fn a_waiter_of_another_process_gets_a_greater_token() {
    for world in [World::new(5), World::complete(5)] {
        let (one, other) = (world.manager(), world.manager());
        let held = lock(&world, &one);
        let first = token(&held);
        let got: Arc<Mutex<Option<LockGuard>>> = Arc::default();
        let (waits, place) = (other.lock("r").fenced(), Arc::clone(&got));
        world.sim.spawn(Box::pin(async move {
            let guard = waits.await.unwrap();
            *place.lock().unwrap() = Some(guard);
        }));
        world.sim.advance(SECOND);
        assert!(got.lock().unwrap().is_none());
        drop(held);
        world.sim.advance(5 * SECOND);
        let guard = got.lock().unwrap().take().unwrap();
        assert!(token(&guard) > first);
    }
}

/// A holder is paused for longer than its ttl in the middle of its work.
#[test]
fn a_write_of_an_earlier_holder_is_refused() {
    let world = World::new(3);
    let (one, other) = (world.manager(), world.manager());
    let store = FencedCell::new(Vec::new());
    for round in 0..20 {
        let stale = lock(&world, &one);
        assert!(stale.is_valid(), "the last look before the pause");
        world.sim.advance(11 * SECOND);
        let holder = lock(&world, &other);
        store.write(holder.fencing_token().unwrap(), |seen| seen.push(round)).unwrap();
        let late = store.write(stale.fencing_token().unwrap(), |seen| seen.push(999));
        assert_eq!(late.unwrap_err().highest, holder.fencing_token().unwrap());
        world.sim.settle_and_release(holder);
    }
    assert_eq!(store.into_inner(), (0..20).collect::<Vec<_>>());
}

trait Settle {
    /// Releases, and runs what is in the background.
    fn settle_and_release(&self, guard: LockGuard);
}

impl Settle for Sim {
    fn settle_and_release(&self, guard: LockGuard) {
        self.block_on(guard.release()).unwrap();
        self.advance(SECOND);
    }
}
