//! Nodes with a wait queue, and a runtime whose time passes by hand.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;

use super::time::{Clock, Driven, Slot, Time};
use crate::algorithm::quorum::NodeId;
use crate::backend::{
    AcquireOptions, Acquired, BackendError, BackendErrorKind, Capabilities, Claim, Entry,
    ExtendOptions, Extended, LockBackend, Refreshed, ReleaseOptions, Released, Watched,
};
use crate::cluster::Cluster;
use crate::config::{Config, Waiting};
use crate::nodes::Nodes;
use crate::resource::{Key, Resource};
use crate::runtime::{BoxFuture, Runtime};
use crate::tasks::Tasks;
use crate::wait::{LostRound, Wait};

pub(super) const NODE_TIMEOUT: Duration = Duration::from_millis(50);
pub(super) const MS: Duration = Duration::from_millis(1);

/// What a node does at the moment.
#[derive(Default)]
struct State {
    held: BTreeSet<Key>,
    entries: Vec<Entry>,
    watches: Vec<(Target, Arc<Slot<()>>)>,
    /// Commands that a hung node has not executed.
    hung: Option<Vec<Command>>,
    errors: BTreeMap<&'static str, BackendErrorKind>,
    /// Whether a push follows each watch at once.
    evicts: bool,
    log: Vec<&'static str>,
}

type Target = Result<Key, Entry>;
type Command = Box<dyn FnOnce(&mut State) + Send>;

impl State {
    fn push(&mut self, written: &Target) {
        self.watches.retain(|(target, push)| {
            let is_other = target != written;
            if !is_other {
                push.set(());
            }
            is_other
        });
    }
}

/// A node that executes commands at their first poll, unless it hangs.
pub(super) struct Fake {
    can: Capabilities,
    state: Mutex<State>,
}

impl Fake {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(super) fn hold(&self, key: &Key) {
        let mut state = self.state();
        state.held.insert(key.clone());
        state.push(&Ok(key.clone()));
    }

    pub(super) fn free(&self, key: &Key) {
        let mut state = self.state();
        state.held.remove(key);
        state.push(&Ok(key.clone()));
    }

    /// Frees a key. The push is lost.
    pub(super) fn free_silently(&self, key: &Key) {
        self.state().held.remove(key);
    }

    pub(super) fn hang(&self) {
        self.state().hung = Some(Vec::new());
    }

    /// Executes what arrived meanwhile: in order, or, on a pool, in the worst order.
    pub(super) fn resume(&self) {
        let mut state = self.state();
        let mut commands = state.hung.take().unwrap_or_default();
        if !self.can.contains(Capabilities::ORDERED) {
            commands.reverse();
        }
        commands.into_iter().for_each(|command| command(&mut state));
    }

    /// Answers an operation with an error from now on.
    pub(super) fn fail(&self, operation: &'static str, kind: BackendErrorKind) {
        self.state().errors.insert(operation, kind);
    }

    /// Forgets each watch at once, as a full tracking table does.
    pub(super) fn evict(&self) {
        self.state().evicts = true;
    }

    pub(super) fn entries(&self) -> usize {
        self.state().entries.len()
    }

    /// The commands that were executed since the last look.
    pub(super) fn log(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.state().log)
    }

    fn send(&self, command: Command) {
        let mut state = self.state();
        match &mut state.hung {
            Some(hung) => hung.push(command),
            None => command(&mut state),
        }
    }

    async fn call<T: Send + 'static>(
        &self,
        operation: &'static str,
        execute: impl FnOnce(&mut State) -> T + Send + 'static,
    ) -> Result<T, BackendError> {
        let slot = Arc::new(Slot::default());
        let reply = Arc::clone(&slot);
        let command = move |state: &mut State| {
            state.log.push(operation);
            assert!(state.log.len() < 1000, "the waiter spins");
            let error = state.errors.get(operation);
            let error = error.map(|kind| BackendError::new(*kind, "an error"));
            let result = error.map_or_else(|| Ok(execute(state)), Err);
            reply.set(result);
        };
        self.send(Box::new(command));
        slot.get().await
    }
}

impl std::fmt::Debug for Fake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fake")
    }
}

#[async_trait]
impl LockBackend for Fake {
    async fn acquire(&self, _: &Claim, _: AcquireOptions) -> Result<Acquired, BackendError> {
        unreachable!("the tests vote themselves")
    }

    async fn extend(&self, _: &Claim, _: ExtendOptions) -> Result<Extended, BackendError> {
        unreachable!("the tests vote themselves")
    }

    async fn release(&self, _: &Claim, _: ReleaseOptions) -> Result<Released, BackendError> {
        unreachable!("the tests vote themselves")
    }

    fn capabilities(&self) -> Capabilities {
        self.can
    }

    async fn watch(&self, key: &Key, entry: Option<&Entry>) -> Result<Watched, BackendError> {
        let target = entry.map_or_else(|| Ok(key.clone()), |entry| Err(entry.clone()));
        let push = Arc::new(Slot::default());
        let watch = Arc::clone(&push);
        let is_there = self.call("watch", move |state| {
            let is_there = match &target {
                Ok(key) => state.held.contains(key),
                Err(entry) => state.entries.contains(entry),
            };
            state.watches.push((target.clone(), watch));
            if state.evicts {
                state.push(&target);
            }
            is_there
        });
        Ok(Watched::new(is_there.await?, async move { push.get().await }))
    }

