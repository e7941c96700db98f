//! Who the nodes are: two configured nodes that are one server would void the quorum.

use std::sync::{Mutex, OnceLock, PoisonError};

use crate::algorithm::quorum::{NodeCount, NodeId};
use crate::backend::{BackendError, BackendErrorKind, LockBackend};

/// The servers behind the nodes, as far as they told.
#[derive(Debug)]
pub(crate) struct Roster {
    /// Set once the node has told, or has shown that it never will.
    asked: Vec<OnceLock<()>>,
    servers: Mutex<Vec<(NodeId, String)>>,
    conflict: OnceLock<(NodeId, NodeId)>,
}

impl Roster {
    pub(crate) fn new(nodes: NodeCount) -> Self {
        Self {
            asked: nodes.ids().map(|_| OnceLock::new()).collect(),
            servers: Mutex::default(),
            conflict: OnceLock::new(),
        }
    }

    /// Asks a node who it is before its first vote.
    ///
    /// A node that cannot or may not tell votes all the same: where it cannot be known, the
    /// operator has to. One that cannot be reached does not vote, and is asked again.
    pub(crate) async fn admit(
        &self,
        node: NodeId,
        backend: &dyn LockBackend,
    ) -> Result<(), BackendError> {
        let asked = &self.asked[node.index()];
        if asked.get().is_some() {
            return Ok(());
        }
        if let Some(identity) = backend.identity() {
            match identity.server_id().await {
                Ok(Some(server)) => self.enter(node, server),
                Ok(None) => {}
                Err(error) if may_never_tell(error.kind()) => {}
                Err(error) => return Err(error),
            }
        }
        let _ = asked.set(());
        Ok(())
    }

    /// The first two nodes found to be one server.
    pub(crate) fn conflict(&self) -> Option<(NodeId, NodeId)> {
        self.conflict.get().copied()
    }

    fn enter(&self, node: NodeId, server: String) {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        match servers.iter().find(|(other, id)| *other != node && *id == server) {
            Some((other, _)) => {
                let _ = self.conflict.set((*other.min(&node), *other.max(&node)));
            }
            None => servers.push((node, server)),
        }
    }
}

/// Whether the node will not tell at the next try either, though it may vote.
const fn may_never_tell(kind: BackendErrorKind) -> bool {
    matches!(kind, BackendErrorKind::Permission | BackendErrorKind::Script)
}
