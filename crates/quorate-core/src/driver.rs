//! The only place that asks a backend.
//!
//! A [`Flight`] is one operation on its way to all nodes. Its calls outlive the decision: a future
//! that is dropped may be a command that is never sent, or a grant that nobody gives back. So what
//! has not settled when a flight is dropped (decided, or cancelled by the caller) goes on in the
//! background, up to the cleanup bound.
//!
//! Here is how an operation is decided. Below it: an [`attempt`] is what all calls with one token
//! share, [`calling`] is how a node is asked, [`calls`] are those on their way, [`carried`] are those
//! that a backend looks after by itself, [`cleanup`] is what comes after the decision; [`fencing`] and
//! [`guarding`] are the calls with more to them.

use std::future::poll_fn;
use std::iter::once;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use self::calls::{Calls, Settled};
use crate::algorithm::lease::saturating_add;
use crate::algorithm::quorum::{NodeId, Tally, Vote};
use crate::algorithm::round::{Loss, Round, Step};
use crate::backend::{BackendError, Claim};
use crate::cluster::Cluster;
use crate::error::{NodeVote, Said, Votes};

mod attempt;
mod bell;
mod calling;
mod calls;
mod carried;
mod cleanup;
mod fencing;
mod guarding;

pub(crate) use self::attempt::{Attempt, YIELD};
pub(crate) use self::calling::Operation;
use self::calling::set_out_aside;
pub(crate) use self::calls::Answer;
pub use self::carried::{Answered, Ask, Call};
use self::cleanup::{Aftermath, settle};
pub(crate) use self::cleanup::{FIRST_PAUSE, LONGEST_PAUSE};
pub(crate) use self::fencing::Fencing;

/// One operation on its way to all nodes.
pub(crate) struct Flight {
    attempt: Arc<Attempt>,
    calls: Calls,
    aftermath: Aftermath,
    /// Where the operation failed, as far as heard.
    failed: Vec<(NodeId, BackendError)>,
}

impl Flight {
    /// Gets the calls to all nodes ready. They leave at the first poll, all of them, but for those that
    /// backends carry: they have left.
    pub(crate) fn new(attempt: &Arc<Attempt>, operation: &Operation) -> Self {
        Self::at(attempt.cluster.runtime.now(), attempt, operation)
    }

    /// The same, for those who know that it is `now`.
    pub(crate) fn at(now: Instant, attempt: &Arc<Attempt>, operation: &Operation) -> Self {
        let mut flight = Self::to_none(attempt, operation);
        attempt.set_out(&mut flight.calls, operation, attempt.cluster.count().ids(), now);
        flight
    }

    /// Gets ready to ask some nodes, and then others.
    pub(crate) fn to_none(attempt: &Arc<Attempt>, operation: &Operation) -> Self {
        let aftermath = match operation {
            Operation::Acquire => Aftermath::Undo,
            Operation::Extend(_) | Operation::Raise(_) | Operation::Repair(..) => Aftermath::Drain,
            Operation::Release => Aftermath::Release,
        };
        Self {
            attempt: Arc::clone(attempt),
            calls: Calls::default(),
            aftermath,
            failed: Vec::new(),
        }
    }

    /// Gets the calls to `nodes` ready.
    pub(crate) fn ask(
        &mut self,
        now: Instant,
        operation: &Operation,
        nodes: impl Iterator<Item = NodeId>,
    ) {
        self.attempt.set_out(&mut self.calls, operation, nodes, now);
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
        if planted!("lost_keys_are_never_set_again") {
            return;
        }
        for node in tally.nodes().ids() {
            if tally.vote_of(node) == Some(Vote::Refused) {
                let operation = Operation::Repair(claim.clone(), valid_until);
                set_out_aside(&self.attempt, operation, node, &mut self.calls);
            }
        }
        self.aftermath = Aftermath::Repair(claim, valid_until);
    }

    /// Hears the late answers to a decided operation in the caller's own task.
    pub(crate) async fn linger(&mut self) {
        while let Some(settled) = poll_fn(|context| self.calls.poll_next(context)).await {
            self.aftermath.follow_up(&self.attempt, &settled, &mut self.calls);
        }
    }

