//! T1–T5.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use quorate_core::runtime::{BoxFuture, EntropyError};
use quorate_core::{
    Backoff, BuildError, Drift, ExtendError, InvalidTtl, LockError, LockManager, Runtime,
};
use quorate_memory::{Fault, MemoryNode, Sim};

use crate::world::{MS, Paused, PausesClient, SECOND, World};

#[test]
fn t1_validity_counts_from_before_the_first_byte() {
    let world = World::new(5);
    for node in &world.nodes {
        node.inject(Fault::Slow(300 * MS));
    }
    let before = world.sim.now();
    let guard = world.sim.block_on(world.manager().try_lock("r")).unwrap();
    assert_eq!(world.sim.elapsed(), 300 * MS);
    assert_eq!(guard.valid_until(), before + 10 * SECOND - Drift::default().of(ttl(10_000)));
}

#[test]
fn t1_validity_counts_from_the_round_that_was_won() {
    let world = World::new(5);
    let manager = world.manager();
    let other = world.sim.block_on(manager.lock("r").ttl(3 * SECOND)).unwrap();
    let guard = world.sim.block_on(manager.lock("r")).unwrap();
    assert!(world.sim.elapsed() >= 3 * SECOND);
    assert_eq!(guard.remaining(), Drift::default().validity_of(ttl(10_000)));
    drop(other);
}

fn ttl(millis: u64) -> quorate_core::Ttl {
    Duration::from_millis(millis).try_into().unwrap()
}

fn paused_client() -> (Sim, Vec<MemoryNode>, Arc<Mutex<Duration>>, LockManager) {
    let sim = Sim::new(1);
    let client = Paused::new(&sim);
    let nodes = MemoryNode::cluster(3, sim.clone());
    let pause = Arc::default();
    let pausing = nodes.iter().map(|node| PausesClient {
        node: node.clone(),
        client: client.clone(),
        pause: Arc::clone(&pause),
    });
    let manager = LockManager::builder(client.clone(), pausing).build().unwrap();
    (sim, nodes, pause, manager)
}

/// The votes lie there while the client is paused for longer than the ttl.
#[test]
fn t2_a_win_after_the_validity_is_a_loss_and_is_given_back() {
    let (sim, nodes, pause, manager) = paused_client();
    *pause.lock().unwrap() = 20 * SECOND;
    let lost = sim.block_on(manager.try_lock("r"));
    assert!(matches!(lost, Err(LockError::Expired { .. })), "{lost:?}");
    sim.settle();
    assert!(nodes.iter().all(|node| node.keys().is_empty()));
}

#[test]
fn t2_an_extension_that_is_won_after_the_validity_is_a_loss() {
    let (sim, _, pause, manager) = paused_client();
    let guard = sim.block_on(manager.try_lock("r")).unwrap();
    let valid_until = guard.valid_until();
    *pause.lock().unwrap() = 20 * SECOND;
    let lost = sim.block_on(guard.extend());
    assert!(matches!(lost, Err(ExtendError::Expired { .. })), "{lost:?}");
    assert_eq!(guard.valid_until(), valid_until);
    assert!(!guard.is_valid());
}

#[test]
fn t3_settings_that_cannot_hold_a_lock_are_refused() {
    let build = |ttl: Duration, node_timeout: Option<Duration>| {
        let builder = World::new(3).builder().ttl(ttl);
        let builder = match node_timeout {
            Some(timeout) => builder.node_timeout(timeout),
            None => builder,
        };
        builder.build().map(|_| ())
    };
    let short = |ttl| Err(BuildError::Ttl(InvalidTtl::TooShort { ttl, least: 3 * MS }));
    assert_eq!(build(MS, None), short(MS));
    assert_eq!(build(2 * MS, None), short(2 * MS));
    assert_eq!(build(3 * MS, None), Ok(()));
    assert_eq!(build(Duration::ZERO, None), short(Duration::ZERO));
    let endless = Duration::MAX;
    assert_eq!(build(endless, None), Err(BuildError::Ttl(InvalidTtl::TooLong { ttl: endless })));
    for timeout in [Duration::ZERO, SECOND, endless] {
        let built = build(SECOND, Some(timeout));
        assert!(matches!(built, Err(BuildError::NodeTimeout { .. })), "{built:?}");
    }
    assert_eq!(build(SECOND, Some(400 * MS)), Ok(()));
    let cleanup = World::new(3).builder().cleanup_timeout(499 * MS).build();
    let short = BuildError::CleanupTimeout { timeout: 499 * MS, least: 500 * MS };
    assert_eq!(cleanup.err(), Some(short));
    let none = LockManager::builder(Sim::new(0), Vec::<MemoryNode>::new()).build();
    assert_eq!(none.err(), Some(BuildError::NodeCount { nodes: 0 }));
    let many = MemoryNode::cluster(65, Sim::new(0));
    let many = LockManager::builder(Sim::new(0), many).build();
    assert_eq!(many.err(), Some(BuildError::NodeCount { nodes: 65 }));
}

