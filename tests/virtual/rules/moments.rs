//! Tasks, runtimes and callers that go away, or come late, at the wrong moment.

use std::future::{IntoFuture, poll_fn};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Instant;

use futures_util::FutureExt;
use futures_util::future::{AbortHandle, Either, abortable, select};
use quorate_core::runtime::{BoxFuture, EntropyError};
use quorate_core::{LockError, LockManager, ReleaseError, Runtime};
use quorate_memory::{Fault, MemoryNode, Sim};

use crate::backends::Odd;
use crate::world::{MS, SECOND, World};

/// A runtime that ends, and drops its tasks. Another one takes those that are spawned later, or none does.
#[derive(Clone, Debug)]
struct Ending {
    sim: Sim,
    tasks: Arc<Mutex<Vec<AbortHandle>>>,
    is_last: Arc<AtomicBool>,
}

impl Ending {
    fn new(sim: &Sim) -> Self {
        Self { sim: sim.clone(), tasks: Arc::default(), is_last: Arc::default() }
    }

    fn end(&self) {
        self.tasks.lock().unwrap().drain(..).for_each(|task| task.abort());
    }
}

impl Runtime for Ending {
    fn now(&self) -> Instant {
        self.sim.now()
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        self.sim.sleep_until(deadline)
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        if self.is_last.load(Ordering::Relaxed) {
            return;
        }
        let (task, handle) = abortable(task);
        self.tasks.lock().unwrap().push(handle);
        self.sim.spawn(Box::pin(task.map(drop)));
    }

    fn fill_random(&self, bytes: &mut [u8]) -> Result<(), EntropyError> {
        self.sim.fill_random(bytes)
    }
}

#[test]
fn a_lease_is_renewed_though_the_runtime_that_renewed_it_has_ended() {
    let world = World::complete(3);
    let runtime = Ending::new(&world.sim);
    let manager = LockManager::builder(world.spies()).runtime(runtime.clone()).build().unwrap();
    let guard = world.sim.block_on(manager.lock("r").auto_renew()).unwrap();
    for _ in 0..3 {
        world.sim.advance(SECOND);
        runtime.end();
        world.sim.advance(60 * SECOND);
        assert!(guard.is_valid());
        assert_eq!(world.holders("r"), 3);
    }
}

#[test]
fn a1_a_release_ends_though_the_runtime_drops_it() {
    let world = World::complete(3);
    let runtime = Ending::new(&world.sim);
    let nodes = world.nodes.iter().map(Odd::new);
    let manager = LockManager::builder(nodes).runtime(runtime.clone()).build().unwrap();
    let guard = world.sim.block_on(manager.lock("r")).unwrap();
    runtime.is_last.store(true, Ordering::Relaxed);
    let released = world.sim.block_on(guard.release());
    assert!(matches!(released, Err(ReleaseError::Unconfirmed(_))), "{released:?}");
}

#[test]
fn a_task_that_is_dropped_with_its_turn_gives_it_on() {
    for world in [World::complete(3), World::new(3)] {
        let manager = world.manager();
        let held = world.sim.block_on(manager.lock("r")).unwrap();
        let mut first = manager.lock("r").into_future().boxed();
        assert!((&mut first).now_or_never().is_none());
        let is_served = Arc::new(AtomicBool::new(false));
        let (second, serves) = (manager.clone(), Arc::clone(&is_served));
        world.sim.spawn(Box::pin(async move {
            second.lock("r").await.unwrap().release().await.unwrap();
            serves.store(true, Ordering::Relaxed);
        }));
        world.catch_up();
        world.sim.block_on(held.release()).unwrap();
        world.sim.advance(SECOND);
        assert!(!is_served.load(Ordering::Relaxed), "the first task was woken, and has the turn");
        drop(first);
        world.sim.advance(SECOND);
        assert!(is_served.load(Ordering::Relaxed));
        assert_eq!(world.keys_left(), 0);
    }
}

