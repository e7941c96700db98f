//! The rounds of a request: what all loops have in common. `lost` is what follows from a round that
//! was not won, and `split` what follows for a request that waits for no holder.

mod lost;
mod split;

use std::mem::take;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{FutureExt, join_all, poll_immediate, ready};

use super::back_off::back_off;
use super::replicas::Replicas;
use super::request::Request;
use crate::algorithm::attempt::Loss;
use crate::algorithm::backoff::scale;
use crate::attempt::Attempt;
use crate::cluster::Cluster;
use crate::error::{Closed, LockError};
use crate::resource::Key;
use crate::seam::backend::Operation;
use crate::turns::ManagerState;
use crate::turns::remote_wait::{Goal, RemoteWait};
use crate::turns::tickets::{Ticket, Turn};

/// The rounds of one request, with its turn while no attempt has it. On drop, the latest attempt
/// gets the turn back, and releases (C5).
pub(super) struct Rounds<'a> {
    pub(super) manager: &'a Arc<ManagerState>,
    pub(super) request: &'a Request,
    pub(super) node_timeout: Duration,
    /// Over while an attempt has it.
    pub(super) turn: Turn,
    /// A guard or an earlier task of this manager was in the way.
    pub(super) was_behind_others: bool,
    /// The next round of a reader asks whether a writer waits.
    pub(super) asks: bool,
    /// `None` for a request that waits without end.
    pub(super) deadline: Option<Instant>,
    /// The latest reading of the clock, if nothing was awaited since.
    fresh_now: Option<Instant>,
    /// The latest one. If it was won, until [`finish`](Self::finish).
    pub(super) attempt: Option<Arc<Attempt>>,
    last: Option<LostRound>,
    /// The number of rounds that were lost.
    lost: u32,
    replicas: Replicas,
}

/// How a round went.
pub(super) enum Round {
    /// [`Rounds::finish`] gives the lock.
    Won,
    Lost,
    /// It was lost, and another one is pointless.
    Final,
}

/// A round that was lost, with the error that it gives.
struct LostRound {
    loss: Loss,
    took: Duration,
    /// When it was decided.
    at: Instant,
    error: LockError,
    /// For how long its error still waits for the answers to its undo (C8).
    undo: Duration,
}

impl Drop for Rounds<'_> {
    fn drop(&mut self) {
        if let Some(attempt) = self.attempt.take() {
            attempt.leave_with(take(&mut self.turn));
        }
    }
}

impl<'a> Rounds<'a> {
    pub(super) fn new(manager: &'a Arc<ManagerState>, request: &'a Request) -> Self {
        let start = manager.cluster.now();
        Self {
            manager,
            request,
            node_timeout: manager.cluster.config.node_timeout(request.ttl),
            turn: Turn::default(),
            was_behind_others: false,
            asks: false,
            deadline: request.deadline(&manager.cluster, start),
            fresh_now: Some(start),
            attempt: None,
            last: None,
            lost: 0,
            replicas: Replicas::default(),
        }
    }

    /// Takes the tickets of all keys, one after the other in sorted order.
    pub(super) async fn take_tickets(&mut self) -> Result<(), LockError> {
        for key in &*self.request.keys {
            let ticket = self.take_ticket(key).await?;
            if !self.turn.is_empty() || !self.request.waits() && !ticket.has_local() {
                // The wait of a task that wanted this key first, and gave up. This one waits at its
                // own first key, or for no holder.
                ticket.cancel_wait();
            }
            self.turn.push(ticket);
        }
        Ok(())
    }

    /// Waits for the ticket of one key. Without one, the error says what was in the way (A4).
    pub(super) async fn take_ticket(&mut self, key: &Key) -> Result<Ticket, LockError> {
        let manager = self.manager;
        let taking = manager.take(key.clone(), self.request.waits(), self.now());
        let mut taking = taking.again(self.has_lost());
        let taken = match poll_immediate(&mut taking).await {
            Some(Ok(ticket)) => return Ok(ticket),
            // Once the manager is closed, that is the reason.
            Some(refused) => in_time(&manager.cluster, None, ready(refused)).boxed().await?,
            None => {
                self.note_awaited();
                self.was_behind_others |= taking.is_behind_others;
                in_time(&manager.cluster, self.deadline, taking).boxed().await?
            }
        };
        taken.unwrap_or_else(|| Err(self.unasked(None)))
    }

    /// Makes one attempt, which has the turn until it is lost. A contested round does not wait for
    /// slow nodes.
    pub(super) async fn run(&mut self, keys: Arc<[Key]>) -> Result<Round, LockError> {
        if self.has_lost() && self.late_answers_are_final() {
            return Ok(Round::Final);
        }
        let attempt = self.begin(keys)?;
        match attempt.first().await.ok_or(Closed)? {
            Ok(()) => {
                // Not before: the win may never be taken.
                if self.request.settings.is_renewed {
                    attempt.renew();
                }
                Ok(Round::Won)
            }
            Err(lost) => Ok(self.note_lost(lost)),
        }
    }

