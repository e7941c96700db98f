//! What a manager knows of its nodes without asking them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::LockManager;
use crate::error::Answer;

impl LockManager {
    /// The nodes that answered lately, and whether they are a quorum, without asking them.
    ///
    /// For a readiness probe that is called often. A look at the clock and a mutex of each node: no
    /// I/O. *Lately* has no bound in time: it is about the latest call to each node, and a manager
    /// without work makes none. So it does not learn that nodes are back, and one that has asked
    /// nothing knows of no node: [`check`](Self::check) asks all of them, and its answers count.
    ///
    /// ```
    /// use quorate_core::LockManager;
    ///
    /// async fn probe(locks: &LockManager) -> Result<(), String> {
    ///     if locks.readiness().has_quorum() || locks.check().await.has_quorum() {
    ///         return Ok(());
    ///     }
    ///     Err(locks.readiness().to_string())
    /// }
    /// ```
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        let (cluster, now) = (self.cluster(), self.cluster().now());
        let (nodes, node_timeout) = (&cluster.nodes, cluster.config.default_node_timeout());
        let known = nodes.count.ids().map(|id| {
            let health = nodes.health(id);
            NodeReadiness {
                name: Arc::clone(nodes.name(id)),
                is_answering: health.is_answering(node_timeout, now),
                last_answer: health.answered.map(|at| now.saturating_duration_since(at)),
                failure: health.failure(node_timeout, now),
            }
        });
        Readiness { nodes: known.collect(), needed: nodes.count.quorum() }
    }
}

/// What a manager knows of its nodes without asking them. From
/// [`LockManager::readiness`](crate::LockManager::readiness).
///
/// `Display` is one line, such as `2 of 3 nodes answer, 2 needed; 10.0.0.2 does not`.
#[derive(Clone, Debug)]
pub struct Readiness {
    nodes: Vec<NodeReadiness>,
    needed: usize,
}

/// What a manager knows of one node without asking it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeReadiness {
    /// What errors and events call the node.
    pub name: Arc<str>,
    /// Whether the node answered lately: its latest call that settled was answered without an
    /// error, and none is in flight without an answer for a node timeout. False for a node that was
    /// never asked.
    pub is_answering: bool,
    /// How long ago the node last answered a call without an error; `None` if it never did.
    pub last_answer: Option<Duration>,
    /// Why a round lately had no vote of the node: its latest error, or *no reply* within a node
    /// timeout. `None` once it has gone for 5 s without a failure, and answers.
    ///
    /// A node that is [the same server](crate::LockError::SameServer) as another one fails with the
    /// kind [`Identity`](crate::BackendErrorKind::Identity).
    pub failure: Option<Answer>,
}

impl Readiness {
    /// All configured nodes, in the order of the configuration.
    #[must_use]
    pub fn nodes(&self) -> &[NodeReadiness] {
        &self.nodes
    }

    /// How many nodes answered lately, as [`NodeReadiness::is_answering`] says.
    #[must_use]
    pub fn answering(&self) -> usize {
        self.nodes.iter().filter(|node| node.is_answering).count()
    }

    /// Whether a quorum of the configured nodes answered lately.
    #[must_use]
    pub fn has_quorum(&self) -> bool {
        self.answering() >= self.needed
    }
}

impl fmt::Display for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (answering, nodes, needed) = (self.answering(), self.nodes.len(), self.needed);
        write!(f, "{answering} of {nodes} nodes answer, {needed} needed")?;
        let silent = self.nodes.iter().filter(|node| !node.is_answering);
        silent.into_iter().try_for_each(|node| write!(f, "; {} does not", node.name))
    }
}
