//! The configured nodes: how they are called, and what is known of each.
//!
//! [`Nodes::call`] is the one place where a [`LockBackend`] is called with a claim. It keeps the times
//! of calls in flight, how the last calls ended, and which server a node is. None of it decides a vote,
//! with two exceptions (Q6): a node does not vote while reading its server id fails for a passing reason, and
//! once two nodes are known to be one server, neither votes. A node that has no id, or may not report it, votes.

mod health;

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::{pending, try_join};

use self::health::Health;
pub(crate) use self::health::{Change, Silence};
use crate::algorithm::attempt::{Operation, Outcome};
use crate::algorithm::quorum::{NodeCount, NodeId, Vote};
use crate::backend::{
    AcquireOptions, BackendError, BackendErrorKind, Capabilities, Claim, Entry, ExtendOptions,
    LockBackend, ReleaseOptions, Watched,
};
use crate::error::{Answer, BuildError, NodeAnswer, QuorumFailure};
use crate::resource::Key;
use crate::runtime::BoxFuture;
use crate::telemetry;

/// The nodes of a manager, in the order of its configuration.
pub(crate) struct Nodes {
    count: NodeCount,
    nodes: Box<[Node]>,
    /// The server ids, by node.
    servers: Mutex<Vec<Server>>,
}

struct Node {
    name: Arc<str>,
    backend: Arc<dyn LockBackend>,
    health: Mutex<Health>,
}

/// Which server a node is, as its connection reported.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Server {
    Unknown,
    /// The node has no id, or does not report it.
    Nameless,
    Id(String),
}

/// How a call settled.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) outcome: Outcome,
    /// The error behind an outcome of *failed* or *not sent*.
    pub(crate) error: Option<BackendError>,
    /// Whether other processes wait; `None` if that is unknown.
    pub(crate) waiters: Option<bool>,
}

impl Nodes {
    pub(crate) fn new(backends: Vec<Arc<dyn LockBackend>>) -> Result<Self, BuildError> {
        let count = NodeCount::new(backends.len())
            .ok_or(BuildError::NodeCount { nodes: backends.len() })?;
        let name = |(number, backend): (usize, &Arc<dyn LockBackend>)| match &*backend.name() {
            "" => Arc::from(format!("node {number}")),
            name => Arc::from(name),
        };
        let names: Vec<Arc<str>> = (1..).zip(&backends).map(name).collect();
        for (at, name) in names.iter().enumerate() {
            if names[..at].contains(name) {
                return Err(BuildError::DuplicateNode { name: name.to_string() });
            }
        }
        let node = |(name, backend)| Node { name, backend, health: Mutex::default() };
        let nodes = names.into_iter().zip(backends).map(node).collect();
        Ok(Self { count, nodes, servers: Mutex::new(vec![Server::Unknown; count.get()]) })
    }

    pub(crate) const fn count(&self) -> NodeCount {
        self.count
    }

    pub(crate) fn name(&self, id: NodeId) -> &Arc<str> {
        &self.nodes[id.index()].name
    }

    pub(crate) fn backend(&self, id: NodeId) -> &Arc<dyn LockBackend> {
        &self.nodes[id.index()].backend
    }

    pub(crate) fn can(&self, id: NodeId, capabilities: Capabilities) -> bool {
        self.backend(id).capabilities().contains(capabilities)
    }

    /// The first node that lacks `capabilities`.
    pub(crate) fn lacking(&self, capabilities: Capabilities) -> Option<&Arc<str>> {
        self.count.ids().find(|id| !self.can(*id, capabilities)).map(|id| self.name(id))
    }

    /// The nodes that can keep the wait queue of `key` and are not skipped, the best one first.
    ///
    /// Every process with the same configuration has the same order: it depends on the key and on the
    /// order of the nodes.
    pub(crate) fn gates(&self, key: &Key, now: Instant) -> Vec<NodeId> {
        let count = self.count.get();
        let start = key.stable_hash() as usize % count;
        let ids: Vec<NodeId> = self.count.ids().collect();
        let in_order = (0..count).map(|step| ids[(start + step) % count]);
        let is_gate =
            |id: &NodeId| self.can(*id, Capabilities::QUEUE) && !self.health(*id).is_skipped(now);
        in_order.filter(is_gate).collect()
    }

    /// Whether any node can keep a wait queue.
    pub(crate) fn has_gates(&self) -> bool {
        self.count.ids().any(|id| self.can(id, Capabilities::QUEUE))
    }

