//! A node in memory: the operations of a Redis node, behind a network with faults.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use quorate_core::Runtime;
use quorate_core::backend::Capabilities;

use crate::client::SimClient;
use crate::fault::Fault;
use crate::observer::Observed;
use crate::rule::{Operation, Rule};
use crate::store::{Store, Value};

mod backend;
mod lane;
mod message;
mod perform;
mod process;
#[cfg(test)]
mod tests;
mod watches;

use self::message::{Connect, Connection};
use self::process::{Process, new_id};

/// A node that lives in this process: the replies of a Redis node, and faults on demand.
///
/// Clones are handles of the same node. Time is that of the [`Runtime`] it is made with: under a
/// [`Sim`](crate::Sim) nothing takes real time.
///
/// A request leaves when its call begins (for an async method: with the first poll) and is executed
/// even if the call is given up, as with a real node. Without a delay, the node replies at once.
/// The clones of a handle share one connection, on which requests and replies keep their order:
/// [`Capabilities::ORDERED`]. As on Redis, a plain release passes those about other keys to join
/// one that was sent at the same moment, and so does a plain extension. Without that order, as
/// [`unordered`](Self::unordered), each request goes by itself, and [rules](Rule) that delay put
/// them into another order.
///
/// A request or reply that a rule loses leaves its call unanswered. The node keeps that call until
/// it is given up: a call that is dropped would be answered as lost. Replies name the server's id
/// without being asked, unless the handle lacks [`Capabilities::SERVER_ID`].
///
/// ```
/// use std::time::Duration;
///
/// use quorate_core::backend::{AcquireOptions, LockBackend};
/// use quorate_core::backend::{Claim, Ttl, Vote};
/// use quorate_core::resource::{Key, Resource, Token};
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
    client: Option<SimClient>,
    connection: Arc<Connection>,
    capabilities: Capabilities,
    /// What the server lacks, or forbids, of what the backend was built for.
    lacks: Capabilities,
}

/// What a node can do, with its name in the cases of the conformance suite, and what the error says
/// where it cannot.
pub(crate) const ABILITIES: [(Capabilities, &str, &str); 11] = [
    (Capabilities::ORDERED, "ordered", "this node keeps no order"),
    (Capabilities::FENCING, "fencing", "this node keeps no fencing numbers"),
    (Capabilities::GUARD, "guard", "this node has no restart guard"),
    (Capabilities::WATCH, "watch", "this node cannot watch keys"),
    (Capabilities::QUEUE, "queue", "this node keeps no wait queue"),
    (Capabilities::INSPECT, "inspect", "this node cannot be inspected"),
    (Capabilities::SERVER_ID, "server", "this node has no server id"),
    (Capabilities::REVOKE, "revoke", "this node cannot revoke a lock"),
    (Capabilities::DESCRIBE, "describe", "this node does not describe itself"),
    (Capabilities::SHARED, "shared", "this node keeps no readers"),
    (Capabilities::PUSH, "push", "this node does not push"),
];

impl MemoryNode {
    /// A healthy, empty node.
    pub fn new(name: impl Into<String>, runtime: impl Runtime) -> Self {
        let all = ABILITIES.into_iter().fold(Capabilities::NONE, |all, (one, ..)| all | one);
        Self {
            process: Arc::new(Process::new(name.into(), Arc::new(runtime))),
            client: None,
            connection: Arc::default(),
            capabilities: all.without(Capabilities::PUSH),
            lacks: Capabilities::NONE,
        }
    }

    /// The same node as a client with client tracking uses it: a lease hears at once that its key
    /// was written.
    #[must_use]
    pub fn pushing(&self) -> Self {
        Self { capabilities: self.capabilities | Capabilities::PUSH, ..self.clone() }
    }

    /// `count` healthy, empty nodes: `memory-1` and so on.
    pub fn cluster(count: usize, runtime: impl Runtime + Clone) -> Vec<Self> {
        (1..=count).map(|number| Self::new(format!("memory-{number}"), runtime.clone())).collect()
    }

