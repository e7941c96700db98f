//! In-memory nodes, a virtual clock, and a spy on every call.

use std::fmt::Debug;
use std::future::poll_fn;
use std::slice::SliceIndex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, ready};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::{AbortHandle, Either, abortable, select};
use quorate_core::backend::{Call, Capabilities, Claim, Drift, NotSent, Operation, Ttl};
use quorate_core::error::QuorumFailure;
use quorate_core::resource::{Key, Resource, Token};
use quorate_core::runtime::{BoxFuture, EntropyError};
use quorate_core::{
    DetachedLock, LockBackend, LockError, LockGuard, LockManager, LockManagerBuilder, LockRequest,
    Runtime,
};
use quorate_memory::{Effect, Fault, MemoryNode, Rule, Sim, Value};
use quorate_protocol::error_of_reply;

use crate::backends::{Begins, begin};

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// What a holder may rely on of a ttl, by default: it ends drift and safety margin before the keys
/// do.
pub(crate) fn validity(ttl: Duration) -> Duration {
    let margin = (ttl / 10).min(500 * MS);
    Drift::default().validity_of(Ttl::try_from(ttl).unwrap()) - margin
}

/// The safety margin of a ttl of ten seconds.
pub(crate) const MARGIN: Duration = Duration::from_millis(500);

/// Nodes answer with this error.
pub(crate) fn failing(reply: &str) -> Fault {
    Fault::Failing(error_of_reply(reply))
}

/// A request and its reply take so much longer each.
pub(crate) fn slow(by: Duration) -> Rule {
    Rule::new(Effect::Delay { least: by, most: by })
}

