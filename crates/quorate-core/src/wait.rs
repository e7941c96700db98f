//! Waiting between two attempts, for a lock that another process holds.
//!
//! A [`Wait`] says when the next attempt is worth making. It is not needed for safety: only votes
//! decide (Q1). By the setting, and by what the nodes can do, it is one of three:
//!
//! | [`Waiting`] | what starts the next attempt |
//! |---|---|
//! | `Ordered` | the waiter's turn in a queue on one of the nodes: [`remote_queue`] |
//! | `Notified` | a node reports that the key was written: [`notify`] |
//! | `Polling` | a random delay |
//!
//! The modules `local_queue`, `place` and `task` are the waiting inside one process.
//!
//! Dropping a [`Wait`] ends it. Then, and after a win, its entry leaves the queue in the background.

pub(crate) mod local_queue;
mod notify;
mod pauses;
pub(crate) mod place;
mod remote_queue;
pub(crate) mod task;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use event_listener::EventListener;

use self::notify::Notify;
pub(crate) use self::pauses::LostRound;
use self::pauses::back_off;
use self::remote_queue::RemoteQueue;
use crate::algorithm::quorum::NodeId;
use crate::cluster::Cluster;
use crate::config::Waiting;
use crate::resource::Key;

/// The wait of one request, from its first attempt to its last.
pub(crate) enum Wait {
    Ordered(Box<RemoteQueue>),
    Notified(Notify),
    Polling(Arc<Cluster>),
}

impl Wait {
    /// Begins a wait for all of `keys`.
    ///
    /// `others_wait`: the gate said, at most 1 s ago, that another process waits.
    pub(crate) fn begin(
        cluster: &Arc<Cluster>,
        keys: &Arc<[Key]>,
        node_timeout: Duration,
        others_wait: bool,
    ) -> Self {
        let waiting = cluster.config.waiting;
        if waiting == Waiting::Ordered
            && let Some(queue) = RemoteQueue::begin(cluster, keys, node_timeout, others_wait)
        {
            return Self::Ordered(Box::new(queue));
        }
        if waiting != Waiting::Polling
            && let Some(notify) = Notify::begin(cluster, keys, node_timeout)
        {
            return Self::Notified(notify);
        }
        Self::Polling(Arc::clone(cluster))
    }

    /// The node that keeps the queue: it says with a release or an extension whether others wait.
    pub(crate) fn gate(&self) -> Option<NodeId> {
        match self {
            Self::Ordered(queue) => queue.gate(),
            Self::Notified(_) | Self::Polling(_) => None,
        }
    }

    /// Whether an entry of this wait may be in the queue. Then the reply to LEAVE says whether others
    /// wait, and a reply to an acquire does not.
    pub(crate) fn has_entry(&self) -> bool {
        matches!(self, Self::Ordered(queue) if queue.has_entry())
    }

    /// Whether the gate has said that others are in front, or that the lock is held.
    pub(crate) fn has_answer(&self) -> bool {
        matches!(self, Self::Ordered(queue) if queue.has_answer())
    }

    /// Resolves when the next attempt is worth making. `lost`: the round before it; the first attempt is
    /// worth making at once, unless others wait.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped and made again.
    pub(crate) async fn next(&mut self, lost: Option<LostRound>) {
        match (self, lost) {
            (Self::Ordered(queue), _) => queue.next(lost).await,
            (_, None) => {}
            (Self::Notified(notify), Some(lost)) => notify.next(lost).await,
            (Self::Polling(cluster), Some(lost)) => back_off(cluster, lost.rounds).await,
        }
    }

    /// Ends the wait without a win. The listener resolves when the gate has answered that; `None` where
    /// nothing is sent.
    pub(crate) fn end(self) -> Option<EventListener> {
        match self {
            Self::Ordered(queue) => queue.end(),
            Self::Notified(_) | Self::Polling(_) => None,
        }
    }

    /// Ends the wait after a win. `on_hint` gets the gate's reply, whether any other process waits,
    /// if there was an entry and the gate replies.
    pub(crate) fn won(self, on_hint: impl FnOnce(bool) + Send + 'static) {
        if let Self::Ordered(queue) = self {
            queue.won(on_hint);
        }
    }
}