    /// Makes a node no gate for new waits until then.
    pub(crate) fn skip_gate(&self, id: NodeId, until: Instant) {
        self.health(id).skip_until(until);
    }

    /// Whether an error says that the node lacks an operation, or forbids it. Reports that once, if the
    /// backend was built for it.
    pub(crate) fn note_lack(&self, id: NodeId, lack: Capabilities, error: &BackendError) -> bool {
        let is_lack =
            matches!(error.kind(), BackendErrorKind::Script | BackendErrorKind::Permission);
        if is_lack && self.can(id, lack) && self.health(id).note_lack(lack) {
            let operation = if lack == Capabilities::WATCH { "watch" } else { "queue" };
            telemetry::node_cannot(self.name(id), operation, error);
        }
        is_lack
    }

    /// Watches a key. Where a node cannot watch, the key counts as there, and no push comes.
    pub(crate) async fn watch(
        &self,
        id: NodeId,
        key: &Key,
        entry: Option<&Entry>,
    ) -> Result<Watched, BackendError> {
        match self.backend(id).watch(key, entry).await {
            Err(error)
                if self.note_lack(id, Capabilities::WATCH, &error)
                    && !planted!("node_without_pushes_is_no_gate") =>
            {
                Ok(Watched::new(true, pending()))
            }
            result => result,
        }
    }

    /// Calls a node, with those of `options` that the operation has. Nothing is sent before the first poll
    /// of the future, and it settles by the node's reply or the end of its connection, never by a deadline.
    pub(crate) fn call(
        self: &Arc<Self>,
        id: NodeId,
        claim: Claim,
        operation: Operation,
        options: AcquireOptions,
        now: Instant,
    ) -> BoxFuture<'static, Reply> {
        let in_flight = self.begin_call(id, now);
        let nodes = Arc::clone(self);
        Box::pin(async move {
            let _in_flight = in_flight;
            let backend = nodes.backend(id);
            let asks_server = nodes.asks_server(id, operation);
            let ask =
                async { Ok(if asks_server { Some(backend.server_id().await) } else { None }) };
            // Both leave with the first poll, the operation in front. Its error waits for no server id.
            let call = try_join(perform(&**backend, &claim, operation, options), ask);
            let panicked = || BackendError::new(BackendErrorKind::Other, "the backend panicked");
            let settled = AssertUnwindSafe(call).catch_unwind().await;
            let result = settled.unwrap_or_else(|_| Err(panicked()));
            let is_acquire = matches!(operation, Operation::Acquire { .. });
            let result = match result {
                Err(_) if is_acquire && planted!("acquire_without_a_reply_is_sent_again") => {
                    perform(&**backend, &claim, operation, options).await.map(|again| (again, None))
                }
                result => result,
            };
            let result = nodes.check_server(id, operation, result);
            let is_release = matches!(operation, Operation::Release { .. });
            nodes.health(id).settled(is_release, result.as_ref().err());
            match result {
                Ok(reply) => reply,
                Err(error) => Reply::failed(error),
            }
        })
    }

    /// Counts a call as in flight until what is returned is dropped.
    pub(crate) fn begin_call(self: &Arc<Self>, id: NodeId, now: Instant) -> InFlight {
        self.health(id).begin(now);
        InFlight { nodes: Arc::clone(self), id }
    }

    fn asks_server(&self, id: NodeId, operation: Operation) -> bool {
        let sets_ttl = matches!(operation, Operation::Acquire { .. } | Operation::Extend { .. });
        sets_ttl
            && self.can(id, Capabilities::SERVER_ID)
            && self.servers()[id.index()] == Server::Unknown
    }

    /// Learns which server a node is. Once two nodes are known to be one server, the votes of both are unknown.
    fn check_server(
        &self,
        id: NodeId,
        operation: Operation,
        result: Result<(Performed, Option<ServerId>), BackendError>,
    ) -> Result<Reply, BackendError> {
        let mut servers = self.servers();
        if let Err(error) = &result
            && error.kind() == BackendErrorKind::Connection
        {
            // The next connection may lead to another server.
            servers[id.index()] = Server::Unknown;
        }
        let (Performed { reply, server }, asked) = result?;
        let told = match (server, asked) {
            (Some(id), _) | (None, Some(Ok(Some(id)))) => Some(Server::Id(id)),
            (None, Some(Ok(None))) => Some(Server::Nameless),
            (None, Some(Err(error))) if error.kind().is_permanent() => Some(Server::Nameless),
            // It is asked again with the next call. Until then its vote may be that of another node.
            (None, Some(Err(error))) => {
                return Ok(Reply { outcome: Outcome::Failed, error: Some(error), ..reply });
            }
            (None, None) => None,
        };
        if let Some(told) = told {
            servers[id.index()] = told;
        }
        let sets_ttl = matches!(operation, Operation::Acquire { .. } | Operation::Extend { .. });
        if sets_ttl && let Some(twin) = twin_of(&servers, id) {
            let text = format!("this is the same server as {}", self.nodes[twin].name);
            return Err(BackendError::new(BackendErrorKind::Identity, text));
        }
        Ok(reply)
    }

    /// The failure of a request that made no round.
    pub(crate) fn none_asked(&self) -> QuorumFailure {
        let answer = |node: &Node| NodeAnswer::new(Arc::clone(&node.name), Answer::NotAsked);
        QuorumFailure::new(self.nodes.iter().map(answer), Duration::ZERO)
    }

    /// Two nodes that are the same server (Q6).
    pub(crate) fn same_server(&self) -> Option<(String, String)> {
        let servers = self.servers();
        let name = |at: usize| self.nodes[at].name.to_string();
        self.count
            .ids()
            .find_map(|id| twin_of(&servers, id).map(|twin| (name(id.index()), name(twin))))
    }

    /// The next moment at which a node has answered no call for a node timeout.
    pub(crate) fn next_silence(&self, node_timeout: Duration, now: Instant) -> Option<Instant> {
        let next = |id| self.health(id).next_silence(node_timeout, now);
        self.count.ids().filter_map(next).min()
    }

    pub(crate) fn health(&self, id: NodeId) -> MutexGuard<'_, Health> {
        self.nodes[id.index()].health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn servers(&self) -> MutexGuard<'_, Vec<Server>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Another node, by its index, that is the same server.
