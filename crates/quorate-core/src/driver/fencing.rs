//! Fencing tokens: the same calls with a number, and a second fan-out where the numbers differ.
//!
//! What is decided, and why it holds, is in [`algorithm::fence`](crate::algorithm::fence).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::calling::set_out_aside;
use super::{Attempt, Flight, Operation, Outcome, guarding};
use crate::algorithm::fence::{Agreement, FenceHint, FenceVote, FencingToken};
use crate::algorithm::quorum::{NodeId, Tally, Vote};
use crate::algorithm::round::{Loss, Round, Step};
use crate::backend::{BackendError, Claim, Fence, LockBackend};
use crate::cluster::Cluster;
use crate::error::LockError;
use crate::runtime::BoxFuture;

/// The numbers of one attempt, as far as nodes have told. Late answers count, too.
#[derive(Debug)]
pub(crate) struct Fencing {
    hint: FenceHint,
    /// What each node stands at, as far as it said so to us; zero if it did not.
    numbers: Vec<AtomicU64>,
    highest: AtomicU64,
    token: OnceLock<FencingToken>,
}

impl Fencing {
    /// For an acquire, with a hint of this moment.
    pub(crate) fn new(cluster: &Cluster) -> Result<Self, LockError> {
        let source = cluster.config.fence_hint.as_ref();
        let hint = source.map_or_else(|| cluster.runtime.unix_micros(), |source| source.micros());
        let parsed = FenceHint::new(hint).ok_or(LockError::FenceHint { hint })?;
        Ok(Self::with(cluster, parsed))
    }

    /// For a lock that was taken elsewhere with `token`.
    pub(super) fn adopted(cluster: &Cluster, token: FencingToken) -> Self {
        let fencing = Self::with(cluster, FenceHint::default());
        fencing.highest.store(token.get(), Ordering::SeqCst);
        fencing.settle(token);
        fencing
    }

    fn with(cluster: &Cluster, hint: FenceHint) -> Self {
        Self {
            hint,
            numbers: cluster.count().ids().map(|_| AtomicU64::new(0)).collect(),
            highest: AtomicU64::new(0),
            token: OnceLock::new(),
        }
    }

    /// The node stands at `number`, or further.
    fn record(&self, node: NodeId, number: FencingToken) {
        self.numbers[node.index()].fetch_max(number.get(), Ordering::SeqCst);
        self.highest.fetch_max(number.get(), Ordering::SeqCst);
    }

    /// The node has lost the keys, and perhaps where it stood.
    fn forget(&self, node: NodeId) {
        self.numbers[node.index()].store(0, Ordering::SeqCst);
    }

    fn number_of(&self, node: NodeId) -> Option<FencingToken> {
        FencingToken::new(self.numbers[node.index()].load(Ordering::SeqCst))
    }

    /// The highest number that was heard of, which laggards are brought up to.
    fn highest(&self) -> Option<FencingToken> {
        FencingToken::new(self.highest.load(Ordering::SeqCst))
    }

    fn settle(&self, token: FencingToken) {
        let _ = self.token.set(token);
    }
}

impl Attempt {
    /// What a majority has voted, if it was asked.
    pub(crate) fn fencing_token(&self) -> Option<FencingToken> {
        self.fencing.as_ref()?.token.get().copied()
    }
}

impl Flight {
    /// Sees to it that an acquire which was won has a fencing token, if one was asked for.
    ///
    /// Where the nodes that granted do not agree, the others are raised to the highest number.
    /// That is decided within the deadline of `round`, and counts from its start.
    pub(crate) async fn agree(&mut self, acquired: Outcome, round: &Round) -> Outcome {
        let attempt = Arc::clone(&self.attempt);
        let (Some(fencing), Step::Won { .. }) = (&attempt.fencing, acquired.step) else {
            return acquired;
        };
        let nodes = acquired.tally.nodes();
        match Agreement::of(nodes, nodes.ids().filter_map(|node| fencing.number_of(node))) {
            Some(Agreement::Token(token)) => {
                fencing.settle(token);
                acquired
            }
            Some(Agreement::Raise(number)) if planted!("highest_reply_is_the_token") => {
                fencing.settle(number);
                acquired
            }
            Some(Agreement::Raise(number)) => {
                let mut raised = Box::pin(self.raise(number, &acquired.tally, round.again())).await;
                if let Step::Won { valid_until } = &mut raised.step {
                    fencing.settle(number);
                    if planted!("raise_restarts_the_validity") {
                        let (cluster, ttl) = (&attempt.cluster, attempt.claim.ttl());
                        *valid_until = cluster.config.drift.valid_until(cluster.runtime.now(), ttl);
                    }
                }
                raised
            }
            // Not one of the nodes that granted has told a number: there is no token to be had.
            None => Outcome { step: Step::Lost(Loss::Refused), ..acquired },
        }
    }

