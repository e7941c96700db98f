//! The only place that awaits a backend.
//!
//! A [`Flight`] is one operation on its way to all nodes. Its calls outlive the decision: a future
//! that is dropped may be a command that is never sent, or a grant that nobody gives back. So what
//! has not settled when a flight is dropped (decided, or cancelled by the caller) goes on in the
//! background, up to the cleanup bound.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_util::lock::Mutex;

use crate::algorithm::lease::saturating_add;
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
    /// The nodes that are known to have granted it: there a release must not fail for good.
    granted: AtomicU64,
    /// The longest ttl that a node was asked for, in milliseconds.
    longest_ttl: AtomicU64,
}

impl Attempt {
    pub(crate) fn new(cluster: Arc<Cluster>, claim: Claim) -> Arc<Self> {
        let lanes = cluster.count().ids().map(|_| Mutex::new(())).collect();
        let longest_ttl = AtomicU64::new(claim.ttl().as_millis());
        Arc::new(Self { cluster, claim, lanes, granted: AtomicU64::new(0), longest_ttl })
    }

    fn has_granted(&self, node: NodeId) -> bool {
        self.granted.load(Ordering::Relaxed) & (1 << node.index()) != 0
    }

    /// How long cleanup goes on: no node keeps the keys for longer.
    fn cleanup_timeout(&self) -> Duration {
        let longest = Duration::from_millis(self.longest_ttl.load(Ordering::Relaxed));
        self.cluster.config.cleanup_timeout(longest)
    }

