//! What all locks of a manager share: the nodes, the runtime, the settings.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::algorithm::lease::Ttl;
use crate::algorithm::node_set::NodeSet;
use crate::algorithm::quorum::{NodeCount, NodeId};
use crate::backend::{BackendError, BackendErrorKind, LockBackend, Watch};
use crate::background::Background;
use crate::config::Config;
use crate::health::Health;
use crate::observe;
use crate::places::Queue;
use crate::queue::Queues;
use crate::refusals::Refusals;
use crate::register::Register;
use crate::resource::Key;
use crate::roster::Roster;
use crate::runtime::Runtime;

/// The nodes, and what all locks of a manager share.
#[derive(Debug)]
pub(crate) struct Cluster {
    count: NodeCount,
    nodes: Vec<Arc<dyn LockBackend>>,
    names: Vec<Arc<str>>,
    /// The nodes that calls reach in the order in which they set out.
    orderly: NodeSet,
    roster: Roster,
    health: Health,
    queues: Queues,
    /// To tell when a key is free.
    unwatchable: Refusals,
    /// To keep waiters in order.
    unordered: Refusals,
    background: Arc<Background>,
    rounds: Arc<Background>,
    register: Register,
    pub(crate) watched: observe::Nodes,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) config: Config,
}

impl Cluster {
    pub(crate) fn new(
        count: NodeCount,
        nodes: Vec<Arc<dyn LockBackend>>,
        names: Vec<Arc<str>>,
        runtime: Arc<dyn Runtime>,
        config: Config,
    ) -> Self {
        let orderly = count.ids().filter(|node| nodes[node.index()].keeps_order()).collect();
        Self {
            count,
            nodes,
            names,
            orderly,
            roster: Roster::new(count),
            health: Health::new(count, runtime.now()),
            queues: Queues::default(),
            unwatchable: Refusals::new(count, runtime.now()),
            unordered: Refusals::new(count, runtime.now()),
            background: Arc::default(),
            rounds: Arc::default(),
            register: Register::default(),
            watched: observe::Nodes::new(count),
            runtime,
            config,
        }
    }

    pub(crate) const fn count(&self) -> NodeCount {
        self.count
    }

    pub(crate) fn node(&self, node: NodeId) -> &dyn LockBackend {
        &*self.nodes[node.index()]
    }

    /// The node that is asked for these keys before all others: the same one in every process, and
    /// not the same for all keys.
    pub(crate) fn first_gate(&self, keys: &[Key]) -> NodeId {
        let place = keys.iter().min().map_or(0, Key::stable_hash) % self.count.get() as u32;
        NodeId::of_bit(place)
    }

    pub(crate) const fn orderly(&self) -> NodeSet {
        self.orderly
    }

    /// The node as one that can be watched; `None` if it cannot, or has said so lately.
    pub(crate) fn watcher(&self, node: NodeId) -> Option<&dyn Watch> {
        let watcher = self.node(node).watcher().filter(|_| self.config.watches)?;
        (!self.unwatchable.hold(node, || self.runtime.now())).then_some(watcher)
    }

    /// Notes that a node could not be watched. If that is likely to stay so, it is not tried for a
    /// while.
    pub(crate) fn unwatchable(&self, node: NodeId, kind: BackendErrorKind) {
        if stays(kind) && self.unwatchable.note(node, self.runtime.now()) {
            observe::cannot(self, node, "watch", kind);
        }
    }

    /// The node as one that keeps waiters in order; `None` if it cannot, or has said so lately.
    pub(crate) fn queue(&self, node: NodeId) -> Option<&dyn Queue> {
        let queue = self.node(node).queue()?;
        (!self.unordered.hold(node, || self.runtime.now())).then_some(queue)
    }

    /// Notes that a node did not keep waiters in order. If that is likely to stay so, it is not tried
    /// for a while.
    pub(crate) fn unordered(&self, node: NodeId, kind: BackendErrorKind) {
        // The keys of a queue lie in different slots.
        let stays = stays(kind) || kind == BackendErrorKind::Cluster;
        if stays && self.unordered.note(node, self.runtime.now()) {
            observe::cannot(self, node, "queue", kind);
        }
    }

    /// What keeps calls to the node from leaving. A backend that panics knows of nothing.
    pub(crate) fn obstacle(&self, node: NodeId) -> Option<BackendError> {
        catch_unwind(AssertUnwindSafe(|| self.node(node).obstacle())).ok()?
    }

    pub(crate) fn name(&self, node: NodeId) -> &Arc<str> {
        &self.names[node.index()]
    }

    /// The names of two nodes that are one server, if there are any.
    pub(crate) fn conflict(&self) -> Option<(String, String)> {
        let name = |node| self.name(node).to_string();
        self.roster.conflict().map(|(first, second)| (name(first), name(second)))
    }

    /// The nodes that hang, and for how long: none if those that do not are no quorum, since then
    /// every vote is wanted.
    pub(crate) fn hung(&self, now: Instant, ttl: Ttl) -> Vec<(NodeId, Duration)> {
        let patience = self.config.node_timeout(ttl);
        let silent = |node| Some((node, self.health.hangs(node, now, patience)?));
        let mut hung: Vec<_> = self.count.ids().filter_map(silent).collect();
        if hung.len() > self.count.spare() {
            hung.clear();
        }
        hung
    }

    pub(crate) const fn health(&self) -> &Health {
        &self.health
    }

    /// Waiters and holders of this process.
    pub(crate) const fn queues(&self) -> &Queues {
        &self.queues
    }

    /// Late answers and cleanup.
    pub(crate) const fn background(&self) -> &Arc<Background> {
        &self.background
    }

    /// Locks that are being taken.
    pub(crate) const fn rounds(&self) -> &Arc<Background> {
        &self.rounds
    }

    /// Leases that are held.
    pub(crate) const fn register(&self) -> &Register {
        &self.register
    }

    pub(crate) const fn roster(&self) -> &Roster {
        &self.roster
    }
}

/// Whether a node that cannot tell or order will not be able to, until somebody changes it.
const fn stays(kind: BackendErrorKind) -> bool {
    use BackendErrorKind as Kind;
    matches!(kind, Kind::Auth | Kind::Permission | Kind::Protocol | Kind::Script)
}
