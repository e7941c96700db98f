//! The restart guard: a node that may have forgotten does not vote until `max_ttl` has passed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join;
use quorate_core::backend::InvalidTtl;
use quorate_core::error::{Answer, InvalidRequest, QuorumFailure};
use quorate_core::{
    AdoptError, BackendErrorKind, BuildError, ExtendError, LockError, LockManager, RestartGuard,
    Runtime,
};
use quorate_memory::{Fault, MemoryNode, Value};

use crate::world::{Client, MS, Places, SECOND, World, failure_of};

mod groups;
mod moves;
mod quarantined;
mod refused;

/// The keys of the guard, as every version has them.
const EPOCH: &str = "quorate:guard:epoch2";
const QUARANTINE: &str = "quorate:guard:quarantine";

const TTL: Duration = Duration::from_secs(10);
const MAX_TTL: Duration = Duration::from_secs(60);

impl World {
    /// Nodes on which a quarantine has just ended.
    fn after_a_quarantine(nodes: usize) -> Self {
        let world = Self::complete(nodes);
        world.assert_quarantined(&world.guarded(MAX_TTL), nodes);
        world.advance(MAX_TTL);
        world
    }

    fn guarded(&self, guard: impl Into<RestartGuard>) -> LockManager {
        self.builder().restart_guard(guard).build().unwrap()
    }

    fn failure(&self, manager: &LockManager) -> QuorumFailure {
        failure_of(self.try_lock(manager))
    }

    fn lock_and_release(&self, manager: &LockManager) {
        let guard = self.try_lock(manager).unwrap();
        self.run(guard.release()).unwrap();
        self.catch_up();
    }

    /// So many have just this wrong with them: they are quarantined.
    fn assert_quarantined(&self, manager: &LockManager, nodes: usize) {
        assert_quarantined(&self.failure(manager), nodes);
    }

    /// The same for so long from `start`, and then they vote.
    fn assert_quarantined_for(
        &self,
        rest: Duration,
        start: Duration,
        manager: &LockManager,
        nodes: usize,
    ) {
        for left in [rest, rest / 2, MS] {
            self.advance((start + rest - left).saturating_sub(self.sim.elapsed()));
            self.assert_quarantined(manager, nodes);
        }
        self.advance((start + rest).saturating_sub(self.sim.elapsed()));
        self.lock_and_release(manager);
    }

    /// Restarts that lose nothing, but no client can know that.
    fn restart_with_data(&self, nodes: impl Places) {
        for node in &self.nodes[nodes] {
            node.save();
            node.restart_from_save();
        }
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
        let world = World::after_a_quarantine(3);
        let (one, other) = (world.guarded(MAX_TTL), world.guarded(MAX_TTL));
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
        world.advance(TTL);
        world.assert_quarantined_for(MAX_TTL, start, &other, 2);
    }
}

#[test]
fn one_of_three_in_quarantine_hurts_nobody_and_two_are_too_many() {
    let world = World::after_a_quarantine(3);
    let manager = world.guarded(MAX_TTL);
    world.nodes[1].restart();
    world.lock_and_release(&manager);
    assert_eq!(world.sim.elapsed(), MAX_TTL, "nobody waits for it");
    world.nodes[2].restart();
    let error = world.try_lock(&manager).unwrap_err();
    let text = error.to_string();
    for node in ["memory-2", "memory-3"] {
        assert!(text.contains(&format!("{node}: quarantined for another 60.0s")), "{text}");
    }
    assert!(text.starts_with("r: no quorum: 1 of 3 nodes granted, 2 needed"), "{text}");
    assert_quarantined(&failure_of::<()>(Err(error)), 2);
    world.advance(56_800 * MS);
    let text = world.try_lock(&manager).unwrap_err().to_string();
    assert!(text.contains("quarantined for another 3.2s"), "{text}");
}

#[test]
fn who_waits_wins_when_the_quarantine_ends() {
    for fenced in [false, true] {
        let world = World::complete(3);
        let manager = world.guarded(MAX_TTL);
        let request = manager.lock("r").timeout(2 * MAX_TTL);
        let request = if fenced { request.fenced() } else { request };
        let guard = world.run(request).unwrap();
        let waited = world.sim.elapsed();
        assert!(waited >= MAX_TTL && waited < MAX_TTL + 2 * SECOND, "{waited:?}");
        assert_eq!(guard.fencing_token().is_some(), fenced);
        // A request that does not wait for so long returns the reason.
        world.nodes[0].restart();
        world.nodes[1].restart();
        let lost = world.run(manager.lock("s").timeout(SECOND));
        assert_quarantined(&failure_of(lost), 2);
    }
}

