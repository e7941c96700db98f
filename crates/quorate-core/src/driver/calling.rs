//! The calls of one operation: they leave together, and each comes after those before it.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use super::attempt::Attempt;
use super::calls::{Answer, Calls, Inbox};
use super::carried::{Ask, Call};
use super::{bell, fencing, guarding};
use crate::algorithm::fence::FencingToken;
use crate::algorithm::node_set::NodeSet;
use crate::algorithm::quorum::{NodeId, Vote};
use crate::backend::{BackendError, BackendErrorKind, Carry, Claim};
use crate::observe;
use crate::runtime::BoxFuture;

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

/// Gets the calls of `operation` to `nodes` on their way. It was made up at `now`.
///
/// What a backend carries by itself has left, the others leave when they are first polled.
pub(super) fn set_out(
    attempt: &Arc<Attempt>,
    operation: &Operation,
    nodes: NodeSet,
    now: Instant,
    calls: &mut Calls,
) {
    let under_way = UnderWay::begin(attempt, operation);
    let inbox = Inbox::of(attempt, under_way);
    let (mut carried, mut rest) = (NodeSet::default(), NodeSet::default());
    for node in attempt.in_order(nodes) {
        match to_carry(attempt, operation, node, &inbox) {
            Some((carrier, call)) => {
                carried.insert(node);
                under_way.sent(attempt, node, now);
                if let Kind::Acquire = under_way.kind {
                    attempt.acquires_by_carrier(node);
                }
                inbox.carries(node);
                // If it panics, the call is dropped, which is an answer.
                let _ = unless_it_panics(|| carrier.carry(call));
            }
            None => rest.insert(node),
        }
    }
    let polled = (!rest.is_empty()).then(|| -> BoxFuture<'static, ()> {
        let inbox = Arc::clone(&inbox);
        Box::pin(all(Arc::clone(attempt), operation.clone(), rest, carried, now, inbox))
    });
    if let (Operation::Release, None) = (operation, &polled) {
        attempt.record_leaving(carried);
    }
    calls.add(nodes.len(), inbox, polled);
}

/// The call to a node for its backend to carry, if that is ready to.
fn to_carry<'a>(
    attempt: &'a Attempt,
    operation: &Operation,
    node: NodeId,
    inbox: &Arc<Inbox>,
) -> Option<(&'a dyn Carry, Call)> {
    let ask = is_plain(attempt, operation, node)?;
    let carrier = unless_it_panics(|| attempt.cluster.node(node).carrier()).ok()??;
    let is_ready = unless_it_panics(|| carrier.carries(&attempt.claim)).unwrap_or(false);
    let call = || (carrier, Call::new(ask, attempt.claim.clone(), node, Arc::clone(inbox)));
    let is_free = || match ask {
        Ask::Acquire => attempt.enters_lane(node),
        Ask::Release => attempt.enters_lane_behind(node),
    };
    (is_ready && is_free()).then(call)
}

/// A call whose answer decides nothing.
pub(super) fn set_out_aside(
    attempt: &Arc<Attempt>,
    operation: Operation,
    node: NodeId,
    calls: &mut Calls,
) {
    let (inbox, now) = (Arc::new(Inbox::default()), attempt.cluster.runtime.now());
    let nodes = NodeSet::only(node);
    let none = NodeSet::default();
    let call = all(Arc::clone(attempt), operation, nodes, none, now, Arc::clone(&inbox));
    calls.add_aside(inbox, Box::pin(call));
}