    /// The same node as `client` uses it, over a connection of its own. Rules for that client
    /// apply.
    ///
    /// While the client is paused, it handles no reply and no push.
    #[must_use]
    pub fn seen_by(&self, client: &SimClient) -> Self {
        Self { client: Some(client.clone()), connection: Arc::default(), ..self.clone() }
    }

    /// The same node as a backend that was not built for `capabilities`.
    #[must_use]
    pub fn without(&self, capabilities: Capabilities) -> Self {
        Self { capabilities: self.capabilities.without(capabilities), ..self.clone() }
    }

    /// The same node where the server lacks, or forbids, what the backend was built for: a call
    /// that needs one of `capabilities` is not sent, as over a connection that knows so.
    #[must_use]
    pub fn lacking(&self, capabilities: Capabilities) -> Self {
        Self { lacks: self.lacks | capabilities, ..self.clone() }
    }

    /// The same node over a connection that the first call makes, which takes `takes`. A connect
    /// fails after `limit`: its calls are not sent, and the next call connects again.
    #[must_use]
    pub fn connecting(&self, takes: Duration, limit: Duration) -> Self {
        let connect = Connect { takes, limit };
        Self { connection: Arc::new(Connection::to_make(connect)), ..self.clone() }
    }

    /// The same node over a pool: calls take effect, and settle, in any order.
    ///
    /// [`Reorder`](crate::Effect::Reorder) and [`Duplicate`](crate::Effect::Duplicate) act on such
    /// a node only.
    #[must_use]
    pub fn unordered(&self) -> Self {
        self.without(Capabilities::ORDERED)
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
        let watches = state.watches.take(|_| true);
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

    /// Fails over to a replica that has the data of the last [`save`](Self::save), and back. The
    /// process goes on.
    pub fn fail_over_and_back(&self) {
        let mut state = self.process.lock();
        state.store = state.snapshot.clone();
        state.promotion = format!("{}:1", new_id(&*self.process.runtime)).into();
        state.observe(Observed::LostData);
        let watches = state.watches.take(|_| true);
        self.process.push(state, watches);
    }

    /// Pushes to each lease that is registered, though nothing has changed: as a server with a full
    /// tracking table does.
    pub fn push_for_nothing(&self) {
        let mut state = self.process.lock();
        let leases = state.watches.take(|watch| watch.operation == Operation::Look);
        self.process.push(state, leases);
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

    /// The same with a ttl.
    pub fn put_for(&self, key: impl AsRef<[u8]>, value: Value, ttl: Duration) {
        self.change(|store| store.put(key.as_ref(), value, Some(store.now + ttl)));
    }

    /// Calls `observe` with everything that happens here from now on, in place of the observer
    /// before.
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
        self.process.lock().store.get(key.as_ref()).cloned()
    }

    /// How long a key still lives; `None` if it is not there or does not expire.
    #[must_use]
    pub fn time_left(&self, key: impl AsRef<[u8]>) -> Option<Duration> {
        self.process.lock().store.time_left(key.as_ref())
    }

    /// The keys that are there, sorted.
    ///
    /// Also those of wait queues (`KEY:quorate:…`), of fencing and of the restart guard
    /// (`quorate:…`). A guard that was dropped releases its keys in the background:
    /// [`Sim::advance`](crate::Sim::advance) first.
    #[must_use]
    pub fn keys(&self) -> Vec<Vec<u8>> {
        self.process.lock().store.keys()
    }

    pub(crate) fn runtime(&self) -> Arc<dyn Runtime> {
        Arc::clone(&self.process.runtime)
    }

    /// The name of the node.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.process.name
    }

    fn change(&self, act: impl FnOnce(&mut Store)) {
        let mut state = self.process.lock();
        act(&mut state.store);
        self.process.push_changes(state, None);
    }
}

impl fmt::Debug for MemoryNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MemoryNode").field(&self.process.name).finish()
    }
}
