//! A node in memory: the semantics of the protocol, and the network between it and the caller.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::FutureExt;
use quorate_core::{
    Ask, BackendError, Call, Carry, Claim, Fence, FenceHint, FenceVote, FencingToken, Guarded,
    Identify, Inspect, Key, LockBackend, Place, Quarantine, Queue, RestartGuard, Runtime, Sighting,
    Vote, Watch, Watched,
};

use crate::client::SimClient;
use crate::fault::Fault;
use crate::observer::{Observed, Observer};
use crate::rule::{Operation, Rule};
use crate::store::{Flaw, Store, Value};

pub(crate) mod process;
mod watching;

use self::process::{Connection, Shared, Way, gone};
use crate::store::guarded::no_info;

/// A node that lives in this process: the same answers as a Redis node, and faults on demand.
///
/// Clones are handles of the same node. Time is that of the [`Runtime`] it is made with: under a
/// [`Sim`](crate::Sim) nothing ever takes real time.
///
/// A request leaves with the first poll of a call and is carried out even if the caller drops the
/// future, as it is with a real node.
#[derive(Clone)]
pub struct MemoryNode {
    shared: Arc<Shared>,
    /// Whose calls come through this handle, where it matters.
    client: Option<SimClient>,
    /// Whether it [carries](Carry) calls by itself.
    carries: bool,
    /// Whether it keeps [wait queues](Queue).
    queues: bool,
    /// Whether it [tells](Watch) when a key has changed.
    watches: bool,
    /// The connection on which requests keep their order, if they do.
    connection: Option<Arc<Connection>>,
}

impl MemoryNode {
    /// A healthy, empty node.
    pub fn new(name: impl Into<String>, runtime: impl Runtime) -> Self {
        let shared = Shared::new(name.into(), Arc::new(runtime));
        let (client, connection) = (None, None);
        Self {
            shared: Arc::new(shared),
            client,
            carries: false,
            queues: true,
            watches: true,
            connection,
        }
    }

    /// `count` healthy, empty nodes: `memory-1` and so on.
    pub fn cluster(count: usize, runtime: impl Runtime + Clone) -> Vec<Self> {
        (1..=count).map(|place| Self::new(format!("memory-{place}"), runtime.clone())).collect()
    }

    /// Makes something be wrong with the node, in place of what was wrong before.
    pub fn inject(&self, fault: Fault) {
        self.shared.turn(Some(fault));
    }

    /// Ends what is wrong. A node that hung answers what has piled up; one that was dead is empty.
    pub fn heal(&self) {
        self.shared.turn(None);
    }

    /// Makes the node itself wrong, for good: a test of those who test nodes.
    #[doc(hidden)]
    pub fn plant(&self, flaw: Flaw) {
        let mut state = self.shared.lock();
        state.store.flaw = Some(flaw);
        state.snapshot.flaw = Some(flaw);
    }

    /// Ends the process and starts it again at once: the node is healthy, and empty.
    pub fn restart(&self) {
        self.inject(Fault::Dead);
        self.heal();
    }

    /// Forgets all that is stored, as `FLUSHALL` does. The process goes on.
    pub fn flush(&self) {
        let mut state = self.shared.lock();
        state.store.flush();
        state.tell_of_loss();
        self.shared.tell(state);
    }

    /// Keeps a copy of what is stored, as a background save does.
    pub fn save(&self) {
        let mut state = self.shared.lock();
        state.snapshot = state.store.clone();
    }

    /// As [`restart`](Self::restart), with what was stored when [`save`](Self::save) was called.
    pub fn restart_from_save(&self) {
        self.inject(Fault::Dead);
        let mut state = self.shared.lock();
        state.store = state.snapshot.clone();
        drop(state);
        self.heal();
    }

    /// The same node, as `client` sees it, over a connection of its own: rules for that client apply.
    #[must_use]
    pub fn seen_by(&self, client: &SimClient) -> Self {
        let connection = self.connection.as_ref().map(|_| Arc::default());
        Self { client: Some(client.clone()), connection, ..self.clone() }
    }

    /// The same node over one connection, on which no request overtakes another:
    /// [`keeps_order`](LockBackend::keeps_order). Without it, each goes by itself, and
    /// [delays](crate::Effect::Delay) put them into another order.
    ///
    /// Nothing arrives [twice](crate::Effect::Duplicate) there. It takes a [`Sim`](crate::Sim): with the timers of
    /// another runtime, requests that are delayed may still change places.
    #[must_use]
    pub fn in_order(&self) -> Self {
        Self { connection: Some(Arc::default()), ..self.clone() }
    }

    /// The same node, as a backend that [carries](Carry) calls by itself: on tasks of the client that it
    /// is [seen by](Self::seen_by), or of the runtime that the node is made with.
    #[must_use]
    pub fn carrying(&self) -> Self {
        Self { carries: true, ..self.clone() }
    }