fn twin_of(servers: &[Server], id: NodeId) -> Option<usize> {
    let own = &servers[id.index()];
    let is_twin = |at: &usize| *at != id.index() && servers[*at] == *own;
    let is_known = matches!(own, Server::Id(_)) && !planted!("one_server_votes_twice");
    if is_known { (0..servers.len()).find(is_twin) } else { None }
}

/// What a node said of its server when it was asked.
type ServerId = Result<Option<String>, BackendError>;

struct Performed {
    reply: Reply,
    /// The server that replied, under the restart guard.
    server: Option<String>,
}

/// One call of the backend.
async fn perform(
    backend: &dyn LockBackend,
    claim: &Claim,
    operation: Operation,
    options: AcquireOptions,
) -> Result<Performed, BackendError> {
    let waiters = options.waiters;
    let mut server = None;
    let (vote, number, waiters) = match operation {
        Operation::Acquire { ttl } => {
            let acquired = backend.acquire(&claim.with_ttl(ttl), options).await?;
            server = acquired.server.map(|server| server.id);
            (acquired.vote, acquired.number, acquired.waiters)
        }
        // No fencing number, and no guard: the votes of the others prove who the holder is.
        Operation::Repair { ttl } => {
            let acquired = backend.acquire(&claim.with_ttl(ttl), AcquireOptions::default()).await?;
            (acquired.vote, None, None)
        }
        Operation::Extend { ttl } => {
            let extended = backend.extend(&claim.with_ttl(ttl), ExtendOptions { waiters }).await?;
            (extended.vote, None, extended.waiters)
        }
        Operation::Raise { token } => (backend.raise(claim, token).await?, None, None),
        Operation::Release { highest } => {
            // An adopted lock has a token also where a node keeps no numbers.
            let can_raise = backend.capabilities().contains(Capabilities::FENCING);
            let options = ReleaseOptions { raise_to: highest.filter(|_| can_raise), waiters };
            let released = backend.release(claim, options).await?;
            (released.vote, None, released.waiters)
        }
    };
    let outcome = match vote {
        Vote::Granted => Outcome::Granted(number),
        Vote::Refused => Outcome::Refused,
    };
    Ok(Performed { reply: Reply { outcome, error: None, waiters }, server })
}

impl Reply {
    fn failed(error: BackendError) -> Self {
        let outcome = if error.is_not_sent() { Outcome::NotSent } else { Outcome::Failed };
        Self { outcome, error: Some(error), waiters: None }
    }
}

/// A call that has not settled. Dropped with the future of the call.
pub(crate) struct InFlight {
    nodes: Arc<Nodes>,
    id: NodeId,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.nodes.health(self.id).end();
    }
}