    fn begin(&mut self, keys: Arc<[Key]>) -> Result<Arc<Attempt>, LockError> {
        let claim = self.request.claim(self.cluster(), keys)?;
        let (mut settings, mut acquire) = self.request.options(self.cluster(), &claim)?;
        acquire.asks = self.asks;
        (settings.deadline, settings.haste) = (self.deadline, haste(self.lost));
        let (turn, now) = (take(&mut self.turn), self.now());
        self.note_awaited();
        let begun = Attempt::begin(self.manager, claim, (settings, acquire), turn, now);
        Ok(Arc::clone(self.attempt.insert(begun.ok_or(Closed)?)))
    }

    /// The lock was won: the wait in the queue of the first key ends.
    pub(super) fn end_wait(&self) {
        self.manager.note_won(&self.request.keys[0], self.now());
    }

    /// The lock that was won, unless two nodes are one server (Q6).
    pub(super) async fn finish(&mut self) -> Result<Arc<Attempt>, LockError> {
        let Some(attempt) = self.attempt.take() else { return Err(Closed.into()) };
        let Some(error) = self.cluster().nodes.same_server() else { return Ok(attempt) };
        attempt.leave();
        attempt.undone(self.node_timeout).boxed().await;
        Err(error)
    }

    /// The lost round says nothing of the next one.
    pub(super) fn forget_lost(&mut self) {
        self.last = None;
    }

    /// Something is awaited: the clock is read again.
    pub(super) const fn note_awaited(&mut self) {
        self.fresh_now = None;
    }

    /// Whether the request waits for its turn between processes before it competes.
    pub(super) fn others_are_first(&self) -> bool {
        self.turn.first().is_some_and(|ticket| ticket.others_are_first(self.now()))
    }

    /// See [`Ticket::join_queue`].
    pub(super) fn join_queue(&self) -> Option<(Arc<RemoteWait>, u32)> {
        let (ticket, request) = (self.turn.first()?, self.request);
        ticket.note_label(request.label.clone());
        let goal = Goal::all(Arc::clone(&request.keys));
        ticket.join_queue(goal, self.node_timeout, self.has_lost())
    }

    /// On a pool the next attempt could overtake the undo of the last one, whose key would refuse
    /// it.
    pub(super) async fn await_undo_on_pools(&self) {
        if let (Some(attempt), false) = (&self.attempt, self.cluster().nodes.all_ordered()) {
            attempt.undone(self.node_timeout).await;
        }
    }

    /// Where a node keeps the wait queue: contenders that split the votes do not meet again.
    pub(super) async fn pause_before_gate(&self) {
        let cluster = self.cluster();
        if let Some(last) = self.last.as_ref().filter(|_| cluster.nodes.has_gates()) {
            let pause = last.took.saturating_add(scale(last.took, cluster.random()));
            cluster.sleep(pause.min(self.node_timeout)).await;
        }
        self.learn_gates().await;
    }

    /// Waits until each node has said which server it is, for at most a node timeout, and a first
    /// connect. Until then another process may take another node for the gate. Where all have said
    /// so, no node is asked.
    pub(super) async fn learn_gates(&self) {
        let (cluster, now) = (self.cluster(), self.cluster().now());
        let unnamed = cluster.nodes.unnamed(self.node_timeout, now);
        if !unnamed.is_empty() {
            let ask = |node| cluster.ask(node, Operation::ServerId, now);
            let connect = unnamed.iter().map(|id| cluster.nodes.health(*id).connect).max();
            let limit = self.node_timeout.saturating_add(connect.unwrap_or_default());
            cluster.within(limit, join_all(unnamed.into_iter().map(ask))).await;
        }
    }

    /// Waits without a wait queue.
    pub(super) async fn back_off(&self) {
        if let Some(last) = &self.last {
            back_off(self.cluster(), &self.request.keys[0], self.lost, last.took).await;
        }
    }
}

/// What the loops read.
impl<'a> Rounds<'a> {
    pub(super) fn cluster(&self) -> &'a Arc<Cluster> {
        &self.manager.cluster
    }

    pub(super) fn now(&self) -> Instant {
        self.fresh_now.unwrap_or_else(|| self.cluster().now())
    }

    pub(super) fn is_in_time(&self) -> bool {
        self.deadline.is_none_or(|deadline| self.now() < deadline)
    }

    pub(super) const fn has_lost(&self) -> bool {
        self.last.is_some()
    }

    /// Whether a holder was in the way in the last round.
    pub(super) fn is_held(&self) -> bool {
        self.last.as_ref().is_some_and(|last| last.loss == Loss::Held)
    }
}

/// How many rounds are split before the lock counts as held.
const MOST_ROUNDS: u32 = 10;

/// How long a contested round goes on for slow nodes, in the first round.
const LEAST_HASTE: Duration = Duration::from_millis(2);

/// The same for the round behind `lost` others. It doubles, so that nodes that are all slow do not
/// lose every round.
fn haste(lost: u32) -> Duration {
    LEAST_HASTE * (1 << lost.min(MOST_ROUNDS))
}

/// The output of `something` that is awaited between two rounds; `None` at the deadline, and an
/// error once the manager is closed.
pub(super) async fn in_time<T: Send>(
    cluster: &Cluster,
    deadline: Option<Instant>,
    something: impl Future<Output = T> + Send,
) -> Result<Option<T>, LockError> {
    match cluster.before(deadline, cluster.attempts.unless_closed(something)).await {
        Some(None) => Err(Closed.into()),
        Some(Some(output)) => Ok(Some(output)),
        None => Ok(None),
    }
}
