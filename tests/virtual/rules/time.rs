//! T1–T5.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use quorate_core::algorithm::lease::SafetyMargin;
use quorate_core::backend::{Drift, InvalidTtl, Ttl};
use quorate_core::error::InvalidRequest;
use quorate_core::runtime::{BoxFuture, EntropyError};
use quorate_core::{BuildError, ExtendError, LeaseEnd, LockError, LockManager, Runtime};
use quorate_memory::{Fault, MemoryNode, Sim};

use crate::backends::Odd;
use crate::world::{MS, Paused, SECOND, World};

#[test]
fn t1_validity_counts_from_before_the_first_byte() {
    let world = World::new(5);
    world.inject(.., Fault::Slow(300 * MS));
    let before = world.sim.now();
    let guard = world.sim.block_on(world.manager().lock("r").no_wait()).unwrap();
    assert_eq!(world.sim.elapsed(), 300 * MS);
    assert_eq!(guard.valid_until(), before + validity(10 * SECOND));
}

#[test]
fn t1_validity_counts_from_the_round_that_was_won() {
    let world = World::new(5);
    let manager = world.manager();
    let other = world.sim.block_on(manager.lock("r").ttl(3 * SECOND)).unwrap();
    let guard = world.sim.block_on(manager.lock("r")).unwrap();
    assert!(world.sim.elapsed() > 2 * SECOND, "the other lease has ended before");
    assert_eq!(guard.remaining(), validity(10 * SECOND));
    drop(other);
}

/// What is left of a ttl after drift and safety margin, by default.
fn validity(ttl: Duration) -> Duration {
    let ttl = Ttl::try_from(ttl).unwrap();
    Drift::default().validity_of(ttl) - SafetyMargin::default().of(ttl)
}

fn paused_client() -> (Sim, Vec<MemoryNode>, Arc<Mutex<Duration>>, LockManager) {
    let sim = Sim::new(1);
    let client = Paused::new(&sim);
    let nodes = MemoryNode::cluster(3, sim.clone());
    let pause = Arc::default();
    let pausing = nodes.iter().map(|node| {
        let (client, pause) = (client.clone(), Arc::<Mutex<Duration>>::clone(&pause));
        Odd::new(node).after(move |_| client.pause(*pause.lock().unwrap()))
    });
    let manager = LockManager::builder(pausing).runtime(client.clone()).build().unwrap();
    (sim, nodes, pause, manager)
}

/// The votes are there, and the client is paused for longer than the ttl.
#[test]
fn t2_a_win_after_the_validity_is_a_loss_and_is_released() {
    let (sim, nodes, pause, manager) = paused_client();
    *pause.lock().unwrap() = 20 * SECOND;
    let lost = sim.block_on(manager.lock("r").no_wait());
    assert!(matches!(lost, Err(LockError::NoQuorum(_))), "{lost:?}");
    sim.settle();
    assert!(nodes.iter().all(|node| node.keys().is_empty()));
}

