//! What all floors above share: settings, runtime, nodes, and all that is not over.

pub(crate) mod attempts;
pub(crate) mod nodes;
pub(crate) mod shell;

use std::pin::pin;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::algorithm::lease::saturating_add;
use crate::algorithm::quorum::NodeId;
use crate::cluster::attempts::{Attempts, Notice};
use crate::cluster::nodes::{Change, Nodes};
use crate::config::Config;
use crate::seam::backend::{
    Answered, Asked, BackendError, BackendErrorKind, Call, CallKind, CallResult, Membership,
    Operation, Tag,
};
use crate::seam::runtime::{Runtime, unless};
use crate::telemetry;

/// The settings, the runtime, the nodes and the open attempts of one manager.
pub(crate) struct Cluster {
    pub(crate) config: Config,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) nodes: Nodes,
    pub(crate) attempts: Arc<Attempts>,
}

impl Cluster {
    pub(crate) fn now(&self) -> Instant {
        self.runtime.now()
    }

    pub(crate) async fn sleep(&self, duration: Duration) {
        self.runtime.sleep_until(saturating_add(self.now(), duration)).await;
    }

    /// The output of `future`, or `None` once the deadline has come. What is ready comes first
    /// (T5).
    pub(crate) async fn before<T>(
        &self,
        deadline: Option<Instant>,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        let Some(deadline) = deadline else { return Some(future.await) };
        unless(pin!(future), self.runtime.sleep_until(deadline)).await
    }

    /// The output of `future`, if it resolves within `limit`.
    pub(crate) async fn within<T>(
        &self,
        limit: Duration,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        self.before(Some(saturating_add(self.now(), limit)), future).await
    }

    /// Asks one node one thing. The call has begun when this returns. Dropping the answer gives it
    /// up.
    pub(crate) fn ask(self: &Arc<Self>, node: NodeId, operation: Operation, now: Instant) -> Asked {
        let kind = match operation {
            Operation::Watch { .. } => CallKind::Watch,
            Operation::ServerId => CallKind::Waiting,
            _ => CallKind::Question,
        };
        let tag = Tag { node, number: 0, begun: now, kind, asks_server: false };
        let cluster = Arc::clone(self);
        let asked = Asked::new(|slot| Arc::new(Settling { cluster, slot: Some(slot) }));
        let call = Call::new(operation, tag, asked.sender());
        if let Err(settled) = self.nodes.begin(call, &*self.runtime) {
            self.nodes.tell_change(&tag, settled.change, settled.result.as_ref().err());
            asked.answer(settled.result);
        }
        asked
    }

    /// The answer of one node to a question of an operator. It may take a node timeout, and until
    /// the node has answered once, its connect limit as well. No answer until then is an error, and
    /// counts as silence.
    pub(crate) async fn question(
        self: &Arc<Self>,
        node: NodeId,
        operation: Operation,
    ) -> CallResult {
        let asked = self.ask(node, operation, self.now());
        let limit =
            self.nodes.health(node).connect.saturating_add(self.config.default_node_timeout());
        if let Some(answer) = self.within(limit, asked).await {
            return answer;
        }
        if self.nodes.health(node).note_silent(self.now()) == Change::Fails {
            telemetry::node_silent(self.nodes.name(node), CallKind::Question.name(), limit);
        }
        let text = format!("no reply within {limit:.1?}");
        Err(BackendError::new(BackendErrorKind::TimedOut, text))
    }

    /// What follows from an answer for the group of the nodes: all attempts hear of a node that has
    /// lost its vote, and nodes that lack the list of all keep it. No caller waits for that.
    pub(crate) fn follow_group(self: &Arc<Self>, answered: CallKind, now: Instant) {
        if self.nodes.groups.take_has_strangers() {
            for entry in self.attempts.open() {
                entry.handle_notice(Notice::Judge, now);
            }
        }
        for node in self.nodes.groups.take_lacking(answered, now).iter() {
            let tag = Tag { node, number: 0, begun: now, kind: CallKind::List, asks_server: false };
            let sender = Arc::new(Settling { cluster: Arc::clone(self), slot: None });
            // Where it was not sent, the next connection tells what the node keeps.
            drop(self.nodes.begin(Call::new(Operation::ServerId, tag, sender), &*self.runtime));
        }
    }

    /// Random bits for jitter. Without randomness all processes wait equally long, which is worse,
    /// but not wrong.
    pub(crate) fn random(&self) -> u64 {
        let mut bits = [0; 8];
        self.runtime.fill_random(&mut bits).map_or(0, |()| u64::from_ne_bytes(bits))
    }
}

/// Settles the health of a node with its answer, which then goes to `slot`, if a caller waits.
struct Settling {
    cluster: Arc<Cluster>,
    slot: Option<Arc<dyn Answered>>,
}

impl Answered for Settling {
    fn answered(self: Arc<Self>, tag: Tag, result: CallResult, now: Option<Instant>) {
        let now = now.unwrap_or_else(|| self.cluster.now());
        let settled = self.cluster.nodes.settled(&tag, result, now);
        self.cluster.nodes.tell_change(&tag, settled.change, settled.result.as_ref().err());
        let wake = self.cluster.attempts.tell_back(tag.node, settled.await_back);
        self.cluster.attempts.wake(wake);
        self.cluster.follow_group(tag.kind, now);
        if let Some(slot) = self.slot.clone() {
            slot.answered(tag, settled.result, Some(now));
        }
    }

    fn is_given_up(&self, tag: &Tag, task: Option<&Waker>) -> bool {
        self.slot.as_ref().is_some_and(|slot| slot.is_given_up(tag, task))
    }

    fn note_membership(&self, tag: &Tag, says: &Arc<Membership>) {
        self.cluster.nodes.groups.note(tag.node, says);
    }

    fn now(&self) -> Option<Instant> {
        Some(self.cluster.now())
    }

    fn pushed(self: Arc<Self>, tag: &Tag) {
        if let Some(slot) = self.slot.clone() {
            slot.pushed(tag);
        }
    }
}
