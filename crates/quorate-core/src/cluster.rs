//! What all locks of a manager share: the nodes, the runtime, the settings.

use std::sync::Arc;

use crate::algorithm::quorum::{NodeCount, NodeId};
use crate::backend::LockBackend;
use crate::background::Background;
use crate::config::Config;
use crate::observe;
use crate::register::Register;
use crate::roster::Roster;
use crate::runtime::Runtime;

/// The nodes, and what all locks of a manager share.
#[derive(Debug)]
pub(crate) struct Cluster {
    count: NodeCount,
    nodes: Vec<Arc<dyn LockBackend>>,
    names: Vec<Arc<str>>,
    roster: Roster,
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
        Self {
            count,
            nodes,
            names,
            roster: Roster::new(count),
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

    pub(crate) fn name(&self, node: NodeId) -> &Arc<str> {
        &self.names[node.index()]
    }

    /// The names of two nodes that are one server, if there are any.
    pub(crate) fn conflict(&self) -> Option<(String, String)> {
        let name = |node| self.name(node).to_string();
        self.roster.conflict().map(|(first, second)| (name(first), name(second)))
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
