//! The restart guard: a node that may have forgotten does not vote until `max_ttl` has passed.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use quorate_core::backend::{AcquireOptions, Claim, InvalidTtl, Vote};
use quorate_core::error::{Answer, InvalidRequest, QuorumFailure};
use quorate_core::resource::{Key, Resource, Token};
use quorate_core::{
    AdoptError, BackendErrorKind, BuildError, ExtendError, LockBackend, LockError, LockGuard,
    LockManager, RestartGuard, Runtime,
};
use quorate_memory::{Effect, Fault, MemoryNode, Operation, Rule, Sim, Value};

use crate::world::{MS, Places, SECOND};

mod moves;
mod quarantined;
mod refused;

/// The keys of the guard, as every version has them.
const EPOCH: &str = "quorate:guard:epoch2";
const QUARANTINE: &str = "quorate:guard:quarantine";

const TTL: Duration = Duration::from_secs(10);
const MAX_TTL: Duration = Duration::from_secs(60);

struct World {
    sim: Sim,
    nodes: Vec<MemoryNode>,
}

impl World {
    /// Nodes on which a quarantine has just ended.
    fn new(nodes: usize) -> Self {
        let world = Self::fresh(nodes);
        assert_quarantined(&world.failure(&world.manager(MAX_TTL)), nodes);
        world.sim.advance(MAX_TTL);
        world
    }

    /// Nodes that no client has ever used.
    fn fresh(nodes: usize) -> Self {
        let sim = Sim::new(7);
        let nodes = MemoryNode::cluster(nodes, sim.clone());
        Self { sim, nodes }
    }

    fn manager(&self, guard: impl Into<RestartGuard>) -> LockManager {
        let builder = LockManager::builder(self.nodes.clone()).runtime(self.sim.clone()).ttl(TTL);
        builder.restart_guard(guard).build().unwrap()
    }

    fn try_lock(&self, manager: &LockManager) -> Result<LockGuard, LockError> {
        self.sim.block_on(manager.lock("r").no_wait())
    }

    fn failure(&self, manager: &LockManager) -> QuorumFailure {
        failure_of(self.try_lock(manager))
    }

    fn lock_and_release(&self, manager: &LockManager) {
        let guard = self.try_lock(manager).unwrap();
        self.sim.block_on(guard.release()).unwrap();
        self.sim.advance(Duration::ZERO);
    }

    /// Gives some of the nodes, or all, this fault.
    fn inject(&self, nodes: impl Places, fault: Fault) {
        self.nodes[nodes].iter().for_each(|node| node.inject(fault.clone()));
    }

    fn heal(&self) {
        self.nodes.iter().for_each(MemoryNode::heal);
    }

    fn holders(&self) -> usize {
        self.nodes.iter().filter(|node| node.get("r").is_some()).count()
    }
}

fn failure_of<T: Debug>(failed: Result<T, LockError>) -> QuorumFailure {
    match failed {
        Err(LockError::NoQuorum(failure)) => failure,
        other => panic!("{other:?}"),
    }
}

fn kinds(failure: &QuorumFailure) -> Vec<BackendErrorKind> {
    let kind = |answer: &Answer| match answer {
        Answer::Failed(error) => Some(error.kind()),
        _ => None,
    };
    failure.nodes().iter().filter_map(|node| kind(&node.answer)).collect()
}

fn assert_quarantined(failure: &QuorumFailure, nodes: usize) {
    assert_eq!(kinds(failure), vec![BackendErrorKind::Quarantined; nodes], "{failure}");
}