/// The answers of nodes that were no quorum.
pub(crate) fn failure_of<T: Debug>(failed: Result<T, LockError>) -> QuorumFailure {
    match failed {
        Err(LockError::NoQuorum(failure)) => failure,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn key(name: &str) -> Key {
    Key::new(b"", &Resource::new(name).unwrap())
}

/// The claim of a holder of this number.
pub(crate) fn claim(names: &[&str], holder: u8, ttl: Duration) -> Claim {
    let token = Token::draw(|bytes| {
        bytes.fill(holder);
        Ok(())
    });
    let keys: Vec<Key> = names.iter().map(|name| key(name)).collect();
    Claim::new(keys, token.unwrap(), ttl.try_into().unwrap())
}

/// A request that waits.
pub(crate) type Waits = BoxFuture<'static, Result<LockGuard, LockError>>;

/// What became of something in the background, once it has ended.
pub(crate) type Ended<T> = Arc<Mutex<Option<T>>>;

/// Runs it in the background.
pub(crate) fn spawned<T: Send + 'static>(
    runtime: &dyn Runtime,
    task: impl Future<Output = T> + Send + 'static,
) -> Ended<T> {
    let ended = Ended::default();
    let noted = Arc::clone(&ended);
    runtime.spawn(Box::pin(task.map(move |output| *noted.lock().unwrap() = Some(output))));
    ended
}

/// Some of the nodes, or all.
pub(crate) trait Places: SliceIndex<[MemoryNode], Output = [MemoryNode]> {}

impl<T: SliceIndex<[MemoryNode], Output = [MemoryNode]>> Places for T {}

pub(crate) struct World {
    pub(crate) sim: Sim,
    pub(crate) nodes: Vec<MemoryNode>,
    pub(crate) log: Arc<Log>,
    /// What the spies lack, of what the nodes can do.
    pub(crate) lacks: Capabilities,
}

impl World {
    /// Nodes over pools, which can neither be watched nor keep a wait queue.
    pub(crate) fn new(nodes: usize) -> Self {
        let world = Self::in_order(nodes);
        let nodes = world.nodes.iter().map(MemoryNode::unordered).collect();
        Self { nodes, ..world }
    }

    /// The same over ordered connections.
    pub(crate) fn in_order(nodes: usize) -> Self {
        Self { lacks: Capabilities::WATCH | Capabilities::QUEUE, ..Self::complete(nodes) }
    }

    /// Ordered connections to nodes that can do everything.
    pub(crate) fn complete(nodes: usize) -> Self {
        Self::of(nodes, Sim::new(7))
    }

    pub(crate) fn of(nodes: usize, sim: Sim) -> Self {
        let nodes = MemoryNode::cluster(nodes, sim.clone());
        Self { sim, nodes, log: Arc::default(), lacks: Capabilities::NONE }
    }

    /// One node that can do everything, behind a pool, which keeps no order.
    pub(crate) fn pool() -> Self {
        let world = Self::complete(1);
        Self { nodes: vec![world.nodes[0].unordered()], ..world }
    }

    /// One of each kind.
    pub(crate) fn kinds(nodes: usize) -> [Self; 3] {
        Self::KINDS.map(|new| new(nodes))
    }

    pub(crate) const KINDS: [fn(usize) -> Self; 3] = [Self::new, Self::in_order, Self::complete];

    /// The nodes as one process sees them, over its own connections.
    pub(crate) fn spies(&self) -> Vec<Begins> {
        let client = self.sim.client(0);
        let spy = |node: &MemoryNode| {
            let log = Arc::clone(&self.log);
            let seen = node.without(self.lacks).seen_by(&client);
            Begins::new(&seen, move |node, call, runtime| {
                log.note(node, &call);
                begin(node, call, runtime)
            })
        };
        self.nodes.iter().map(spy).collect()
    }

    /// The nodes, at which calls begin so, by the place of the node.
    pub(crate) fn begins<B>(&self, begins: B) -> Vec<Begins>
    where
        B: Fn(usize, &MemoryNode, Call, &dyn Runtime) -> Result<(), NotSent>
            + Send
            + Sync
            + 'static,
    {
        let begins = Arc::new(begins);
        let begins = |(at, node)| {
            let begins = Arc::clone(&begins);
            Begins::new(node, move |node, call, runtime| begins(at, node, call, runtime))
        };
        self.nodes.iter().enumerate().map(begins).collect()
    }

    pub(crate) fn builder(&self) -> LockManagerBuilder {
        LockManager::builder(self.spies()).runtime(self.sim.clone())
    }

    pub(crate) fn manager(&self) -> LockManager {
        self.builder().build().unwrap()
    }

    /// A manager of these nodes in place of its own.
    pub(crate) fn over<I: IntoIterator<Item: LockBackend>>(&self, nodes: I) -> LockManager {
        LockManager::builder(nodes).runtime(self.sim.clone()).build().unwrap()
    }

    pub(crate) fn run<F: IntoFuture>(&self, future: F) -> F::Output {
        self.sim.block_on(future)
    }

    pub(crate) fn advance(&self, time: Duration) {
        self.sim.advance(time);
    }

    /// Does this in the background, after so much time.
    pub(crate) fn later(&self, time: Duration, act: impl FnOnce() + Send + 'static) {
        self.sim.spawn(Box::pin(self.sim.sleep(time).map(move |()| act())));
    }

    /// The lock "r" of a manager, which waits for it.
    pub(crate) fn lock(&self, manager: &LockManager) -> LockGuard {
        self.run(manager.lock("r")).unwrap()
    }

    /// The same without a wait.
    pub(crate) fn try_lock(&self, manager: &LockManager) -> Result<LockGuard, LockError> {
        self.run(manager.lock("r").no_wait())
    }

    /// A request that was polled once, and waits.
    pub(crate) fn begun(&self, request: LockRequest) -> Waits {
        let mut waits = request.into_future().boxed();
        assert!(self.sim.block_on_for(waits.as_mut(), 1).is_none());
        waits
    }

    /// Polls a request for so long. It waits all the time.
    pub(crate) fn keeps_waiting(&self, waits: &mut Waits, time: Duration) {
        let stopped = self.run(select(waits.as_mut(), self.sim.sleep(time)));
        assert!(matches!(stopped, Either::Right(_)), "within {time:?}");
    }

    /// The record of the lock "r", which a manager has detached.
    pub(crate) fn detached(&self) -> DetachedLock {
        self.lock(&self.manager()).detach().unwrap()
    }

    /// Gives some of the nodes, or all, this fault.
    pub(crate) fn inject(&self, nodes: impl Places, fault: Fault) {
        self.nodes[nodes].iter().for_each(|node| node.inject(fault.clone()));
    }

    pub(crate) fn heal(&self) {
        self.nodes.iter().for_each(MemoryNode::heal);
    }

    /// Gives them this rule.
    pub(crate) fn add_rule(&self, nodes: impl Places, rule: Rule) {
        self.nodes[nodes].iter().for_each(|node| node.add_rule(rule));
    }

    /// Another client has the key "r" there.
    pub(crate) fn occupy(&self, nodes: impl Places) {
        let value = Value::String(b"another client's".to_vec());
        self.nodes[nodes].iter().for_each(|node| node.put("r", value.clone()));
    }

    /// The same, with a manager.
    pub(crate) fn and_manager(self) -> (Self, LockManager) {
        let manager = self.manager();
        (self, manager)
    }

    /// The same, in which a manager holds the lock "r".
    pub(crate) fn held(self) -> (Self, LockGuard) {
        let guard = self.lock(&self.manager());
        (self, guard)
    }

    /// One node over a pool, with a wait queue, on which a lock is held; and a request that has waited for it for so
    /// long. Each call takes 400 ms.
    pub(crate) fn waiting_over_a_pool(
        waited: Duration,
        node_timeout: Duration,
    ) -> (Self, LockGuard, LockManager, Waits) {
        let world = Self::pool();
        let held = world.run(world.manager().lock("r").ttl(HOUR)).unwrap();
        world.inject(.., Fault::Slow(400 * MS));
        let builder = world.builder().node_timeout(node_timeout).backoff(HOUR, HOUR);
        let manager = builder.build().unwrap();
        let mut waits = manager.lock("r").into_future().boxed();
        world.keeps_waiting(&mut waits, waited);
        (world, held, manager, waits)
    }

    pub(crate) fn keys_left(&self) -> usize {
        self.nodes.iter().map(|node| node.keys().len()).sum()
    }

    pub(crate) fn holders(&self, key: &str) -> usize {
        self.nodes.iter().filter(|node| node.get(key).is_some()).count()
    }

    /// Runs what is in the background, as far as no time has to pass for it.
    pub(crate) fn catch_up(&self) {
        self.sim.advance(Duration::ZERO);
    }
}

/// What the nodes were asked, in order.
#[derive(Default)]
pub(crate) struct Log {
    calls: Mutex<Vec<Noted>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Noted {
    pub(crate) node: String,
    pub(crate) operation: &'static str,
    pub(crate) token: Vec<u8>,
}

impl Log {
    /// Notes a call with a claim.
    fn note(&self, node: &MemoryNode, call: &Call) {
        let Some(claim) = call.claim() else { return };
        let operation = match call.operation() {
            Operation::Acquire(_, options) if options.fencing.is_some() => "fenced acquire",
            Operation::Acquire(..) => "acquire",
            Operation::Extend(..) => "extend",
            Operation::Raise(..) => "raise",
            Operation::Release(_, options) if options.raise_to.is_some() => "fenced release",
            Operation::Release(..) => "release",
            other => panic!("{other:?} has a claim"),
        };
        let token = claim.token().as_bytes().to_vec();
        self.calls.lock().unwrap().push(Noted { node: node.name().to_owned(), operation, token });
    }

    pub(crate) fn calls(&self) -> Vec<Noted> {
        self.calls.lock().unwrap().clone()
    }

    pub(crate) fn operations(&self) -> Vec<&'static str> {
        self.calls().iter().map(|call| call.operation).collect()
    }

    pub(crate) fn count(&self, operation: &str) -> usize {
        self.calls().iter().filter(|call| call.operation == operation).count()
    }

    pub(crate) fn tokens(&self) -> Vec<Vec<u8>> {
        let mut tokens: Vec<_> = self.calls().into_iter().map(|call| call.token).collect();
        tokens.dedup();
        tokens
    }
}

/// What another thread does once.
type Act = Box<dyn FnOnce() + Send>;

/// A client whose clock can jump ahead of the world's, as it does after a pause, and whose wall clock shows what a test
/// says. Its sleeps may end early, and its runtime may drop its tasks.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) sim: Sim,
    nanos: Arc<AtomicU64>,
    micros: Arc<dyn Fn() -> u64 + Send + Sync>,
    tasks: Arc<Mutex<Vec<AbortHandle>>>,
    on_random: Arc<Mutex<Option<Act>>>,
    /// Whether each sleep ends too early, again and again.
    pub(crate) is_restless: bool,
    /// Whether no task is run that is spawned from now on.
    pub(crate) is_over: Arc<AtomicBool>,
}

