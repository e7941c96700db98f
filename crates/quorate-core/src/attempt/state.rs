//! What the mutex of an attempt holds: the machine, the answers of its open round, its decisions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::algorithm::attempt::{
    Attempt as Machine, CallId, Decision, Loss, Operation, Outcome, RoundId, Vote,
};
use crate::algorithm::fence::FencingToken;
use crate::algorithm::lease::saturating_add;
use crate::algorithm::quorum::NodeId;
use crate::backend::BackendError;
use crate::cluster::Cluster;
use crate::error::{Answer, ExtendError, Lost, NodeAnswer, QuorumFailure, ReleaseError};
use crate::nodes::{Nodes, Reply};
use crate::tasks::OpenWork;

/// Whether the first round was won; if not, why, and what each node answered.
pub(super) type FirstResult = Result<(), (Loss, QuorumFailure)>;

/// The machine of an attempt, and what its callers wait for.
pub(super) struct State {
    pub(super) machine: Machine,
    nodes: Arc<Nodes>,
    pub(super) node_timeout: Duration,
    /// The nodes that `close` waits for.
    open: OpenWork,
    answers: Answers,
    /// The first round: won or not, and when that was decided.
    first: Option<(FirstResult, Instant)>,
    start: Instant,
    /// The latest round of extensions that was decided.
    extended: Option<(RoundId, Result<Instant, QuorumFailure>)>,
    /// What was answered in the round before the open one.
    before: Option<(RoundId, QuorumFailure)>,
    /// The end of the lease, which an extension moves.
    pub(super) valid_until: Instant,
    pub(super) token: Option<FencingToken>,
    lost: Option<Lost>,
    pub(super) released: Option<Result<(), ReleaseError>>,
    /// The gate's latest answer whether other processes wait, and when it came.
    pub(super) waiters: Option<(bool, Instant)>,
    /// How many drivers there are: none while a lock is held and nothing is in flight. The last one of an
    /// attempt that has ended stays until it is quiescent.
    pub(super) drivers: usize,
}

/// What each node answered in the open round, or in the last one.
struct Answers {
    round: RoundId,
    /// Whether these are answers to the release.
    is_release: bool,
    is_decided: bool,
    start: Instant,
    nodes: Vec<Answer>,
}

impl State {
    pub(super) fn new(
        cluster: &Cluster,
        machine: Machine,
        node_timeout: Duration,
        start: Instant,
    ) -> Self {
        let answers = Answers::begin(&machine, false, start);
        let mut open = cluster.tasks.begin();
        open.set(machine.open_nodes());
        Self {
            machine,
            nodes: Arc::clone(&cluster.nodes),
            node_timeout,
            open,
            answers,
            first: None,
            start,
            extended: None,
            before: None,
            valid_until: start,
            token: None,
            lost: None,
            released: None,
            waiters: None,
            drivers: 0,
        }
    }

    /// Notes that a call is sent.
    pub(super) fn note_sent(&mut self, node: NodeId, operation: Operation) {
        if matches!(operation, Operation::Release { .. }) == self.answers.is_release {
            self.answers.nodes[node.index()] = Answer::NoReply { is_over: false };
        }
    }

    /// Feeds a reply to the machine.
    pub(super) fn handle_reply(
        &mut self,
        call: CallId,
        operation: Operation,
        round: RoundId,
        reply: Reply,
        now: Instant,
    ) {
        let Reply { outcome, error, waiters } = reply;
        let is_release = matches!(operation, Operation::Release { .. });
        let is_repair = matches!(operation, Operation::Repair { .. });
        self.waiters = waiters.map(|others_wait| (others_wait, now)).or(self.waiters);
        self.machine.handle_reply(call, outcome, now);
        if is_release == self.answers.is_release && round == self.answers.round && !is_repair {
            let at = call.node().index();
            let vote = self.machine.nodes().nth(at).map(|(_, node)| node.vote());
            self.answers.nodes[at] = match (outcome, vote) {
                // It granted a fencing number that is higher than the token.
                (Outcome::Granted(_), Some(Vote::Against)) => Answer::Refused,
                _ => answer(outcome, error),
            };
        }
        self.follow(now);
    }

    /// Follows the machine after an input: into a new round, if it has opened one.
    pub(super) fn follow(&mut self, now: Instant) {
        if self.machine.round() != self.answers.round {
            // The decision of the round before this one may not be drained yet.
            self.before = Some((self.answers.round, self.failure(now)));
            self.answers = Answers::begin(&self.machine, false, now);
        }
        self.open.set(self.machine.open_nodes());
    }

    pub(super) fn begin_release(&mut self, now: Instant) {
        self.answers = Answers::begin(&self.machine, true, now);
    }

