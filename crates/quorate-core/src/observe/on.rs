//! Somebody watches: measures, and passes it on to events and figures.

#![cfg_attr(
    not(all(feature = "tracing", feature = "metrics")),
    allow(unused_variables, reason = "each of the two leaves out something")
)]

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[cfg(feature = "tracing")]
use super::events;
#[cfg(feature = "metrics")]
use super::figures;
use crate::algorithm::quorum::{NodeCount, NodeId, Vote};
use crate::algorithm::round::Loss;
use crate::backend::BackendErrorKind;
use crate::cluster::Cluster;
use crate::driver::{Answer, Attempt, Operation};
use crate::error::{AdoptError, LockError, Lost, Released, Votes};
use crate::guard::LockGuard;
use crate::lease::Tenure;
use crate::resource::Key;

/// What is known of the nodes of a manager.
#[derive(Debug)]
pub(crate) struct Nodes {
    #[cfg(feature = "tracing")]
    pub(super) health: Vec<std::sync::Mutex<super::health::Health>>,
}

impl Nodes {
    pub(crate) fn new(count: NodeCount) -> Self {
        #[cfg(feature = "metrics")]
        figures::describe();
        Self {
            #[cfg(feature = "tracing")]
            health: count.ids().map(|_| std::sync::Mutex::default()).collect(),
        }
    }
}

/// How long a lease has been held, and whether its end was told.
pub(crate) struct Holding {
    since: Instant,
    told: AtomicBool,
    lost: AtomicBool,
}

impl Holding {
    pub(crate) fn begin(attempt: &Attempt) -> Self {
        let since = attempt.cluster.runtime.now();
        Self { since, told: AtomicBool::new(false), lost: AtomicBool::new(false) }
    }
}

/// Calls that are sent together.
#[derive(Clone, Copy)]
pub(crate) struct Watch {
    operation: &'static str,
    sent: Instant,
}

/// What a node was asked.
pub(super) struct Asked<'a> {
    pub(super) attempt: &'a Attempt,
    pub(super) node: NodeId,
    pub(super) operation: &'static str,
    sent: Instant,
}

impl Watch {
    pub(crate) fn begin(attempt: &Attempt, operation: &Operation) -> Self {
        #[cfg(not(feature = "tracing"))]
        let Nodes {} = attempt.cluster.watched;
        let operation = match operation {
            Operation::Acquire => "acquire",
            Operation::Extend(_) => "extend",
            Operation::Raise(_) => "raise",
            Operation::Repair(..) => "repair",
            Operation::Release => "release",
        };
        Self { operation, sent: attempt.cluster.runtime.now() }
    }

    pub(crate) fn sent(self, attempt: &Attempt, node: NodeId) {
        #[cfg(feature = "tracing")]
        quietly(|| events::sent(&self.asked(attempt, node), self.sent));
    }

    /// A node has answered, or nobody waits for it any more.
    pub(crate) fn settled(self, attempt: &Attempt, node: NodeId, answer: Option<&Answer>) {
        self.asked(attempt, node).settled(answer);
    }

    const fn asked(self, attempt: &Attempt, node: NodeId) -> Asked<'_> {
        Asked { attempt, node, operation: self.operation, sent: self.sent }
    }
}

impl Asked<'_> {
    pub(super) fn cluster(&self) -> &Cluster {
        &self.attempt.cluster
    }

    pub(super) fn name(&self) -> &Arc<str> {
        self.cluster().name(self.node)
    }

    /// How long the node may take to answer.
    pub(super) fn patience(&self) -> Duration {
        self.cluster().config.node_timeout(self.attempt.claim.ttl())
    }

    fn settled(&self, answer: Option<&Answer>) {
        let now = self.cluster().runtime.now();
        let latency = now.saturating_duration_since(self.sent);
        let vote = match answer {
            _ if latency > self.patience() => Some("silent"),
            Some(Ok(Vote::Granted)) => Some("granted"),
            Some(Ok(Vote::Refused)) => Some("refused"),
            Some(Err(_)) => Some("failed"),
            // Dropped early, with the runtime perhaps: the node is not to blame.
            None => None,
        };
        #[cfg(feature = "tracing")]
        quietly(|| events::settled(self, now, latency, vote, answer));
        #[cfg(feature = "metrics")]
        quietly(|| figures::settled(self, answer.map(|_| latency), vote));
    }
}