/// Makes the calls that have to be polled for, and puts the answers into the inbox. Others of the
/// same operation are `carried`.
async fn all(
    attempt: Arc<Attempt>,
    operation: Operation,
    nodes: NodeSet,
    carried: NodeSet,
    now: Instant,
    inbox: Arc<Inbox>,
) {
    let mut calls = Vec::with_capacity(nodes.len());
    for node in attempt.in_order(nodes) {
        match unless_it_panics(|| Polled::new(&attempt, &operation, node, now, &inbox)) {
            Ok(call) => calls.push(call),
            Err(error) => inbox.put(node, Err(error)),
        }
    }
    let mut leaving = matches!(operation, Operation::Release).then(|| -> NodeSet {
        let asked = calls.iter().filter(|call| call.is_asked()).map(|call| call.node);
        asked.chain(carried.ids()).collect()
    });
    inbox.all_ask();
    poll_fn(|_| {
        let asking = inbox.take_asking();
        calls.retain_mut(|call| match call.poll(asking) {
            Poll::Ready(answer) => {
                inbox.put(call.node, answer);
                false
            }
            Poll::Pending => true,
        });
        if let Some(leaving) = leaving.take() {
            attempt.record_leaving(leaving);
        }
        if calls.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// A call to one node that has to be polled for.
struct Polled<'a> {
    node: NodeId,
    bell: Waker,
    stage: Stage<'a>,
}

enum Stage<'a> {
    /// The node was asked right away.
    Asked(BoxFuture<'a, Answer>, Waiting<'a>),
    /// Something comes before, or goes with it. Seldom, and much to keep.
    Apart(BoxFuture<'a, Answer>),
    Settled,
}

impl<'a> Polled<'a> {
    fn new(
        attempt: &'a Attempt,
        operation: &'a Operation,
        node: NodeId,
        now: Instant,
        inbox: &Arc<Inbox>,
    ) -> Self {
        let ask = is_plain(attempt, operation, node).filter(|_| attempt.enters_lane(node));
        let stage = match ask {
            Some(ask) => {
                let waiting = Waiting::begin(attempt, operation, node, now);
                Stage::Asked(plain(attempt, ask, node), waiting)
            }
            None => Stage::Apart(Box::pin(in_lane(attempt, operation, node, now))),
        };
        Self { node, bell: bell::of(node, inbox), stage }
    }

    const fn is_asked(&self) -> bool {
        matches!(self.stage, Stage::Asked(..))
    }

    /// Goes on, if it is among those that are `asking` for it.
    fn poll(&mut self, asking: NodeSet) -> Poll<Answer> {
        let (true, Stage::Asked(call, _) | Stage::Apart(call)) =
            (asking.contains(self.node), &mut self.stage)
        else {
            return Poll::Pending;
        };
        let mut context = Context::from_waker(&self.bell);
        let polled = unless_it_panics(|| call.as_mut().poll(&mut context));
        let answer = match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(answer)) => answer,
            Err(error) => Err(error),
        };
        if let Stage::Asked(_, waiting) = std::mem::replace(&mut self.stage, Stage::Settled) {
            waiting.heard(&answer);
        }
        Poll::Ready(answer)
    }
}

/// A backend that panics has failed, and takes nobody else's call with it.
fn unless_it_panics<T>(call: impl FnOnce() -> T) -> Result<T, BackendError> {
    catch_unwind(AssertUnwindSafe(call))
        .map_err(|_| BackendError::new(BackendErrorKind::Other, "the backend panicked"))
}

/// What is to be noted of calls that have left: each has the lane of its node until it settles, or is
/// in it behind another that does.
#[derive(Clone, Copy)]
pub(super) struct UnderWay {
    kind: Kind,
    watch: observe::Watch,
}

#[derive(Clone, Copy)]
enum Kind {
    Acquire,
    Release,
    Other,
}

impl UnderWay {
    fn begin(attempt: &Attempt, operation: &Operation) -> Self {
        let kind = match operation {
            Operation::Acquire => Kind::Acquire,
            Operation::Release => Kind::Release,
            Operation::Extend(_) | Operation::Raise(_) | Operation::Repair(..) => Kind::Other,
        };
        Self { kind, watch: observe::Watch::begin(attempt, operation) }
    }

    fn sent(self, attempt: &Attempt, node: NodeId, now: Instant) {
        attempt.cluster.health().asked(node, now);
        self.watch.sent(attempt, node);
    }

    pub(super) fn heard(self, attempt: &Attempt, node: NodeId, answer: &Answer) {
        attempt.cluster.health().answered(node);
        match (self.kind, answer) {
            (Kind::Release, Ok(_)) => attempt.record_rid(node),
            (Kind::Acquire, Ok(Vote::Refused)) => attempt.record_dispute(),
            (Kind::Acquire, Ok(_)) if planted!("late_grants_are_not_recorded") => {}
            (_, Ok(Vote::Granted)) => attempt.record_grant(node),
            _ => {}
        }
        self.watch.settled(attempt, node, Some(answer));
        self.leaves_lane(attempt, node);
    }

    pub(super) fn given_up(self, attempt: &Attempt, node: NodeId) {
        attempt.cluster.health().given_up(node);
        self.watch.settled(attempt, node, None);
        self.leaves_lane(attempt, node);
    }

    fn leaves_lane(self, attempt: &Attempt, node: NodeId) {
        if let Kind::Acquire = self.kind {
            attempt.has_acquired(node);
        }
        attempt.leave_lane(node);
    }

