//! Five in-memory nodes, a virtual clock, and a spy on every call.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use quorate_core::runtime::{BoxFuture, EntropyError};
use quorate_core::{
    Ask, BackendError, Call as CarriedCall, Carry, Claim, Fence, FenceHint, FenceVote,
    FencingToken, Identify, Inspect, LockBackend, LockManager, LockManagerBuilder, Runtime, Vote,
    Watch,
};
use quorate_memory::{MemoryNode, Sim};

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

pub(crate) struct World {
    pub(crate) sim: Sim,
    pub(crate) nodes: Vec<MemoryNode>,
    pub(crate) log: Arc<Log>,
    pub(crate) carries: bool,
    /// How long it takes until a release is sent again that did not come through at first.
    pub(crate) resends: Option<Duration>,
    /// Whether it can be watched.
    pub(crate) watches: bool,
}

impl World {
    pub(crate) fn new(nodes: usize) -> Self {
        let sim = Sim::new(7);
        let nodes = MemoryNode::cluster(nodes, sim.clone());
        Self { sim, nodes, log: Arc::default(), carries: false, resends: None, watches: false }
    }

    /// The same, over connections that keep their order.
    pub(crate) fn in_order(nodes: usize) -> Self {
        let world = Self::new(nodes);
        Self { nodes: world.nodes.iter().map(MemoryNode::in_order).collect(), ..world }
    }

    /// The same, with backends that carry calls by themselves.
    pub(crate) fn carrying(nodes: usize) -> Self {
        Self { carries: true, ..Self::new(nodes) }
    }

    pub(crate) fn spies(&self) -> Vec<Spy> {
        let carrier = self.carries.then(|| self.sim.clone());
        let spy = |node: &MemoryNode| Spy {
            node: node.clone(),
            log: Arc::clone(&self.log),
            carrier: carrier.clone(),
            resends: self.resends.map(|after| (self.sim.clone(), after)),
            watches: self.watches,
        };
        self.nodes.iter().map(spy).collect()
    }

    pub(crate) fn builder(&self) -> LockManagerBuilder {
        LockManager::builder(self.sim.clone(), self.spies())
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
    calls: Mutex<Vec<Call>>,
    /// Calls whose future was dropped before it had settled.
    pub(crate) dropped: AtomicUsize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) node: String,
    pub(crate) operation: &'static str,
    pub(crate) token: Vec<u8>,
}

impl Log {
    pub(crate) fn calls(&self) -> Vec<Call> {
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

/// A node that is listened in on.
#[derive(Clone)]
pub(crate) struct Spy {
    node: MemoryNode,
    log: Arc<Log>,
    /// Where calls are carried, if they are.
    carrier: Option<Sim>,
    resends: Option<(Sim, Duration)>,
    watches: bool,
}

impl Spy {
    pub(crate) fn of(node: &MemoryNode) -> Self {
        Self {
            node: node.clone(),
            log: Arc::default(),
            carrier: None,
            resends: None,
            watches: false,
        }
    }

    fn note(&self, operation: &'static str, claim: &Claim) -> Unsettled {
        let token = claim.token().as_bytes().to_vec();
        let call = Call { node: self.node.name().to_owned(), operation, token };
        self.log.calls.lock().unwrap().push(call);
        Unsettled(Some(Arc::clone(&self.log)))
    }
}

struct Unsettled(Option<Arc<Log>>);

impl Drop for Unsettled {
    fn drop(&mut self) {
        if let Some(log) = &self.0 {
            log.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[async_trait]
impl LockBackend for Spy {
    async fn acquire(&self, claim: &Claim) -> Result<Vote, BackendError> {
        let mut unsettled = self.note("acquire", claim);
        let vote = LockBackend::acquire(&self.node, claim).await;
        unsettled.0 = None;
        vote
    }

    async fn extend(&self, claim: &Claim) -> Result<Vote, BackendError> {
        let mut unsettled = self.note("extend", claim);
        let vote = self.node.extend(claim).await;
        unsettled.0 = None;
        vote
    }

    async fn release(&self, claim: &Claim) -> Result<Vote, BackendError> {
        let mut unsettled = self.note("release", claim);
        if let Some((sim, after)) = &self.resends {
            sim.sleep_until(sim.now() + *after).await;
        }
        let vote = LockBackend::release(&self.node, claim).await;
        unsettled.0 = None;
        vote
    }

    fn name(&self) -> Option<&str> {
        Some(self.node.name())
    }

    fn identity(&self) -> Option<&dyn Identify> {
        self.node.identity()
    }

    fn inspector(&self) -> Option<&dyn Inspect> {
        self.node.inspector()
    }

    fn watcher(&self) -> Option<&dyn Watch> {
        self.watches.then_some(&self.node)
    }

    fn fencer(&self) -> Option<&dyn Fence> {
        Some(self)
    }

    fn keeps_order(&self) -> bool {
        self.carrier.is_none() && self.node.keeps_order()
    }

    fn carrier(&self) -> Option<&dyn Carry> {
        self.carrier.as_ref().map(|_| self as _)
    }
}

impl Carry for Spy {
    fn carries(&self, _: &Claim) -> bool {
        true
    }

    fn carry(&self, call: CarriedCall) {
        let spy = self.clone();
        self.carrier.as_ref().unwrap().spawn(Box::pin(async move {
            let answer = match call.ask() {
                Ask::Acquire => LockBackend::acquire(&spy, call.claim()).await,
                Ask::Release => LockBackend::release(&spy, call.claim()).await,
                ask => panic!("{ask:?}"),
            };
            call.answer(answer);
        }));
    }
}

#[async_trait]
impl Fence for Spy {
    async fn acquire(&self, claim: &Claim, hint: FenceHint) -> Result<FenceVote, BackendError> {
        let mut unsettled = self.note("fenced acquire", claim);
        let vote = Fence::acquire(&self.node, claim, hint).await;
        unsettled.0 = None;
        vote
    }

    async fn raise(&self, claim: &Claim, number: FencingToken) -> Result<Vote, BackendError> {
        let mut unsettled = self.note("raise", claim);
        let vote = self.node.raise(claim, number).await;
        unsettled.0 = None;
        vote
    }

    async fn release(&self, claim: &Claim, number: FencingToken) -> Result<Vote, BackendError> {
        let mut unsettled = self.note("fenced release", claim);
        let vote = Fence::release(&self.node, claim, number).await;
        unsettled.0 = None;
        vote
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

/// A node after whose answers the client pauses.
#[derive(Clone, Debug)]
pub(crate) struct PausesClient {
    pub(crate) node: MemoryNode,
    pub(crate) client: Paused,
    pub(crate) pause: Arc<Mutex<Duration>>,
}

#[async_trait]
impl LockBackend for PausesClient {
    async fn acquire(&self, claim: &Claim) -> Result<Vote, BackendError> {
        let vote = LockBackend::acquire(&self.node, claim).await;
        self.client.pause(*self.pause.lock().unwrap());
        vote
    }

    async fn extend(&self, claim: &Claim) -> Result<Vote, BackendError> {
        let vote = self.node.extend(claim).await;
        self.client.pause(*self.pause.lock().unwrap());
        vote
    }

    async fn release(&self, claim: &Claim) -> Result<Vote, BackendError> {
        LockBackend::release(&self.node, claim).await
    }
}
