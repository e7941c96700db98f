//! Asks all nodes at the same time, and waits for each until a node timeout has passed.

use std::sync::Arc;

use futures_util::future::join_all;

use super::{Inspection, NodeView, aged};
use crate::backend::Operation;
use crate::resource::Key;
use crate::{BackendErrorKind, IntoResource, InvalidResource, LockManager};

impl LockManager {
    /// Shows who holds the lock on `resource`, and for how long, without acquiring it.
    ///
    /// All nodes are asked at once, and each may reply for a node timeout. What fails on a node is
    /// in its view. The result is about the past: only an acquire shows whether a lock can be
    /// acquired.
    ///
    /// ```
    /// use quorate_core::{InvalidResource, LockManager, operators::LockState};
    ///
    /// async fn show(locks: &LockManager) -> Result<(), InvalidResource> {
    ///     let inspection = locks.inspect("orders:42").await?;
    ///     match (inspection.state(), inspection.time_left()) {
    ///         (LockState::Held, Some(left)) => println!("held for {left:.1?}, if not extended"),
    ///         (LockState::Free, _) => println!("free"),
    ///         _ => println!("{inspection}"), // what each node said
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidResource`]: the name cannot be locked.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time: it only reads.
    pub async fn inspect(
        &self,
        resource: impl IntoResource,
    ) -> Result<Inspection, InvalidResource> {
        let key = Key::new(&self.cluster().config.key_prefix, &resource.into_resource()?);
        Ok(self.ask_all(&Operation::Inspect { key }).await)
    }

    /// What each node answers to an inspection or a revoke. What was left of a ttl then has aged
    /// until the last answer.
    pub(crate) async fn ask_all(&self, operation: &Operation) -> Inspection {
        let cluster = self.cluster();
        let answers = cluster.nodes.count.ids().map(|id| async move {
            (id, cluster.question(id, operation.clone()).await, cluster.now())
        });
        let answers = join_all(answers).await;
        let end = cluster.now();
        let views = answers.into_iter().map(|(id, answer, at)| {
            let answer = match answer {
                Err(error) if error.kind() == BackendErrorKind::TimedOut => Err(error),
                answer => cluster.nodes.groups.stranger(id).map_or(answer, Err),
            };
            let state = aged(answer, end.saturating_duration_since(at));
            NodeView { name: Arc::clone(cluster.nodes.name(id)), state }
        });
        Inspection { nodes: views.collect() }
    }
}
