//! The only place that awaits a backend.
//!
//! A [`Flight`] is one operation on its way to all nodes. Its calls outlive the decision: a future
//! that is dropped may be a command that is never sent, or a grant that nobody gives back. So what
//! has not settled when a flight is dropped (decided, or cancelled by the caller) goes on in the
//! background, up to the cleanup bound.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_util::lock::Mutex;

use crate::algorithm::lease::saturating_add;
use crate::algorithm::quorum::{NodeId, Tally, Vote};
use crate::algorithm::round::{Round, Step};
use crate::backend::{BackendError, BackendErrorKind, Claim};
use crate::calls::{Calls, Settled};
use crate::cluster::Cluster;
use crate::error::{NodeVote, Said, Votes};
use crate::observe;

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
    /// From now on nothing may be set or prolonged: it would come back after its release.
    over: AtomicBool,
}

impl Attempt {
    pub(crate) fn new(cluster: Arc<Cluster>, claim: Claim) -> Arc<Self> {
        let lanes = cluster.count().ids().map(|_| Mutex::new(())).collect();
        let longest_ttl = AtomicU64::new(claim.ttl().as_millis());
        let (granted, over) = (AtomicU64::new(0), AtomicBool::new(false));
        Arc::new(Self { cluster, claim, lanes, granted, longest_ttl, over })
    }