/// Loses, in one of the ways there are, that "r" is held.
type Loss = (&'static str, fn(&MemoryNode));

const LOSSES: [Loss; 5] = [
    ("restarts empty", MemoryNode::restart),
    ("restarts with old data", MemoryNode::restart_from_save),
    ("fails over to a replica with old data, and back", MemoryNode::fail_over_and_back),
    ("is flushed", MemoryNode::flush),
    ("restarts empty, and takes its time", |node| node.inject(Fault::Dead)),
];

#[test]
fn a_node_that_lost_its_data_does_not_vote_until_max_ttl_has_passed() {
    for (how, lose) in LOSSES {
        let world = World::new(3);
        let (one, other) = (world.manager(MAX_TTL), world.manager(MAX_TTL));
        world.nodes.iter().for_each(MemoryNode::save);
        // Held by one, on the first two nodes; the second forgets.
        world.nodes[2].inject(Fault::Down);
        let guard = world.try_lock(&one).unwrap();
        world.nodes[2].heal();
        lose(&world.nodes[1]);
        world.nodes[1].heal();
        let start = world.sim.elapsed();
        // The third was down when it was taken, and may have forgotten something, too.
        let failed = world.try_lock(&other).unwrap_err();
        let failure = failed.failure().unwrap();
        assert_eq!(kinds(failure), [BackendErrorKind::Quarantined; 2], "{how}: {failure}");
        assert!(guard.is_valid(), "{how}");
        std::mem::forget(guard);
        for left in [MAX_TTL - TTL, TTL, MS] {
            world.sim.advance((start + MAX_TTL - left).saturating_sub(world.sim.elapsed()));
            assert_quarantined(&world.failure(&other), 2);
        }
        world.sim.advance((start + MAX_TTL).saturating_sub(world.sim.elapsed()));
        world.lock_and_release(&other);
    }
}

/// The test of the test: each of these losses gives one lock to two.
#[test]
fn without_the_guard_it_votes_at_once() {
    for (how, lose) in LOSSES {
        let world = World::fresh(3);
        let manager =
            LockManager::builder(world.nodes.clone()).runtime(world.sim.clone()).build().unwrap();
        world.nodes[2].inject(Fault::Down);
        let one = world.try_lock(&manager).unwrap();
        let elsewhere =
            LockManager::builder(world.nodes.clone()).runtime(world.sim.clone()).build().unwrap();
        world.nodes[2].heal();
        lose(&world.nodes[1]);
        world.nodes[1].heal();
        let other = world.try_lock(&elsewhere).unwrap();
        assert!(one.is_valid() && other.is_valid(), "{how}");
    }
}

#[test]
fn one_of_three_in_quarantine_hurts_nobody_and_two_are_too_many() {
    let world = World::new(3);
    let manager = world.manager(MAX_TTL);
    world.nodes[1].restart();
    world.lock_and_release(&manager);
    assert_eq!(world.sim.elapsed(), MAX_TTL, "nobody waits for it");
    world.nodes[2].restart();
    let error = world.try_lock(&manager).unwrap_err();
    let text = error.to_string();
    for node in ["memory-2", "memory-3"] {
        assert!(text.contains(&format!("{node}: quarantined for another 60.0s")), "{text}");
    }
    assert!(text.starts_with("no quorum: 1 of 3 nodes granted, 2 needed"), "{text}");
    assert_quarantined(&failure_of::<()>(Err(error)), 2);
    world.sim.advance(56_800 * MS);
    let text = world.try_lock(&manager).unwrap_err().to_string();
    assert!(text.contains("quarantined for another 3.2s"), "{text}");
}

#[test]
fn who_waits_wins_when_the_quarantine_ends() {
    for fenced in [false, true] {
        let world = World::fresh(3);
        let manager = world.manager(MAX_TTL);
        let request = manager.lock("r").timeout(2 * MAX_TTL);
        let request = if fenced { request.fenced() } else { request };
        let guard = world.sim.block_on(request).unwrap();
        let waited = world.sim.elapsed();
        assert!(waited >= MAX_TTL && waited < MAX_TTL + 2 * SECOND, "{waited:?}");
        assert_eq!(guard.fencing_token().is_some(), fenced);
        // A request that does not wait for so long returns the reason.
        world.nodes[0].restart();
        world.nodes[1].restart();
        let lost = world.sim.block_on(manager.lock("s").timeout(SECOND));
        assert_quarantined(&failure_of(lost), 2);
    }
}

#[test]
fn a_quarantine_is_counted_by_the_nodes_clock() {
    let world = World::new(1);
    let manager = world.manager(MAX_TTL);
    world.nodes[0].drift(10_000);
    world.nodes[0].restart();
    assert_quarantined(&world.failure(&manager), 1);
    world.sim.advance(MAX_TTL * 100 / 101 - MS);
    assert_quarantined(&world.failure(&manager), 1);
    world.sim.advance(2 * MS);
    world.lock_and_release(&manager);
}

/// Nothing that was forgotten is still held when the quarantine ends, by clocks that differ as much as
/// the drift allows.
#[test]
fn the_longest_lease_ends_before_the_quarantine() {
    let world = World::new(1);
    let manager = world.manager(MAX_TTL);
    world.nodes[0].drift(10_000);
    let guard = world.sim.block_on(manager.lock("r").no_wait().ttl(MAX_TTL)).unwrap();
    world.nodes[0].flush();
    let free = world.sim.block_on(manager.lock("s").timeout(2 * MAX_TTL)).unwrap();
    assert!(!guard.is_valid());
    assert!(world.sim.now() >= guard.valid_until());
    drop(free);
}

#[test]
fn a_quarantine_that_is_met_again_does_not_begin_again() {
    let world = World::new(3);
    let start = world.sim.elapsed();
    world.nodes.iter().for_each(MemoryNode::restart);
    for second in 0..60 {
        assert_quarantined(&world.failure(&world.manager(MAX_TTL)), 3);
        world.sim.advance((start + (second + 1) * SECOND).saturating_sub(world.sim.elapsed()));
    }
    world.lock_and_release(&world.manager(MAX_TTL));
}

#[test]
fn a_node_that_restarts_in_its_quarantine_begins_anew() {
    let world = World::new(1);
    let manager = world.manager(MAX_TTL);
    world.nodes[0].restart();
    assert_quarantined(&world.failure(&manager), 1);
    world.sim.advance(MAX_TTL / 2);
    world.nodes[0].save();
    world.nodes[0].restart_from_save();
    assert_quarantined(&world.failure(&manager), 1);
    world.sim.advance(MAX_TTL - MS);
    assert_quarantined(&world.failure(&manager), 1);
    world.sim.advance(MS);
    world.lock_and_release(&manager);
}

#[test]
fn a_strict_guard_takes_a_new_node_for_one_that_forgot_and_a_soft_one_asks_for_how_long_it_is_up() {
    // Up for (seconds), and quarantined for so many more by the soft rule.
    for (up, soft) in [(0, 61), (1, 60), (30, 31), (60, 1), (61, 0), (1_000, 0)] {
        for guard in [RestartGuard::strict(MAX_TTL), RestartGuard::soft(MAX_TTL)] {
            let world = World::fresh(3);
            world.sim.advance(up * SECOND);
            let manager = world.manager(guard);
            let rest = if guard.is_strict() { MAX_TTL } else { soft * SECOND };
            if !rest.is_zero() {
                assert_quarantined(&world.failure(&manager), 3);
                world.sim.advance(rest - MS);
                assert_quarantined(&world.failure(&manager), 3);
                world.sim.advance(MS);
            }
            world.lock_and_release(&manager);
        }
    }
}

#[test]
fn a_soft_guard_sees_restarts_and_old_data_but_not_a_flush() {
    let world = World::fresh(1);
    world.sim.advance(2 * MAX_TTL);
    let manager = world.manager(RestartGuard::soft(MAX_TTL));
    world.lock_and_release(&manager);
    let node = &world.nodes[0];
    node.save();
    node.restart_from_save();
    assert_quarantined(&world.failure(&manager), 1);
    // Also by a run that has been up for long: as a replica that is promoted.
    world.sim.advance(2 * MAX_TTL);
    world.lock_and_release(&manager);
    node.put(EPOCH, Value::String(b"another:60000".to_vec()));
    assert_quarantined(&world.failure(&manager), 1);
    world.sim.advance(MAX_TTL);
    node.restart();
    assert_quarantined(&world.failure(&manager), 1);
    world.sim.advance(MAX_TTL + SECOND);
    world.lock_and_release(&manager);
    node.flush();
    world.lock_and_release(&manager);
    let strict = world.manager(MAX_TTL);
    node.flush();
    assert_quarantined(&world.failure(&strict), 1);
}

#[test]
fn who_deletes_the_epochs_changes_max_ttl_and_begins_a_quarantine() {
    let world = World::new(3);
    world.nodes.iter().for_each(|node| node.expire(EPOCH));
    let manager = world.manager(20 * SECOND);
    assert_quarantined(&world.failure(&manager), 3);
    world.sim.advance(20 * SECOND);
    world.lock_and_release(&manager);
    // And a user who deletes the other key ends it.
    world.nodes.iter().for_each(MemoryNode::flush);
    assert_quarantined(&world.failure(&manager), 3);
    world.nodes.iter().for_each(|node| node.expire(QUARANTINE));
    world.lock_and_release(&manager);
    // A quarantine without an end lasts until a user ends it.
    world.nodes.iter().for_each(|node| node.put(QUARANTINE, Value::String(Vec::new())));
    world.sim.advance(2 * MAX_TTL);
    assert_quarantined(&world.failure(&manager), 3);
}

#[test]
fn without_the_guard_nothing_is_stored_for_it_and_with_it_two_keys_are() {
    let world = World::fresh(1);
    let plain =
        LockManager::builder(world.nodes.clone()).runtime(world.sim.clone()).build().unwrap();
    world.lock_and_release(&plain);
    assert!(world.nodes[0].keys().is_empty());
    let manager = world.manager(MAX_TTL);
    assert_quarantined(&world.failure(&manager), 1);
    assert_eq!(world.nodes[0].keys(), [EPOCH.as_bytes(), QUARANTINE.as_bytes()]);
    world.sim.advance(MAX_TTL);
    world.lock_and_release(&manager);
    assert_eq!(world.nodes[0].keys(), [EPOCH.as_bytes()]);
}

/// The hole that the model of fencing shows: the attempt began before the node lost its data, reaches
/// it after, and brings a hint from before the token of another.
#[test]
fn an_attempt_from_before_a_loss_gets_no_token_that_is_too_low() {
    for guarded in [false, true] {
        let world = World::new(3);
        let wall = Arc::new(std::sync::atomic::AtomicU64::new(1_000));
        let manager = || {
            let wall = Arc::clone(&wall);
            let hint = move || wall.load(std::sync::atomic::Ordering::Relaxed);
            // A process of its own, with its own connections.
            let client = world.sim.client(0);
            let nodes = world.nodes.iter().map(|node| node.seen_by(&client));
            let builder = LockManager::builder(nodes).runtime(client.clone()).ttl(TTL);
            let builder = builder.node_timeout(4 * SECOND).fencing_hint(hint);
            if guarded { builder.restart_guard(MAX_TTL) } else { builder }.build().unwrap()
        };
        let (early, late) = (manager(), manager());
        // Its requests take two seconds.
        world.inject(.., Fault::Slow(2 * SECOND));
        let attempt = async { early.lock("r").no_wait().fenced().await };
        let meanwhile = async {
            world.sim.sleep_until(world.sim.now() + SECOND).await;
            world.heal();
            wall.store(5_000, std::sync::atomic::Ordering::Relaxed);
            let guard = late.lock("r").no_wait().fenced().await.unwrap();
            let token = guard.fencing_token().unwrap();
            world.nodes.iter().for_each(MemoryNode::restart);
            (guard, token)
        };
        let (attempt, (_guard, token)) = world.sim.block_on(join(attempt, meanwhile));
        match attempt {
            Ok(stale) => {
                assert!(!guarded, "two hold it");
                assert!(stale.fencing_token().unwrap() < token);
            }
            Err(error) => {
                assert!(guarded, "{error}");
                assert_quarantined(&failure_of::<()>(Err(error)), 3);
            }
        }
    }
}
