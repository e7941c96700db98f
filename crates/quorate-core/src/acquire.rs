//! Acquires a lock: takes the tickets of its keys, then makes attempts until one is won.
//!
//! ```text
//! tickets ─▶ (others are first: wait) ─▶ attempt ─┬─ won
//!                                         ▲       └─ not won ─▶ wait ─┐
//!                                         └───────────────────────────┘
//! ```
//!
//! `kind` is what differs for readers, and for a request for one of several names. `shared` and `any` are how they wait,
//! `next` how a plain one does. `split` judges a lost round of a request that waits for no holder, `wanted` is what was
//! asked for, and `replicas` remembers nodes that were no primaries.

mod any;
mod kind;
mod next;
mod replicas;
mod shared;
mod split;
mod wanted;

use std::mem::take;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{FutureExt, join, poll_immediate};

use self::kind::Kind;
use self::replicas::Replicas;
pub(crate) use self::wanted::{Patience, Wanted, Wishes};
use crate::algorithm::attempt::Loss;
use crate::attempt::{Attempt, NotWon};
use crate::cluster::Cluster;
use crate::error::{LockError, QuorumFailure};
use crate::resource::Key;
use crate::telemetry;
use crate::tickets::{LocalQueues, NoTicket, Ticket, Turn};

/// How long an error may wait for the answers to an undo, however short its round was (C8).
const LEAST_UNDO: Duration = Duration::from_millis(2);

/// Acquires a lock.
///
/// Futures off the path of a free lock are boxed, so that the future of such a `lock` is small.
///
/// # Cancel safety
///
/// Dropping the future releases in the background what was acquired.
pub(crate) async fn acquire(
    queues: &Arc<LocalQueues>,
    wanted: &Wanted,
) -> Result<Arc<Attempt>, LockError> {
    let start = queues.cluster.now();
    let mut competitor = Competitor {
        queues,
        wanted,
        deadline: wanted.deadline(&queues.cluster, start),
        node_timeout: queues.cluster.config.node_timeout(wanted.ttl),
        fresh_now: Some(start),
        was_behind_others: false,
        turn: Turn::default(),
        attempt: None,
        last: None,
        lost_rounds: 0,
        replicas: Replicas::default(),
        kind: wanted.kind(),
    };
    if matches!(competitor.kind, Kind::All) {
        competitor.turn = Turn::with_capacity(wanted.keys.len());
        for key in &*wanted.keys {
            let ticket = competitor.ticket(key, start).await?;
            competitor.turn.push(ticket);
        }
    }
    competitor.compete().await
}

/// A request that competes at the nodes. On drop, its latest attempt gets the turn back, and releases.
struct Competitor<'a> {
    queues: &'a Arc<LocalQueues>,
    wanted: &'a Wanted,
    /// `None` for a request that waits without end.
    deadline: Option<Instant>,
    node_timeout: Duration,
    /// The latest reading of the clock, if nothing was awaited since.
    fresh_now: Option<Instant>,
    /// A guard or an earlier task of this manager was in the way.
    was_behind_others: bool,
    /// Over while an attempt has it.
    turn: Turn,
    attempt: Option<Arc<Attempt>>,
    last: Option<LostRound>,
    /// How many rounds were lost.
    lost_rounds: u32,
    replicas: Replicas,
    kind: Kind,
}

/// A round that was lost, with the error that it gives.
struct LostRound {
    loss: Loss,
    took: Duration,
    /// When it was decided.
    at: Instant,
    error: LockError,
    /// The answers to its undo were waited for (C8).
    is_undone: bool,
}

impl Drop for Competitor<'_> {
    fn drop(&mut self) {
        if let Some(attempt) = self.attempt.take() {
            attempt.leave_with(take(&mut self.turn));
        }
    }
}

