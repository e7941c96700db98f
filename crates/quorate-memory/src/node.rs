//! A node in memory: the operations of a Redis node, behind a network with faults.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use quorate_core::backend::Sighting;
use quorate_core::backend::{
    AcquireOptions, Acquired, Capabilities, Entry, ExtendOptions, Extended, LockBackend, Refreshed,
    ReleaseOptions, Released, Watched,
};
use quorate_core::{BackendError, Claim, FencingToken, Key, Runtime, Vote};

use crate::client::SimClient;
use crate::fault::Fault;
use crate::keys;
use crate::observer::Observed;
use crate::rule::{Operation, Rule};
use crate::store::{Store, Value, no_info};

mod connection;
mod process;
#[cfg(test)]
mod tests;
mod watches;
mod watching;

use self::connection::Connection;
use self::process::{Process, Sent, State};

/// A node that lives in this process: the replies of a Redis node, and faults on demand.
///
/// Clones are handles of the same node. Time is that of the [`Runtime`] it is made with: under a
/// [`Sim`](crate::Sim) nothing takes real time.
///
/// A request leaves with the first poll of a call and is executed even if the caller drops the future,
/// as with a real node. The clones of a handle share one connection, on which requests and replies keep
/// their order: [`Capabilities::ORDERED`]. Without that, as [`unordered`](Self::unordered), each
/// request goes by itself, and [rules](Rule) that delay put them into another order.
///
/// ```
/// use std::time::Duration;
///
/// use quorate_core::backend::{AcquireOptions, LockBackend};
/// use quorate_core::{Claim, Key, Resource, Token, Ttl, Vote};
/// use quorate_memory::{MemoryNode, Sim};
///
/// let sim = Sim::new(1);
/// let node = MemoryNode::new("mine", sim.clone());
/// let token = Token::draw(|bytes| Ok(bytes.fill(7)))?;
/// let key = Key::new(b"", &Resource::new("stock:7")?);
/// let claim = Claim::new([key], token, Ttl::try_from(Duration::from_secs(10))?);
///
/// let acquired = sim.block_on(node.acquire(&claim, AcquireOptions::default()))?;
/// assert_eq!(acquired.vote, Vote::Granted);
/// sim.advance(Duration::from_secs(10));
/// assert_eq!(node.get("stock:7"), None, "the ttl has passed");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct MemoryNode {
    process: Arc<Process>,
    /// The client whose calls come through this handle, where that matters.
    client: Option<usize>,
    connection: Arc<Connection>,
    capabilities: Capabilities,
}

/// What a node can do, and what the error says where it cannot.
const ABILITIES: [(Capabilities, &str); 7] = [
    (Capabilities::ORDERED, "this node keeps no order"),
    (Capabilities::FENCING, "this node keeps no fencing numbers"),
    (Capabilities::GUARD, "this node has no restart guard"),
    (Capabilities::WATCH, "this node cannot watch keys"),
    (Capabilities::QUEUE, "this node keeps no wait queue"),
    (Capabilities::INSPECT, "this node cannot be inspected"),
    (Capabilities::SERVER_ID, "this node has no server id"),
];

/// The union of the abilities that fulfil a condition.
fn abilities(is_meant: impl Fn(Capabilities) -> bool) -> Capabilities {
    let meant = ABILITIES.into_iter().map(|(one, _)| one).filter(|one| is_meant(*one));
    meant.fold(Capabilities::NONE, |all, one| all | one)
}

impl MemoryNode {
    /// A healthy, empty node.
    pub fn new(name: impl Into<String>, runtime: impl Runtime) -> Self {
        Self {
            process: Arc::new(Process::new(name.into(), Arc::new(runtime))),
            client: None,
            connection: Arc::default(),
            capabilities: abilities(|_| true),
        }
    }

    /// `count` healthy, empty nodes: `memory-1` and so on.
    pub fn cluster(count: usize, runtime: impl Runtime + Clone) -> Vec<Self> {
        (1..=count).map(|number| Self::new(format!("memory-{number}"), runtime.clone())).collect()
    }

    /// The same node as `client` uses it, over a connection of its own. Rules for that client apply.
    #[must_use]
    pub fn seen_by(&self, client: &SimClient) -> Self {
        Self { client: Some(client.id()), connection: Arc::default(), ..self.clone() }
    }

    /// The same node as a backend that was not built for `capabilities`.
    #[must_use]
    pub fn without(&self, capabilities: Capabilities) -> Self {
        let is_left = |one| self.capabilities.contains(one) && !capabilities.contains(one);
        Self { capabilities: abilities(is_left), ..self.clone() }
    }

    /// The same node over a pool: calls take effect, and settle, in any order.
    ///
    /// [`Reorder`](crate::Effect::Reorder) and [`Duplicate`](crate::Effect::Duplicate) act on such a
    /// node only.
    #[must_use]
    pub fn unordered(&self) -> Self {
        self.without(Capabilities::ORDERED)
    }

    /// The same node as a backend that keeps no wait queue.
    #[must_use]
    pub fn without_queue(&self) -> Self {
        self.without(Capabilities::QUEUE)
    }