    /// Lets no call through any more that sets or prolongs a key. Those that have left are not
    /// called back: a release comes to each node after them.
    pub(crate) fn close(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    fn record_grant(&self, node: NodeId, answer: &Result<Vote, BackendError>) {
        if let Ok(Vote::Granted) = answer {
            self.granted.fetch_or(1 << node.index(), Ordering::Relaxed);
        }
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
        if matches!(operation, Operation::Release) {
            self.close();
        }
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
    /// Sets what a node has lost, unless the lease is over by then.
    Repair(Claim, Instant),
    Release,
}

/// What is left to do on the nodes when a flight ends.
#[derive(Clone, Debug)]
enum Aftermath {
    /// Wait for the late answers.
    Drain,
    /// Give the keys back to the nodes that turn out to have lost them, while the lease lasts.
    Repair(Claim, Instant),
    /// See the release on every node through.
    Release,
    /// Release on every node, the silent and the refusing ones too.
    Undo,
}

impl Aftermath {
    const fn releases(&self) -> bool {
        matches!(self, Self::Release | Self::Undo)
    }

    /// The call that a late answer calls for.
    fn follow_up(
        &self,
        attempt: &Arc<Attempt>,
        settled: &Settled,
    ) -> Option<impl Future<Output = Result<Vote, BackendError>> + Send + 'static> {
        match (self, settled) {
            (
                Self::Repair(claim, until),
                Settled { superseded: false, answer: Ok(Vote::Refused), node },
            ) => {
                let operation = Operation::Repair(claim.clone(), *until);
                Some(call(Arc::clone(attempt), operation, *node))
            }
            _ => None,
        }
    }
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
            Operation::Extend(_) | Operation::Repair(..) => Aftermath::Drain,
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

    /// Repairs the nodes that said, or will say, that they no longer have the keys.
    ///
    /// Only for an extension that a quorum of nodes which still had them has granted (H3): a key
    /// that is set now counts in no round before the next.
    pub(crate) fn repair(&mut self, claim: Claim, valid_until: Instant, tally: &Tally) {
        for node in tally.nodes().ids() {
            if tally.vote_of(node) == Some(Vote::Refused) {
                let operation = Operation::Repair(claim.clone(), valid_until);
                self.calls.add_aside(node, call(Arc::clone(&self.attempt), operation, node));
            }
        }
        self.aftermath = Aftermath::Repair(claim, valid_until);
    }

    /// Hears the late answers to a decided operation in the caller's own task.
    pub(crate) async fn linger(&mut self) {
        while let Some(settled) = poll_fn(|context| self.calls.poll_next(context)).await {
            if let Some(call) = self.aftermath.follow_up(&self.attempt, &settled) {
                self.calls.add_aside(settled.node, call);
            }
        }
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
        // Answers that are there, too, turn no decision, but they can tell the reason of a loss, and
        // where something is left to do.
        for settled in self.calls.take_settled().into_iter().filter(|late| !late.superseded) {
            let heard = self.hear(round, settled, runtime.now());
            if let (Step::Lost(_), Step::Lost(_)) = (step, heard) {
                step = heard;
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
        let mut aftermath = std::mem::replace(&mut self.aftermath, Aftermath::Drain);
        if let Aftermath::Undo = aftermath {
            calls.supersede();
            self.attempt.set_out(&mut calls, &Operation::Release);
            self.failed.clear();
            aftermath = Aftermath::Release;
        }
        let passing =
            |(_, error): &&(_, BackendError)| aftermath.releases() && !error.kind().is_permanent();
        let again: Vec<NodeId> =
            self.failed.iter().filter(passing).map(|(node, _)| *node).collect();
        if !calls.have_settled() || again.iter().any(|node| self.attempt.has_granted(*node)) {
            let task = settle(Arc::clone(&self.attempt), calls, aftermath, again);
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
    aftermath: Aftermath,
    mut again: Vec<NodeId>,
) -> impl Future<Output = ()> + Send + 'static {
    let running = attempt.cluster.background().enter();
    async move {
        let _running = running;
        let cleanup = observe::Cleanup::begin(&attempt);
        let cluster = &attempt.cluster;
        let runtime = &*cluster.runtime;
        let bound = attempt.cleanup_timeout();
        let deadline = saturating_add(runtime.now(), bound);
        let mut pause = (bound / 50).min(FIRST_PAUSE);
        loop {
            let mut timer = runtime.sleep_until(deadline);
            while let Some(settled) = calls.next(&mut timer).await {
                if let Some(call) = aftermath.follow_up(&attempt, &settled) {
                    calls.add_aside(settled.node, call);
                }
                again.extend(settled.passing_failure().filter(|_| aftermath.releases()));
            }
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
        if aftermath.releases() {
            let grace = cluster.config.node_timeout(attempt.claim.ttl());
            let mut timer = runtime.sleep_until(saturating_add(runtime.now(), grace));
            while calls.next(&mut timer).await.is_some() {}
        }
        cleanup.ended(&attempt, calls.unsettled());
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

fn call(
    attempt: Arc<Attempt>,
    operation: Operation,
    node: NodeId,
) -> impl Future<Output = Result<Vote, BackendError>> + Send + 'static {
    let watch = observe::Watch::new(&attempt, &operation, node);
    watch.clone().over(ask(attempt, operation, node, watch))
}

async fn ask(
    attempt: Arc<Attempt>,
    operation: Operation,
    node: NodeId,
    watch: observe::Watch,
) -> Result<Vote, BackendError> {
    let _lane = attempt.lanes[node.index()].lock().await;
    watch.sent();
    let too_late = || watch.unsent(too_late());
    let cluster = &attempt.cluster;
    let backend = cluster.node(node);
    match operation {
        Operation::Acquire => {
            cluster.roster().admit(node, backend).await?;
            let answer = backend.acquire(&attempt.claim).await;
            attempt.record_grant(node, &answer);
            answer
        }
        Operation::Extend(_) | Operation::Repair(..) if attempt.is_over() => Err(too_late()),
        Operation::Extend(claim) => {
            attempt.longest_ttl.fetch_max(claim.ttl().as_millis(), Ordering::Relaxed);
            cluster.roster().admit(node, backend).await?;
            let answer = backend.extend(&claim).await;
            attempt.record_grant(node, &answer);
            answer
        }
        Operation::Repair(_, until) if cluster.runtime.now() >= until => Err(too_late()),
        Operation::Repair(claim, _) => {
            let answer = backend.acquire(&claim).await;
            attempt.record_grant(node, &answer);
            answer
        }
        Operation::Release => backend.release(&attempt.claim).await,
    }
}

fn too_late() -> BackendError {
    BackendError::new(BackendErrorKind::Other, "not sent: the lease had ended")
}