#[test]
fn t2_an_extension_that_is_won_after_the_validity_is_a_loss() {
    let (sim, _, pause, manager) = paused_client();
    let guard = sim.block_on(manager.lock("r").no_wait()).unwrap();
    let valid_until = guard.valid_until();
    *pause.lock().unwrap() = 20 * SECOND;
    let lost = sim.block_on(guard.extend());
    assert!(matches!(lost, Err(ExtendError::Lost(LeaseEnd::Expired { .. }))), "{lost:?}");
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
    let short = |ttl| Err(BuildError::Ttl(InvalidTtl::TooShort { ttl, least: 4 * MS }));
    assert_eq!(build(MS, None), short(MS));
    assert_eq!(build(2 * MS, None), short(2 * MS));
    assert_eq!(build(3 * MS, None), short(3 * MS));
    assert_eq!(build(4 * MS, None), Ok(()));
    assert_eq!(build(Duration::ZERO, None), short(Duration::ZERO));
    let endless = Duration::MAX;
    assert_eq!(build(endless, None), Err(BuildError::Ttl(InvalidTtl::TooLong { ttl: endless })));
    for timeout in [Duration::ZERO, SECOND, endless] {
        let built = build(SECOND, Some(timeout));
        let out = matches!(built, Err(BuildError::OutOfRange { setting: "node_timeout", .. }));
        assert!(out, "{built:?}");
    }
    assert_eq!(build(SECOND, Some(400 * MS)), Ok(()));
    let cleanup = World::new(3).builder().cleanup_bound(499 * MS).build();
    let (least, most) = (500 * MS, Duration::MAX);
    let short = BuildError::OutOfRange { setting: "cleanup_bound", value: 499 * MS, least, most };
    assert_eq!(cleanup.err(), Some(short));
    let none = LockManager::builder(Vec::<MemoryNode>::new()).runtime(Sim::new(0)).build();
    assert_eq!(none.err(), Some(BuildError::NodeCount { nodes: 0 }));
    let many = MemoryNode::cluster(65, Sim::new(0));
    let many = LockManager::builder(many).runtime(Sim::new(0)).build();
    assert_eq!(many.err(), Some(BuildError::NodeCount { nodes: 65 }));
}

#[test]
fn t3_nothing_overflows_at_the_longest_durations() {
    let world = World::new(3);
    let manager = world
        .builder()
        .ttl(Ttl::MAX)
        .wait_timeout(Duration::MAX)
        .cleanup_bound(Duration::MAX)
        .backoff(Duration::MAX, Duration::MAX)
        .build()
        .unwrap();
    let guard = world.sim.block_on(manager.lock("r").timeout(Duration::MAX)).unwrap();
    world.sim.block_on(guard.extend()).unwrap();
    assert!(guard.remaining() > Ttl::MAX / 2);
    let over = world.sim.block_on(guard.extend_to(Duration::MAX));
    assert!(matches!(over, Err(ExtendError::Ttl(InvalidTtl::TooLong { .. }))));
    let over = world.sim.block_on(manager.lock("s").ttl(Duration::MAX));
    assert!(matches!(
        over,
        Err(LockError::Invalid(InvalidRequest::Ttl(InvalidTtl::TooLong { .. })))
    ));
    world.sim.block_on(guard.release()).unwrap();
}

/// All scripts that a node is ever sent.
#[test]
fn t4_the_protocol_has_no_absolute_expiry() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/quorate-protocol/scripts");
    let scripts: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(scripts.len() >= 10, "{scripts:?}");
    for script in scripts {
        let text = fs::read_to_string(&script).unwrap().to_uppercase();
        for absolute in ["PXAT", "EXAT", "EXPIREAT"] {
            assert!(!text.contains(absolute), "{absolute} in {script:?}");
        }
        // Only the wait queue knows the server's time, and no lock depends on that.
        let is_queue = script.file_name().unwrap().to_string_lossy().starts_with("queue_");
        assert!(is_queue || !text.contains("\'TIME\'"), "{script:?}");
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
    nodes.iter().for_each(|node| node.inject(Fault::Slow(490 * MS)));
    let manager = LockManager::builder(nodes).runtime(Restless(sim.clone())).build().unwrap();
    assert!(sim.block_on(manager.lock("r").no_wait()).is_ok());
}

/// The votes have come, and the task is polled late.
#[test]
fn t5_votes_that_are_there_count_before_the_clock() {
    let world = World::new(3);
    world.inject(.., Fault::Late(10 * MS));
    let mut context = Context::from_waker(Waker::noop());
    let mut request = Box::pin(world.manager().lock("r").no_wait().into_future());
    assert!(request.as_mut().poll(&mut context).is_pending());
    world.sim.advance(3 * SECOND);
    assert!(matches!(request.as_mut().poll(&mut context), Poll::Ready(Ok(_))));
}