    /// The same node as a backend that can watch no key, and keeps no wait queue.
    #[must_use]
    pub fn without_watching(&self) -> Self {
        self.without(Capabilities::WATCH | Capabilities::QUEUE)
    }

    /// Injects a fault into the node, in place of the fault before.
    pub fn inject(&self, fault: Fault) {
        self.process.set_fault(Some(fault));
    }

    /// Ends the fault. A node that hung answers what it has not read yet; a node that was dead is
    /// empty.
    pub fn heal(&self) {
        self.process.set_fault(None);
    }

    /// Ends the process and starts it again at once. The node is then healthy and empty.
    pub fn restart(&self) {
        self.inject(Fault::Dead);
        self.heal();
    }

    /// Forgets all data, as `FLUSHALL` does. The process goes on.
    pub fn flush(&self) {
        let mut state = self.process.lock();
        state.store.clear();
        state.observe(Observed::LostData);
        let watches = state.watches.take_all();
        self.process.push(state, watches);
    }

    /// Keeps a copy of the data, as a background save does.
    pub fn save(&self) {
        let mut state = self.process.lock();
        state.snapshot = state.store.clone();
    }

    /// [Restarts](Self::restart) the node with the data of the last [`save`](Self::save).
    pub fn restart_from_save(&self) {
        self.inject(Fault::Dead);
        let mut state = self.process.lock();
        state.store = state.snapshot.clone();
        drop(state);
        self.heal();
    }

    /// Lets `time` pass on the runtime that the node is made with.
    pub(crate) async fn pass(&self, time: Duration) {
        let runtime = &*self.process.runtime;
        runtime.sleep_until(runtime.now() + time).await;
    }

    /// Adds a rule for the messages to and from this node.
    pub fn add_rule(&self, rule: Rule) {
        self.process.lock().rules.push(rule);
    }

    /// Removes all rules.
    pub fn clear_rules(&self) {
        self.process.lock().rules.clear();
    }

    /// Makes the node's clock gain `parts_per_million` on the runtime's, from now on.
    pub fn drift(&self, parts_per_million: i32) {
        let now = self.process.runtime.now();
        self.process.lock().clock.change_pace(now, parts_per_million);
    }

    /// Sets the node's clock forward: keys expire that much earlier.
    pub fn jump(&self, ahead: Duration) {
        self.process.lock().clock.jump(ahead);
    }

    /// Makes a key expire, as if its ttl had passed.
    pub fn expire(&self, key: impl AsRef<[u8]>) {
        self.change(|store| store.remove(key.as_ref()));
    }

    /// Puts a value without a ttl at a key, as another program would.
    pub fn put(&self, key: impl AsRef<[u8]>, value: Value) {
        self.change(|store| store.put(key.as_ref(), value, None));
    }

    /// Calls `observe` with everything that happens here from now on, in place of the observer before.
    ///
    /// The node is locked meanwhile: the observer must not call it.
    pub fn observe(&self, observe: impl Fn(Observed<'_>) + Send + Sync + 'static) {
        self.process.lock().observer = Some(Box::new(observe));
    }

    /// Ends the calls that [`observe`](Self::observe) began.
    pub fn stop_observing(&self) {
        self.process.lock().observer = None;
    }

    /// What is at a key.
    #[must_use]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<Value> {
        self.look(|store, now| store.get(key.as_ref(), now).cloned())
    }

    /// How long a key still lives; `None` if it is not there or does not expire.
    #[must_use]
    pub fn time_left(&self, key: impl AsRef<[u8]>) -> Option<Duration> {
        self.look(|store, now| store.time_left(key.as_ref(), now))
    }

    /// The keys that are there, sorted.
    ///
    /// Also those of wait queues (`KEY:quorate:…`), of fencing and of the restart guard (`quorate:…`). A
    /// guard that was dropped releases its keys in the background: [`Sim::advance`](crate::Sim::advance)
    /// first.
    #[must_use]
    pub fn keys(&self) -> Vec<Vec<u8>> {
        self.look(Store::keys)
    }

    /// The name of the node.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.process.name
    }

    fn change(&self, act: impl FnOnce(&mut Store)) {
        let mut state = self.process.lock();
        act(&mut state.store);
        self.process.push_changes(state);
    }

    fn look<T>(&self, at: impl FnOnce(&Store, Instant) -> T) -> T {
        let state = self.process.lock();
        at(&state.store, self.process.now(&state))
    }

    /// Fails a call that asks for an ability that this backend lacks.
    fn require(&self, is_asked: bool, ability: Capabilities) -> Result<(), BackendError> {
        let why = ABILITIES.into_iter().find(|(one, _)| *one == ability);
        match why.filter(|_| is_asked && !self.capabilities.contains(ability)) {
            Some((_, why)) => Err(BackendError::unsupported(why)),
            None => Ok(()),
        }
    }

    /// Whether to answer the waiters question. A node without wait queues ignores it.
    fn is_asked(&self, waiters: bool) -> bool {
        waiters && self.capabilities.contains(Capabilities::QUEUE)
    }

    fn sent(&self, operation: Operation) -> Sent {
        let is_ordered = self.capabilities.contains(Capabilities::ORDERED);
        let connection = if is_ordered { Arc::clone(&self.connection) } else { Arc::default() };
        Sent { operation, client: self.client, is_ordered, connection }
    }

    async fn call<T: Send + 'static>(
        &self,
        operation: Operation,
        act: impl Fn(&mut State, Instant) -> Result<T, BackendError> + Send + Sync + 'static,
    ) -> Result<T, BackendError> {
        self.process.send(self.sent(operation), act).await
    }
}

