//! Taking a lock away: a revoke is safe and late, a delete is early and its holder does not know.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::poll_immediate;
use quorate_core::backend::Capabilities;
use quorate_core::error::LeaseEnd;
use quorate_core::{
    BackendErrorKind, ExtendError, InvalidResource, KeyState, LockBackend, LockGuard, LockManager,
    LockState, RestartGuard, Revocation, RevokeError, Runtime,
};
use quorate_memory::{Effect, Fault, MemoryNode, Operation, Rule, SimClient, Value};

use crate::backends::Odd;
use crate::waiting::processes::{REFRESH, ROUND_TRIP, SECOND_LOOK, Scene};
use crate::world::{MS, Places, SECOND, World};

/// A process that frees locks of others.
struct Operator {
    client: SimClient,
    locks: LockManager,
}

impl Operator {
    fn new(world: &World) -> Self {
        let client = world.sim.client(0);
        let nodes = world.nodes.iter().map(|node| node.seen_by(&client));
        let locks = LockManager::builder(nodes).runtime(client.clone()).build().unwrap();
        Self { client, locks }
    }

    /// Its requests do not reach these nodes.
    fn cut_off(&self, nodes: impl IntoIterator<Item = MemoryNode>) {
        let lost = Rule::new(Effect::DropRequest).client(&self.client);
        nodes.into_iter().for_each(|node| node.add_rule(lost));
    }

    fn revoke(&self, world: &World, name: &str) -> Revocation {
        world.sim.block_on(self.locks.revoke(name)).unwrap()
    }

    fn delete(&self, world: &World, name: &str) -> Revocation {
        world.sim.block_on(self.locks.delete(name)).unwrap()
    }
}

fn revoke(world: &World, name: &str) -> Revocation {
    Operator::new(world).revoke(world, name)
}

fn values(world: &World, name: &str) -> Vec<Option<Value>> {
    world.nodes.iter().map(|node| node.get(name)).collect()
}

fn times_left(world: &World, name: &str) -> Vec<Option<Duration>> {
    world.nodes.iter().map(|node| node.time_left(name)).collect()
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
    let (world, guard) = World::new(5).held();
    world.sim.advance(Duration::from_micros(3_300_700));
    for (node, ahead) in world.nodes.iter().zip([0, 1, 2, 3, 4]) {
        node.jump(ahead * SECOND);
    }
    let (before, tokens) = (times_left(&world, "r"), values(&world, "r"));
    for _ in 0..3 {
        let revocation = revoke(&world, "r");
        assert_eq!(times_left(&world, "r"), before);
        assert!(values(&world, "r").iter().zip(&tokens).all(|(now, then)| now != then));
        assert!(revocation.is_effective());
        assert_eq!(Some(revocation.free_in()), before[0], "it is that of the last node");
    }
    world.sim.advance(before[0].unwrap() - Duration::from_nanos(1));
    assert_eq!(world.holders("r"), 1);
    world.sim.advance(Duration::from_nanos(1));
    assert_eq!(world.holders("r"), 0);
    drop(guard);
}

/// Each set of nodes that a revoke can reach, of up to five.
#[test]
fn v2_after_an_effective_revoke_no_extension_wins_a_quorum() {
    for count in 1..=5_usize {
        let quorum = count / 2 + 1;
        for reached in 0..1_u32 << count {
            let (world, guard) = World::new(count).held();
            let operator = Operator::new(&world);
            let far = (0..count).filter(|at| reached & 1 << at == 0);
            operator.cut_off(far.map(|at| world.nodes[at].clone()));
            world.sim.advance(SECOND);
            let revocation = operator.revoke(&world, "r");
            let left = count - reached.count_ones() as usize;
            let story = format!("{reached:b} of {count}: {revocation}");
            assert_eq!(revocation.is_effective(), left < quorum, "{story}");
            let extended = world.sim.block_on(guard.extend());
            match left < quorum {
                true => {
                    let lost = matches!(extended, Err(ExtendError::Lost(LeaseEnd::NotHeld(_))));
                    assert!(lost, "{story}: {extended:?}");
                    assert!(!guard.is_valid(), "H1: {story}");
                }
                false => assert!(extended.is_ok(), "{story}: {extended:?}"),
            }
        }
    }
}

