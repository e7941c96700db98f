//! Taking a lock away: a revoke is safe and late, a delete is early and its holder does not know.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use quorate_core::error::LeaseEnd;
use quorate_core::{
    BackendErrorKind, ExtendError, InvalidResource, LockGuard, LockManager, RestartGuard, Runtime,
    operators::{KeyState, LockState, Revocation},
};
use quorate_memory::{Effect, Fault, MemoryNode, Operation, Rule, Value};

use crate::waiting::processes::{REFRESH, ROUND_TRIP, SECOND_LOOK, Scene};
use crate::world::{MS, SECOND, World, slow, spawned};

mod asked;
mod seen;
mod told;

/// Takes a lock away: at once, or at the end of its ttl.
async fn take(locks: LockManager, name: &str, deletes: bool) -> Revocation {
    if deletes { locks.delete(name).await } else { locks.revoke(name).await }.unwrap()
}

fn revoke(world: &World, name: &str) -> Revocation {
    world.run(take(world.manager(), name, false))
}

/// No revoke reaches this node.
fn cut_off(node: &MemoryNode) {
    node.add_rule(Rule::new(Effect::DropRequest).on(Operation::Revoke));
}

fn is_lost<T>(extended: &Result<T, ExtendError>) -> bool {
    matches!(extended, Err(ExtendError::Lost(LeaseEnd::Revoked { .. } | LeaseEnd::NotHeld(_))))
}

fn values(world: &World) -> Vec<Option<Value>> {
    world.nodes.iter().map(|node| node.get("r")).collect()
}

fn times_left(world: &World) -> Vec<Option<Duration>> {
    world.nodes.iter().map(|node| node.time_left("r")).collect()
}

/// All that the nodes keep, but for the key "r".
fn beside_the_lock(world: &World) -> Vec<(Vec<u8>, Option<Value>, Option<Duration>)> {
    let of_node = |node: &MemoryNode| {
        let keys = node.keys().into_iter().filter(|key| key != b"r");
        let node = node.clone();
        keys.map(move |key| (key.clone(), node.get(&key), node.time_left(&key)))
    };
    world.nodes.iter().flat_map(of_node).collect()
}

#[test]
fn v1_a_revoke_neither_shortens_nor_lengthens() {
    let world = World::new(5);
    let _record = world.detached();
    world.advance(Duration::from_micros(3_300_700));
    for (node, ahead) in world.nodes.iter().zip([0, 1, 2, 3, 4]) {
        node.jump(ahead * SECOND);
    }
    let (before, tokens) = (times_left(&world), values(&world));
    for _ in 0..3 {
        let revocation = revoke(&world, "r");
        assert_eq!(times_left(&world), before);
        assert!(values(&world).iter().zip(&tokens).all(|(now, then)| now != then));
        assert!(revocation.is_effective());
        assert_eq!(Some(revocation.free_in()), before[0], "it is that of the last node");
    }
    world.advance(before[0].unwrap() - Duration::from_nanos(1));
    assert_eq!(world.holders("r"), 1);
    world.advance(Duration::from_nanos(1));
    assert_eq!(world.holders("r"), 0);
}

/// Each set of nodes that a revoke can reach, of up to five.
#[test]
fn v2_after_an_effective_revoke_no_extension_wins_a_quorum() {
    for (count, reached) in (1..=5_usize).flat_map(|n| (0..1_u32 << n).map(move |set| (n, set))) {
        let (world, guard) = World::new(count).held();
        let far = (0..count).filter(|at| reached & 1 << at == 0);
        far.for_each(|at| cut_off(&world.nodes[at]));
        world.advance(SECOND);
        let revocation = revoke(&world, "r");
        let is_effective = count - (reached.count_ones() as usize) < count / 2 + 1;
        let story = format!("{reached:b} of {count}: {revocation}");
        assert_eq!(revocation.is_effective(), is_effective, "{story}");
        let extended = world.run(guard.extend());
        assert_eq!(is_lost(&extended), is_effective, "{story}: {extended:?}");
        assert_eq!(extended.is_err(), is_effective, "{story}: {extended:?}");
        assert!(guard.is_valid(), "until its end: {story}");
    }
}

