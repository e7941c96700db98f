//! A reader that competes: it gives way to writers that wait, and waits with other readers of its manager.

use std::sync::Arc;
use std::time::Duration;

use super::kind::Kind;
use super::{Competitor, LostRound, error_of, reason};
use crate::algorithm::attempt::Loss;
use crate::algorithm::backoff::scale;
use crate::attempt::Attempt;
use crate::backend::Capabilities;
use crate::error::LockError;
use crate::telemetry;

impl Competitor<'_> {
    /// Whether a round that it wins is given back if a writer waits (RW1). A reader with an entry in the queue has its turn.
    pub(super) const fn gives_way(&self) -> bool {
        matches!(self.kind, Kind::Shared(None))
    }

    /// Gives the lock back if a writer waits, or if it has expired while the gate was awaited (T2).
    pub(super) async fn give_back_to_writer(
        &mut self,
        attempt: &Arc<Attempt>,
    ) -> Result<bool, LockError> {
        let writer_waits = attempt.writer_waits().await;
        let won = attempt.first(false).await.ok_or(LockError::Closed)?;
        let loss = match won {
            _ if writer_waits => Loss::Held,
            Ok(()) => return Ok(false),
            Err(lost) => lost.loss,
        };
        let at = self.cluster().now();
        attempt.leave();
        let failure = attempt.failure();
        let took = failure.waited();
        telemetry::round_lost(&self.wanted.keys, reason(loss), took, &failure);
        let error = error_of(self.cluster(), loss, failure);
        self.last = Some(LostRound { loss, took, at, error, is_undone: false });
        Ok(true)
    }

    /// Waits until the next attempt of a reader is worth making. Its own undo refuses no reader, so it is not awaited.
    pub(super) async fn wait_with_others(&mut self) {
        let queues = self.queues;
        let cluster = &queues.cluster;
        let took = self.last.as_ref().map(|last| last.took);
        if cluster.nodes.having(Capabilities::QUEUE).is_some() {
            if let Some(took) = took {
                // Contenders that split the votes do not meet again, and each node has said which server it is.
                let pause = took.saturating_add(scale(took, cluster.random()));
                cluster.sleep(pause.min(self.node_timeout)).await;
            }
            let Kind::Shared(member) = &mut self.kind else { return };
            member.take_if(|member| member.wait().is_outdated());
            match member {
                Some(member) => member.refused(),
                None => {
                    let (keys, timeout) = (&self.wanted.keys, self.node_timeout);
                    *member = queues.readers.join(cluster, keys, timeout);
                }
            }
            if let Some(member) = member {
                return member.called().await;
            }
        }
        self.back_off(took.unwrap_or(Duration::ZERO)).await;
    }
}