    /// The same node, as a backend that keeps no [wait queue](Queue).
    #[must_use]
    pub fn without_queue(&self) -> Self {
        Self { queues: false, ..self.clone() }
    }

    /// The same node, as a backend that cannot [watch](Watch) a key, and keeps no wait queue.
    #[must_use]
    pub fn without_watching(&self) -> Self {
        Self { queues: false, watches: false, ..self.clone() }
    }

    /// Lets so much time pass on the runtime that the node is made with.
    pub(crate) async fn pass(&self, time: Duration) {
        let runtime = &*self.shared.runtime;
        runtime.sleep_until(runtime.now() + time).await;
    }

    /// Adds a rule to those that messages to and from this node are under.
    pub fn add_rule(&self, rule: Rule) {
        self.shared.lock().rules.push(rule);
    }

    /// Removes all rules.
    pub fn clear_rules(&self) {
        self.shared.lock().rules.clear();
    }

    /// Makes the node's clock gain `parts_per_million` on the runtime's, from now on.
    pub fn drift(&self, parts_per_million: i32) {
        let now = self.shared.runtime.now();
        self.shared.lock().clock.change_pace(now, parts_per_million);
    }

    /// Sets the node's clock forward: keys expire that much earlier.
    pub fn jump(&self, ahead: Duration) {
        self.shared.lock().clock.jump(ahead);
    }

    /// Makes keys expire, as if their ttl were over.
    pub fn expire(&self, key: impl AsRef<[u8]>) {
        let mut state = self.shared.lock();
        state.store.remove(key.as_ref());
        self.shared.tell(state);
    }

    /// Puts a value at a key that is not of this protocol, as another program would.
    pub fn put(&self, key: impl AsRef<[u8]>, value: Value) {
        let mut state = self.shared.lock();
        state.store.put(key.as_ref(), value, None);
        self.shared.tell(state);
    }

    /// Calls `observe` with everything that happens here from now on, in place of the observer before.
    ///
    /// The node is locked meanwhile: the observer must not call it.
    pub fn observe(&self, observe: impl Fn(Observed<'_>) + Send + Sync + 'static) {
        self.shared.lock().observer = Some(Observer::new(observe));
    }

    /// Ends the calls that [`observe`](Self::observe) began.
    pub fn stop_observing(&self) {
        self.shared.lock().observer = None;
    }

    /// What is at a key.
    #[must_use]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<Value> {
        self.shared.look(|store, now| store.get(key.as_ref(), now).cloned())
    }

    /// How long a key still lives; `None` if it is not there or has no end.
    #[must_use]
    pub fn time_left(&self, key: impl AsRef<[u8]>) -> Option<Duration> {
        self.shared.look(|store, now| store.time_left(key.as_ref(), now))
    }

    /// The keys that are there, sorted.
    ///
    /// Also those of waiters, of fencing tokens and of the restart guard, which begin with `quorate:`.
    /// What a dropped guard gives back goes when the world runs on: [`Sim::advance`](crate::Sim::advance) first.
    #[must_use]
    pub fn keys(&self) -> Vec<Vec<u8>> {
        self.shared.look(Store::keys)
    }

    /// What the node is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    fn client_id(&self) -> Option<usize> {
        self.client.as_ref().map(SimClient::id)
    }

    fn way(&self) -> Way<'_> {
        Way { client: self.client_id(), connection: self.connection.as_deref() }
    }

    async fn call<T: Send + 'static>(
        &self,
        operation: Operation,
        act: impl Fn(&mut Store, Instant) -> Result<T, BackendError> + Send + Sync + 'static,
    ) -> Result<T, BackendError> {
        self.shared
            .send(operation, self.way(), move |store, now, _| act(store, now))
            .await
            .unwrap_or_else(|| Err(gone("the node is gone")))
    }
}

#[async_trait]
impl LockBackend for MemoryNode {
    async fn acquire(&self, claim: &Claim) -> Result<Vote, BackendError> {
        let claim = claim.clone();
        self.call(Operation::Acquire, move |store, now| store.acquire(&claim, now)).await
    }

    async fn extend(&self, claim: &Claim) -> Result<Vote, BackendError> {
        let claim = claim.clone();
        self.call(Operation::Extend, move |store, now| store.extend(&claim, now)).await
    }

    async fn release(&self, claim: &Claim) -> Result<Vote, BackendError> {
        let claim = claim.clone();
        self.call(Operation::Release, move |store, now| Ok(store.release(&claim, now))).await
    }

    fn name(&self) -> Option<&str> {
        Some(&self.shared.name)
    }

    fn identity(&self) -> Option<&dyn Identify> {
        Some(self)
    }

    fn inspector(&self) -> Option<&dyn Inspect> {
        Some(self)
    }