/// After a round that it won, the holder sets the key again on a node that has lost it, and on no other.
#[test]
fn v2_a_repair_leaves_a_revoked_key_alone() {
    let (world, guard) = World::new(3).held();
    world.nodes[1..].iter().for_each(cut_off);
    world.advance(SECOND);
    assert!(!revoke(&world, "r").is_effective());
    let (revoked, left) = (world.nodes[0].get("r"), world.nodes[0].time_left("r"));
    for _ in 0..3 {
        world.run(guard.extend()).unwrap();
        world.catch_up();
    }
    assert_eq!((world.nodes[0].get("r"), world.nodes[0].time_left("r")), (revoked, left));
    // One more node, and the holder has none to spare.
    world.nodes[1].clear_rules();
    assert!(revoke(&world, "r").is_effective());
    world.run(guard.extend()).unwrap_err();
}

/// A repair that is in flight during the revoke does not bring the quorum back.
#[test]
fn v2_a_repair_in_flight_wins_no_quorum() {
    let (world, guard) = World::in_order(3).held();
    world.nodes[2].expire("r");
    world.add_rule(2.., slow(100 * MS));
    world.run(guard.extend()).unwrap();
    world.advance(250 * MS);
    assert!(world.nodes[2].get("r").is_none(), "the repair is in flight");
    let revocation = revoke(&world, "r");
    assert!(revocation.is_effective(), "{revocation}");
    assert!(world.nodes[2].get("r").is_some(), "it was set before or behind the revoke");
    world.run(guard.extend()).unwrap_err();
}

/// Takes the lock away while another process waits for it. Returns what that says, when the lease of the old holder
/// ended, and when the next holder had the lock.
fn next_after(world: &World, guard: &LockGuard, deletes: bool) -> (Revocation, Instant, Instant) {
    let (request, clock) = (world.manager().lock("r").timeout(60 * SECOND), world.sim.clone());
    let acquired = spawned(&world.sim, async move {
        let _guard = request.await.unwrap();
        clock.now()
    });
    world.advance(SECOND);
    let taken = world.run(take(world.manager(), "r", deletes));
    world.advance(30 * SECOND);
    let acquired = acquired.lock().unwrap().expect("it is free by then");
    (taken, guard.valid_until(), acquired)
}

/// A process that hangs learns nothing: its lease ends by the clock, before the keys do.
#[test]
fn a_holder_that_hangs_is_not_overlapped_after_a_revoke_and_is_after_a_delete() {
    for (deletes, free_in) in [(false, 9 * SECOND), (true, Duration::ZERO)] {
        let (world, guard) = World::complete(3).held();
        let (taken, ended, acquired) = next_after(&world, &guard, deletes);
        assert_eq!((taken.is_effective(), taken.free_in()), (true, free_in), "{taken}");
        assert_eq!(acquired < ended, deletes, "T2");
        assert!(!deletes || acquired + 8 * SECOND < ended, "it goes on for the rest of its lease");
    }
}

#[test]
fn v3_fencing_numbers_and_the_restart_guard_stay_as_they_are() {
    for deletes in [false, true] {
        let world = World::complete(3);
        let guard = RestartGuard::strict(20 * SECOND);
        let manager = world.builder().restart_guard(guard).build().unwrap();
        world.try_lock(&manager).unwrap_err();
        world.advance(20 * SECOND);
        let guard = world.run(manager.lock("r").fenced()).unwrap();
        let before = beside_the_lock(&world);
        assert_eq!(before.len(), 2 * 3, "the number and the epoch: {before:?}");
        assert!(world.run(take(world.manager(), "r", deletes)).is_effective());
        assert_eq!(beside_the_lock(&world), before);
        let number = guard.fencing_token();
        world.run(guard.extend()).unwrap_err();
        drop(guard);
        let next = world.run(manager.lock("r").fenced()).unwrap();
        assert!(next.fencing_token() > number);
    }
}