    /// Turns a lost acquire into the release on all nodes.
    pub(crate) fn undo(mut self) -> Self {
        self.calls.supersede();
        let (count, now) = (self.attempt.cluster.count(), self.attempt.cluster.runtime.now());
        if !planted!("retry_without_undo") {
            self.ask(now, &Operation::Release, count.ids());
        }
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
            let now = runtime.now();
            let until = saturating_add(now, patience);
            if until >= round.next_timeout() {
                break;
            }
            self.ask(now, &Operation::Acquire, once(gate));
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
        let (mut step, now) = poll_fn(|context| {
            // Answers that are there together were there by now.
            let mut heard = None;
            if planted!("timer_comes_before_the_replies") && timer.as_mut().poll(context).is_ready()
            {
                let now = runtime.now();
                match round.on_timeout(now) {
                    Step::Wait => timer = runtime.sleep_until(round.next_timeout()),
                    step => return Poll::Ready((step, now)),
                }
            }
            loop {
                match self.calls.poll_next(context) {
                    Poll::Ready(Some(settled)) => {
                        let now = *heard.get_or_insert_with(|| runtime.now());
                        match self.hear(round, settled, now) {
                            Step::Wait => {}
                            step => return Poll::Ready((step, now)),
                        }
                    }
                    Poll::Ready(None) | Poll::Pending => {
                        if timer.as_mut().poll(context).is_pending()
                            || planted!("clients_bound_their_calls")
                        {
                            return Poll::Pending;
                        }
                        let now = runtime.now();
                        match round.on_timeout(now) {
                            Step::Wait => timer = runtime.sleep_until(round.next_timeout()),
                            step => return Poll::Ready((step, now)),
                        }
                    }
                }
            }
        })
        .await;
        // Answers that are there, too, turn no decision, but they can tell the reason of a loss, and
        // where something is left to do.
        if planted!("acquire_without_a_reply_is_sent_again")
            && matches!(self.aftermath, Aftermath::Undo)
        {
            let silent = round.tally().nodes().ids().filter(|node| round.tally().is_open(*node));
            self.ask(now, &Operation::Acquire, silent.collect::<Vec<_>>().into_iter());
        }
        for settled in self.calls.take_settled() {
            let heard = self.hear(round, settled, now);
            if let (Step::Lost(_), Step::Lost(_)) = (step, heard) {
                step = heard;
            }
        }
        self.outcome(round, step)
    }

    fn hear(&mut self, round: &mut Round, settled: Settled, now: Instant) -> Step {
        let Settled { node, answer } = settled;
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
        if planted!("late_replies_are_not_awaited") && !matches!(self.aftermath, Aftermath::Undo) {
            return;
        }
        let mut calls = std::mem::take(&mut self.calls);
        let aftermath = std::mem::replace(&mut self.aftermath, Aftermath::Drain);
        if matches!(aftermath, Aftermath::Undo) && !planted!("cancel_skips_the_undo") {
            calls.supersede();
            let (nodes, now) =
                (self.attempt.cluster.count().ids(), self.attempt.cluster.runtime.now());
            self.attempt.set_out(&mut calls, &Operation::Release, nodes, now);
            self.failed.clear();
        }
        let passing =
            |(_, error): &&(_, BackendError)| aftermath.releases() && !error.kind().is_permanent();
        let again: Vec<NodeId> =
            self.failed.iter().filter(passing).map(|(node, _)| *node).collect();
        if !calls.have_settled() || again.iter().any(|node| self.attempt.may_have_granted(*node)) {
            let task = settle(Arc::clone(&self.attempt), calls, aftermath, again);
            self.attempt.cluster.runtime.spawn(Box::pin(task));
        }
    }
}

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
        let votes = cluster.count().ids().map(|node| {
            let failure = || self.failures.iter().find(|(failed, _)| *failed == node);
            let said = match (self.tally.vote_of(node), failure()) {
                (Some(vote), _) => Said::of(vote),
                (None, Some((_, error))) => Said::Failed(error.clone()),
                (None, None) if self.tally.is_open(node) => Said::Unheard,
                (None, None) => Said::Silent { after, obstacle: cluster.obstacle(node) },
            };
            NodeVote::new(Arc::clone(cluster.name(node)), said)
        });
        votes.collect()
    }

    /// Whether trying again is pointless: so many nodes fail for good that no quorum is left.
    pub(crate) fn is_permanent(&self) -> bool {
        let permanent = self.failures.iter().filter(|(_, error)| error.kind().is_permanent());
        permanent.count() > self.tally.nodes().spare()
    }
}
