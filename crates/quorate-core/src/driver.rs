//! The only place that awaits a backend.
//!
//! A [`Flight`] is one operation on its way to all nodes. Its calls outlive the decision: a future
//! that is dropped may be a command that is never sent, or a grant that nobody gives back. So what
//! has not settled when a flight is dropped (decided, or cancelled by the caller) goes on in the
//! background, up to the cleanup bound.

use std::fmt;
use std::future::poll_fn;
use std::iter::once;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use event_listener::Event;
use futures_util::future::{ready, select};
use futures_util::lock::Mutex;

use crate::algorithm::fence::FencingToken;
use crate::algorithm::lease::saturating_add;
use crate::algorithm::quorum::{NodeId, Tally, Vote};
use crate::algorithm::round::{Loss, Round, Step};
use crate::backend::{BackendError, BackendErrorKind, Claim};
use crate::calls::{Calls, Settled};
use crate::cluster::Cluster;
use crate::error::{NodeVote, Said, Votes};
use crate::observe;

mod fencing;
mod guarding;

pub(crate) use self::fencing::Fencing;

/// One attempt at a lock, from its first acquire to its last release.
///
/// It is signed by one token. The lanes let one call at a time through to each node, so that a
/// release comes after the acquire that it undoes.
pub(crate) struct Attempt {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) claim: Claim,
    fencing: Option<Fencing>,
    lanes: Vec<Mutex<()>>,
    /// The nodes that are known to have granted it: there a release must not fail for good.
    granted: AtomicU64,
    /// The longest ttl that a node was asked for, in milliseconds.
    longest_ttl: AtomicU64,
    /// The nodes that may have it, so that there is something to release.
    asked: AtomicU64,
    /// The nodes that are known not to have it any more.
    rid: AtomicU64,
    /// From now on nothing may be set or prolonged: it would come back after its release.
    over: AtomicBool,
    free: Event,
    /// For how long this process lets waiters elsewhere go first when this is released, in
    /// nanoseconds; zero if none were met.
    yields: AtomicU64,
    /// Whether waiters of this process look at it.
    entered: AtomicBool,
}

impl Attempt {
    pub(crate) fn new(cluster: Arc<Cluster>, claim: Claim, fencing: Option<Fencing>) -> Arc<Self> {
        let lanes = cluster.count().ids().map(|_| Mutex::new(())).collect();
        let longest_ttl = AtomicU64::new(claim.ttl().as_millis());
        Arc::new(Self {
            cluster,
            claim,
            fencing,
            lanes,
            granted: AtomicU64::new(0),
            longest_ttl,
            asked: AtomicU64::new(0),
            rid: AtomicU64::new(0),
            over: AtomicBool::new(false),
            free: Event::new(),
            yields: AtomicU64::new(0),
            entered: AtomicBool::new(false),
        })
    }

    /// One that any node may have: it began elsewhere.
    pub(crate) fn adopted(
        cluster: Arc<Cluster>,
        claim: Claim,
        token: Option<FencingToken>,
    ) -> Arc<Self> {
        let fencing = token.map(|token| Fencing::adopted(&cluster, token));
        let attempt = Self::new(cluster, claim, fencing);
        attempt.asked.store(u64::MAX, Ordering::Relaxed);
        attempt
    }

    /// Waiters of this process look at it from now on, until it is dropped.
    pub(crate) fn enter(&self) {
        self.entered.store(true, Ordering::SeqCst);
    }