    async fn queue_refresh(
        &self,
        _: &Key,
        entry: &Entry,
        locks: &[Key],
    ) -> Result<Refreshed, BackendError> {
        let (entry, locks) = (entry.clone(), locks.to_vec());
        let refresh = move |state: &mut State| {
            if !state.entries.contains(&entry) {
                state.entries.push(entry.clone());
            }
            let place = state.entries.iter().position(|other| *other == entry).unwrap();
            Refreshed {
                predecessor: place.checked_sub(1).map(|before| state.entries[before].clone()),
                first: state.entries[0].clone(),
                held: locks.iter().position(|lock| state.held.contains(lock)),
            }
        };
        self.call("refresh", refresh).await
    }

    async fn queue_leave(
        &self,
        _: &Key,
        entry: &Entry,
        also: Option<&Entry>,
    ) -> Result<bool, BackendError> {
        let leaving: Vec<Entry> = also.into_iter().chain([entry]).cloned().collect();
        let leave = move |state: &mut State| {
            for entry in leaving {
                state.entries.retain(|other| *other != entry);
                state.push(&Err(entry));
            }
            !state.entries.is_empty()
        };
        self.call("leave", leave).await
    }
}

/// The nodes, the time and the background tasks.
pub(super) struct Stage {
    pub(super) cluster: Arc<Cluster>,
    time: Arc<Time>,
    nodes: Vec<Arc<Fake>>,
    tasks: Vec<Driven<BoxFuture<'static, ()>>>,
    pub(super) keys: Arc<[Key]>,
}

impl Stage {
    pub(super) fn new(waiting: Waiting, nodes: &[Capabilities]) -> Self {
        Self::with_entropy(waiting, nodes, true)
    }

    pub(super) fn with_entropy(
        waiting: Waiting,
        nodes: &[Capabilities],
        has_entropy: bool,
    ) -> Self {
        let node = |can: &Capabilities| Arc::new(Fake { can: *can, state: Mutex::default() });
        let nodes: Vec<Arc<Fake>> = nodes.iter().map(node).collect();
        let backends = nodes.iter().map(|node| -> Arc<dyn LockBackend> {
            let node: Arc<Fake> = Arc::clone(node);
            node
        });
        let time = Arc::new(Time::new(has_entropy));
        let runtime: Arc<dyn Runtime> = Arc::new(Clock::new(&time));
        let cluster = Arc::new(Cluster {
            config: Config { waiting, ..Config::default() },
            nodes: Arc::new(Nodes::new(backends.collect()).unwrap()),
            tasks: Tasks::new(Arc::clone(&runtime)),
            runtime,
        });
        let keys = Arc::from([Key::new(b"", &Resource::new("k").unwrap())]);
        Self { cluster, time, nodes, tasks: Vec::new(), keys }
    }

    pub(super) fn key(&self) -> Key {
        self.keys[0].clone()
    }

    pub(super) fn begin(&self, others_wait: bool) -> Wait {
        Wait::begin(&self.cluster, &self.keys, NODE_TIMEOUT, others_wait)
    }

    pub(super) fn node(&self, id: NodeId) -> &Fake {
        &self.nodes[id.index()]
    }

    pub(super) fn shared(&self, id: NodeId) -> Arc<Fake> {
        Arc::clone(&self.nodes[id.index()])
    }

    pub(super) fn ids(&self) -> Vec<NodeId> {
        self.cluster.nodes.count().ids().collect()
    }

    /// The candidates for the gate, as they are for a wait that begins now.
    pub(super) fn gates(&self) -> Vec<NodeId> {
        self.cluster.nodes.gates(&self.key(), self.cluster.now())
    }

    pub(super) fn advance(&mut self, by: Duration) {
        self.time.advance(by);
        self.run();
    }

    /// Runs the background tasks until all of them are at rest.
    pub(super) fn run(&mut self) {
        self.tasks.extend(self.time.take_spawned().into_iter().map(Driven::new));
        self.tasks.retain_mut(|task| task.poll().is_pending());
    }

    /// Whether the future resolves without time.
    pub(super) fn resolves(
        &mut self,
        future: &mut Driven<impl Future<Output = ()> + Unpin>,
    ) -> bool {
        let mut is_over = false;
        for _ in 0..4 {
            is_over = is_over || future.poll().is_ready();
            self.run();
        }
        is_over
    }

    /// Whether an attempt is worth making, without time.
    pub(super) fn is_ready(&mut self, wait: &mut Wait) -> bool {
        self.resolves(&mut Driven::new(Box::pin(wait.next(None))))
    }

    /// How long it takes until an attempt is worth making, in steps of 1 ms, if it is within `limit`.
    pub(super) fn time_until(
        &mut self,
        future: impl Future<Output = ()>,
        limit: Duration,
    ) -> Option<Duration> {
        let mut future = Driven::new(Box::pin(future));
        let mut passed = Duration::ZERO;
        while !self.resolves(&mut future) {
            if passed >= limit {
                return None;
            }
            self.advance(MS);
            passed += MS;
        }
        Some(passed)
    }
}

/// A lost round without a duration.
pub(super) const fn lost(rounds: u32) -> LostRound {
    LostRound { took: Duration::ZERO, rounds, is_held: true }
}