    /// Whether it would do no good any more.
    pub(super) fn is_late(self, attempt: &Attempt) -> bool {
        matches!(self.kind, Kind::Acquire) && attempt.is_over()
    }
}

/// Somebody polls for a call that has left.
struct Waiting<'a> {
    attempt: &'a Attempt,
    node: NodeId,
    under_way: Option<UnderWay>,
}

impl<'a> Waiting<'a> {
    fn begin(attempt: &'a Attempt, operation: &Operation, node: NodeId, now: Instant) -> Self {
        let under_way = UnderWay::begin(attempt, operation);
        under_way.sent(attempt, node, now);
        Self { attempt, node, under_way: Some(under_way) }
    }

    fn heard(mut self, answer: &Answer) {
        if let Some(under_way) = self.under_way.take() {
            under_way.heard(self.attempt, self.node, answer);
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(under_way) = self.under_way.take() {
            under_way.given_up(self.attempt, self.node);
        }
    }
}

fn plain(attempt: &Attempt, ask: Ask, node: NodeId) -> BoxFuture<'_, Answer> {
    let backend = attempt.cluster.node(node);
    match ask {
        Ask::Acquire => backend.acquire(&attempt.claim),
        Ask::Release => backend.release(&attempt.claim),
    }
}

/// What the node is to be asked, if there is nothing to it but to ask.
fn is_plain(attempt: &Attempt, operation: &Operation, node: NodeId) -> Option<Ask> {
    let cluster = &attempt.cluster;
    if attempt.fencing.is_some() || cluster.config.restart_guard.is_some() {
        return None;
    }
    match operation {
        Operation::Acquire => cluster.roster().has_admitted(node).then_some(Ask::Acquire),
        Operation::Release => Some(Ask::Release),
        _ => None,
    }
}

/// Makes a call once those before it to the same node have settled.
async fn in_lane(
    attempt: &Attempt,
    operation: &Operation,
    node: NodeId,
    mut now: Instant,
) -> Answer {
    let cluster = &attempt.cluster;
    if !attempt.enters_lane(node) {
        attempt.enter_lane(node).await;
        now = cluster.runtime.now();
    }
    let is_late = match operation {
        Operation::Extend(_) | Operation::Raise(_) => attempt.is_over(),
        Operation::Repair(_, until) => attempt.is_over() || cluster.runtime.now() >= *until,
        Operation::Acquire | Operation::Release => false,
    };
    if is_late && !planted!("renewal_goes_on_behind_the_release") {
        attempt.leave_lane(node);
        return Err(too_late());
    }
    let waiting = Waiting::begin(attempt, operation, node, now);
    let answer = ask(attempt, operation, node).await;
    waiting.heard(&answer);
    answer
}

async fn ask(attempt: &Attempt, operation: &Operation, node: NodeId) -> Answer {
    let cluster = &attempt.cluster;
    let backend = cluster.node(node);
    if let Some(fenced) = fencing::ask(attempt, operation, node) {
        return fenced.await;
    }
    match operation {
        Operation::Acquire => {
            cluster.roster().admit(node, backend).await?;
            let guard = cluster.config.restart_guard;
            if let Some(guard) = guard.filter(|_| !planted!("restarted_node_votes_at_once")) {
                let guarded = Box::pin(guarding::acquire(attempt, node, None, guard));
                return guarded.await.map(|(vote, _)| vote);
            }
            backend.acquire(&attempt.claim).await
        }
        Operation::Extend(claim) => {
            attempt.asked_for(claim);
            cluster.roster().admit(node, backend).await?;
            let vote = backend.extend(claim).await?;
            if planted!("refused_extension_counts") {
                return Ok(Vote::Granted);
            }
            if planted!("repair_counts_as_a_vote") && vote == Vote::Refused {
                return backend.acquire(claim).await;
            }
            Ok(vote)
        }
        // It was asked to extend before, so it is released, too.
        Operation::Repair(claim, _) => backend.acquire(claim).await,
        Operation::Raise(_) => Err(cannot_fence()),
        Operation::Release => backend.release(&attempt.claim).await,
    }
}

fn cannot_fence() -> BackendError {
    BackendError::new(
        BackendErrorKind::Other,
        "not asked: the node keeps no numbers for fencing tokens",
    )
}

fn too_late() -> BackendError {
    BackendError::new(BackendErrorKind::Other, "not sent: the lease had ended")
}