/// After a round that it won, the holder sets the key again on a node that has lost it, and on no other.
#[test]
fn v2_a_repair_leaves_a_revoked_key_alone() {
    let (world, guard) = World::new(3).held();
    let operator = Operator::new(&world);
    operator.cut_off(world.nodes[1..].iter().cloned());
    world.sim.advance(SECOND);
    assert!(!operator.revoke(&world, "r").is_effective());
    let (revoked, left) = (world.nodes[0].get("r"), world.nodes[0].time_left("r"));
    for _ in 0..3 {
        world.sim.block_on(guard.extend()).unwrap();
        world.catch_up();
    }
    assert_eq!(world.nodes[0].get("r"), revoked);
    assert_eq!(world.nodes[0].time_left("r"), left);
    // One more node, and the holder has none to spare.
    world.nodes[1].clear_rules();
    assert!(operator.revoke(&world, "r").is_effective());
    world.sim.block_on(guard.extend()).unwrap_err();
}

/// A repair that is in flight during the revoke does not bring the quorum back.
#[test]
fn v2_a_repair_in_flight_wins_no_quorum() {
    let (world, guard) = World::in_order(3).held();
    world.nodes[2].expire("r");
    world.nodes[2].add_rule(Rule::new(Effect::Delay { least: 100 * MS, most: 100 * MS }));
    world.sim.block_on(guard.extend()).unwrap();
    world.sim.advance(250 * MS);
    assert!(world.nodes[2].get("r").is_none(), "the repair is in flight");
    let operator = Operator::new(&world);
    let revocation = operator.revoke(&world, "r");
    assert!(revocation.is_effective(), "{revocation}");
    assert!(world.nodes[2].get("r").is_some(), "it was set before or behind the revoke");
    world.sim.block_on(guard.extend()).unwrap_err();
    assert!(!guard.is_valid());
}

/// Returns when the lease of the old holder ended, and when the next holder had the lock.
fn next_after(
    world: &World,
    guard: &LockGuard,
    take_away: impl AsyncFnOnce(&Operator),
) -> (std::time::Instant, std::time::Instant) {
    let operator = Operator::new(world);
    let next = Operator::new(world);
    let acquired = Arc::<Mutex<Option<_>>>::default();
    let (seen, clock) = (Arc::clone(&acquired), world.sim.clone());
    let request = next.locks.lock("r").timeout(60 * SECOND);
    world.sim.spawn(Box::pin(async move {
        let guard = request.await.unwrap();
        *seen.lock().unwrap() = Some(clock.now());
        drop(guard);
    }));
    world.sim.advance(SECOND);
    world.sim.block_on(take_away(&operator));
    world.sim.advance(30 * SECOND);
    let acquired = acquired.lock().unwrap().expect("it is free by then");
    (guard.valid_until(), acquired)
}

#[test]
fn v2_a_holder_that_renews_learns_of_the_revoke_at_its_next_renewal() {
    let (world, guard) = World::complete(3).held();
    guard.auto_renew();
    world.sim.advance(20 * SECOND);
    let revoked_at = world.sim.now();
    let (ended, acquired) = next_after(&world, &guard, async |operator| {
        operator.locks.revoke("r").await.unwrap();
    });
    let lost = world.sim.block_on(guard.lost());
    assert!(matches!(lost, LeaseEnd::NotHeld(_)), "{lost}");
    // A second for the other, and the validity / 3 to the next renewal.
    assert!(ended - revoked_at <= 5 * SECOND, "{:?}", ended - revoked_at);
    assert!(acquired >= ended);
}

/// A process that hangs learns nothing: its lease ends by the clock, before the keys do.
#[test]
fn a_holder_that_hangs_is_not_overlapped_after_a_revoke_and_is_after_a_delete() {
    let (world, guard) = World::complete(3).held();
    let (ended, acquired) = next_after(&world, &guard, async |operator| {
        let revocation = operator.locks.revoke("r").await.unwrap();
        assert_eq!(revocation.free_in(), 9 * SECOND);
    });
    assert!(acquired >= ended, "T2: {:?} too early", ended - acquired);

    let (world, guard) = World::complete(3).held();
    let (ended, acquired) = next_after(&world, &guard, async |operator| {
        let deletion = operator.locks.delete("r").await.unwrap();
        assert!(deletion.is_effective() && deletion.free_in().is_zero(), "{deletion}");
    });
    assert!(acquired + 8 * SECOND < ended, "the holder goes on for the rest of its lease");
}

