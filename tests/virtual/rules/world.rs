//! In-memory nodes, a virtual clock, and a spy on every call.

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use quorate_core::backend::{
    AcquireOptions, Call, Capabilities, Entry, ExtendOptions, NotSent, Operation, ReleaseOptions,
    Reply, Watched,
};
use quorate_core::runtime::{BoxFuture, EntropyError};
use quorate_core::{
    BackendError, Claim, Key, LockBackend, LockManager, LockManagerBuilder, Runtime, Sighting,
};
use quorate_memory::{MemoryNode, Sim};

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

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
    pub(crate) fn spies(&self) -> Vec<Spy> {
        let client = self.sim.client(0);
        let spy = |node: &MemoryNode| Spy {
            node: node.without(self.lacks).seen_by(&client),
            log: Arc::clone(&self.log),
        };
        self.nodes.iter().map(spy).collect()
    }

    pub(crate) fn builder(&self) -> LockManagerBuilder {
        LockManager::builder(self.spies()).runtime(self.sim.clone())
    }

    pub(crate) fn manager(&self) -> LockManager {
        self.builder().build().unwrap()
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

/// A node, and a log of the calls with a claim.
#[derive(Clone)]
pub(crate) struct Spy {
    node: MemoryNode,
    log: Arc<Log>,
}

impl Spy {
    fn note(&self, operation: &Operation) {
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
        let noted = Noted { node: self.node.name().to_owned(), operation, token };
        self.log.calls.lock().unwrap().push(noted);
    }
}

#[async_trait]
impl LockBackend for Spy {
    async fn acquire(&self, claim: &Claim, options: AcquireOptions) -> Result<Reply, BackendError> {
        self.node.acquire(claim, options).await
    }

    async fn extend(&self, claim: &Claim, options: ExtendOptions) -> Result<Reply, BackendError> {
        self.node.extend(claim, options).await
    }

    async fn release(&self, claim: &Claim, options: ReleaseOptions) -> Result<Reply, BackendError> {
        self.node.release(claim, options).await
    }

    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed(self.node.name())
    }

    fn capabilities(&self) -> Capabilities {
        self.node.capabilities()
    }

    async fn inspect(&self, key: &Key) -> Result<Option<Sighting>, BackendError> {
        LockBackend::inspect(&self.node, key).await
    }

    async fn server_id(&self) -> Result<Option<String>, BackendError> {
        LockBackend::server_id(&self.node).await
    }

    async fn watch(&self, key: &Key, entry: Option<&Entry>) -> Result<Watched, BackendError> {
        self.node.watch(key, entry).await
    }

    fn begin(self: Arc<Self>, call: Call, runtime: &dyn Runtime) -> Result<(), NotSent> {
        self.note(call.operation());
        Arc::new(self.node.clone()).begin(call, runtime)
    }
}

impl fmt::Debug for Spy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.node.fmt(f)
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

/// A node after whose replies the client pauses.
#[derive(Clone, Debug)]
pub(crate) struct PausesClient {
    pub(crate) node: MemoryNode,
    pub(crate) client: Paused,
    pub(crate) pause: Arc<Mutex<Duration>>,
}

#[async_trait]
impl LockBackend for PausesClient {
    async fn acquire(&self, claim: &Claim, options: AcquireOptions) -> Result<Reply, BackendError> {
        let reply = self.node.acquire(claim, options).await;
        self.client.pause(*self.pause.lock().unwrap());
        reply
    }

    async fn extend(&self, claim: &Claim, options: ExtendOptions) -> Result<Reply, BackendError> {
        let reply = self.node.extend(claim, options).await;
        self.client.pause(*self.pause.lock().unwrap());
        reply
    }

    async fn release(&self, claim: &Claim, options: ReleaseOptions) -> Result<Reply, BackendError> {
        self.node.release(claim, options).await
    }
}

/// A backend with the three required methods.
#[derive(Clone, Debug)]
pub(crate) struct Plain(pub(crate) MemoryNode);

#[async_trait]
impl LockBackend for Plain {
    async fn acquire(&self, claim: &Claim, options: AcquireOptions) -> Result<Reply, BackendError> {
        self.0.acquire(claim, options).await
    }

    async fn extend(&self, claim: &Claim, options: ExtendOptions) -> Result<Reply, BackendError> {
        self.0.extend(claim, options).await
    }

    async fn release(&self, claim: &Claim, options: ReleaseOptions) -> Result<Reply, BackendError> {
        assert!(options.raise_to.is_none(), "it was not built for fencing");
        self.0.release(claim, options).await
    }
}