/// What goes on in the background after a decision.
pub(crate) struct Cleanup {
    began: Instant,
}

impl Cleanup {
    pub(crate) fn begin(attempt: &Attempt) -> Self {
        Self { began: attempt.cluster.runtime.now() }
    }

    pub(crate) fn ended(self, attempt: &Attempt, unanswered: usize) {
        let took = since(&attempt.cluster, self.began);
        #[cfg(feature = "tracing")]
        quietly(|| events::cleaned_up(attempt, took, unanswered));
        #[cfg(feature = "metrics")]
        quietly(|| figures::cleaned_up(took));
    }
}

/// Watches the acquisition of a lock, from the first poll on.
pub(crate) async fn acquiring(
    cluster: &Cluster,
    keys: &[Key],
    locking: impl Future<Output = Result<LockGuard, LockError>> + Send,
) -> Result<LockGuard, LockError> {
    let began = cluster.runtime.now();
    #[cfg(feature = "tracing")]
    let span = events::lock_span(keys);
    #[cfg(feature = "tracing")]
    let locking = span.around(locking);
    let result = locking.await;
    let waited = since(cluster, began);
    #[cfg(feature = "tracing")]
    {
        let _entered = span.enter();
        quietly(|| events::acquisition(keys, waited, &result));
    }
    #[cfg(feature = "metrics")]
    quietly(|| figures::acquisition(waited, &result));
    result
}

/// A request asks for what there is not.
pub(crate) fn invalid(error: &LockError) {
    let result = Err(error.clone());
    #[cfg(feature = "tracing")]
    quietly(|| events::acquisition(&[], Duration::ZERO, &result));
    #[cfg(feature = "metrics")]
    quietly(|| figures::acquisition(Duration::ZERO, &result));
}

/// Watches a lock being taken over.
pub(crate) async fn adopting(
    cluster: &Cluster,
    keys: &[Key],
    adopting: impl Future<Output = Result<LockGuard, AdoptError>> + Send,
) -> Result<LockGuard, AdoptError> {
    let began = cluster.runtime.now();
    let result = adopting.await;
    #[cfg(feature = "tracing")]
    quietly(|| events::adoption(keys, since(cluster, began), &result));
    #[cfg(feature = "metrics")]
    quietly(|| figures::adoption(&result));
    result
}

/// A round was lost, which began at `start`.
pub(crate) fn refused(
    cluster: &Cluster,
    keys: &[Key],
    start: Instant,
    loss: Loss,
    error: &LockError,
) {
    let reason = match loss {
        Loss::Refused => "refused",
        Loss::Unreachable => "unreachable",
        Loss::Expired => "expired",
    };
    #[cfg(feature = "tracing")]
    quietly(|| events::refused(keys, since(cluster, start), reason, error));
    #[cfg(feature = "metrics")]
    quietly(|| figures::refused(reason));
}

pub(crate) fn extended(tenure: &Tenure, start: Instant) {
    #[cfg(feature = "tracing")]
    quietly(|| events::extended(tenure, since(&tenure.attempt.cluster, start)));
    #[cfg(feature = "metrics")]
    quietly(|| figures::extension("extended"));
}

pub(crate) fn not_extended(tenure: &Tenure, start: Instant, votes: &Votes) {
    #[cfg(feature = "tracing")]
    quietly(|| events::not_extended(tenure, since(&tenure.attempt.cluster, start), votes));
    #[cfg(feature = "metrics")]
    quietly(|| figures::extension("failed"));
}

