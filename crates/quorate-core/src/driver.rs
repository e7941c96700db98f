//! The only place that awaits a backend.
//!
//! A [`Flight`] is one operation on its way to all nodes. Its calls outlive the decision: a future
//! that is dropped may be a command that is never sent, or a grant that nobody gives back. So what
//! has not settled when a flight is dropped (decided, or cancelled by the caller) goes on in the
//! background, up to the cleanup bound.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use futures_util::lock::Mutex;

use crate::algorithm::quorum::{NodeId, Tally, Vote};
use crate::algorithm::round::{Round, Step};
use crate::backend::{BackendError, Claim};
use crate::calls::{Calls, Settled};
use crate::cluster::Cluster;
use crate::error::{NodeVote, Said, Votes};

/// One attempt at a lock, from its first acquire to its last release.
///
/// It is signed by one token. The lanes let one call at a time through to each node, so that a
/// release comes after the acquire that it undoes.
pub(crate) struct Attempt {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) claim: Claim,
    lanes: Vec<Mutex<()>>,
}

impl Attempt {
    pub(crate) fn new(cluster: Arc<Cluster>, claim: Claim) -> Arc<Self> {
        let lanes = cluster.count().ids().map(|_| Mutex::new(())).collect();
        Arc::new(Self { cluster, claim, lanes })
    }

    /// Adds the calls of an operation to those on their way.
    fn set_out(self: &Arc<Self>, calls: &mut Calls, operation: &Operation) {
        for node in self.cluster.count().ids() {
            calls.add(node, Box::pin(call(Arc::clone(self), operation.clone(), node)));
        }
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt").field("claim", &self.claim).finish_non_exhaustive()
    }
}

/// What the nodes are asked to do.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Acquire,
    /// With the ttl asked for in place of the attempt's.
    Extend(Claim),
    Release,
}

/// What is left to do on the nodes when a flight ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aftermath {
    /// Wait for the late answers.
    Drain,
    /// Release on every node, the silent and the refusing ones too.
    Undo,
}

/// One operation on its way to all nodes.
pub(crate) struct Flight {
    attempt: Arc<Attempt>,
    calls: Calls,
    aftermath: Aftermath,
}

impl Flight {
    /// Gets the calls ready. They leave at the first poll, all of them.
    pub(crate) fn new(attempt: &Arc<Attempt>, operation: &Operation) -> Self {
        let aftermath = match operation {
            Operation::Acquire => Aftermath::Undo,
            Operation::Extend(_) | Operation::Release => Aftermath::Drain,
        };
        let mut calls = Calls::default();
        attempt.set_out(&mut calls, operation);
        Self { attempt: Arc::clone(attempt), calls, aftermath }
    }

    /// Keeps what was won: dropping the flight no longer undoes it.
    pub(crate) fn keep(&mut self) {
        self.aftermath = Aftermath::Drain;
    }

    /// Turns a lost acquire into the release on all nodes.
    pub(crate) fn undo(mut self) -> Self {
        self.calls.supersede();
        self.attempt.set_out(&mut self.calls, &Operation::Release);
        self.aftermath = Aftermath::Drain;
        self
    }

