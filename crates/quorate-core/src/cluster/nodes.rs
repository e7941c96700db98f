//! The configured nodes, and the knowledge of each.
//!
//! [`Nodes::begin`] is the one place where a call is handed to a backend, and [`Nodes::settled`]
//! the one where its result comes back. Between them they keep the health of the node, and which
//! server it is. None of it decides a vote, with two exceptions: once two nodes are known to be one
//! server, neither votes (Q6), and a stranger to a group has no vote (N3, `groups`).

mod groups;
mod health;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use self::groups::Groups;
pub(crate) use self::health::Change;
use self::health::{Health, Server, is_unanswered};
use crate::algorithm::attempt::{Outcome, RoundVote};
use crate::algorithm::gate;
use crate::algorithm::node_set::NodeSet;
use crate::algorithm::quorum::{NodeCount, NodeId, Vote};
use crate::cluster::attempts::Slot;
use crate::error::{Answer, BuildError, LockError, NodeAnswer, QuorumFailure};
use crate::resource::Key;
use crate::seam::backend::{
    BackendError, BackendErrorKind, Call, CallReply, CallResult, Capabilities, Holder, ListTask,
    LockBackend, Membership, Tag,
};
use crate::seam::runtime::{Runtime, lock};
use crate::telemetry;

/// The nodes of a manager, in the order of its configuration.
pub(crate) struct Nodes {
    pub(crate) count: NodeCount,
    nodes: Box<[NodeSlot]>,
    /// Two nodes were one server at some time. Until then no vote compares the nodes.
    has_had_twins: AtomicBool,
    pub(crate) groups: Groups,
}

/// One configured node.
struct NodeSlot {
    name: Arc<str>,
    backend: Arc<dyn LockBackend>,
    capabilities: Capabilities,
    health: Mutex<Health>,
}

/// A call that has settled.
pub(crate) struct Settled {
    pub(crate) result: CallResult,
    pub(crate) change: Change,
    /// Attempts whose release failed without an answer: the node is back.
    pub(crate) await_back: Vec<Slot>,
    /// What a node that has voted says of its group.
    pub(crate) says: Option<Arc<Membership>>,
}

impl Nodes {
    pub(crate) fn new(backends: Vec<Arc<dyn LockBackend>>) -> Result<Self, BuildError> {
        let count = NodeCount::new(backends.len())
            .ok_or(BuildError::NodeCount { nodes: backends.len() })?;
        let mut nodes: Vec<NodeSlot> = Vec::with_capacity(backends.len());
        for (number, backend) in (1..).zip(backends) {
            let name: Arc<str> = match &*backend.name() {
                "" => Arc::from(format!("node {number}")),
                name => Arc::from(name),
            };
            if nodes.iter().any(|node| node.name == name) {
                return Err(BuildError::DuplicateNode { name: name.to_string() });
            }
            let capabilities = backend.capabilities();
            let health = Mutex::new(Health::new(backend.connect_limit(), capabilities));
            nodes.push(NodeSlot { name, backend, capabilities, health });
        }
        let groups = Groups::new(nodes.iter().map(|node| Arc::clone(&node.name)));
        Ok(Self { count, nodes: nodes.into(), has_had_twins: AtomicBool::new(false), groups })
    }

    pub(crate) fn name(&self, id: NodeId) -> &Arc<str> {
        &self.nodes[id.index()].name
    }

    /// Whether the node was built for `capabilities`.
    pub(crate) fn can(&self, id: NodeId, capabilities: Capabilities) -> bool {
        self.nodes[id.index()].capabilities.contains(capabilities)
    }

    /// The nodes that were built for `capabilities`.
    pub(crate) fn built_for(&self, capabilities: Capabilities) -> NodeSet {
        self.count.ids().filter(|id| self.can(*id, capabilities)).collect()
    }