/// The lease ends, if it has not ended before. Not while its term is locked.
pub(crate) fn ended(tenure: &Tenure, lost: &Lost) {
    if tenure.holding.told.swap(true, Ordering::Relaxed) {
        return;
    }
    // Nobody may have noticed that it ran out before it was given up.
    let given_up = matches!(lost, Lost::Released | Lost::HandedOver | Lost::Closed);
    let before = if given_up { tenure.held().err() } else { None };
    let lost = before.as_ref().unwrap_or(lost);
    let end = tenure.attempt.cluster.runtime.now().min(tenure.valid_until());
    let held = end.saturating_duration_since(tenure.holding.since);
    let reason = lost_because(lost);
    tenure.holding.lost.store(reason.is_some(), Ordering::Relaxed);
    #[cfg(feature = "tracing")]
    quietly(|| events::ended(tenure, lost, reason, held));
    #[cfg(feature = "metrics")]
    quietly(|| figures::ended(reason, held, tenure.remaining()));
}

/// A release has been decided.
pub(crate) fn released(tenure: &Tenure, start: Instant, released: Released) {
    let outcome = match released {
        Released::Held => "held",
        Released::Lost => "lost",
        Released::Unsure => "unsure",
    };
    if released == Released::Lost && !tenure.holding.lost.swap(true, Ordering::Relaxed) {
        let reason = "not_held";
        #[cfg(feature = "tracing")]
        quietly(|| {
            events::gone(tenure, reason, since(&tenure.attempt.cluster, tenure.holding.since))
        });
        #[cfg(feature = "metrics")]
        quietly(|| figures::lost(reason));
    }
    #[cfg(feature = "tracing")]
    quietly(|| {
        events::released(tenure, Some(since(&tenure.attempt.cluster, start)), outcome, None)
    });
    #[cfg(feature = "metrics")]
    quietly(|| figures::released(outcome));
}

/// A release found no quorum.
pub(crate) fn not_released(tenure: &Tenure, start: Instant, votes: impl FnOnce() -> Votes) {
    let outcome = "no_quorum";
    #[cfg(feature = "tracing")]
    quietly(|| {
        events::released(
            tenure,
            Some(since(&tenure.attempt.cluster, start)),
            outcome,
            Some(&votes()),
        )
    });
    #[cfg(feature = "metrics")]
    quietly(|| figures::released(outcome));
}

/// A guard was dropped, and is released in the background.
pub(crate) fn dropped(tenure: &Tenure) {
    let outcome = "dropped";
    #[cfg(feature = "tracing")]
    quietly(|| events::released(tenure, None, outcome, None));
    #[cfg(feature = "metrics")]
    quietly(|| figures::released(outcome));
}

/// A node that is not asked for it any more: waiters do without.
pub(crate) fn cannot(
    cluster: &Cluster,
    node: NodeId,
    operation: &'static str,
    kind: BackendErrorKind,
) {
    #[cfg(feature = "tracing")]
    quietly(|| events::cannot(cluster.name(node), operation, kind));
}

/// Why a lease was lost; `None` if it was given up.
const fn lost_because(lost: &Lost) -> Option<&'static str> {
    match lost {
        Lost::Closed => Some("closed"),
        Lost::Expired { .. } => Some("expired"),
        Lost::HoldLimit => Some("hold_limit"),
        Lost::NotHeld { .. } => Some("not_held"),
        Lost::HandedOver | Lost::Released => None,
    }
}

pub(super) const fn not_acquired_because(error: &LockError) -> &'static str {
    match error {
        LockError::Closed => "closed",
        LockError::Entropy(_) => "entropy",
        LockError::Expired { .. } => "expired",
        LockError::Held { .. } => "held",
        LockError::NoQuorum { .. } => "no_quorum",
        LockError::NoToken { .. } => "no_token",
        LockError::SameServer { .. } => "same_server",
        LockError::FenceHint { .. }
        | LockError::HoldLimit { .. }
        | LockError::NotFenced { .. }
        | LockError::Resource(_)
        | LockError::Ttl(_) => "invalid",
    }
}

/// Who watches is code of the user's, and no lock is to be lost by it.
pub(super) fn quietly<T>(tell: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(tell)).ok()
}

fn since(cluster: &Cluster, start: Instant) -> Duration {
    cluster.runtime.now().saturating_duration_since(start)
}