impl Client {
    pub(crate) fn new(sim: &Sim) -> Self {
        let clock = sim.clone();
        Self::showing(sim, move || clock.unix_micros())
    }

    /// With this wall clock.
    pub(crate) fn showing(sim: &Sim, micros: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        let (nanos, tasks, on_random, is_over) = Default::default();
        let (sim, micros) = (sim.clone(), Arc::new(micros));
        Self { sim, nanos, micros, tasks, on_random, is_restless: false, is_over }
    }

    pub(crate) fn pause(&self, time: Duration) {
        self.nanos.fetch_add(u64::try_from(time.as_nanos()).unwrap(), Ordering::Relaxed);
    }

    /// The runtime ends, and drops its tasks. Another one takes those that are spawned later. Returns how many tasks
    /// it has had.
    pub(crate) fn end(&self) -> usize {
        self.tasks.lock().unwrap().drain(..).map(|task| task.abort()).count()
    }

    /// Another thread does this while random bytes are drawn next, such as jitter.
    pub(crate) fn on_random(&self, act: impl FnOnce() + Send + 'static) {
        *self.on_random.lock().unwrap() = Some(Box::new(act));
    }

    fn ahead(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }
}

impl Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.sim.fmt(f)
    }
}

impl Runtime for Client {
    fn now(&self) -> Instant {
        self.sim.now() + self.ahead()
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        if self.is_restless {
            let left = deadline.saturating_duration_since(self.now());
            return self.sim.sleep((left / 2).max(MS));
        }
        let (clock, mut sleep) = (self.clone(), None);
        // Each poll looks at the clock, whether or not time has passed in the world.
        Box::pin(poll_fn(move |context| {
            while clock.now() < deadline {
                let left = || clock.sim.sleep_until(deadline - clock.ahead());
                ready!(sleep.get_or_insert_with(left).poll_unpin(context));
                sleep = None;
            }
            Poll::Ready(())
        }))
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        if !self.is_over.load(Ordering::Relaxed) {
            let (task, handle) = abortable(task);
            self.tasks.lock().unwrap().push(handle);
            self.sim.spawn(Box::pin(task.map(drop)));
        }
    }

    fn fill_random(&self, bytes: &mut [u8]) -> Result<(), EntropyError> {
        let act = self.on_random.lock().unwrap().take();
        act.into_iter().for_each(|act| act());
        self.sim.fill_random(bytes)
    }

    fn unix_micros(&self) -> u64 {
        (self.micros)()
    }
}