#[test]
fn v4_reserved_names_are_refused() {
    let world = World::new(3);
    world.nodes.iter().for_each(|node| node.put("quorate:guard:epoch2", Value::List));
    let before = beside_the_lock(&world);
    let manager = world.builder().key_prefix("app:").build().unwrap();
    let nested = world.builder().key_prefix("quorate:").build().unwrap();
    for (locks, name, why) in [
        (&nested, "guard:epoch2", InvalidResource::Reserved),
        (&world.manager(), "quorate:guard:epoch2", InvalidResource::Reserved),
        (&world.manager(), "r:quorate:waiters", InvalidResource::Reserved),
        (&world.manager(), "", InvalidResource::Empty),
        (&manager, "quorate:fence:1", InvalidResource::Reserved),
    ] {
        let seen = world.run(manager.inspect("r")).unwrap();
        for refused in [
            world.run(locks.revoke(name)),
            world.run(locks.delete(name)),
            world.run(locks.revoke_seen(name, &seen)),
            world.run(locks.delete_seen(name, &seen)),
        ] {
            assert!(matches!(&refused, Err(it) if *it == why), "{refused:?}");
        }
    }
    assert_eq!(beside_the_lock(&world), before);
}

#[test]
fn v5_a_waiter_has_the_lock_when_the_ttl_has_passed() {
    for deletes in [false, true] {
        let (scene, [holder, waiter, operator]) = Scene::new(5).and_processes();
        // Its release would free it earlier.
        let _record = scene.run(holder.lock("r").ttl(7 * SECOND)).unwrap().detach().unwrap();
        let held = waiter.hold_once("r", MS);
        scene.advance(SECOND);
        let found = scene.run(take(operator.locks, "r", deletes));
        let free_at = scene.sim.now() + found.free_in();
        scene.advance(10 * SECOND);
        let from = held.lock().unwrap().expect("it was held").from;
        let late = from.saturating_duration_since(free_at);
        // W1.
        assert!(late <= REFRESH + SECOND_LOOK + 5 * ROUND_TRIP, "{deletes}: {late:?}");
        assert!(from + 5 * ROUND_TRIP >= free_at, "{deletes}: not before");
    }
}

#[test]
fn v6_the_value_of_a_revoked_key_is_a_mark_that_its_holder_knows() {
    let (world, _guard) = World::new(3).held();
    let (token, mut seen) = (values(&world), BTreeSet::new());
    for _ in 0..3 {
        let revocation = revoke(&world, "r");
        let stored = values(&world);
        assert!(stored.iter().all(|value| *value == stored[0]), "one on all nodes");
        let Some(Value::String(value)) = &stored[0] else { panic!("{stored:?}") };
        let mark = String::from_utf8(value.clone()).unwrap();
        let digits = mark.strip_prefix("revoked:").and_then(|mark| mark.strip_suffix(" revoked"));
        let digits = digits.unwrap();
        assert!(digits.len() == 40 && digits.bytes().all(|it| it.is_ascii_hexdigit()));
        assert_ne!(Some(Value::String(digits.into())), token[0], "A6");
        assert!(!format!("{revocation} {revocation:?}").contains(digits), "A6");
        seen.insert(mark);
    }
    assert_eq!(seen.len(), 1, "a second revoke leaves it");
}

/// A connection that breaks after the command: its effect is unknown, and repeating it is safe.
#[test]
fn a_revoke_that_is_repeated_takes_effect() {
    let (world, _guard) = World::new(3).held();
    world.add_rule(..2, Rule::new(Effect::Cut).on(Operation::Revoke));
    let broken = revoke(&world, "r");
    assert!(!broken.is_effective(), "{broken}");
    world.nodes.iter().for_each(MemoryNode::clear_rules);
    let left = times_left(&world);
    assert!(revoke(&world, "r").is_effective());
    assert_eq!(times_left(&world), left);
}
