//! A1–A6, as far as virtual time can show them. Real runtimes are in `runtimes.rs`, A2's docs in
//! `cancel_safety.rs`.

use std::future::{Future, IntoFuture, poll_fn};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use quorate_core::{
    BackendError, Backoff, Claim, LockBackend, LockError, LockManager, Runtime, Vote, async_trait,
};
use quorate_memory::{Fault, MemoryNode, Sim, Value};

use crate::world::{MS, SECOND, World};

#[test]
fn a4_a_lock_always_has_a_deadline() {
    let world = World::new(3);
    let manager = world.manager();
    for node in &world.nodes {
        node.put("held", Value::String(b"for ever".to_vec()));
    }
    let lost = world.sim.block_on(manager.lock("held"));
    assert!(matches!(lost, Err(LockError::Held { .. })), "{lost:?}");
    let elapsed = world.sim.elapsed();
    assert!(elapsed <= 30 * SECOND && elapsed > 29 * SECOND, "{elapsed:?}");

    for node in &world.nodes {
        node.inject(Fault::Hung);
    }
    for wait in [Duration::ZERO, MS, 700 * MS, 3 * SECOND] {
        let start = world.sim.elapsed();
        let lost = world.sim.block_on(manager.lock("r").wait(wait));
        assert!(matches!(lost, Err(LockError::NoQuorum { .. })), "{lost:?}");
        let took = world.sim.elapsed() - start;
        assert!(took <= wait.max(500 * MS), "{took:?} of {wait:?}");
    }
}

#[test]
fn a4_an_error_that_time_does_not_mend_ends_the_wait() {
    for reply in ["NOAUTH Authentication required.", "WRONGTYPE", "NOPERM", "ERR unknown command"] {
        let world = World::new(5);
        for node in &world.nodes[..3] {
            node.inject(Fault::Failing(BackendError::from_reply(reply)));
        }
        let lost = world.sim.block_on(world.manager().lock("r"));
        assert!(matches!(lost, Err(LockError::NoQuorum { .. })), "{lost:?}");
        assert_eq!(world.sim.elapsed(), Duration::ZERO, "{reply}");
    }
    // On a minority it decides nothing, and what may pass is waited for.
    let world = World::new(5);
    for node in &world.nodes[..2] {
        node.inject(Fault::Failing(BackendError::from_reply("NOAUTH")));
    }
    world.nodes[2].inject(Fault::Dead);
    let lost = world.sim.block_on(world.manager().lock("r"));
    assert!(matches!(lost, Err(LockError::NoQuorum { .. })), "{lost:?}");
    assert!(world.sim.elapsed() > 29 * SECOND);
}

/// After a round that was cut short by the deadline, the error is that of the one before.
#[test]
fn a_deadline_in_mid_round_does_not_hide_who_held_it() {
    #[derive(Debug)]
    struct Fixed;

    impl quorate_core::RetryStrategy for Fixed {
        fn delay(&self, _: &quorate_core::RetryContext) -> Option<Duration> {
            Some(SECOND)
        }
    }

    let world = World::new(3);
    for node in &world.nodes {
        node.put("r", Value::String(b"x".to_vec()));
        node.inject(Fault::Slow(100 * MS));
    }
    let request = world.manager().lock("r").wait(Duration::from_millis(1_150)).retry(Fixed);
    let lost = world.sim.block_on(request);
    assert!(matches!(lost, Err(LockError::Held { .. })), "{lost:?}");
    assert_eq!(world.sim.elapsed(), Duration::from_millis(1_150));
}

#[test]
fn a_strategy_can_give_up() {
    let world = World::new(3);
    for node in &world.nodes {
        node.put("r", Value::String(b"x".to_vec()));
    }
    let request = world.manager().lock("r").retry(Backoff::default().limit(4));
    assert!(world.sim.block_on(request).is_err());
    assert_eq!(world.log.tokens().len(), 4);
}

