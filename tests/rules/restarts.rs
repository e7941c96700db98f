//! The restart guard: a node that may have forgotten does not vote until `max_ttl` has passed.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use quorate_core::protocol::quarantine::{EPOCH, KEY};
use quorate_core::{
    AdoptError, BackendErrorKind, BuildError, Claim, ExtendError, GuardedVote, InvalidTtl, Key,
    LockBackend, LockError, LockManager, Quarantine, Released, Resource, RestartGuard, Runtime,
    Said, Token, Votes,
};
use quorate_memory::{Effect, Fault, MemoryNode, Operation, Rule, Sim, Value};

use crate::world::{MS, SECOND};

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

    /// Nodes that nobody has ever used.
    fn fresh(nodes: usize) -> Self {
        let sim = Sim::new(7);
        let nodes = MemoryNode::cluster(nodes, sim.clone());
        Self { sim, nodes }
    }

    fn manager(&self, guard: impl Into<RestartGuard>) -> LockManager {
        let builder = LockManager::builder(self.sim.clone(), self.nodes.clone()).ttl(TTL);
        builder.restart_guard(guard).build().unwrap()
    }

    fn try_lock(&self, manager: &LockManager) -> Result<quorate_core::LockGuard, LockError> {
        self.sim.block_on(manager.try_lock("r"))
    }

    fn failure(&self, manager: &LockManager) -> Votes {
        votes_of(self.try_lock(manager))
    }

    fn lock_and_release(&self, manager: &LockManager) {
        let guard = self.try_lock(manager).unwrap();
        assert_eq!(self.sim.block_on(guard.release()).unwrap(), Released::Held);
        self.sim.advance(Duration::ZERO);
    }

    fn holders(&self) -> usize {
        self.nodes.iter().filter(|node| node.get("r").is_some()).count()
    }
}

fn votes_of<T: Debug>(failed: Result<T, LockError>) -> Votes {
    match failed {
        Err(LockError::NoQuorum { votes }) => votes,
        other => panic!("{other:?}"),
    }
}

fn kinds(votes: &Votes) -> Vec<BackendErrorKind> {
    let kind = |said: &Said| match said {
        Said::Failed(error) => Some(error.kind()),
        _ => None,
    };
    votes.iter().filter_map(|node| kind(&node.said)).collect()
}

fn assert_quarantined(votes: &Votes, nodes: usize) {
    assert_eq!(kinds(votes), vec![BackendErrorKind::Quarantined; nodes], "{votes}");
}