    /// What is known of a node. Under its mutex: no other node may be looked at meanwhile.
    pub(crate) fn health(&self, id: NodeId) -> MutexGuard<'_, Health> {
        lock(&self.nodes[id.index()].health)
    }

    /// The nodes that have never answered, and the longest of their connect limits.
    pub(crate) fn connecting(&self) -> (NodeSet, Duration) {
        self.count.ids().fold(Default::default(), |(mut nodes, longest), id| {
            let limit = self.health(id).connect;
            if !limit.is_zero() {
                nodes.insert(id);
            }
            (nodes, limit.max(longest))
        })
    }

    /// Whether every node keeps the order of calls. One that does not makes all of it a pool.
    pub(crate) fn all_ordered(&self) -> bool {
        self.lacking(Capabilities::ORDERED).is_none()
    }

    /// The first node that was not built for `capabilities`.
    pub(crate) fn lacking(&self, capabilities: Capabilities) -> Option<&Arc<str>> {
        self.count.ids().find(|id| !self.can(*id, capabilities)).map(|id| self.name(id))
    }

    /// The nodes that can keep the wait queue of `key` and are not skipped, the best one first.
    ///
    /// It depends on the key and the server ids, and not on the order of the configuration.
    pub(crate) fn gates(&self, key: &Key, now: Instant) -> Vec<NodeId> {
        let candidates = self.count.ids().filter_map(|id| {
            let health = self.health(id);
            health.is_gate(now).then(|| match &health.server {
                Server::Id(server) => (id, Some(Arc::clone(server))),
                Server::Unknown | Server::Nameless => (id, None),
            })
        });
        let candidates: Vec<(NodeId, Option<Arc<str>>)> = candidates.collect();
        let known =
            candidates.iter().map(|(id, server)| (*id, server.as_deref(), &**self.name(*id)));
        gate::rank(key.as_bytes(), known)
    }

    /// The nodes that may be gates, have not said which server they are, and may still do so: they
    /// have not been silent for a node timeout, and their last call was sent.
    pub(crate) fn unnamed(&self, node_timeout: Duration, now: Instant) -> Vec<NodeId> {
        let is_unnamed = |id: &NodeId| {
            let health = self.health(*id);
            health.abilities.contains(Capabilities::QUEUE | Capabilities::SERVER_ID)
                && health.server == Server::Unknown
                && health.silence(node_timeout, now).is_none()
        };
        self.count.ids().filter(is_unnamed).collect()
    }

    /// Whether the node was built for `capabilities`, and has not been found to lack them.
    pub(crate) fn has(&self, id: NodeId, capabilities: Capabilities) -> bool {
        self.health(id).abilities.contains(capabilities)
    }

    /// The nodes of which that is so.
    pub(crate) fn able(&self, capabilities: Capabilities) -> NodeSet {
        self.count.ids().filter(|id| self.has(*id, capabilities)).collect()
    }

    /// Whether a node keeps wait queues.
    pub(crate) fn has_gates(&self) -> bool {
        !self.able(Capabilities::QUEUE).is_empty()
    }

    /// Whether an error says that the node lacks an operation, or forbids it. Reports that once for
    /// a connection, if the backend was built for it.
    pub(crate) fn note_lack(&self, id: NodeId, lack: Capabilities, error: &BackendError) -> bool {
        let is_lack = error.is_lack();
        if is_lack && self.health(id).note_lack(lack) {
            let operation = if lack == Capabilities::WATCH { "watch" } else { "queue" };
            telemetry::node_cannot(self.name(id), operation, error);
        }
        is_lack
    }

    /// Hands a call to its node. Under the lock of its sender, which fixes the order of calls to
    /// the node.
    ///
    /// Returns since when the node has answered no call; a call that was not sent has settled. The
    /// health is locked before and after the backend's `begin`, never during it. Where that panics,
    /// the call was dropped, and is lost.
    pub(crate) fn begin(
        &self,
        mut call: Call,
        runtime: &dyn Runtime,
    ) -> Result<Instant, Box<Settled>> {
        let tag = call.tag;
        let Tag { node: id, begun: now, kind, .. } = tag;
        let node = &self.nodes[id.index()];
        match self.groups.task(id, kind, now) {
            ListTask::Nothing => {}
            task => call.list_task = Some(task.into()),
        }
        let silent_since = {
            let mut health = self.health(id);
            call.tag.asks_server = kind.sets_ttl()
                && health.server == Server::Unknown
                && health.abilities.contains(Capabilities::SERVER_ID);
            health.begin(now)
        };
        let backend = Arc::clone(&node.backend);
        let begun = catch_unwind(AssertUnwindSafe(|| backend.begin(call, runtime)));
        match begun {
            // A release that was not sent is sent again when the node answers.
            Ok(Err(not_sent)) => Err(Box::new(self.settled(&tag, Err(not_sent.error), now))),
            Ok(Ok(())) | Err(_) => Ok(silent_since),
        }
    }

    /// A call has settled.
    pub(crate) fn settled(&self, tag: &Tag, mut result: CallResult, now: Instant) -> Settled {
        let server = match &result {
            // The next connection may lead to another server, or to a user who may do more.
            Err(error) if error.kind() == BackendErrorKind::Connection => {
                self.groups.forget(tag.node);
                self.health(tag.node).abilities = self.nodes[tag.node.index()].capabilities;
                Some(Server::Unknown)
            }
            Ok(CallReply::Voted(reply)) => match &reply.server {
                Some(id) => Some(Server::Id(Arc::clone(id))),
                None => reply.is_nameless.then_some(Server::Nameless),
            },
            Ok(CallReply::ServerId(id)) => Some(id.clone().map_or(Server::Nameless, Server::Id)),
            Ok(CallReply::Described(told)) => told.server_id.clone().map(Server::Id),
            _ => None,
        };
        if let Some(server) = server {
            self.note_server(tag.node, server);
        }
        if tag.kind.sets_ttl() && result.is_ok() {
            let twin = self.twin(tag.node).map(|twin| {
                let text = format!("this is the same server as {twin}");
                BackendError::new(BackendErrorKind::Identity, text)
            });
            let stranger = || self.groups.stranger(tag.node);
            result = twin.or_else(stranger).map_or(result, Err);
        }
        let (change, await_back) = self.health(tag.node).settled(tag.kind, &result, now);
        let has_voted = tag.kind.votes() && result.is_ok();
        let says = if has_voted { self.groups.says(tag.node) } else { None };
        Settled { result, change, await_back, says }
    }

    /// Emits an event if a call that has settled shows that its node fails, or has recovered.
    pub(crate) fn tell_change(&self, tag: &Tag, change: Change, error: Option<&BackendError>) {
        let (node, operation) = (self.name(tag.node), tag.kind.name());
        match (change, error) {
            (Change::Recovers { after }, _) => telemetry::node_recovered(node, operation, after),
            (Change::Fails, Some(error)) => telemetry::node_failing(node, operation, error),
            (Change::Fails | Change::None, _) => {}
        }
    }

    /// The failure of a request that made no round.
    pub(crate) fn none_asked(&self) -> QuorumFailure {
        self.failure(&vec![RoundVote::NotAsked; self.nodes.len()], Duration::ZERO)
    }

    /// What each node answered in a round. No votes: no node was asked.
    pub(crate) fn failure(
        &self,
        votes: &[RoundVote<BackendError, Option<Holder>>],
        waited: Duration,
    ) -> QuorumFailure {
        let answer = |(node, vote): (&NodeSlot, &RoundVote<BackendError, Option<Holder>>)| {
            let answer = match vote {
                RoundVote::Open => Answer::NoReply { is_over: false },
                RoundVote::For => Answer::Granted,
                RoundVote::Against(holder) => Answer::Refused { holder: holder.clone() },
                RoundVote::Unclear => Answer::Refused { holder: None },
                RoundVote::Unknown(error) => Answer::Failed(error.clone()),
                RoundVote::Silent => Answer::NoReply { is_over: true },
                RoundVote::NotAsked => Answer::NotAsked,
            };
            NodeAnswer::new(Arc::clone(&node.name), answer)
        };
        QuorumFailure::new(self.nodes.iter().zip(votes).map(answer), waited)
    }

    /// Two nodes that are the same server (Q6).
    pub(crate) fn same_server(&self) -> Option<LockError> {
        let (id, twin) = self.count.ids().find_map(|id| Some((id, self.twin(id)?)))?;
        let (first, second) = (self.name(id).to_string(), twin.to_string());
        Some(LockError::SameServer { first, second })
    }

    /// The name of another node that is the same server as this one.
    pub(crate) fn twin(&self, id: NodeId) -> Option<&Arc<str>> {
        if !self.has_had_twins.load(Ordering::SeqCst) {
            return None;
        }
        let own = self.health(id).server.clone();
        let is_twin = |other: &NodeId| *other != id && self.health(*other).server == own;
        let twin = self.count.ids().find(is_twin).filter(|_| matches!(own, Server::Id(_)))?;
        Some(self.name(twin))
    }

    /// A node has said which server it is. Of two that say the same at once, the one that looks
    /// last sees the other.
    fn note_server(&self, id: NodeId, server: Server) {
        let old = std::mem::replace(&mut self.health(id).server, server.clone());
        let is_twin = |other: NodeId| other != id && self.health(other).server == server;
        if old != server && matches!(server, Server::Id(_)) && self.count.ids().any(is_twin) {
            self.has_had_twins.store(true, Ordering::SeqCst);
        }
    }
}

/// What the result of a call is for the machine of its attempt.
pub(crate) fn outcome(result: CallResult) -> Outcome<BackendError, Option<Holder>> {
    match result {
        Ok(CallReply::Voted(reply)) => match reply.vote {
            Vote::Granted => Outcome::Granted(reply.number),
            Vote::Refused if reply.is_marked => Outcome::Marked(reply.holder),
            Vote::Refused => Outcome::Refused(reply.holder),
        },
        Ok(_) => Outcome::Failed(BackendError::mixed_up()),
        Err(error) if error.is_not_sent() => Outcome::NotSent(error),
        Err(error) if is_unanswered(&error) => Outcome::Lost(error),
        Err(error) => Outcome::Failed(error),
    }
}