#[test]
fn v3_fencing_numbers_and_the_restart_guard_stay_as_they_are() {
    for deletes in [false, true] {
        let world = World::complete(3);
        let guard = RestartGuard::strict(20 * SECOND);
        let manager = world.builder().restart_guard(guard).build().unwrap();
        world.sim.block_on(manager.lock("r").no_wait()).unwrap_err();
        world.sim.advance(20 * SECOND);
        let guard = world.sim.block_on(manager.lock("r").fenced()).unwrap();
        let before = beside_the_lock(&world);
        assert_eq!(before.len(), 2 * 3, "the number and the epoch: {before:?}");
        let operator = Operator::new(&world);
        let found = match deletes {
            true => operator.delete(&world, "r"),
            false => operator.revoke(&world, "r"),
        };
        assert!(found.is_effective(), "{found}");
        assert_eq!(beside_the_lock(&world), before);
        let number = guard.fencing_token();
        world.sim.block_on(guard.extend()).unwrap_err();
        drop(guard);
        let next = world.sim.block_on(manager.lock("r").fenced()).unwrap();
        assert!(next.fencing_token() > number);
    }
}

#[test]
fn v4_reserved_names_are_refused() {
    let world = World::new(3);
    world.nodes.iter().for_each(|node| node.put("quorate:guard:epoch2", Value::List));
    let before = beside_the_lock(&world);
    let manager = world.builder().key_prefix("app:").build().unwrap();
    for (locks, name, why) in [
        (&world.manager(), "quorate:guard:epoch2", InvalidResource::Reserved),
        (&world.manager(), "r:quorate:waiters", InvalidResource::Reserved),
        (&world.manager(), "", InvalidResource::Empty),
        (&manager, "quorate:fence:1", InvalidResource::Reserved),
    ] {
        let revoked = world.sim.block_on(locks.revoke(name)).unwrap_err();
        let deleted = world.sim.block_on(locks.delete(name)).unwrap_err();
        for error in [revoked, deleted] {
            assert!(matches!(&error, RevokeError::Invalid(found) if *found == why), "{error}");
        }
    }
    assert_eq!(beside_the_lock(&world), before);
}

#[test]
fn v5_a_waiter_has_the_lock_when_the_ttl_has_passed() {
    for deletes in [false, true] {
        let scene = Scene::new(5);
        let (holder, waiter, operator) = (scene.process(), scene.process(), scene.process());
        let _guard = scene.sim.block_on(holder.lock("r").ttl(7 * SECOND)).unwrap();
        let held = waiter.hold_once("r", MS);
        scene.sim.advance(SECOND);
        let found = match deletes {
            true => scene.sim.block_on(operator.locks.delete("r")).unwrap(),
            false => scene.sim.block_on(operator.locks.revoke("r")).unwrap(),
        };
        let free_at = scene.sim.now() + found.free_in();
        scene.sim.advance(10 * SECOND);
        let from = held.lock().unwrap().expect("it was held").from;
        let late = from.saturating_duration_since(free_at);
        // W1.
        assert!(late <= REFRESH + SECOND_LOOK + 5 * ROUND_TRIP, "{deletes}: {late:?}");
        assert!(from + 5 * ROUND_TRIP >= free_at, "{deletes}: not before");
    }
}

#[test]
fn v6_the_value_of_a_revoked_key_is_a_token_that_nobody_has() {
    let (world, guard) = World::new(3).held();
    let operator = Operator::new(&world);
    let mut seen = BTreeSet::new();
    let mut printed = String::new();
    for turn in 0..4 {
        let stored = values(&world, "r");
        assert!(stored.iter().all(|value| *value == stored[0]), "one on all nodes");
        let Some(Value::String(value)) = &stored[0] else { panic!("{stored:?}") };
        let (token, label) = value.split_at(40);
        assert!(token.iter().all(u8::is_ascii_hexdigit));
        assert_eq!(label, if turn == 0 { &b""[..] } else { b" revoked" });
        assert!(seen.insert(String::from_utf8(token.to_vec()).unwrap()), "a fresh one each time");
        let revocation = operator.revoke(&world, "r");
        printed += &format!("{revocation} {revocation:?}");
    }
    assert!(seen.iter().all(|token| !printed.contains(token)), "A6: {printed}");
    drop(guard);
}