/// The caller is busy elsewhere for longer than the lease.
#[test]
fn t2_a_win_that_its_caller_takes_too_late_is_a_loss() {
    for world in [World::complete(3), World::new(3)] {
        for waits in [false, true] {
            world.inject(.., Fault::Late(10 * MS));
            let request = world.manager().lock("r").ttl(SECOND);
            let request = if waits { request } else { request.no_wait() };
            let mut acquiring = request.into_future().boxed();
            assert!((&mut acquiring).now_or_never().is_none());
            world.sim.advance(5 * SECOND);
            match world.sim.block_on(acquiring) {
                Ok(guard) => {
                    assert!(waits && guard.is_valid());
                    assert_eq!(world.holders("r"), 3);
                    world.sim.block_on(guard.release()).unwrap();
                }
                Err(LockError::NoQuorum(_)) => assert!(!waits),
                Err(error) => panic!("{error}"),
            }
            world.sim.advance(SECOND);
            assert_eq!(world.keys_left(), 0);
        }
    }
}

/// The connections keep no order, and the REFRESH takes longer than what comes behind it.
#[test]
fn w3_a_leave_never_overtakes_its_refresh() {
    let mut entries = 0;
    for moment in 0..30 {
        let world = World::complete(1);
        let world = World { nodes: vec![world.nodes[0].unordered()], ..world };
        let node = &world.nodes[0];
        let _held = world.sim.block_on(world.manager().lock("r").ttl(60 * SECOND)).unwrap();
        node.inject(Fault::Slow(400 * MS));
        let manager = world.builder().node_timeout(2 * SECOND).build().unwrap();
        let mut waits = manager.lock("r").into_future().boxed();
        let moment = moment * 100 * MS;
        let stopped = select(waits.as_mut(), world.sim.sleep(moment));
        assert!(matches!(world.sim.block_on(stopped), Either::Right(_)), "{moment:?}");
        entries += usize::from(node.keys().len() > 1);
        node.heal();
        drop(waits);
        // An entry that came back would be there for two seconds.
        world.sim.advance(SECOND);
        assert_eq!(node.keys(), [b"r".to_vec()], "{moment:?}");
    }
    assert!(entries > 0, "it never joined the queue");
}

/// A manager, and what its nodes keep alive. They keep the waker of each call as well.
fn kept_alive() -> (Sim, LockManager, Arc<()>) {
    let (sim, alive) = (Sim::new(7), Arc::new(()));
    let keeps = |node: &MemoryNode| {
        let kept = (Arc::clone(&alive), Arc::<Mutex<Option<Waker>>>::default());
        Odd::new(node).before(move |_| {
            let waker = Arc::clone(&kept.1);
            let _alive = &kept.0;
            Box::pin(poll_fn(move |context| {
                *waker.lock().unwrap() = Some(context.waker().clone());
                Poll::Ready(Ok(()))
            }))
        })
    };
    let nodes: Vec<Odd> = MemoryNode::cluster(3, sim.clone()).iter().map(keeps).collect();
    let manager = LockManager::builder(nodes).runtime(sim.clone()).build().unwrap();
    (sim, manager, alive)
}

#[test]
fn a_waker_that_a_backend_keeps_does_not_keep_the_manager() {
    let (sim, manager, alive) = kept_alive();
    let guard = sim.block_on(manager.lock("r")).unwrap();
    sim.block_on(guard.release()).unwrap();
    sim.settle();
    drop(manager);
    sim.end();
    assert_eq!(Arc::strong_count(&alive), 1, "its nodes are still there");
}

/// A request, a guard and its futures keep no task alive: without a manager nothing is left.
#[test]
fn a_manager_without_guards_is_dropped_with_its_nodes() {
    let (sim, manager, alive) = kept_alive();
    let guard = sim.block_on(manager.lock("r")).unwrap();
    guard.auto_renew();
    let lost = guard.lost();
    drop(manager);
    drop(guard);
    sim.block_on(lost);
    sim.settle();
    assert_eq!(Arc::strong_count(&alive), 1, "its nodes are still there");
}