    fn watcher(&self) -> Option<&dyn Watch> {
        self.watches.then_some(self)
    }

    fn queue(&self) -> Option<&dyn Queue> {
        self.queues.then_some(self)
    }

    fn fencer(&self) -> Option<&dyn Fence> {
        Some(self)
    }

    fn quarantine(&self) -> Option<&dyn Quarantine> {
        Some(self)
    }

    fn keeps_order(&self) -> bool {
        self.connection.is_some()
    }

    fn carrier(&self) -> Option<&dyn Carry> {
        self.carries.then_some(self)
    }
}

impl Carry for MemoryNode {
    fn carries(&self, _: &Claim) -> bool {
        true
    }

    fn carry(&self, call: Call) {
        let node = self.clone();
        let mut carried = Box::pin(async move {
            if !call.is_wanted() {
                return;
            }
            let answer = match call.ask() {
                Ask::Acquire => LockBackend::acquire(&node, call.claim()).await,
                Ask::Release => LockBackend::release(&node, call.claim()).await,
                // It would be dropped, which is an answer.
                _ => return,
            };
            call.answer(answer);
        });
        // On a connection it leaves here and now. Else the tasks go as they please.
        if self.connection.is_none() || carried.as_mut().now_or_never().is_none() {
            // It is the client's own code, and ends with that.
            match &self.client {
                Some(client) => client.spawn(carried),
                None => self.shared.runtime.spawn(carried),
            }
        }
    }
}

#[async_trait]
impl Quarantine for MemoryNode {
    async fn acquire(
        &self,
        claim: &Claim,
        hint: Option<FenceHint>,
        guard: RestartGuard,
    ) -> Result<Guarded, BackendError> {
        let claim = claim.clone();
        self.shared
            .send(Operation::Acquire, self.way(), move |store, now, run| {
                store.guarded_acquire(&claim, hint, guard, now, run)
            })
            .await
            .unwrap_or_else(|| Err(gone("the node is gone")))
    }
}

#[async_trait]
impl Fence for MemoryNode {
    async fn acquire(&self, claim: &Claim, hint: FenceHint) -> Result<FenceVote, BackendError> {
        let claim = claim.clone();
        let act = move |store: &mut Store, now| store.fence_acquire(&claim, hint, now);
        self.call(Operation::Acquire, act).await
    }

    async fn raise(&self, claim: &Claim, number: FencingToken) -> Result<Vote, BackendError> {
        let claim = claim.clone();
        self.call(Operation::Raise, move |store, now| store.raise(&claim, number, now)).await
    }

    async fn release(&self, claim: &Claim, number: FencingToken) -> Result<Vote, BackendError> {
        let claim = claim.clone();
        let act = move |store: &mut Store, now| Ok(store.fence_release(&claim, number, now));
        self.call(Operation::Release, act).await
    }
}

#[async_trait]
impl Inspect for MemoryNode {
    async fn inspect(&self, key: &Key) -> Result<Option<Sighting>, BackendError> {
        let key = key.clone();
        self.call(Operation::Inspect, move |store, now| store.inspect(&key, now)).await
    }
}

#[async_trait]
impl Queue for MemoryNode {
    async fn join(&self, key: &Key, place: &Place) -> Result<Option<Place>, BackendError> {
        let (key, place) = (key.clone(), place.clone());
        self.call(Operation::Queue, move |store, now| store.join(&key, &place, now)).await
    }

    async fn leave(
        &self,
        key: &Key,
        place: &Place,
        before: Option<&Place>,
    ) -> Result<(), BackendError> {
        let (key, place, before) = (key.clone(), place.clone(), before.cloned());
        let act = move |store: &mut Store, now| store.leave(&key, &place, before.as_ref(), now);
        self.call(Operation::Queue, act).await
    }
}

/// Tells of each change of the key, of extensions too, and of expiry as soon as the node's clock
/// says so. The wake-up is a message like a reply: faults and rules of the moment befall it.
#[async_trait]
impl Watch for MemoryNode {
    async fn look(&self, key: &Key) -> Result<Watched, BackendError> {
        self.shared.watch(key, self.client_id()).await
    }
}

#[async_trait]
impl Identify for MemoryNode {
    async fn server_id(&self) -> Result<Option<String>, BackendError> {
        let state = self.shared.lock();
        match &state.fault {
            Some(Fault::Dead | Fault::Down) => Err(gone("connection refused")),
            Some(Fault::Failing(error)) => Err(error.clone()),
            // Known from the handshake: a client learns it once a connection.
            Some(Fault::NoInfo) => Err(no_info()),
            _ => Ok(Some(self.shared.run(&state).id())),
        }
    }
}

impl fmt::Debug for MemoryNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MemoryNode").field(&self.shared.name).finish()
    }
}
