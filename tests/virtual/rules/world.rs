//! In-memory nodes, a virtual clock, and a spy on every call.

use std::slice::SliceIndex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use quorate_core::backend::{Capabilities, Operation};
use quorate_core::runtime::{BoxFuture, EntropyError};
use quorate_core::{LockGuard, LockManager, LockManagerBuilder, Runtime};
use quorate_memory::{Fault, MemoryNode, Sim, Value};

use crate::backends::{Begins, begin};

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

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
        let sim = Sim::new(7);
        let nodes = MemoryNode::cluster(nodes, sim.clone());
        Self { sim, nodes, log: Arc::default(), lacks: Capabilities::NONE }
    }

    /// The nodes as one process sees them, over its own connections.
    pub(crate) fn spies(&self) -> Vec<Begins> {
        let client = self.sim.client(0);
        let spy = |node: &MemoryNode| {
            let log = Arc::clone(&self.log);
            let seen = node.without(self.lacks).seen_by(&client);
            Begins::new(&seen, move |node, call, runtime| {
                log.note(node, call.operation());
                begin(node, call, runtime)
            })
        };
        self.nodes.iter().map(spy).collect()
    }

    pub(crate) fn builder(&self) -> LockManagerBuilder {
        LockManager::builder(self.spies()).runtime(self.sim.clone())
    }

    pub(crate) fn manager(&self) -> LockManager {
        self.builder().build().unwrap()
    }

    /// Gives some of the nodes, or all, this fault.
    pub(crate) fn inject(&self, nodes: impl Places, fault: Fault) {
        self.nodes[nodes].iter().for_each(|node| node.inject(fault.clone()));
    }

    pub(crate) fn heal(&self) {
        self.nodes.iter().for_each(MemoryNode::heal);
    }

    /// Another client has the key "r" there.
    pub(crate) fn occupy(&self, nodes: impl Places) {
        let value = Value::String(b"another client's".to_vec());
        self.nodes[nodes].iter().for_each(|node| node.put("r", value.clone()));
    }

    /// The same, in which a manager holds the lock "r".
    pub(crate) fn held(self) -> (Self, LockGuard) {
        let guard = self.sim.block_on(self.manager().lock("r")).unwrap();
        (self, guard)
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
    fn note(&self, node: &MemoryNode, operation: &Operation) {
        let (operation, claim) = match operation {
            Operation::Acquire(claim, options) if options.fencing.is_some() => {
                ("fenced acquire", claim)
            }
            Operation::Acquire(claim, _) => ("acquire", claim),
            Operation::Extend(claim, _) => ("extend", claim),
            Operation::Raise(claim, _) => ("raise", claim),
            Operation::Release(claim, options) if options.raise_to.is_some() => {
                ("fenced release", claim)
            }
            Operation::Release(claim, _) => ("release", claim),
            _ => return,
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

    pub(crate) fn tokens(&self) -> Vec<Vec<u8>> {
        let mut tokens: Vec<_> = self.calls().into_iter().map(|call| call.token).collect();
        tokens.dedup();
        tokens
    }
}

/// A client whose clock can jump ahead of the world's, as it does after a pause.
#[derive(Clone, Debug)]
pub(crate) struct Paused {
    pub(crate) sim: Sim,
    nanos: Arc<AtomicU64>,
}

impl Paused {
    pub(crate) fn new(sim: &Sim) -> Self {
        Self { sim: sim.clone(), nanos: Arc::default() }
    }

    pub(crate) fn pause(&self, time: Duration) {
        self.nanos.fetch_add(u64::try_from(time.as_nanos()).unwrap(), Ordering::Relaxed);
    }

    fn ahead(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }
}

impl Runtime for Paused {
    fn now(&self) -> Instant {
        self.sim.now() + self.ahead()
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        let clock = self.clone();
        Box::pin(async move {
            while clock.now() < deadline {
                clock.sim.sleep_until(deadline - clock.ahead()).await;
            }
        })
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.sim.spawn(task);
    }

    fn fill_random(&self, bytes: &mut [u8]) -> Result<(), EntropyError> {
        self.sim.fill_random(bytes)
    }
}