    /// Adds the calls of an operation to those on their way.
    fn set_out(self: &Arc<Self>, calls: &mut Calls, operation: &Operation) {
        for node in self.cluster.count().ids() {
            calls.add(node, call(Arc::clone(self), operation.clone(), node));
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
    /// See the release on every node through.
    Release,
    /// Release on every node, the silent and the refusing ones too.
    Undo,
}

/// One operation on its way to all nodes.
pub(crate) struct Flight {
    attempt: Arc<Attempt>,
    calls: Calls,
    aftermath: Aftermath,
    /// Where the operation failed, as far as heard.
    failed: Vec<(NodeId, BackendError)>,
}

impl Flight {
    /// Gets the calls ready. They leave at the first poll, all of them.
    pub(crate) fn new(attempt: &Arc<Attempt>, operation: &Operation) -> Self {
        let aftermath = match operation {
            Operation::Acquire => Aftermath::Undo,
            Operation::Extend(_) => Aftermath::Drain,
            Operation::Release => Aftermath::Release,
        };
        let mut calls = Calls::default();
        attempt.set_out(&mut calls, operation);
        Self { attempt: Arc::clone(attempt), calls, aftermath, failed: Vec::new() }
    }

    /// Keeps what was won: dropping the flight no longer undoes it.
    pub(crate) fn keep(&mut self) {
        self.aftermath = Aftermath::Drain;
    }

    /// Turns a lost acquire into the release on all nodes.
    pub(crate) fn undo(mut self) -> Self {
        self.calls.supersede();
        self.attempt.set_out(&mut self.calls, &Operation::Release);
        self.aftermath = Aftermath::Release;
        self.failed.clear();
        self
    }

    /// Waits for the decision of `round`.
    ///
    /// Votes that are there count before the clock is looked at, whichever woke the task.
    pub(crate) async fn decide(&mut self, round: &mut Round) -> Outcome {
        let runtime = Arc::clone(&self.attempt.cluster.runtime);
        let mut timer = runtime.sleep_until(round.next_timeout());
        let mut step = poll_fn(|context| {
            loop {
                match self.calls.poll_next(context) {
                    Poll::Ready(Some(Settled { superseded: true, .. })) => {}
                    Poll::Ready(Some(settled)) => match self.hear(round, settled, runtime.now()) {
                        Step::Wait => {}
                        step => return Poll::Ready(step),
                    },
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
        if let Step::Lost(_) = step {
            // Answers that are there, too, cannot turn a loss, but they can tell its reason.
            for settled in self.calls.take_settled().into_iter().filter(|late| !late.superseded) {
                step = self.hear(round, settled, runtime.now());
            }
        }
        Outcome { step, tally: *round.tally(), failures: self.failed.clone() }
    }

    fn hear(&mut self, round: &mut Round, settled: Settled, now: Instant) -> Step {
        let Settled { node, answer, .. } = settled;
        match answer {
            Ok(vote) => round.on_vote(node, vote, now),
            Err(error) => {
                self.failed.push((node, error));
                round.on_unknown(node, now)
            }
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut calls = std::mem::take(&mut self.calls);
        if self.aftermath == Aftermath::Undo {
            calls.supersede();
            self.attempt.set_out(&mut calls, &Operation::Release);
            self.failed.clear();
        }
        let releases = self.aftermath != Aftermath::Drain;
        let passing = |(_, error): &&(_, BackendError)| releases && !error.kind().is_permanent();
        let again: Vec<NodeId> =
            self.failed.iter().filter(passing).map(|(node, _)| *node).collect();
        if !calls.have_settled() || again.iter().any(|node| self.attempt.has_granted(*node)) {
            let task = settle(Arc::clone(&self.attempt), calls, releases, again);
            self.attempt.cluster.runtime.spawn(Box::pin(task));
        }
    }
}

/// Waits in the background until the calls have settled, up to the cleanup bound.
///
/// A release that failed is sent again to a node that is known to have granted, until the bound.
/// After it, acquires that hang are given up, which lets the releases behind them go; those get
/// one more node timeout.
fn settle(
    attempt: Arc<Attempt>,
    mut calls: Calls,
    releases: bool,
    mut again: Vec<NodeId>,
) -> impl Future<Output = ()> + Send + 'static {
    let running = attempt.cluster.background().enter();
    async move {
        let _running = running;
        let cluster = &attempt.cluster;
        let runtime = &*cluster.runtime;
        let bound = attempt.cleanup_timeout();
        let deadline = saturating_add(runtime.now(), bound);
        let mut pause = (bound / 50).min(FIRST_PAUSE);
        loop {
            let failed = calls.drain(runtime, deadline).await;
            again.extend(failed.into_iter().filter(|_| releases));
            again.retain(|node| attempt.has_granted(*node));
            let next = saturating_add(runtime.now(), pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
            if again.is_empty() || next >= deadline {
                break;
            }
            runtime.sleep_until(next).await;
            for node in again.drain(..) {
                calls.add(node, call(Arc::clone(&attempt), Operation::Release, node));
            }
        }
        calls.give_up_superseded();
        if releases {
            let grace = cluster.config.node_timeout(attempt.claim.ttl());
            calls.drain(runtime, saturating_add(runtime.now(), grace)).await;
        }
    }
}

/// How long it takes at first until a failed release is sent again, and in the end.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How a round ended.
pub(crate) struct Outcome {
    pub(crate) step: Step,
    pub(crate) tally: Tally,
    failures: Vec<(NodeId, BackendError)>,
}

impl Outcome {
    /// What each node said, for an error.
    pub(crate) fn votes(&self, cluster: &Cluster, start: Instant) -> Votes {
        let after = cluster.runtime.now().saturating_duration_since(start);
        Votes::new(cluster.count().ids().map(|node| {
            let failure = || self.failures.iter().find(|(failed, _)| *failed == node);
            let said = match (self.tally.vote_of(node), failure()) {
                (Some(vote), _) => Said::of(vote),
                (None, Some((_, error))) => Said::Failed(error.clone()),
                (None, None) if self.tally.is_open(node) => Said::Unheard,
                (None, None) => Said::Silent { after },
            };
            NodeVote::new(Arc::clone(cluster.name(node)), said)
        }))
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
            let vote = backend.acquire(&attempt.claim).await;
            if let Ok(Vote::Granted) = vote {
                attempt.granted.fetch_or(1 << node.index(), Ordering::Relaxed);
            }
            vote
        }
        Operation::Extend(claim) => {
            attempt.longest_ttl.fetch_max(claim.ttl().as_millis(), Ordering::Relaxed);
            backend.extend(&claim).await
        }
        Operation::Release => backend.release(&attempt.claim).await,
    }
}