    /// Lets no call through any more that sets or prolongs a key. Those that have left are not
    /// called back: a release comes to each node after them.
    pub(crate) fn close(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// Waits until a quorum of nodes is rid of it, but no longer than a node may take to answer.
    pub(crate) async fn freed(&self) {
        let free = self.free.listen();
        if self.is_over() && !self.is_free() {
            let runtime = &*self.cluster.runtime;
            let patience = self.cluster.config.node_timeout(self.claim.ttl());
            select(free, runtime.sleep_until(saturating_add(runtime.now(), patience))).await;
        }
    }

    fn is_free(&self) -> bool {
        let rid = self.rid.load(Ordering::SeqCst).count_ones() as usize;
        rid >= self.cluster.count().quorum()
    }

    /// The node answered a release, so it does not have the keys, whoever removed them.
    fn record_rid(&self, node: NodeId) {
        self.rid.fetch_or(1 << node.index(), Ordering::SeqCst);
        if self.is_free() {
            let yields = self.yields.swap(0, Ordering::SeqCst);
            if yields > 0 {
                let until = self.cluster.runtime.now() + Duration::from_nanos(yields);
                self.cluster.queues().yield_until(self.claim.keys(), until);
            }
            self.free.notify(usize::MAX);
        }
    }

    /// Others, elsewhere, were met on the way to it: they go first the next time.
    pub(crate) fn yield_for(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.yields.store(nanos, Ordering::SeqCst);
    }

    fn may_have_now(&self, node: NodeId) {
        self.asked.fetch_or(1 << node.index(), Ordering::Relaxed);
    }

    fn may_have(&self, node: NodeId) -> bool {
        self.asked.load(Ordering::Relaxed) & (1 << node.index()) != 0
    }

    fn record_grant(&self, node: NodeId) {
        self.granted.fetch_or(1 << node.index(), Ordering::Relaxed);
    }

    fn has_granted(&self, node: NodeId) -> bool {
        self.granted.load(Ordering::Relaxed) & (1 << node.index()) != 0
    }

    /// How long cleanup goes on: no node keeps the keys for longer.
    fn cleanup_timeout(&self) -> Duration {
        let longest = Duration::from_millis(self.longest_ttl.load(Ordering::Relaxed));
        self.cluster.config.cleanup_timeout(longest)
    }

    /// Adds the calls of an operation to `nodes` to those on their way.
    fn set_out(
        self: &Arc<Self>,
        calls: &mut Calls,
        operation: &Operation,
        nodes: impl Iterator<Item = NodeId>,
    ) {
        let now = self.cluster.runtime.now();
        if matches!(operation, Operation::Release) {
            self.close();
            for node in nodes {
                if self.may_have(node) {
                    calls.add(node, call(Arc::clone(self), operation.clone(), node, now));
                } else {
                    self.record_rid(node);
                    calls.add(node, ready(Ok(Vote::Refused)));
                }
            }
            return;
        }
        let hung = self.cluster.hung(now, self.claim.ttl());
        for node in nodes {
            match hung.iter().find(|(hung, _)| *hung == node) {
                Some((_, silent)) => calls.add(node, ready(Err(not_asked(*silent)))),
                None => {
                    self.may_have_now(node);
                    calls.add(node, call(Arc::clone(self), operation.clone(), node, now));
                }
            }
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if *self.entered.get_mut() {
            self.cluster.queues().leave(self);
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
    /// Brings the number of a fencing token to a node that gave a lower one.
    Raise(FencingToken),
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
                let now = attempt.cluster.runtime.now();
                Some(call(Arc::clone(attempt), operation, *node, now))
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
    /// Gets the calls to all nodes ready. They leave at the first poll, all of them.
    pub(crate) fn new(attempt: &Arc<Attempt>, operation: &Operation) -> Self {
        let mut flight = Self::to_none(attempt, operation);
        flight.ask(operation, attempt.cluster.count().ids());
        flight
    }

    /// Gets ready to ask some nodes, and then others.
    pub(crate) fn to_none(attempt: &Arc<Attempt>, operation: &Operation) -> Self {
        let aftermath = match operation {
            Operation::Acquire => Aftermath::Undo,
            Operation::Extend(_) | Operation::Raise(_) | Operation::Repair(..) => Aftermath::Drain,
            Operation::Release => Aftermath::Release,
        };
        let (calls, failed) = (Calls::default(), Vec::new());
        Self { attempt: Arc::clone(attempt), calls, aftermath, failed }
    }

    /// Gets the calls to `nodes` ready.
    pub(crate) fn ask(&mut self, operation: &Operation, nodes: impl Iterator<Item = NodeId>) {
        self.attempt.set_out(&mut self.calls, operation, nodes);
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
        let now = self.attempt.cluster.runtime.now();
        for node in tally.nodes().ids() {
            if tally.vote_of(node) == Some(Vote::Refused) {
                let operation = Operation::Repair(claim.clone(), valid_until);
                self.calls.add_aside(node, call(Arc::clone(&self.attempt), operation, node, now));
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
        self.ask(&Operation::Release, self.attempt.cluster.count().ids());
        self.aftermath = Aftermath::Release;
        self.failed.clear();
        self
    }

    /// Asks one of the `gates` after the other, until one lets us in or sends us away.
    ///
    /// Contenders that wake together ask in the same order. So one of them is let in, and the others
    /// have not taken single nodes from it. A node that does not answer within `patience` is passed
    /// over.
    pub(crate) async fn pass_gate(
        &mut self,
        round: &mut Round,
        gates: impl Iterator<Item = NodeId>,
        patience: Duration,
    ) -> Gate {
        let runtime = Arc::clone(&self.attempt.cluster.runtime);
        let mut asked: Vec<NodeId> = Vec::new();
        for gate in gates {
            let until = saturating_add(runtime.now(), patience);
            if until >= round.next_timeout() {
                break;
            }
            self.ask(&Operation::Acquire, once(gate));
            asked.push(gate);
            let mut timer = runtime.sleep_until(until);
            while let Some(settled) = self.calls.next(&mut timer).await {
                let (node, vote) = (settled.node, settled.answer.as_ref().ok().copied());
                let step = self.hear(round, settled, runtime.now());
                match (step, vote) {
                    (Step::Wait, Some(Vote::Granted)) => return Gate::Open(asked),
                    (Step::Wait, Some(Vote::Refused)) => {
                        return Gate::Decided(self.outcome(round, Step::Lost(Loss::Refused)));
                    }
                    (Step::Wait, None) if node == gate => break,
                    (Step::Wait, None) => {}
                    (step, _) => return Gate::Decided(self.outcome(round, step)),
                }
            }
        }
        Gate::Open(asked)
    }

    fn outcome(&self, round: &Round, step: Step) -> Outcome {
        Outcome { step, tally: *round.tally(), failures: self.failed.clone() }
    }

    /// Waits for the decision of `round`.
    ///
    /// Votes that are there count before the clock is looked at, whichever woke the task.
    pub(crate) async fn decide(&mut self, round: &mut Round) -> Outcome {
        let runtime = Arc::clone(&self.attempt.cluster.runtime);
        let mut timer = runtime.sleep_until(round.next_timeout());
        let mut step = poll_fn(|context| {
            // Answers that are there together were there by now.
            let mut heard = None;
            loop {
                match self.calls.poll_next(context) {
                    Poll::Ready(Some(Settled { superseded: true, .. })) => {}
                    Poll::Ready(Some(settled)) => {
                        let now = *heard.get_or_insert_with(|| runtime.now());
                        match self.hear(round, settled, now) {
                            Step::Wait => {}
                            step => return Poll::Ready(step),
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
        // Answers that are there, too, turn no decision, but they can tell the reason of a loss, and
        // where something is left to do.
        let rest = self.calls.take_settled();
        let now = if rest.is_empty() { round.next_timeout() } else { runtime.now() };
        for settled in rest.into_iter().filter(|late| !late.superseded) {
            let heard = self.hear(round, settled, now);
            if let (Step::Lost(_), Step::Lost(_)) = (step, heard) {
                step = heard;
            }
        }
        self.outcome(round, step)
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
            let nodes = self.attempt.cluster.count().ids();
            self.attempt.set_out(&mut calls, &Operation::Release, nodes);
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
                let now = runtime.now();
                calls.add(node, call(Arc::clone(&attempt), Operation::Release, node, now));
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

/// How the gate was passed.
pub(crate) enum Gate {
    /// One of these let us in, or none sent us away: the others can be asked.
    Open(Vec<NodeId>),
    /// The round is over.
    Decided(Outcome),
}

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
    now: Instant,
) -> impl Future<Output = Result<Vote, BackendError>> + Send + 'static {
    let watch = observe::Watch::new(&attempt, &operation, node);
    watch.clone().over(in_lane(attempt, operation, node, now, watch))
}

/// Makes a call once those before it to the same node have settled. It was made up at `now`.
async fn in_lane(
    attempt: Arc<Attempt>,
    operation: Operation,
    node: NodeId,
    mut now: Instant,
    watch: observe::Watch,
) -> Result<Vote, BackendError> {
    let cluster = &attempt.cluster;
    let lane = &attempt.lanes[node.index()];
    let _lane = match lane.try_lock() {
        Some(lane) => lane,
        None => {
            let lane = lane.lock().await;
            now = cluster.runtime.now();
            lane
        }
    };
    let is_late = match &operation {
        Operation::Extend(_) | Operation::Raise(_) => attempt.is_over(),
        Operation::Repair(_, until) => attempt.is_over() || cluster.runtime.now() >= *until,
        Operation::Acquire | Operation::Release => false,
    };
    if is_late {
        return Err(too_late());
    }
    watch.sent();
    let asked = cluster.health().ask(node, now);
    let answer = ask(&attempt, &operation, node).await;
    asked.answered();
    match (&operation, &answer) {
        (Operation::Release, Ok(_)) => attempt.record_rid(node),
        (_, Ok(Vote::Granted)) => attempt.record_grant(node),
        _ => {}
    }
    answer
}

async fn ask(attempt: &Attempt, operation: &Operation, node: NodeId) -> Result<Vote, BackendError> {
    let cluster = &attempt.cluster;
    let backend = cluster.node(node);
    if let Some(fenced) = fencing::ask(attempt, operation, node) {
        return fenced.await;
    }
    match operation {
        Operation::Acquire => {
            cluster.roster().admit(node, backend).await?;
            if let Some(guard) = cluster.config.restart_guard {
                let guarded = Box::pin(guarding::acquire(attempt, node, None, guard));
                return guarded.await.map(|(vote, _)| vote);
            }
            backend.acquire(&attempt.claim).await
        }
        Operation::Extend(claim) => {
            attempt.longest_ttl.fetch_max(claim.ttl().as_millis(), Ordering::Relaxed);
            cluster.roster().admit(node, backend).await?;
            backend.extend(claim).await
        }
        Operation::Repair(claim, _) => {
            attempt.may_have_now(node);
            backend.acquire(claim).await
        }
        Operation::Raise(_) => Err(cannot_fence()),
        Operation::Release => backend.release(&attempt.claim).await,
    }
}

fn not_asked(silent: Duration) -> BackendError {
    let message = format!("not asked: it has not answered for {silent:.1?}");
    BackendError::new(BackendErrorKind::TimedOut, message)
}

fn cannot_fence() -> BackendError {
    BackendError::new(BackendErrorKind::Other, "not asked: the node cannot fence")
}

fn too_late() -> BackendError {
    BackendError::new(BackendErrorKind::Other, "not sent: the lease had ended")
}