    /// Has a majority vote for `number`. Who gave it has voted; who has yet to answer the acquire
    /// is asked behind that.
    async fn raise(&mut self, number: FencingToken, acquired: &Tally, mut round: Round) -> Outcome {
        let attempt = Arc::clone(&self.attempt);
        let given = |node| attempt.fencing.as_ref().and_then(|fencing| fencing.number_of(node));
        self.calls.supersede();
        let now = attempt.cluster.runtime.now();
        let mut others = Vec::new();
        for node in acquired.nodes().ids() {
            let _ = match acquired.vote_of(node) {
                None if planted!("grant_during_a_raise_is_a_vote") && acquired.is_open(node) => {
                    round.on_vote(node, Vote::Granted, now)
                }
                Some(Vote::Granted) if given(node) == Some(number) => {
                    round.on_vote(node, Vote::Granted, now)
                }
                Some(Vote::Refused) => round.on_vote(node, Vote::Refused, now),
                None if !acquired.is_open(node) => round.on_unknown(node, now),
                Some(Vote::Granted) | None => {
                    others.push(node);
                    Step::Wait
                }
            };
        }
        self.ask(now, &Operation::Raise(number), others.into_iter());
        self.decide(&mut round).await
    }

    /// Brings nodes that lag behind up to the others, after an extension with these votes, so that
    /// the next holder finds them in agreement. Nobody waits for it.
    pub(crate) fn level(&mut self, extended: &Tally) {
        let attempt = Arc::clone(&self.attempt);
        let Some((fencing, highest)) =
            attempt.fencing.as_ref().and_then(|fencing| Some((fencing, fencing.highest()?)))
        else {
            return;
        };
        for node in extended.nodes().ids() {
            let lags = fencing.number_of(node).is_none_or(|number| number < highest);
            if lags && extended.vote_of(node) == Some(Vote::Granted) {
                set_out_aside(&attempt, Operation::Raise(highest), node, &mut self.calls);
            }
        }
    }
}

/// What a node is asked in place of the canonical operation, if the attempt has numbers and the
/// operation touches them.
pub(super) fn ask<'a>(
    attempt: &'a Attempt,
    operation: &'a Operation,
    node: NodeId,
) -> Option<BoxFuture<'a, Result<Vote, BackendError>>> {
    let fencing = attempt.fencing.as_ref()?;
    let fence = attempt.cluster.node(node).fencer()?;
    let backend = attempt.cluster.node(node);
    let asked = Asked { attempt, fencing, fence, backend, node };
    match operation {
        Operation::Acquire => Some(Box::pin(asked.acquire())),
        Operation::Extend(_) => None,
        Operation::Raise(number) => Some(Box::pin(asked.raise(*number))),
        Operation::Repair(claim, _) => Some(Box::pin(asked.repair(claim))),
        Operation::Release => Some(Box::pin(asked.release())),
    }
}

struct Asked<'a> {
    attempt: &'a Attempt,
    fencing: &'a Fencing,
    fence: &'a dyn Fence,
    backend: &'a dyn LockBackend,
    node: NodeId,
}

impl Asked<'_> {
    async fn acquire(self) -> Result<Vote, BackendError> {
        self.attempt.cluster.roster().admit(self.node, self.backend).await?;
        let hint = match planted!("fencing_hint_is_not_sent") {
            true => FenceHint::default(),
            false => self.fencing.hint,
        };
        let vote = match self.attempt.cluster.config.restart_guard {
            Some(guard) => guarding::fenced_acquire(self.attempt, self.node, hint, guard).await?,
            None => self.fence.acquire(&self.attempt.claim, hint).await?,
        };
        if let FenceVote::Granted(number) = vote {
            self.fencing.record(self.node, number);
        }
        Ok(vote.vote())
    }

    async fn raise(self, number: FencingToken) -> Result<Vote, BackendError> {
        match self.fencing.number_of(self.node) {
            // Its acquire has been answered by now, with this number or a higher one.
            Some(given) if given == number => Ok(Vote::Granted),
            Some(given) if given > number => Ok(Vote::Refused),
            _ => {
                let vote = self.fence.raise(&self.attempt.claim, number).await?;
                // Refused: it stands higher, or the keys are not ours. It does not lag.
                self.fencing.record(self.node, number);
                Ok(vote)
            }
        }
    }

    /// Sets keys as they were, under the token and the number of the lease. It is no vote for that
    /// number: whoever had the keys meanwhile was granted a higher one.
    async fn repair(self, claim: &Claim) -> Result<Vote, BackendError> {
        self.fencing.forget(self.node);
        let vote = self.backend.acquire(claim).await?;
        if let (Vote::Granted, Some(highest)) = (vote, self.fencing.highest())
            && self.fence.raise(claim, highest).await.is_ok()
        {
            self.fencing.record(self.node, highest);
        }
        Ok(vote)
    }

    async fn release(self) -> Result<Vote, BackendError> {
        match self.fencing.highest() {
            Some(highest) if self.fencing.number_of(self.node) != Some(highest) => {
                self.fence.release(&self.attempt.claim, highest).await
            }
            // It stands there already, or no number was heard of: there is none to bring forward,
            // and the canonical release costs less.
            None if planted!("no_number_no_release") => Ok(Vote::Refused),
            Some(_) | None => self.backend.release(&self.attempt.claim).await,
        }
    }
}