    /// Keeps a decision for the callers that wait for it.
    pub(super) fn keep(&mut self, decision: Decision, now: Instant) {
        match decision {
            Decision::Won { valid_until, token } => {
                self.answers.is_decided = true;
                (self.valid_until, self.token) = (valid_until, token);
                self.first = Some((Ok(()), now));
            }
            Decision::NotWon(loss) => {
                self.first = Some((Err((loss, self.failure(now))), now));
            }
            Decision::Extended { round, valid_until } => {
                self.answers.is_decided = round == self.answers.round;
                self.valid_until = valid_until;
                self.extended = Some((round, Ok(valid_until)));
            }
            Decision::ExtendFailed { round } => {
                self.answers.is_decided = round == self.answers.round;
                let failure = match self.before.take() {
                    Some((before, failure)) if before == round => failure,
                    _ => self.failure(now),
                };
                self.extended = Some((round, Err(failure)));
            }
            Decision::LeaseLost => {
                let lost = match now < self.valid_until {
                    true => Lost::NotHeld(self.failure(now)),
                    false => self.expired(now),
                };
                self.released.get_or_insert_with(|| Err(ReleaseError::Lost(lost.clone())));
                self.lost = Some(lost);
            }
            Decision::Released => self.released = Some(Ok(())),
            Decision::LostBefore => {
                let failure = self.failure(now);
                let lost = self.lost.clone().unwrap_or(Lost::NotHeld(failure));
                self.released = Some(Err(ReleaseError::Lost(lost)));
            }
            Decision::Unconfirmed => {
                let failure = self.failure(now);
                self.released = Some(Err(ReleaseError::Unconfirmed(failure)));
            }
        }
    }

    /// The result of the first round, and how long it took.
    pub(super) fn first_result(&mut self, _: Instant) -> Option<(FirstResult, Duration)> {
        let (result, at) = self.first.clone()?;
        Some((result, at.saturating_duration_since(self.start)))
    }

    /// The answer to an extension of this round.
    pub(super) fn extension(
        &mut self,
        round: RoundId,
        now: Instant,
    ) -> Option<Result<Instant, ExtendError>> {
        if let Some((decided, result)) = &self.extended
            && *decided >= round
        {
            return Some(result.clone().map_err(ExtendError::Unreachable));
        }
        if self.machine.has_ended() {
            self.lease_end(now).err().map(|lost| Err(lost.into()))
        } else {
            None
        }
    }

    pub(super) fn lease_end(&self, now: Instant) -> Result<Instant, Lost> {
        if let Some(lost) = &self.lost {
            return Err(lost.clone());
        }
        if now < self.valid_until {
            return match self.machine.has_ended() {
                true => Err(Lost::Released),
                false => Ok(self.valid_until),
            };
        }
        Err(self.expired(now))
    }

    /// The lease expired; the last extension says why, if it failed or is not decided.
    fn expired(&self, now: Instant) -> Lost {
        let last = match &self.extended {
            _ if !self.answers.is_decided && !self.answers.is_release => self.failure(now),
            Some((_, Err(failure))) => failure.clone(),
            _ => QuorumFailure::default(),
        };
        Lost::Expired { last }
    }

    /// What each node answered in the open round, or in the last one.
    pub(super) fn failure(&self, now: Instant) -> QuorumFailure {
        let nodes = &self.nodes;
        let deadline = saturating_add(self.answers.start, self.node_timeout);
        let answers = nodes.count().ids().zip(&self.answers.nodes).map(|(id, answer)| {
            let answer = match answer {
                Answer::NoReply { .. } => Answer::NoReply { is_over: now >= deadline },
                answer => answer.clone(),
            };
            NodeAnswer::new(Arc::clone(nodes.name(id)), answer)
        });
        QuorumFailure::new(answers, now.saturating_duration_since(self.answers.start))
    }

    /// The round that a call sent now belongs to.
    pub(super) const fn round(&self) -> RoundId {
        self.answers.round
    }
}

impl Answers {
    fn begin(machine: &Machine, is_release: bool, start: Instant) -> Self {
        let nodes = machine.nodes().map(|(_, node)| match node.is_busy() {
            true => Answer::NoReply { is_over: false },
            false => Answer::NotAsked,
        });
        let nodes = nodes.collect();
        Self { round: machine.round(), is_release, is_decided: false, start, nodes }
    }
}

fn answer(outcome: Outcome, error: Option<BackendError>) -> Answer {
    match (outcome, error) {
        (_, Some(error)) => Answer::Failed(error),
        (Outcome::Granted(_), None) => Answer::Granted,
        (Outcome::Refused, None) => Answer::Refused,
        (Outcome::Failed | Outcome::NotSent, None) => Answer::NoReply { is_over: false },
    }
}