/// A strategy without delays meets nodes without latency: time must pass all the same.
#[test]
fn a_strategy_without_delay_still_ends_at_the_deadline() {
    let world = World::new(3);
    for node in &world.nodes {
        node.put("r", Value::String(b"x".to_vec()));
    }
    let eager = Backoff::new(Duration::ZERO, Duration::ZERO);
    let request = world.manager().lock("r").wait(20 * MS).retry(eager);
    assert!(world.sim.block_on(request).is_err());
}

#[test]
fn a6_no_token_is_printed_anywhere() {
    let world = World::new(5);
    let manager = world.manager();
    for node in &world.nodes[3..] {
        node.put("r", Value::String(b"x".to_vec()));
    }
    let request = manager.lock("r");
    let mut printed = format!("{manager:?} {request:?} {:?}", manager.try_lock("r"));
    let guard = world.sim.block_on(request).unwrap();
    printed += &format!("{guard:?}");
    for node in &world.nodes[..3] {
        node.restart();
    }
    let error = world.sim.block_on(guard.extend()).unwrap_err();
    printed += &format!("{error} {error:?}");
    let error = world.sim.block_on(manager.try_lock(vec![0_u8; 9])).map(drop);
    printed += &format!("{error:?}");
    for token in world.log.tokens() {
        let token = String::from_utf8(token).unwrap();
        assert!(!printed.contains(&token), "{printed}");
        assert!(!printed.contains(&token[..8]), "{printed}");
    }
}

#[test]
fn a4_what_may_pass_is_waited_for() {
    for reply in ["LOADING x", "READONLY x", "OOM x", "MISCONF x", "CLUSTERDOWN x", "ERR else"] {
        let world = World::new(3);
        for node in &world.nodes {
            node.inject(Fault::Failing(BackendError::from_reply(reply)));
        }
        let (nodes, sim) = (world.nodes.clone(), world.sim.clone());
        world.sim.spawn(Box::pin(async move {
            sim.sleep_until(sim.now() + 2 * SECOND).await;
            for node in &nodes {
                node.heal();
            }
        }));
        assert!(world.sim.block_on(world.manager().lock("r")).is_ok(), "{reply}");
    }
}

/// The order in which the nodes answer changes neither the reason nor the patience.
#[test]
fn a4_the_reason_does_not_depend_on_who_answers_first() {
    for shift in 0..5 {
        let world = World::new(5);
        let node = |place: usize| &world.nodes[(place + shift) % 5];
        node(0).inject(Fault::Dead);
        node(1).put("r", Value::String(b"x".to_vec()));
        for place in 2..5 {
            node(place).inject(Fault::Failing(BackendError::from_reply("NOAUTH")));
        }
        let lost = world.sim.block_on(world.manager().lock("r"));
        assert!(matches!(lost, Err(LockError::NoQuorum { .. })), "{shift}: {lost:?}");
        assert_eq!(world.sim.elapsed(), Duration::ZERO, "{shift}");
    }
}

/// The votes have come, and the task is polled late.
#[test]
fn t5_votes_that_are_there_count_before_the_clock() {
    let world = World::new(3);
    for node in &world.nodes {
        node.inject(Fault::Late(10 * MS));
    }
    let mut context = Context::from_waker(Waker::noop());
    let mut request = Box::pin(world.manager().try_lock("r").into_future());
    assert!(request.as_mut().poll(&mut context).is_pending());
    world.sim.advance(3 * SECOND);
    assert!(matches!(request.as_mut().poll(&mut context), Poll::Ready(Ok(_))));
}

/// Counts how often its calls are polled.
#[derive(Debug)]
struct Polled {
    node: MemoryNode,
    polls: Arc<AtomicUsize>,
}

impl Polled {
    async fn counted<T>(&self, call: impl Future<Output = T>) -> T {
        let mut call = Box::pin(call);
        poll_fn(|context| {
            self.polls.fetch_add(1, Ordering::SeqCst);
            call.as_mut().poll(context)
        })
        .await
    }
}