    /// Waits for the decision of `round`.
    ///
    /// Votes that are there count before the clock is looked at, whichever woke the task.
    pub(crate) async fn decide(&mut self, round: &mut Round) -> Outcome {
        let runtime = Arc::clone(&self.attempt.cluster.runtime);
        let mut failures = Vec::new();
        let mut timer = runtime.sleep_until(round.next_timeout());
        let step = poll_fn(|context| {
            loop {
                match self.calls.poll_next(context) {
                    Poll::Ready(Some(Settled { superseded: true, .. })) => {}
                    Poll::Ready(Some(Settled { node, answer, .. })) => {
                        let now = runtime.now();
                        let step = match answer {
                            Ok(vote) => round.on_vote(node, vote, now),
                            Err(error) => {
                                failures.push((node, error));
                                round.on_unknown(node, now)
                            }
                        };
                        if step != Step::Wait {
                            return Poll::Ready(step);
                        }
                    }
                    Poll::Ready(None) | Poll::Pending => {
                        if timer.as_mut().poll(context).is_pending() {
                            return Poll::Pending;
                        }
                        match round.on_timeout(runtime.now()) {
                            Step::Wait => timer = runtime.sleep_until(round.next_timeout()),
                            step => return Poll::Ready(step),
                        }
                    }
                }
            }
        })
        .await;
        let late = match step {
            Step::Lost(_) => self.calls.take_settled(),
            Step::Won { .. } | Step::Wait => Vec::new(),
        };
        Outcome { step, tally: *round.tally(), failures, late }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut calls = std::mem::take(&mut self.calls);
        if self.aftermath == Aftermath::Undo {
            calls.supersede();
            self.attempt.set_out(&mut calls, &Operation::Release);
        }
        if !calls.have_settled() {
            let cluster = &self.attempt.cluster;
            cluster.runtime.spawn(Box::pin(settle(
                Arc::clone(cluster),
                calls,
                &self.attempt.claim,
            )));
        }
    }
}

/// Waits in the background until the calls have settled, up to the cleanup bound.
///
/// After it, acquires that hang are given up, which lets the releases behind them go; those get
/// one more node timeout.
fn settle(
    cluster: Arc<Cluster>,
    mut calls: Calls,
    claim: &Claim,
) -> impl Future<Output = ()> + Send + 'static {
    let bound = cluster.config.cleanup_timeout(claim.ttl());
    let grace = cluster.config.node_timeout(claim.ttl());
    let running = cluster.background().enter();
    async move {
        let _running = running;
        calls.drain(&*cluster.runtime, bound).await;
        if calls.give_up_superseded() {
            calls.drain(&*cluster.runtime, grace).await;
        }
    }
}

/// How a round ended.
pub(crate) struct Outcome {
    pub(crate) step: Step,
    pub(crate) tally: Tally,
    failures: Vec<(NodeId, BackendError)>,
    /// Answers to a lost round that were there, and no longer needed.
    late: Vec<Settled>,
}

impl Outcome {
    /// What each node said, for an error.
    pub(crate) fn votes(&self, cluster: &Cluster, start: Instant) -> Votes {
        let after = cluster.runtime.now().saturating_duration_since(start);
        Votes::new(cluster.count().ids().map(|node| {
            let said = self.said(node).unwrap_or_else(|| {
                if self.tally.is_open(node) { Said::Unheard } else { Said::Silent { after } }
            });
            NodeVote::new(Arc::clone(cluster.name(node)), said)
        }))
    }

    fn said(&self, node: NodeId) -> Option<Said> {
        let voted = || self.tally.vote_of(node).map(Said::of);
        let failed = || self.failures.iter().find(|(failed, _)| *failed == node);
        let late = || self.late.iter().find(|late| late.node == node && !late.superseded);
        voted()
            .or_else(|| failed().map(|(_, error)| Said::Failed(error.clone())))
            .or_else(|| late().map(|late| late.answer.clone().map_or_else(Said::Failed, Said::of)))
    }

    /// Whether trying again is pointless: so many nodes fail for good that no quorum is left.
    pub(crate) fn is_permanent(&self) -> bool {
        let permanent = self.failures.iter().filter(|(_, error)| error.kind().is_permanent());
        permanent.count() > self.tally.nodes().spare()
    }
}

async fn call(
    attempt: Arc<Attempt>,
    operation: Operation,
    node: NodeId,
) -> Result<Vote, BackendError> {
    let _lane = attempt.lanes[node.index()].lock().await;
    let backend = attempt.cluster.node(node);
    match operation {
        Operation::Acquire => {
            attempt.cluster.roster().admit(node, backend).await?;
            backend.acquire(&attempt.claim).await
        }
        Operation::Extend(claim) => backend.extend(&claim).await,
        Operation::Release => backend.release(&attempt.claim).await,
    }
}