/// Loses, in one of the ways there are, that "r" is held.
type Loss = (&'static str, fn(&MemoryNode));

const LOSSES: [Loss; 4] = [
    ("restarts empty", MemoryNode::restart),
    ("restarts with old data", MemoryNode::restart_from_save),
    ("is flushed", MemoryNode::flush),
    ("restarts empty, and takes its time", |node| node.inject(Fault::Dead)),
];

#[test]
fn a_node_that_lost_its_data_does_not_vote_until_max_ttl_has_passed() {
    for (how, lose) in LOSSES {
        let world = World::new(3);
        let (one, other) = (world.manager(MAX_TTL), world.manager(MAX_TTL));
        for node in &world.nodes {
            node.save();
        }
        // Held by one, on the first two nodes; the second forgets.
        world.nodes[2].inject(Fault::Down);
        let guard = world.try_lock(&one).unwrap();
        world.nodes[2].heal();
        lose(&world.nodes[1]);
        world.nodes[1].heal();
        let start = world.sim.elapsed();
        // The third was down when it was taken, and may have forgotten something, too.
        let votes = votes_of(world.try_lock(&other));
        assert_eq!(kinds(&votes), [BackendErrorKind::Quarantined; 2], "{how}: {votes}");
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
        let manager = LockManager::builder(world.sim.clone(), world.nodes.clone()).build().unwrap();
        world.nodes[2].inject(Fault::Down);
        let one = world.try_lock(&manager).unwrap();
        let elsewhere =
            LockManager::builder(world.sim.clone(), world.nodes.clone()).build().unwrap();
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
    assert_quarantined(&votes_of::<()>(Err(error)), 2);
    world.sim.advance(56_800 * MS);
    let text = world.try_lock(&manager).unwrap_err().to_string();
    assert!(text.contains("quarantined for another 3.2s"), "{text}");
}

#[test]
fn who_waits_wins_when_the_quarantine_ends() {
    for fenced in [false, true] {
        let world = World::fresh(3);
        let manager = world.manager(MAX_TTL);
        let request = manager.lock("r").wait(2 * MAX_TTL);
        let request = if fenced { request.fenced() } else { request };
        let guard = world.sim.block_on(request).unwrap();
        let waited = world.sim.elapsed();
        assert!(waited >= MAX_TTL && waited < MAX_TTL + 2 * SECOND, "{waited:?}");
        assert_eq!(guard.fencing_token().is_some(), fenced);
        // Who does not wait for so long is told why.
        world.nodes[0].restart();
        world.nodes[1].restart();
        let lost = world.sim.block_on(manager.lock("s").wait(SECOND));
        let votes = votes_of(lost);
        assert_quarantined(&votes, 2);
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
    let guard = world.sim.block_on(manager.try_lock("r").ttl(MAX_TTL)).unwrap();
    world.nodes[0].flush();
    let free = world.sim.block_on(manager.lock("s").wait(2 * MAX_TTL)).unwrap();
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
fn a_manager_with_another_max_ttl_is_refused_by_name() {
    let world = World::new(3);
    for other in [MAX_TTL - MS, MAX_TTL + MS] {
        let manager = world.manager(other);
        // Waiting is pointless, and ends at once.
        let start = world.sim.elapsed();
        let votes = votes_of(world.sim.block_on(manager.lock("r").wait(MAX_TTL)));
        assert_eq!(world.sim.elapsed(), start);
        assert!(kinds(&votes).contains(&BackendErrorKind::MaxTtl));
        assert!(kinds(&votes).iter().all(|kind| *kind == BackendErrorKind::MaxTtl), "{votes}");
        let text = votes.to_string();
        assert!(text.contains(&format!("60000 ms, not {} ms", other.as_millis())), "{text}");
        assert_eq!(world.holders(), 0);
        // Nor does it change anything for the others, though a node has forgotten.
        world.nodes[2].restart_from_save();
        world.failure(&manager);
    }
    world.lock_and_release(&world.manager(MAX_TTL));
}

#[test]
fn who_deletes_the_epochs_changes_max_ttl_and_begins_a_quarantine() {
    let world = World::new(3);
    world.nodes.iter().for_each(|node| node.expire(EPOCH));
    let manager = world.manager(20 * SECOND);
    assert_quarantined(&world.failure(&manager), 3);
    world.sim.advance(20 * SECOND);
    world.lock_and_release(&manager);
    // And who deletes the other key ends it.
    world.nodes.iter().for_each(MemoryNode::flush);
    assert_quarantined(&world.failure(&manager), 3);
    world.nodes.iter().for_each(|node| node.expire(KEY));
    world.lock_and_release(&manager);
    // A quarantine without an end lasts until somebody ends it.
    for node in &world.nodes {
        node.put(KEY, Value::String(Vec::new()));
    }
    world.sim.advance(2 * MAX_TTL);
    assert_quarantined(&world.failure(&manager), 3);
}

#[test]
fn what_would_outlive_a_quarantine_is_refused_before_anything_is_sent() {
    let world = World::new(3);
    let over = |ttl| InvalidTtl::OverMaxTtl { ttl, max_ttl: MAX_TTL };
    let builder = || LockManager::builder(world.sim.clone(), world.nodes.clone());
    let long = builder().ttl(MAX_TTL + MS).restart_guard(MAX_TTL).build();
    assert_eq!(long.unwrap_err(), BuildError::Ttl(over(MAX_TTL + MS)));
    let endless = builder().restart_guard(Duration::MAX).build().unwrap_err();
    assert!(matches!(endless, BuildError::Ttl(InvalidTtl::TooLong { .. })), "{endless:?}");
    let none = builder().restart_guard(Duration::ZERO).build().unwrap_err();
    assert!(matches!(none, BuildError::Ttl(InvalidTtl::TooShort { .. })), "{none:?}");

    let manager = world.manager(MAX_TTL);
    let over_all = world.sim.block_on(manager.try_lock("r").ttl(MAX_TTL + MS)).unwrap_err();
    assert!(matches!(&over_all, LockError::Ttl(ttl) if *ttl == over(MAX_TTL + MS)), "{over_all:?}");
    assert!(over_all.to_string().contains("over the max_ttl of the restart guard, 60s"));
    let guard = world.sim.block_on(manager.try_lock("r").ttl(MAX_TTL)).unwrap();
    let extended = world.sim.block_on(guard.extend_to(MAX_TTL + MS)).unwrap_err();
    assert!(matches!(&extended, ExtendError::Ttl(ttl) if *ttl == over(MAX_TTL + MS)));
    world.sim.block_on(guard.extend_to(MAX_TTL)).unwrap();
    // Nor is a lock adopted that was taken for longer elsewhere.
    let record = builder().ttl(2 * MAX_TTL).build().unwrap();
    let record = world.sim.block_on(record.try_lock("s")).unwrap().hand_over();
    let adopted = world.sim.block_on(manager.adopt(&record)).unwrap_err();
    assert!(matches!(adopted, AdoptError::Ttl(ttl) if ttl == over(2 * MAX_TTL)));
}

#[test]
fn a_quarantined_node_extends_what_it_still_has_and_releases_it() {
    let world = World::new(3);
    let manager = world.manager(MAX_TTL);
    let guard = world.try_lock(&manager).unwrap();
    // Nothing is lost, but who can know.
    for node in &world.nodes {
        node.save();
        node.restart_from_save();
    }
    assert_quarantined(&votes_of(world.sim.block_on(manager.try_lock("s"))), 3);
    world.sim.advance(TTL / 2);
    world.sim.block_on(guard.extend()).unwrap();
    world.sim.advance(TTL * 3 / 4);
    assert!(guard.is_valid());
    assert_eq!(world.sim.block_on(guard.release()).unwrap(), Released::Held);
    world.sim.advance(Duration::ZERO);
    assert_eq!(world.holders(), 0);
    // An adoption is an extension.
    let world = World::new(3);
    let manager = world.manager(MAX_TTL);
    let record = world.try_lock(&manager).unwrap().hand_over();
    for node in &world.nodes {
        node.save();
        node.restart_from_save();
    }
    assert!(world.sim.block_on(manager.adopt(&record)).unwrap().is_valid());
}

/// H3: what is given back to a node counts from the next extension on, in quarantine or not.
#[test]
fn a_quarantined_node_gets_the_key_back_and_keeps_others_out() {
    let world = World::new(3);
    let (one, other) = (world.manager(MAX_TTL), world.manager(MAX_TTL));
    let guard = world.try_lock(&one).unwrap();
    world.nodes[2].restart();
    assert_eq!(world.holders(), 2);
    world.sim.block_on(guard.extend()).unwrap();
    world.sim.advance(Duration::ZERO);
    assert_eq!(world.holders(), 3);
    world.nodes[1].restart();
    world.sim.block_on(guard.extend()).unwrap();
    world.sim.advance(Duration::ZERO);
    world.nodes[0].restart();
    world.sim.block_on(guard.extend()).unwrap();
    assert!(world.try_lock(&other).is_err());
    assert_eq!(world.sim.block_on(guard.release()).unwrap(), Released::Held);
    world.sim.advance(Duration::ZERO);
    assert_eq!(world.holders(), 0);
}

#[test]
fn a_guarded_acquire_that_is_sent_twice_is_granted_twice() {
    for fenced in [false, true] {
        let world = World::new(3);
        let manager = world.manager(MAX_TTL);
        for node in &world.nodes {
            node.add_rule(Rule::new(Effect::Duplicate(100 * MS)).on(Operation::Acquire));
        }
        let request = manager.try_lock("r");
        let request = if fenced { request.fenced() } else { request };
        let guard = world.sim.block_on(request).unwrap();
        world.sim.advance(200 * MS);
        assert_eq!(world.holders(), 3);
        assert_eq!(world.sim.block_on(guard.release()).unwrap(), Released::Held);
    }
    // Also after a restart, if the key is there: it was granted before.
    let world = World::new(1);
    let node = &world.nodes[0];
    let claim = claim(1);
    let acquire = || {
        let guard = RestartGuard::strict(MAX_TTL);
        world.sim.block_on(Quarantine::acquire(node, &claim, None, guard)).unwrap().vote
    };
    assert_eq!(acquire(), GuardedVote::Granted(None));
    node.save();
    node.restart_from_save();
    assert_eq!(acquire(), GuardedVote::Granted(None));
    node.expire("r");
    assert_eq!(acquire(), GuardedVote::Quarantined { left: MAX_TTL });
}

fn claim(holder: u8) -> Claim {
    let token = Token::draw(|bytes| {
        bytes.fill(holder);
        Ok(())
    });
    let key = Key::new(b"", &Resource::new("r").unwrap());
    Claim::new([key], token.unwrap(), TTL.try_into().unwrap())
}

#[test]
fn a_quarantined_node_neither_refuses_nor_is_taken_for_one_that_does() {
    let world = World::new(3);
    let (one, other) = (world.manager(MAX_TTL), world.manager(MAX_TTL));
    let _held = world.try_lock(&one).unwrap();
    for node in &world.nodes[..2] {
        node.save();
        node.restart_from_save();
    }
    // Two have the key, and say nothing of it. One refuses.
    let votes = votes_of(world.try_lock(&other));
    assert_quarantined(&votes, 2);
    let refused = votes.iter().filter(|node| matches!(node.said, Said::Refused)).count();
    assert_eq!(refused, 1);
}

#[test]
fn a_node_that_may_evict_keys_is_refused_by_name() {
    let world = World::fresh(3);
    let manager = world.manager(MAX_TTL);
    for node in &world.nodes[1..] {
        node.inject(Fault::Evicting);
    }
    let votes = votes_of(world.sim.block_on(manager.lock("r").wait(2 * MAX_TTL)));
    assert_eq!(world.sim.elapsed(), Duration::ZERO, "waiting mends nothing");
    let text = votes.to_string();
    assert!(text.contains("memory-3: the node may evict keys"), "{text}");
    assert!(text.contains("allkeys-lru"), "{text}");
    // No epoch is set on it, so its quarantine begins when it is mended.
    world.sim.advance(MAX_TTL);
    world.nodes.iter().for_each(MemoryNode::heal);
    assert_quarantined(&world.failure(&manager), 2);
    world.sim.advance(MAX_TTL);
    world.lock_and_release(&manager);
}

#[test]
fn a_node_that_does_not_tell_who_it_is_is_refused_by_name() {
    let world = World::new(3);
    let manager = world.manager(MAX_TTL);
    for node in &world.nodes[..2] {
        node.inject(Fault::NoInfo);
    }
    let votes = votes_of(world.sim.block_on(manager.lock("r").wait(MAX_TTL)));
    assert_eq!(kinds(&votes), [BackendErrorKind::Permission; 2]);
    assert!(votes.to_string().contains("'info' command"), "{votes}");
    // Without the guard it may vote.
    let plain = LockManager::builder(world.sim.clone(), world.nodes.clone()).build().unwrap();
    world.lock_and_release(&plain);
}

#[test]
fn an_address_with_several_servers_behind_it_is_reported_and_does_not_vote() {
    let world = World::fresh(3);
    for node in &world.nodes[..2] {
        node.inject(Fault::Flapping);
    }
    let manager = world.manager(MAX_TTL);
    let mut said = Vec::new();
    for _ in 0..200 {
        world.sim.advance(SECOND);
        said.extend(world.failure(&manager).iter().filter_map(|node| match &node.said {
            Said::Failed(error) => Some(error.kind()),
            _ => None,
        }));
    }
    assert!(said.contains(&BackendErrorKind::Identity));
    let last = world.failure(&manager);
    assert_eq!(kinds(&last), [BackendErrorKind::Identity; 2]);
    let text = last.to_string();
    assert!(text.contains("memory-1: unstable identity"), "{text}");
    world.nodes.iter().for_each(MemoryNode::heal);
    world.failure(&manager);
    world.sim.advance(2 * MAX_TTL);
    world.lock_and_release(&manager);
}

/// Q6, for as long as the manager lives: who a node is comes with each of its votes.
#[test]
fn q6_an_address_that_comes_to_lead_to_another_node_is_noticed() {
    let world = World::new(3);
    let moves = Moves::new(&world.nodes);
    let nodes = moves.clone();
    let builder = LockManager::builder(world.sim.clone(), nodes).ttl(TTL);
    let manager = builder.restart_guard(MAX_TTL).build().unwrap();
    world.lock_and_release(&manager);
    moves[1].go_to(&world.nodes[0]);
    let lost = world.try_lock(&manager).unwrap_err();
    assert!(matches!(lost, LockError::SameServer { .. }), "{lost:?}");
    moves[1].go_to(&world.nodes[1]);
    world.sim.advance(SECOND);
    // Both have told anew by the time that this is over.
    let _ = world.try_lock(&manager);
    world.sim.advance(SECOND);
    world.lock_and_release(&manager);
}

mod moves {
    //! Addresses that lead elsewhere after a while.

    use std::sync::{Arc, Mutex};

    use async_trait::async_trait;
    use quorate_core::{
        BackendError, Claim, FenceHint, Guarded, Identify, LockBackend, Quarantine, RestartGuard,
        Vote,
    };
    use quorate_memory::MemoryNode;

    #[derive(Clone, Debug)]
    pub(super) struct Moves {
        name: String,
        node: Arc<Mutex<MemoryNode>>,
    }

    impl Moves {
        pub(super) fn new(nodes: &[MemoryNode]) -> Vec<Self> {
            let address = |node: &MemoryNode| Self {
                name: format!("address of {}", node.name()),
                node: Arc::new(Mutex::new(node.clone())),
            };
            nodes.iter().map(address).collect()
        }

        pub(super) fn go_to(&self, node: &MemoryNode) {
            *self.node.lock().unwrap() = node.clone();
        }

        fn node(&self) -> MemoryNode {
            self.node.lock().unwrap().clone()
        }
    }

    #[async_trait]
    impl LockBackend for Moves {
        async fn acquire(&self, claim: &Claim) -> Result<Vote, BackendError> {
            LockBackend::acquire(&self.node(), claim).await
        }

        async fn extend(&self, claim: &Claim) -> Result<Vote, BackendError> {
            self.node().extend(claim).await
        }

        async fn release(&self, claim: &Claim) -> Result<Vote, BackendError> {
            LockBackend::release(&self.node(), claim).await
        }

        fn name(&self) -> Option<&str> {
            Some(&self.name)
        }

        fn identity(&self) -> Option<&dyn Identify> {
            Some(self)
        }

        fn quarantine(&self) -> Option<&dyn Quarantine> {
            Some(self)
        }
    }

    #[async_trait]
    impl Identify for Moves {
        async fn server_id(&self) -> Result<Option<String>, BackendError> {
            self.node().server_id().await
        }
    }

    #[async_trait]
    impl Quarantine for Moves {
        async fn acquire(
            &self,
            claim: &Claim,
            hint: Option<FenceHint>,
            guard: RestartGuard,
        ) -> Result<Guarded, BackendError> {
            Quarantine::acquire(&self.node(), claim, hint, guard).await
        }
    }
}
use moves::Moves;

/// A backend that has only what it must.
#[test]
fn a_backend_that_cannot_guard_is_refused_when_the_manager_is_built() {
    let world = World::fresh(3);
    let nodes: Vec<Arc<dyn LockBackend>> =
        vec![Arc::new(world.nodes[0].clone()), Arc::new(crate::world::Spy::of(&world.nodes[1]))];
    let built = LockManager::builder(world.sim.clone(), nodes).restart_guard(MAX_TTL).build();
    let refused = BuildError::NotGuarded { node: "memory-2".to_owned() };
    assert_eq!(built.unwrap_err(), refused);
    assert_eq!(refused.to_string(), "memory-2 cannot be guarded against restarts");
}

#[test]
fn without_the_guard_nothing_is_stored_for_it_and_with_it_two_keys_are() {
    let world = World::fresh(1);
    let plain = LockManager::builder(world.sim.clone(), world.nodes.clone()).build().unwrap();
    world.lock_and_release(&plain);
    assert!(world.nodes[0].keys().is_empty());
    let manager = world.manager(MAX_TTL);
    assert_quarantined(&world.failure(&manager), 1);
    assert_eq!(world.nodes[0].keys(), [EPOCH.as_bytes(), KEY.as_bytes()]);
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
            let nodes = world.nodes.clone();
            let builder = LockManager::builder(world.sim.clone(), nodes).ttl(TTL);
            let builder = builder.node_timeout(4 * SECOND).fence_hint(hint);
            if guarded { builder.restart_guard(MAX_TTL) } else { builder }.build().unwrap()
        };
        let (early, late) = (manager(), manager());
        // Its requests take two seconds.
        for node in &world.nodes {
            node.inject(Fault::Slow(2 * SECOND));
        }
        let attempt = async { early.try_lock("r").fenced().await };
        let meanwhile = async {
            world.sim.sleep_until(world.sim.now() + SECOND).await;
            world.nodes.iter().for_each(MemoryNode::heal);
            wall.store(5_000, std::sync::atomic::Ordering::Relaxed);
            let guard = late.try_lock("r").fenced().await.unwrap();
            let token = guard.fencing_token().unwrap();
            for node in &world.nodes {
                node.restart();
            }
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
                assert_quarantined(&votes_of::<()>(Err(error)), 2);
            }
        }
    }
}