/// What each of three nodes keeps, and what a revoke and a delete say about it.
#[test]
fn a_revocation_tells_what_each_node_kept() {
    let held = |world: &World, nodes: &[usize]| {
        let guard = world.sim.block_on(world.manager().lock("r")).unwrap();
        guard.detach().unwrap();
        (0..3).filter(|at| !nodes.contains(at)).for_each(|at| world.nodes[at].expire("r"));
    };
    let string = |world: &World, nodes: std::ops::Range<usize>| world.occupy(nodes);
    let set = |world: &World| {
        world.nodes.iter().for_each(|node| node.put("r", Value::OrderedSet([].into())));
    };
    let list = |world: &World| world.nodes.iter().for_each(|node| node.put("r", Value::List));
    type Scene<'a> = &'a dyn Fn(&World);
    let scenes: [(Scene<'_>, bool, &str); 8] = [
        (
            &|world| held(world, &[0, 1, 2]),
            true,
            "revoked: done on 3 of 3 nodes, 2 needed, free in 10.0s",
        ),
        (
            &|world| held(world, &[0, 2]),
            true,
            "revoked: done on 2 of 3 nodes, 2 needed, free in 10.0s; memory-2: free",
        ),
        (
            &|world| held(world, &[1]),
            false,
            "not revoked: done on 1 of 3 nodes, 2 needed, free in 10.0s; memory-1: free; memory-3: free",
        ),
        (
            &|_| {},
            false,
            "not revoked: done on 0 of 3 nodes, 2 needed; memory-1: free; memory-2: free; memory-3: free",
        ),
        (
            &|world| string(world, 0..3),
            false,
            "not revoked: done on 0 of 3 nodes, 2 needed; memory-1: held, without a ttl, left alone; \
             memory-2: held, without a ttl, left alone; memory-3: held, without a ttl, left alone",
        ),
        (
            &|world| {
                held(world, &[0, 1, 2]);
                string(world, 1..2);
            },
            true,
            "revoked: done on 2 of 3 nodes, 2 needed, free in 10.0s; \
             memory-2: held, without a ttl, left alone",
        ),
        (
            &|world| {
                held(world, &[0, 1, 2]);
                world.nodes[0].inject(Fault::Dead);
                world.nodes[2].inject(Fault::Hung);
            },
            false,
            "not revoked: done on 1 of 3 nodes, 2 needed, free in 9.5s; \
             memory-1: connection refused; memory-3: no reply within 500.0ms",
        ),
        (
            &set,
            false,
            "not revoked: done on 0 of 3 nodes, 2 needed; memory-1: held, without a ttl, left alone",
        ),
    ];
    for (scene, is_effective, line) in scenes {
        for deletes in [false, true] {
            let world = World::new(3);
            scene(&world);
            let (operator, before) = (Operator::new(&world), values(&world, "r"));
            let (found, line) = match deletes {
                false => (operator.revoke(&world, "r"), line.to_owned()),
                true => {
                    let line = line.replace("revoked:", "deleted:");
                    let line = line.replace(", free in 10.0s", "").replace(", free in 9.5s", "");
                    (operator.delete(&world, "r"), line)
                }
            };
            assert!(found.to_string().starts_with(&line), "{found}\n{line}");
            assert_eq!(found.is_effective(), is_effective, "{found}");
            for ((node, before), view) in world.nodes.iter().zip(before).zip(found.nodes()) {
                let is_done = matches!(view.state, KeyState::Held { time_left: Some(_), .. });
                assert_eq!(node.get("r") != before, is_done, "{found}");
                assert_eq!(node.get("r").is_none(), deletes && is_done || before.is_none());
            }
        }
    }
    let world = World::new(3);
    list(&world);
    let found = revoke(&world, "r");
    assert!(!found.is_effective());
    for view in found.nodes() {
        let KeyState::Failed(error) = &view.state else { panic!("{found}") };
        assert_eq!(error.kind(), BackendErrorKind::WrongType);
    }
    assert_eq!(values(&world, "r"), vec![Some(Value::List); 3]);
    assert_eq!(revoke(&world, "free").found().state(), LockState::Free);
}

#[test]
fn a_lock_on_several_names_ends_when_one_of_them_is_revoked() {
    let world = World::new(3);
    let guard = world.sim.block_on(world.manager().lock(["a", "b"])).unwrap();
    assert!(revoke(&world, "a").is_effective());
    let lost = world.sim.block_on(guard.extend()).unwrap_err();
    assert!(matches!(lost, ExtendError::Lost(LeaseEnd::NotHeld(_))), "{lost}");
    drop(guard);
    world.catch_up();
    assert_eq!((world.holders("a"), world.holders("b")), (3, 0));
    world.sim.advance(10 * SECOND);
    assert_eq!(world.keys_left(), 0);
}

#[test]
fn nodes_that_hang_cost_one_node_timeout() {
    for hung in 1..=3 {
        let (world, guard) = World::new(3).held();
        world.inject(..hung, Fault::Hung);
        let start = world.sim.elapsed();
        let found = revoke(&world, "r");
        assert_eq!(world.sim.elapsed() - start, 500 * MS);
        assert_eq!(found.is_effective(), hung == 1, "{found}");
        drop(guard);
    }
}

#[test]
fn a_revoke_that_is_dropped_leaves_nothing_to_do() {
    let world = World::new(3);
    world.inject(.., Fault::Late(100 * MS));
    let manager = world.manager();
    world.sim.block_on(async {
        assert!(poll_immediate(pin!(manager.revoke("r"))).await.is_none());
        assert!(poll_immediate(pin!(manager.delete("r"))).await.is_none());
    });
    assert!(world.sim.block_on(manager.close(Duration::ZERO)).is_clean());
    world.sim.advance(SECOND);
    assert_eq!(world.keys_left(), 0);
}

#[test]
fn a_backend_that_cannot_revoke_affects_no_other() {
    let (world, guard) = World::new(3).held();
    let mut nodes: Vec<Arc<dyn LockBackend>> = vec![Arc::new(Odd::new(&world.nodes[0]))];
    nodes.extend(world.nodes[1..].iter().map(|node| Arc::new(node.clone()) as _));
    let manager = LockManager::builder(nodes).runtime(world.sim.clone()).build().unwrap();
    let found = world.sim.block_on(manager.revoke("r")).unwrap();
    assert_eq!(
        found.to_string(),
        "revoked: done on 2 of 3 nodes, 2 needed, free in 10.0s; \
         node 1: this node cannot revoke a lock"
    );
    drop(guard);
}

fn cut_some<T>(
    world: &World,
    nodes: impl Places,
    operation: Operation,
    scene: impl FnOnce() -> T,
) -> T {
    world.nodes[nodes].iter().for_each(|node| node.add_rule(Rule::new(Effect::Cut).on(operation)));
    let seen = scene();
    world.nodes.iter().for_each(MemoryNode::clear_rules);
    seen
}

/// A connection that breaks after the command: what was done is unknown, and repeating it is safe.
#[test]
fn a_revoke_that_is_repeated_takes_effect() {
    let (world, guard) = World::new(3).held();
    let broken = cut_some(&world, ..2, Operation::Revoke, || revoke(&world, "r"));
    assert!(!broken.is_effective(), "{broken}");
    let left = times_left(&world, "r");
    assert!(revoke(&world, "r").is_effective());
    assert_eq!(times_left(&world, "r"), left);
    drop(guard);
}

#[test]
fn a_node_without_the_ability_is_sent_nothing() {
    let world = World { lacks: Capabilities::REVOKE, ..World::complete(3) };
    let (world, guard) = world.held();
    let before = values(&world, "r");
    let found = world.sim.block_on(world.builder().build().unwrap().revoke("r")).unwrap();
    assert!(!found.is_effective());
    assert_eq!(found.to_string().matches("this node cannot revoke a lock").count(), 3, "{found}");
    assert_eq!(values(&world, "r"), before);
    drop(guard);
}