/// And anew by a node that restarts in its quarantine.
#[test]
fn a_quarantine_is_counted_by_the_nodes_clock() {
    for (drift, restarts_again) in [(10_000, false), (0, true)] {
        let world = World::after_a_quarantine(1);
        let manager = world.guarded(MAX_TTL);
        world.nodes[0].drift(drift);
        world.nodes[0].restart();
        if restarts_again {
            world.assert_quarantined(&manager, 1);
            world.advance(MAX_TTL / 2);
            world.restart_with_data(..);
        }
        let rest = if drift > 0 { MAX_TTL * 100 / 101 + MS } else { MAX_TTL };
        let start = world.sim.elapsed();
        world.assert_quarantined(&manager, 1);
        world.assert_quarantined_for(rest, start, &manager, 1);
    }
}

/// Nothing that was forgotten is still held when the quarantine ends, by clocks that differ as much as
/// the drift allows.
#[test]
fn the_longest_lease_ends_before_the_quarantine() {
    let world = World::after_a_quarantine(1);
    let manager = world.guarded(MAX_TTL);
    world.nodes[0].drift(10_000);
    let guard = world.run(manager.lock("r").no_wait().ttl(MAX_TTL)).unwrap();
    world.nodes[0].flush();
    let free = world.run(manager.lock("s").timeout(2 * MAX_TTL)).unwrap();
    assert!(!guard.is_valid());
    assert!(world.sim.now() >= guard.valid_until());
    drop(free);
}

#[test]
fn a_soft_guard_sees_restarts_and_old_data_but_not_a_flush() {
    let world = World::complete(1);
    world.advance(2 * MAX_TTL);
    let manager = world.guarded(RestartGuard::soft(MAX_TTL));
    world.lock_and_release(&manager);
    let node = &world.nodes[0];
    node.save();
    node.restart_from_save();
    world.assert_quarantined(&manager, 1);
    // Also by a run that has been up for long: as a replica that is promoted.
    world.advance(2 * MAX_TTL);
    world.lock_and_release(&manager);
    node.put(EPOCH, Value::String(b"another:60000".to_vec()));
    world.assert_quarantined(&manager, 1);
    world.advance(MAX_TTL);
    node.restart();
    world.assert_quarantined(&manager, 1);
    world.advance(MAX_TTL + SECOND);
    world.lock_and_release(&manager);
    node.flush();
    world.lock_and_release(&manager);
    let strict = world.guarded(MAX_TTL);
    node.flush();
    world.assert_quarantined(&strict, 1);
}

#[test]
fn who_deletes_the_epochs_changes_max_ttl_and_begins_a_quarantine() {
    let world = World::after_a_quarantine(3);
    world.nodes.iter().for_each(|node| node.expire(EPOCH));
    let manager = world.guarded(20 * SECOND);
    world.assert_quarantined(&manager, 3);
    world.advance(20 * SECOND);
    world.lock_and_release(&manager);
    // And a user who deletes the other key ends it.
    world.nodes.iter().for_each(MemoryNode::flush);
    world.assert_quarantined(&manager, 3);
    world.nodes.iter().for_each(|node| node.expire(QUARANTINE));
    world.lock_and_release(&manager);
    // A quarantine without an end lasts until a user ends it.
    world.nodes.iter().for_each(|node| node.put(QUARANTINE, Value::String(Vec::new())));
    world.advance(2 * MAX_TTL);
    world.assert_quarantined(&manager, 3);
}

/// The hole that the model of fencing shows: the attempt began before the node lost its data, reaches
/// it after, and brings a hint from before the token of another.
#[test]
fn an_attempt_from_before_a_loss_gets_no_token_that_is_too_low() {
    for guarded in [false, true] {
        let world = World::after_a_quarantine(3);
        let wall = Arc::new(AtomicU64::new(1_000));
        let manager = || {
            let wall = Arc::clone(&wall);
            let hint = move || wall.load(Ordering::Relaxed);
            let builder = world.builder().runtime(Client::showing(&world.sim, hint));
            let builder = builder.node_timeout(4 * SECOND);
            if guarded { builder.restart_guard(MAX_TTL) } else { builder }.build().unwrap()
        };
        let (early, late) = (manager(), manager());
        // Its requests take two seconds.
        world.inject(.., Fault::Slow(2 * SECOND));
        let attempt = early.lock("r").no_wait().fenced().into_future();
        let meanwhile = async {
            world.sim.sleep(SECOND).await;
            world.heal();
            wall.store(5_000, Ordering::Relaxed);
            let guard = late.lock("r").no_wait().fenced().await.unwrap();
            let token = guard.fencing_token().unwrap();
            world.nodes.iter().for_each(MemoryNode::restart);
            (guard, token)
        };
        let (attempt, (_guard, token)) = world.run(join(attempt, meanwhile));
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