#[async_trait]
impl LockBackend for MemoryNode {
    async fn acquire(
        &self,
        claim: &Claim,
        options: AcquireOptions,
    ) -> Result<Acquired, BackendError> {
        let AcquireOptions { fencing, guard, waiters, .. } = options;
        self.require(fencing.is_some(), Capabilities::FENCING)?;
        self.require(guard.is_some(), Capabilities::GUARD)?;
        let waiters = self.is_asked(waiters);
        let claim = claim.clone();
        self.call(Operation::Acquire, move |state, now| {
            let mut acquired = match (guard, fencing) {
                (Some(guard), hint) => {
                    let server = state.server(now);
                    state.store.guarded_acquire(&claim, hint, guard, server, now)?
                }
                (None, Some(hint)) => state.store.fence_acquire(&claim, hint, now)?,
                (None, None) => Acquired::new(state.store.acquire(&claim, now)?),
            };
            acquired.waiters = waiters.then(|| state.store.has_waiters(&claim, now));
            Ok(acquired)
        })
        .await
    }

    async fn extend(
        &self,
        claim: &Claim,
        options: ExtendOptions,
    ) -> Result<Extended, BackendError> {
        let waiters = self.is_asked(options.waiters);
        let claim = claim.clone();
        self.call(Operation::Extend, move |state, now| {
            let mut extended = Extended::new(state.store.extend(&claim, now)?);
            extended.waiters = waiters.then(|| state.store.has_waiters(&claim, now));
            Ok(extended)
        })
        .await
    }

    async fn release(
        &self,
        claim: &Claim,
        options: ReleaseOptions,
    ) -> Result<Released, BackendError> {
        self.require(options.raise_to.is_some(), Capabilities::FENCING)?;
        let waiters = self.is_asked(options.waiters);
        let claim = claim.clone();
        self.call(Operation::Release, move |state, now| {
            let mut released = Released::new(match options.raise_to {
                Some(number) => state.store.fence_release(&claim, number, now),
                None => state.store.release(&claim, now),
            });
            released.waiters = waiters.then(|| state.store.has_waiters(&claim, now));
            Ok(released)
        })
        .await
    }

    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.process.name)
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    async fn raise(&self, claim: &Claim, number: FencingToken) -> Result<Vote, BackendError> {
        self.require(true, Capabilities::FENCING)?;
        let claim = claim.clone();
        self.call(Operation::Raise, move |state, now| state.store.raise(&claim, number, now)).await
    }

    async fn inspect(&self, key: &Key) -> Result<Option<Sighting>, BackendError> {
        self.require(true, Capabilities::INSPECT)?;
        let key = key.clone();
        self.call(Operation::Inspect, move |state, now| state.store.inspect(&key, now)).await
    }

    async fn server_id(&self) -> Result<Option<String>, BackendError> {
        self.require(true, Capabilities::SERVER_ID)?;
        self.call(Operation::ServerId, |state, now| match state.server(now) {
            server if server.hides => Err(no_info()),
            server => Ok(Some(server.id)),
        })
        .await
    }

    /// Every write to the key is pushed, an extension too, and its expiry when the node's clock reaches
    /// it. The push is a message like a reply: the faults and rules of that moment act on it.
    async fn watch(&self, key: &Key, entry: Option<&Entry>) -> Result<Watched, BackendError> {
        self.require(true, Capabilities::WATCH)?;
        // Watches do not share the connection of the other calls.
        let sent = Sent { connection: Arc::default(), ..self.sent(Operation::Watch) };
        watching::watch(&self.process, keys::watched(key, entry), sent).await
    }

    async fn queue_refresh(
        &self,
        key: &Key,
        entry: &Entry,
        locks: &[Key],
    ) -> Result<Refreshed, BackendError> {
        self.require(true, Capabilities::QUEUE)?;
        let (key, entry, locks) = (key.clone(), entry.clone(), locks.to_vec());
        let act =
            move |state: &mut State, now| state.store.queue_refresh(&key, &entry, &locks, now);
        self.call(Operation::Queue, act).await
    }

    async fn queue_leave(
        &self,
        key: &Key,
        entry: &Entry,
        also: Option<&Entry>,
    ) -> Result<bool, BackendError> {
        self.require(true, Capabilities::QUEUE)?;
        let (key, entry, also) = (key.clone(), entry.clone(), also.cloned());
        let act =
            move |state: &mut State, now| state.store.queue_leave(&key, &entry, also.as_ref(), now);
        self.call(Operation::Queue, act).await
    }
}

impl fmt::Debug for MemoryNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MemoryNode").field(&self.process.name).finish()
    }
}