#[test]
fn t3_nothing_overflows_at_the_longest_durations() {
    let world = World::new(3);
    let manager = world
        .builder()
        .ttl(quorate_core::Ttl::MAX)
        .wait(Duration::MAX)
        .cleanup_timeout(Duration::MAX)
        .retry(Backoff::new(Duration::MAX, Duration::MAX))
        .build()
        .unwrap();
    let guard = world.sim.block_on(manager.lock("r").wait(Duration::MAX)).unwrap();
    world.sim.block_on(guard.extend()).unwrap();
    assert!(guard.remaining() > quorate_core::Ttl::MAX / 2);
    let over = world.sim.block_on(guard.extend_to(Duration::MAX));
    assert!(matches!(over, Err(ExtendError::Ttl(InvalidTtl::TooLong { .. }))));
    let over = world.sim.block_on(manager.lock("s").ttl(Duration::MAX));
    assert!(matches!(over, Err(LockError::Ttl(InvalidTtl::TooLong { .. }))));
    let _ = world.sim.block_on(guard.release()).unwrap();
}

/// All scripts that a node is ever sent.
#[test]
fn t4_the_protocol_has_no_absolute_time() {
    use quorate_core::protocol::{
        ACQUIRE, EACH, EXTEND, INSPECT, OWN, RELEASE, fence, quarantine, queue,
    };
    let plain = [ACQUIRE, OWN, EXTEND, RELEASE, EACH, INSPECT, queue::JOIN, queue::LEAVE];
    let others = [fence::ACQUIRE, fence::RAISE, fence::RELEASE, quarantine::ACQUIRE];
    for script in plain.into_iter().chain(others) {
        let text = script.source();
        for absolute in ["PXAT", "EXAT", "EXPIREAT", "TIME"] {
            assert!(!text.contains(absolute), "{absolute} in {text}");
        }
    }
}

/// A runtime whose sleeps end too early, again and again.
#[derive(Debug)]
struct Restless(Sim);

impl Runtime for Restless {
    fn now(&self) -> Instant {
        self.0.now()
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        let left = deadline.saturating_duration_since(self.0.now());
        self.0.sleep_until(self.0.now() + (left / 2).max(MS))
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.0.spawn(task);
    }

    fn fill_random(&self, bytes: &mut [u8]) -> Result<(), EntropyError> {
        self.0.fill_random(bytes)
    }
}

#[test]
fn t5_a_timer_that_fires_early_decides_nothing() {
    let sim = Sim::new(1);
    let nodes = MemoryNode::cluster(3, sim.clone());
    for node in &nodes {
        node.inject(Fault::Slow(490 * MS));
    }
    let manager = LockManager::builder(Restless(sim.clone()), nodes).build().unwrap();
    assert!(sim.block_on(manager.try_lock("r")).is_ok());
}

#[test]
fn t3_the_node_timeout_is_cut_for_a_short_ttl() {
    let world = World::new(3);
    let manager = world.builder().node_timeout(4 * SECOND).build().unwrap();
    for node in &world.nodes {
        node.inject(Fault::Hung);
    }
    assert!(world.sim.block_on(manager.try_lock("r").ttl(SECOND)).is_err());
    assert!(world.sim.elapsed() < 500 * MS, "half of the validity: {:?}", world.sim.elapsed());
}
