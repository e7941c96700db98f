//! Real runtimes: the contract of each, and what happens at their edges (A1).

use std::future::{Future, IntoFuture};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::{join, join_all};
use quorate_core::backend::{AcquireOptions, ExtendOptions, ReleaseOptions, Reply};
use quorate_core::runtime::{InTokio, SmolRuntime, TokioContext, TokioRuntime};
use quorate_core::{
    BackendError, Claim, DetachedLock, Key, Lease, LockBackend, LockError, LockGuard, LockManager,
    Resource, Runtime, Token, Vote, WithError,
};
use quorate_examples::{StdRuntime, block_on};
use quorate_memory::{Fault, MemoryNode, Value, conformance};
use quorate_tests::wait::{LIMIT, LONG_TTL, receive};
use tokio::runtime::{Builder, Handle, Runtime as Tokio};

use crate::every_future::{self, Doing, Trial};

fn current_thread() -> Tokio {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn multi_thread() -> Tokio {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Runs `check` on every runtime there is, on all at once.
fn on_every_runtime<F>(check: impl Fn(Arc<dyn Runtime>) -> F + Sync)
where
    F: Future<Output = ()>,
{
    thread::scope(|scope| {
        for tokio in [current_thread(), multi_thread()] {
            let check = &check;
            scope.spawn(move || {
                tokio.block_on(async { check(Arc::new(TokioRuntime::new())).await });
            });
        }
        // Tokio's value where there is no tokio.
        scope.spawn(|| block_on(check(Arc::new(TokioRuntime::new()))));
        scope.spawn(|| block_on(check(Arc::new(SmolRuntime::new()))));
        scope.spawn(|| block_on(check(Arc::new(StdRuntime::new()))));
    });
}

#[test]
fn every_runtime_keeps_the_contract() {
    on_every_runtime(|runtime| async move {
        assert_eq!(conformance::runtime(&runtime).await.unwrap().len(), 5);
    });
}

/// A node that reports when a release has been carried out.
#[derive(Clone, Debug)]
struct Announcing {
    node: MemoryNode,
    releases: Arc<Mutex<Sender<()>>>,
}

#[async_trait]
impl LockBackend for Announcing {
    async fn acquire(&self, claim: &Claim, options: AcquireOptions) -> Result<Reply, BackendError> {
        self.node.acquire(claim, options).await
    }

    async fn extend(&self, claim: &Claim, options: ExtendOptions) -> Result<Reply, BackendError> {
        self.node.extend(claim, options).await
    }

    async fn release(&self, claim: &Claim, options: ReleaseOptions) -> Result<Reply, BackendError> {
        let released = self.node.release(claim, options).await;
        self.releases.lock().unwrap().send(()).ok();
        released
    }
}

/// Whether a guard has a task that renews it.
#[derive(Clone, Copy)]
enum Keep {
    AsItIs,
    Alive,
}

impl Keep {
    const BOTH: [Self; 2] = [Self::AsItIs, Self::Alive];

    async fn lock(self, manager: &LockManager) -> LockGuard {
        let guard = manager.lock("r").await.unwrap();
        if let Self::Alive = self {
            guard.auto_renew();
        }
        guard
    }
}

struct Locks {
    manager: LockManager,
    nodes: Vec<MemoryNode>,
    releases: Receiver<()>,
}

impl Locks {
    fn new(runtime: &Arc<dyn Runtime>) -> Self {
        let (sender, releases) = channel();
        let sender = Arc::new(Mutex::new(sender));
        let nodes = MemoryNode::cluster(3, Arc::clone(runtime));
        let announcing = nodes
            .iter()
            .map(|node| Announcing { node: node.clone(), releases: Arc::clone(&sender) });
        // No lease ends, and no node is given up, because the machine is slow.
        let builder = LockManager::builder(announcing).runtime(Arc::clone(runtime));
        let builder = builder.ttl(LONG_TTL).node_timeout(LIMIT).timeout(LIMIT);
        let manager = builder.renew_interval(Duration::from_millis(2)).build().unwrap();
        Self { manager, nodes, releases }
    }

    /// Waits in a thread of its own, so that a single-threaded runtime can go on.
    async fn released_everywhere(self) {
        let (done, waited) = word();
        let Self { releases, nodes, .. } = self;
        thread::spawn(move || {
            let heard = (0..3).all(|_| receive(&releases).is_some());
            done(heard);
        });
        assert!(waited.await, "not every node was released");
        assert!(nodes.iter().all(|node| node.keys().is_empty()));
    }
}

/// One value from a thread to a future.
fn word() -> (impl FnOnce(bool) + Send, impl Future<Output = bool>) {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let send = move |value| {
        sender.send(value).ok();
    };
    (send, async { receiver.await.unwrap() })
}

#[test]
fn a_lock_works_on_every_runtime() {
    on_every_runtime(|runtime| async move {
        let locks = Locks::new(&runtime);
        locks.nodes[0].inject(Fault::Hung);
        let guard = locks.manager.lock("r").await.unwrap();
        guard.extend().await.unwrap();
        assert!(locks.manager.lock("r").no_wait().await.unwrap_err().is_held());
        guard.release().await.unwrap();
    });
}

#[test]
fn a_dropped_guard_is_released_on_every_runtime() {
    on_every_runtime(|runtime| async move {
        let locks = Locks::new(&runtime);
        drop(locks.manager.lock("r").await.unwrap());
        locks.released_everywhere().await;
    });
}

/// Timers of real runtimes tick in milliseconds, and several threads race for what a tick has woken.
#[test]
fn requests_to_a_slow_node_keep_their_order_on_every_runtime() {
    on_every_runtime(|runtime| async move {
        let node = MemoryNode::new("slow", Arc::clone(&runtime));
        node.inject(Fault::Slow(Duration::from_millis(1)));
        let ttl = LONG_TTL.try_into().unwrap();
        let rounds = (0..500).map(|round| {
            let key = Key::new(b"", &Resource::new(format!("r{round}")).unwrap());
            let token = Token::draw(|bytes| runtime.fill_random(bytes)).unwrap();
            let (node, claim) = (&node, Claim::new([key], token, ttl));
            async move {
                let acquire = node.acquire(&claim, AcquireOptions::default());
                let release = node.release(&claim, ReleaseOptions::default());
                let (acquired, released) = join(acquire, release).await;
                (acquired.unwrap().vote, released.unwrap().vote)
            }
        });
        for votes in join_all(rounds).await {
            assert_eq!(votes, (Vote::Granted, Vote::Granted), "{runtime:?}");
        }
        assert_eq!(node.keys().len(), 0, "{runtime:?}");
    });
}

/// Every public future, dropped after every number of polls, on the real schedulers.
#[test]
fn c5_a_future_dropped_at_any_poll_leaves_no_key_on_every_runtime() {
    on_every_runtime(|runtime| async move {
        let sweeps = Doing::ALL.map(|doing| drop_at_every_poll(doing, Arc::clone(&runtime)));
        let polls: usize = join_all(sweeps).await.into_iter().sum();
        // A busy machine wakes a task once for several reasons.
        assert!(polls > 2 * Doing::ALL.len(), "the sweep saw only {polls} polls");
    });
}

/// Returns how many polls there were.
async fn drop_at_every_poll(doing: Doing, runtime: Arc<dyn Runtime>) -> usize {
    const MS: Duration = Duration::from_millis(1);
    for polls in doing.first().. {
        let nodes = MemoryNode::cluster(5, Arc::clone(&runtime));
        nodes[1].inject(Fault::Slow(MS));
        nodes[2].inject(Fault::Late(2 * MS));
        nodes[3].inject(Fault::Slow(15 * MS));
        nodes[4].inject(Fault::Dead);
        // What an adopter leaves at a dead node is looked after until the ttl is over: it has none.
        let count = if doing == Doing::Adopt { 4 } else { 5 };
        let builder = || {
            let nodes = nodes[..count].iter().cloned();
            let builder = LockManager::builder(nodes).runtime(Arc::clone(&runtime));
            builder.ttl(LONG_TTL).node_timeout(LIMIT).timeout(LIMIT)
        };
        let manager = builder().safety_margin(2 * MS).renew_interval(4 * MS).build().unwrap();
        let rival = builder().build().unwrap();
        let begins = doing.begin(manager.clone(), &rival, Arc::clone(&runtime), 20 * MS);
        let Trial { future, record } = begins.await;
        let is_done = every_future::is_done_after(polls, future).await;
        every_future::finish(record, &manager).await;
        let left = || nodes.iter().flat_map(MemoryNode::keys).count();
        let limit = runtime.now() + LIMIT;
        while left() > 0 {
            assert!(runtime.now() < limit, "{doing:?} dropped after {polls} polls leaves a key");
            runtime.sleep_until(runtime.now() + MS).await;
        }
        // Nor is a key set later. The dead node is not waited for.
        let _ = rival.close(LIMIT).await;
        let _ = manager.close(LIMIT).await;
        assert_eq!(left(), 0, "{doing:?} dropped after {polls} polls");
        if is_done {
            return polls;
        }
    }
    unreachable!("no future is polled that often")
}

#[test]
fn a1_a_guard_can_be_dropped_in_a_thread_without_a_runtime() {
    let tokio = multi_thread();
    for keep in Keep::BOTH {
        let runtime: Arc<dyn Runtime> =
            tokio.block_on(async { Arc::new(TokioRuntime::new()) as _ });
        let locks = Locks::new(&runtime);
        let guard = tokio.block_on(keep.lock(&locks.manager));
        thread::spawn(move || drop(guard)).join().expect("no panic");
        tokio.block_on(locks.released_everywhere());
    }
}

/// The helper thread takes over, for as long as the process lives.
#[test]
fn a1_a_guard_can_be_dropped_after_its_runtime() {
    for keep in Keep::BOTH {
        for tokio in [current_thread(), multi_thread()] {
            let runtime: Arc<dyn Runtime> =
                tokio.block_on(async { Arc::new(TokioRuntime::new()) as _ });
            let locks = Locks::new(&runtime);
            let guard = tokio.block_on(keep.lock(&locks.manager));
            drop(tokio);
            drop(guard);
            block_on(locks.released_everywhere());
        }
    }
}

/// A runtime that is there, but that no thread drives: it runs no task and rings no timer.
#[test]
fn a1_nothing_waits_for_a_runtime_that_nobody_drives() {
    let idle = current_thread();
    let runtime: Arc<dyn Runtime> = idle.block_on(async { Arc::new(TokioRuntime::new()) as _ });
    let locks = Locks::new(&runtime);
    drop(block_on(locks.manager.lock("r")).unwrap());
    block_on(locks.released_everywhere());

    let locks = Locks::new(&runtime);
    for node in &locks.nodes {
        node.inject(Fault::Hung);
    }
    // A round listens to a node for half of the validity at the most.
    let request = locks.manager.lock("r").timeout(Duration::from_millis(1));
    let request = request.ttl(Duration::from_millis(100));
    assert!(block_on(request).is_err(), "the deadline rings");
    drop(idle);
}

/// The guard's home goes on; the runtime in which it is dropped does not.
#[test]
fn a1_a_guard_can_be_dropped_in_a_passing_runtime_without_timers() {
    let home = multi_thread();
    let runtime: Arc<dyn Runtime> = home.block_on(async { Arc::new(TokioRuntime::new()) as _ });
    let locks = Locks::new(&runtime);
    let guard = home.block_on(locks.manager.lock("r").into_future()).unwrap();
    Builder::new_current_thread().build().unwrap().block_on(async { drop(guard) });
    home.block_on(locks.released_everywhere());
}

/// A manager that outlives its runtime is of use in the next, and in none.
#[test]
fn a_manager_survives_its_runtime() {
    let runtime: Arc<dyn Runtime> =
        current_thread().block_on(async { Arc::new(TokioRuntime::new()) as _ });
    let locks = Locks::new(&runtime);
    locks.nodes[0].inject(Fault::Slow(Duration::from_millis(2)));
    drop(current_thread().block_on(async { locks.manager.lock("r").await.unwrap() }));
    drop(block_on(locks.manager.lock("s")).unwrap());
}

#[test]
fn a1_a_guard_can_be_dropped_while_its_runtime_shuts_down() {
    for keep in Keep::BOTH {
        for tokio in [current_thread(), multi_thread()] {
            let (tells, told) = channel();
            tokio.block_on(async {
                let runtime: Arc<dyn Runtime> = Arc::new(TokioRuntime::new());
                let locks = Locks::new(&runtime);
                let guard = keep.lock(&locks.manager).await;
                // Dropped by the shutdown, in the middle of it.
                let drops = Drops(Some(guard), tells);
                tokio::spawn(async move {
                    let _drops = drops;
                    std::future::pending::<()>().await;
                });
                tokio::task::yield_now().await;
            });
            drop(tokio);
            assert_eq!(told.try_recv(), Ok(true), "it panicked, or was not dropped");
        }
    }
}

/// Reports whether the guard can be dropped: tokio hides a panic in a task that it shuts down.
struct Drops(Option<LockGuard>, Sender<bool>);

impl Drop for Drops {
    fn drop(&mut self) {
        let guard = self.0.take();
        let dropped = catch_unwind(AssertUnwindSafe(move || drop(guard)));
        let _ = self.1.send(dropped.is_ok());
    }
}

#[test]
fn a1_a_guard_can_be_dropped_while_unwinding() {
    for keep in Keep::BOTH {
        let tokio = multi_thread();
        tokio.block_on(async {
            let runtime: Arc<dyn Runtime> = Arc::new(TokioRuntime::new());
            let locks = Locks::new(&runtime);
            let guard = keep.lock(&locks.manager).await;
            let caught = catch_unwind(AssertUnwindSafe(move || {
                let _guard = guard;
                panic!("on purpose");
            }));
            assert!(caught.is_err());
            locks.released_everywhere().await;
        });
    }
}

#[test]
fn a1_a_forgotten_guard_leaves_the_lock_to_its_ttl() {
    let sim = quorate_memory::Sim::new(1);
    let nodes = MemoryNode::cluster(3, sim.clone());
    let manager = LockManager::builder(nodes.clone()).runtime(sim.clone()).build().unwrap();
    std::mem::forget(sim.block_on(manager.lock("r")).unwrap());
    sim.advance(Duration::from_secs(9));
    assert_eq!(nodes[0].keys().len(), 1);
    sim.advance(Duration::from_secs(1));
    assert!(nodes.iter().all(|node| node.keys().is_empty()));
}

#[test]
fn a1_a_forgotten_guard_that_is_kept_alive_is_held_to_its_limit() {
    const LIMIT: Duration = Duration::from_secs(60);
    let sim = quorate_memory::Sim::new(1);
    let nodes = MemoryNode::cluster(3, sim.clone());
    let manager = LockManager::builder(nodes.clone()).runtime(sim.clone()).build().unwrap();
    let guard = sim.block_on(manager.lock("r").hold_limit(LIMIT)).unwrap();
    guard.auto_renew();
    std::mem::forget(guard);
    sim.advance(LIMIT - Duration::from_secs(1));
    assert!(nodes.iter().all(|node| node.keys().len() == 1));
    // The renewal ends with the lease. The release follows after the safety margin.
    sim.advance(Duration::from_secs(1));
    assert!(nodes.iter().all(|node| node.keys().len() == 1));
    sim.advance(Duration::from_millis(500));
    assert!(nodes.iter().all(|node| node.keys().is_empty()));
}

/// A win that expires before the request hears of it is a lost round. The request keeps its turn (T2).
#[test]
fn t2_a_win_that_expires_unseen_keeps_the_turn_of_its_request() {
    let sim = quorate_memory::Sim::new(1);
    let nodes = MemoryNode::cluster(3, sim.clone());
    nodes.iter().for_each(|node| node.inject(Fault::Slow(Duration::from_millis(1))));
    let manager = LockManager::builder(nodes).runtime(sim.clone()).build().unwrap();
    let mut first = Box::pin(manager.lock("r").into_future());
    assert!((&mut first).now_or_never().is_none());
    sim.advance(Duration::from_secs(20));
    let second = sim.block_on(manager.lock("r").no_wait());
    assert!(second.as_ref().is_err_and(LockError::is_held), "{second:?}");
    let guard = sim.block_on(first).unwrap();
    sim.block_on(guard.release()).unwrap();
    drop(sim.block_on(manager.lock("r").no_wait()).unwrap());
}

/// Tokio's paused clock drives locks, too: half a minute of waiting takes no time.
#[tokio::test(start_paused = true)]
async fn a_paused_tokio_clock_is_the_clock_of_the_locks() {
    let runtime = TokioRuntime::new();
    let nodes = MemoryNode::cluster(3, runtime.clone());
    for node in &nodes {
        node.put("r", Value::String(b"x".to_vec()));
    }
    let clock = runtime.clone();
    let manager = LockManager::builder(nodes).runtime(runtime).build().unwrap();
    // In the order of that clock, whatever the time of the machine.
    let ended = Mutex::new(Vec::new());
    let note = |what| ended.lock().unwrap().push(what);
    let passes = |seconds, what| {
        let until = clock.now() + Duration::from_secs(seconds);
        clock.sleep_until(until).map(move |()| note(what))
    };
    let locks = manager.lock("r").into_future().map(|lock| {
        assert!(lock.is_err());
        note("the wait");
    });
    tokio::join!(passes(15, "15 s"), passes(60, "a minute"), locks);
    assert_eq!(*ended.lock().unwrap(), ["15 s", "the wait", "a minute"]);
}

/// As users write it: bodies that capture, borrow, fail and are functions.
#[test]
fn work_under_a_lock_can_be_spawned() {
    multi_thread().block_on(async {
        let runtime: Arc<dyn Runtime> = Arc::new(TokioRuntime::new());
        let manager = Locks::new(&runtime).manager;
        let name = Arc::new(Mutex::new(String::from("Ann")));

        let captured = Arc::clone(&name);
        let moves = tokio::spawn(manager.lock("a").with(async move |lease| {
            tokio::task::yield_now().await;
            captured.lock().unwrap().push('e');
            lease.is_valid()
        }));
        assert!(moves.await.unwrap().unwrap());

        let (inside, captured) = (manager.clone(), Arc::clone(&name));
        let moves = tokio::spawn(async move {
            let work = async move |lease: Lease| {
                let work = async { captured.lock().unwrap().push('t') };
                lease.run(work).await.unwrap();
                tokio::task::yield_now().await;
            };
            inside.with("b", work).await
        });
        moves.await.unwrap().unwrap();

        let (inside, captured) = (manager.clone(), Arc::clone(&name));
        let borrows = tokio::spawn(async move {
            let mut steps = Vec::new();
            let (resource, steps_of) = (String::from("c"), &mut steps);
            let work = async |lease: Lease| {
                steps_of.push(lease.remaining());
                tokio::task::yield_now().await;
                captured.lock().unwrap().push('t');
                steps_of.push(lease.remaining());
            };
            inside.with([&*resource, "d"], work).await.map(|()| steps.len())
        });
        assert_eq!(borrows.await.unwrap().unwrap(), 2);

        let inside = manager.clone();
        let fails = tokio::spawn(async move {
            inside.lock("e").no_wait().with(async |_| "no".parse::<u8>()).await?.map_err(Box::from)
        });
        let failed: Result<u8, Box<dyn std::error::Error + Send + Sync>> = fails.await.unwrap();
        assert!(failed.is_err());

        async fn function(lease: Lease) -> usize {
            tokio::task::yield_now().await;
            lease.keys().len()
        }
        let calls = tokio::spawn(manager.with(["f", "g"], function));
        assert_eq!(calls.await.unwrap().unwrap(), 2);
        let calls = tokio::spawn(manager.with("h", |lease: Lease| function(lease)));
        assert_eq!(calls.await.unwrap().unwrap(), 1);
        assert_eq!(*name.lock().unwrap(), "Annett");
    });
}

/// What users put in structs and spawn on threads.
#[test]
fn public_types_are_send_and_sync() {
    fn send_sync<T: Send + Sync>() {}
    fn send<T: Send>(_: T) {}
    send_sync::<LockGuard>();
    send_sync::<LockManager>();
    send_sync::<LockError>();
    send_sync::<Lease>();
    send_sync::<DetachedLock>();
    send_sync::<WithError<()>>();
    send_sync::<InTokio<()>>();
    send_sync::<TokioContext>();
    let sim = quorate_memory::Sim::new(1);
    let nodes = MemoryNode::cluster(1, sim.clone());
    let manager = LockManager::builder(nodes).runtime(sim.clone()).build().unwrap();
    let guard = sim.block_on(manager.lock("r")).unwrap();
    send(guard.extend());
    send(guard.extend_to(Duration::from_secs(20)));
    send(guard.lost());
    send(guard.run(async {}));
    send(guard.release());
    send(manager.lock("r").into_future());
    send(manager.close(Duration::ZERO));
    let record = sim.block_on(manager.lock("r")).unwrap().detach().unwrap();
    send(manager.adopt(&record));
}

/// What would hang, or panic, does so in a thread of its own.
fn ends(what: impl FnOnce() + Send + 'static) -> bool {
    let (done, waited) = channel();
    thread::spawn(move || {
        what();
        done.send(())
    });
    receive(&waited).is_some()
}

/// The next one where the machine was too slow: the lease was over before the test waited for that.
const TTLS: [Duration; 3] =
    [Duration::from_millis(300), Duration::from_secs(3), Duration::from_secs(30)];

/// The holder waits outside of the runtime that the manager was made in, and that one ends.
#[test]
fn h4_a_lease_is_told_as_lost_though_the_runtime_has_ended() {
    assert!(ends(|| {
        let tokio = multi_thread();
        let runtime: Arc<dyn Runtime> =
            tokio.block_on(async { Arc::new(TokioRuntime::new()) as _ });
        let locks = Locks::new(&runtime);
        for ttl in TTLS {
            let guard = block_on(locks.manager.lock("r").ttl(ttl).into_future()).unwrap();
            let mut lost = Box::pin(guard.lost());
            if (&mut lost).now_or_never().is_none() {
                drop(tokio);
                block_on(lost);
                return;
            }
        }
        panic!("it is always lost at once");
    }));
}

/// Begun in one runtime, and waited for in another while the first has ended, or is not driven.
#[test]
fn h4_a_lease_is_told_as_lost_in_another_runtime_than_was_waited_in_before() {
    for is_dropped in [false, true] {
        let works = ends(move || {
            let first = current_thread();
            let runtime: Arc<dyn Runtime> =
                first.block_on(async { Arc::new(TokioRuntime::new()) as _ });
            let locks = Locks::new(&runtime);
            for ttl in TTLS {
                let request = locks.manager.lock("r").ttl(ttl);
                let guard = first.block_on(request.into_future()).unwrap();
                let mut lost = Box::pin(guard.lost());
                if first.block_on(async { (&mut lost).now_or_never() }).is_none() {
                    let first = (!is_dropped).then_some(first);
                    current_thread().block_on(lost);
                    drop(first);
                    return;
                }
            }
            panic!("it is always lost at once");
        });
        assert!(works, "the first runtime was dropped: {is_dropped}");
    }
}

/// What is begun there, a connection perhaps, does not stand still with the runtime of a caller
/// that came by.
#[test]
fn a1_what_finds_tokio_finds_its_home_in_front_of_the_callers_runtime() {
    let (home, caller) = (multi_thread(), current_thread());
    let context = TokioContext::of(home.handle().clone());
    let found = || async { Handle::current().id() };
    assert_eq!(caller.block_on(context.enter(found())), home.handle().id());
    assert_eq!(block_on(context.enter(found())), home.handle().id());
    drop(home);
    assert_eq!(caller.block_on(context.enter(found())), caller.handle().id());
    let none = TokioContext::of(caller.handle().clone());
    assert_eq!(caller.block_on(none.enter(found())), caller.handle().id());
}