#[async_trait]
impl LockBackend for Polled {
    async fn acquire(&self, claim: &Claim) -> Result<Vote, BackendError> {
        self.counted(LockBackend::acquire(&self.node, claim)).await
    }

    async fn extend(&self, claim: &Claim) -> Result<Vote, BackendError> {
        self.counted(self.node.extend(claim)).await
    }

    async fn release(&self, claim: &Claim) -> Result<Vote, BackendError> {
        self.counted(LockBackend::release(&self.node, claim)).await
    }
}

/// Each answer wakes the caller, or the cleanup, for itself alone.
#[test]
fn a_call_is_polled_when_it_asks_for_it_and_not_when_another_does() {
    let world = World::new(5);
    let polls = Arc::<AtomicUsize>::default();
    let nodes = world.nodes.iter().zip(1..).map(|(node, place)| {
        node.inject(Fault::Slow(place * MS));
        Polled { node: node.clone(), polls: Arc::clone(&polls) }
    });
    let manager = LockManager::builder(world.sim.clone(), nodes).build().unwrap();
    let guard = world.sim.block_on(manager.lock("r")).unwrap();
    world.sim.settle();
    let to_acquire = polls.swap(0, Ordering::SeqCst);
    world.sim.block_on(guard.extend()).unwrap();
    world.sim.settle();
    let to_extend = polls.swap(0, Ordering::SeqCst);
    drop(guard);
    world.sim.settle();
    let to_release = polls.load(Ordering::SeqCst);
    assert_eq!((to_acquire, to_extend, to_release), (10, 10, 10));
}

/// Registers its waker before it looks, and keeps it.
#[derive(Debug)]
struct Keeps {
    node: MemoryNode,
    waker: Mutex<Option<Waker>>,
    _alive: Arc<()>,
}

impl Keeps {
    async fn registered(&self) {
        poll_fn(|context| {
            *self.waker.lock().unwrap() = Some(context.waker().clone());
            Poll::Ready(())
        })
        .await;
    }
}

#[async_trait]
impl LockBackend for Keeps {
    async fn acquire(&self, claim: &Claim) -> Result<Vote, BackendError> {
        self.registered().await;
        LockBackend::acquire(&self.node, claim).await
    }

    async fn extend(&self, claim: &Claim) -> Result<Vote, BackendError> {
        self.registered().await;
        self.node.extend(claim).await
    }

    async fn release(&self, claim: &Claim) -> Result<Vote, BackendError> {
        self.registered().await;
        LockBackend::release(&self.node, claim).await
    }
}

#[test]
fn a_waker_that_a_backend_keeps_does_not_keep_the_manager() {
    let (sim, alive) = (Sim::new(7), Arc::new(()));
    let keeps = |node| Keeps { node, waker: Mutex::default(), _alive: Arc::clone(&alive) };
    let nodes: Vec<Keeps> = MemoryNode::cluster(3, sim.clone()).into_iter().map(keeps).collect();
    let manager = LockManager::builder(sim.clone(), nodes).build().unwrap();
    let guard = sim.block_on(manager.lock("r")).unwrap();
    let _ = sim.block_on(guard.release()).unwrap();
    sim.settle();
    drop(manager);
    sim.end();
    assert_eq!(Arc::strong_count(&alive), 1, "its nodes are still there");
}

/// What leaves does not wake who polls for it.
#[test]
fn a_lock_is_polled_once_to_leave_and_once_for_each_answer_that_it_needs() {
    let world = World::new(3);
    world.nodes.iter().zip(1..).for_each(|(node, place)| node.inject(Fault::Slow(place * MS)));
    let (mut lock, mut polls) = (world.manager().lock("r").into_future(), 0);
    let lock = poll_fn(|context| {
        polls += 1;
        lock.as_mut().poll(context)
    });
    let _guard = world.sim.block_on(lock).unwrap();
    assert_eq!(polls, 3);
}
