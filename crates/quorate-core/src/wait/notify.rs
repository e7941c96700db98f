//! Waiting for a notification, without a queue.
//!
//! After a refusal, a waiter watches a key of the lock on one node. Each waiter that sees the lock
//! free makes an attempt, so the order is chance. Three rules keep a waiter from spinning:
//!
//! - *Misled.* A node that does not have the key of a held lock was restarted, or never granted. The
//!   second attempt in a row after such a look backs off, and the next look is on the next node, at
//!   the next key.
//! - *Noise.* The first push starts an attempt. Later ones start a look, and from the third one on,
//!   looks are at least 100 ms apart.
//! - *Time.* After 250 ms to 1 s the next attempt is made, whatever the node has reported. The next
//!   look is on the next node then, too.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, pending, select};

use super::pauses::{LostRound, back_off, pause};
use crate::algorithm::backoff::scale;
use crate::algorithm::lease::saturating_add;
use crate::algorithm::quorum::NodeId;
use crate::algorithm::turn::{NOISY, SPACING};
use crate::backend::{BackendError, Capabilities, Watched};
use crate::cluster::Cluster;
use crate::resource::Key;

/// After how long at least, and at most, an attempt is made without a push.
const TRY_AGAIN: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(1));

/// A wait for a push.
pub(crate) struct Notify {
    cluster: Arc<Cluster>,
    keys: Arc<[Key]>,
    node_timeout: Duration,
    /// The nodes that can watch.
    nodes: Vec<NodeId>,
    /// Which of the nodes and of the keys is watched.
    at: usize,
    /// Whether the last look found no key.
    saw_free: bool,
    /// Pushes since a look found no key.
    pushes: u8,
}

impl Notify {
    /// `None` if no node can watch.
    pub(super) fn begin(
        cluster: &Arc<Cluster>,
        keys: &Arc<[Key]>,
        node_timeout: Duration,
    ) -> Option<Self> {
        let can_watch = |id: &NodeId| cluster.nodes.can(*id, Capabilities::WATCH);
        let nodes: Vec<NodeId> = cluster.nodes.count().ids().filter(can_watch).collect();
        // Each wait begins at another node, so that no node serves all of them.
        let at = usize::try_from(cluster.random() % 64).unwrap_or_default();
        (!nodes.is_empty()).then(|| Self {
            cluster: Arc::clone(cluster),
            keys: Arc::clone(keys),
            node_timeout,
            nodes,
            at,
            saw_free: false,
            pushes: 0,
        })
    }

    pub(super) async fn next(&mut self, lost: LostRound) {
        let cluster = Arc::clone(&self.cluster);
        if !lost.is_held {
            return back_off(&cluster, lost.rounds).await;
        }
        let (least, most) = TRY_AGAIN;
        let wait = least + scale(most - least, cluster.random());
        let again = cluster.runtime.sleep_until(saturating_add(cluster.now(), wait));
        pause(&cluster, lost.took, self.node_timeout).await;
        let is_over =
            matches!(select(pin!(self.may_be_free(lost.rounds)), again).await, Either::Right(_));
        if is_over {
            self.at += 1;
        }
    }

    /// Resolves when the watched node gives a reason for an attempt.
    async fn may_be_free(&mut self, rounds: u32) {
        loop {
            let rest_until = saturating_add(self.cluster.now(), SPACING);
            let Some(Ok(watched)) = self.look().await else { return pending().await };
            // A release between the refusal and the watch is seen here, and causes no push.
            if !watched.is_held() && !planted!("watch_replies_nothing") {
                self.pushes = 0;
                if std::mem::replace(&mut self.saw_free, !planted!("misled_waiter_never_backs_off"))
                {
                    self.at += 1;
                    back_off(&self.cluster, rounds).await;
                }
                return;
            }
            self.saw_free = false;
            watched.changed().await;
            self.pushes = (self.pushes + 1).min(NOISY);
            if self.pushes == 1 {
                return;
            }
            if self.pushes == NOISY && !planted!("notified_waiter_never_rests") {
                self.cluster.runtime.sleep_until(rest_until).await;
            }
        }
    }

    /// Watches the key. `None` if the node does not reply.
    async fn look(&self) -> Option<Result<Watched, BackendError>> {
        let node = self.nodes[self.at % self.nodes.len()];
        let key = &self.keys[self.at % self.keys.len()];
        let watched = self.cluster.nodes.watch(node, key, None);
        self.cluster.within(self.node_timeout, watched).await
    }
}