impl Competitor<'_> {
    fn cluster(&self) -> &Cluster {
        &self.queues.cluster
    }

    /// The ticket that the wait between processes belongs to.
    fn wait_ticket(&self) -> Option<&Ticket> {
        self.kind.wait_ticket(&self.turn)
    }

    fn now(&self) -> Instant {
        self.fresh_now.unwrap_or_else(|| self.cluster().now())
    }

    /// Waits for the ticket of one key. Without one, the error says what was in the way (A4).
    async fn ticket(&mut self, key: &Key, start: Instant) -> Result<Ticket, LockError> {
        let queues = self.queues;
        let taking = queues.take(key.clone(), self.wanted.waits(), start);
        let mut taking = taking.again(self.last.is_some());
        let taken = match poll_immediate(&mut taking).await {
            Some(taken) => Some(taken),
            None => {
                self.fresh_now = None;
                self.was_behind_others |= taking.is_behind_others();
                queues.cluster.before(self.deadline, taking).boxed().await
            }
        };
        match taken {
            Some(Ok(ticket)) => Ok(ticket),
            Some(Err(NoTicket::Closed)) => Err(LockError::Closed),
            Some(Err(NoTicket::TooMany)) => Err(self.too_many(key)),
            Some(Err(NoTicket::Held)) => Err(LockError::Held(QuorumFailure::default())),
            None => Err(match queues.releasing(key).filter(|_| !self.was_behind_others) {
                Some(failure) => LockError::NoQuorum(failure),
                None => LockError::Held(QuorumFailure::default()),
            }),
        }
    }

    fn too_many(&self, key: &Key) -> LockError {
        // The key of a set is no name that a user knows.
        let key = self.wanted.set.as_ref().map_or(key, |set| &set.gate_key);
        let most = self.cluster().config.max_waiters.unwrap_or_default();
        LockError::TooManyWaiters { key: key.clone(), most }
    }

    /// Makes attempts until one is won, or the deadline has come, or trying again is pointless.
    async fn compete(&mut self) -> Result<Arc<Attempt>, LockError> {
        while self.wait_for_turn().await? && !self.late_answers_are_final() {
            let attempt = self.begin()?;
            let first = attempt.first(self.wanted.is_renewed()).await;
            let is_last = match first.ok_or(LockError::Closed)? {
                Ok(())
                    if self.gives_way() && self.give_back_to_writer(&attempt).boxed().await? =>
                {
                    !self.wanted.waits()
                }
                Ok(()) => {
                    self.attempt = None;
                    take(&mut self.kind).won(self.cluster());
                    let Some(error) = same_server(self.cluster()) else { return Ok(attempt) };
                    attempt.leave();
                    attempt.undone(self.node_timeout).boxed().await;
                    return Err(error);
                }
                Err(lost) => {
                    self.note_lost(lost)
                        || !self.wanted.waits() && !self.try_again_later().boxed().await
                }
            };
            if is_last {
                break;
            }
        }
        Err(self.give_up().boxed().await)
    }

    /// Begins an attempt, which has the turn.
    fn begin(&mut self) -> Result<Arc<Attempt>, LockError> {
        let claim = self.wanted.claim(self.cluster(), &self.turn)?;
        let mut options = self.wanted.options(self.cluster(), self.deadline)?;
        options.haste = (!self.wanted.waits()).then(|| split::haste(self.lost_rounds));
        options.asks_for_writers = self.gives_way();
        let (turn, now) = (take(&mut self.turn), self.now());
        self.fresh_now = None;
        let begun = Attempt::begin(self.queues, claim, options, turn, now);
        Ok(Arc::clone(self.attempt.insert(begun.ok_or(LockError::Closed)?)))
    }

    /// Takes the turn back from a lost round. Returns whether it was the last one.
    fn note_lost(&mut self, lost: NotWon) -> bool {
        let at = self.cluster().now();
        match (&self.kind, &self.attempt) {
            // The undo gives the turn on.
            (Kind::OneOf(_), Some(attempt)) => attempt.leave_with(lost.turn),
            _ => self.turn = lost.turn,
        }
        if let (Some(attempt), Loss::Expired) = (&self.attempt, lost.loss) {
            // It may have been won, and have expired before this task heard of it (T2).
            attempt.leave();
        }
        let (took, is_held) = (lost.failure.waited(), lost.loss == Loss::Held);
        telemetry::round_lost(&self.wanted.keys, reason(lost.loss), took, &lost.failure);
        let is_over = self.deadline.is_some_and(|deadline| at >= deadline);
        self.lost_rounds += 1;
        let failure = self.replicas.note(lost.failure, at);
        // A round that the deadline cut short says less than the one before it, or than the guard that was in the
        // way until then (A4).
        let is_cut_short = is_over && !is_held && took < self.node_timeout;
        let earlier = match self.last.take() {
            Some(last) => Some(last.error),
            None => self.was_behind_others.then(|| LockError::Held(QuorumFailure::default())),
        };
        let earlier = earlier.filter(|_| is_cut_short);
        let error = earlier.unwrap_or_else(|| error_of(self.cluster(), lost.loss, failure));
        let is_permanent = error.is_permanent();
        self.last = Some(LostRound { loss: lost.loss, took, at, error, is_undone: false });
        is_over || is_permanent || self.wanted.needs_quorum() && !is_held
    }

    /// Whether the answers that came after the lost round make another one pointless. Then they are in the error: the
    /// order in which the nodes answer does not matter (A4).
    fn late_answers_are_final(&mut self) -> bool {
        let (Some(attempt), Some(last)) = (&self.attempt, &mut self.last) else { return false };
        let failure = self.replicas.note(attempt.failure(), last.at);
        let error = error_of(&self.queues.cluster, last.loss, failure);
        let is_permanent = error.is_permanent();
        if is_permanent {
            last.error = error;
        }
        is_permanent
    }

    /// Ends the request: its latest attempt takes the turn, and the error waits for the answers to the undo
    /// and to LEAVE, for as long as the last round took (C8).
    async fn give_up(&mut self) -> LockError {
        // The process may have been stopped in the round.
        let took = self.last.as_ref().map_or(Duration::ZERO, |last| last.took);
        let limit = took.min(self.node_timeout).max(LEAST_UNDO);
        // Without a round, only the gate can have said that the lock is held (Q4, A4).
        let none_asked = self.cluster().nodes.none_asked();
        let error = match (self.kind.wait(&self.turn), &self.kind) {
            (Some(wait), _) if wait.has_answer() => LockError::Held(none_asked),
            (_, Kind::OneOf(_)) if self.was_behind_others => {
                LockError::Held(QuorumFailure::default())
            }
            _ => LockError::NoQuorum(none_asked),
        };
        let turn = take(&mut self.turn);
        let wait = take(&mut self.kind).leave(&turn);
        match &self.attempt {
            Some(attempt) => attempt.leave_with(turn),
            None => drop(turn),
        }
        let is_undone = self.last.as_ref().is_some_and(|last| last.is_undone);
        let limit = if is_undone { Duration::ZERO } else { limit };
        let undone = async {
            if let Some(attempt) = &self.attempt {
                attempt.undone(limit).await;
            }
        };
        let left = async {
            if let Some(wait) = &wait {
                self.cluster().within(limit, wait.left()).await;
            }
        };
        join(undone, left).await;
        self.late_answers_are_final();
        self.attempt = None;
        self.last.take().map_or(error, |last| last.error)
    }
}

/// The error of a cluster in which two nodes are one server (Q6).
fn same_server(cluster: &Cluster) -> Option<LockError> {
    let (first, second) = cluster.nodes.same_server()?;
    Some(LockError::SameServer { first, second })
}

fn error_of(cluster: &Cluster, loss: Loss, failure: QuorumFailure) -> LockError {
    same_server(cluster).unwrap_or_else(|| match loss {
        // The round was decided before the last of these errors came (A4).
        Loss::Held if !failure.is_permanent() => LockError::Held(failure),
        _ => LockError::NoQuorum(failure),
    })
}

const fn reason(loss: Loss) -> &'static str {
    match loss {
        Loss::Held => "held",
        Loss::NoQuorum | Loss::NoToken => "no_quorum",
        Loss::Expired => "expired",
    }
}
