//! Acquires a lock: takes the tickets of its keys, then makes attempts until one is won.
//!
//! ```text
//! tickets ─▶ (others wait: their turn) ─▶ attempt ─┬─ won
//!                                ▲                 └─ not won ─▶ wait ─┐
//!                                └─────────────────────────────────────┘
//! ```

mod any;
mod replicas;
mod shared;
mod split;
mod wanted;

use std::future::pending;
use std::mem::take;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{Either, FutureExt, join, poll_immediate, select};

use self::replicas::Replicas;
use self::split::{Split, verdict};
pub(crate) use self::wanted::{Patience, Wanted, Wishes};
use crate::algorithm::attempt::Loss;
use crate::algorithm::backoff::scale;
use crate::algorithm::lease::saturating_add;
use crate::attempt::{Attempt, NotWon};
use crate::backend::{Capabilities, Mode};
use crate::cluster::Cluster;
use crate::error::{LockError, QuorumFailure};
use crate::readers::Member;
use crate::remote_wait::{RemoteWait, WaitInput};
use crate::resource::Key;
use crate::telemetry;
use crate::tickets::{LocalQueues, NoTicket, Taking, Ticket};

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
        unawaited: Some(start),
        has_waited: false,
        tickets: Vec::new(),
        member: None,
        attempt: None,
        last: None,
        rounds: 0,
        replicas: Replicas::default(),
        choosing: None,
    };
    if wanted.turn.is_some() {
        return competitor.compete().await;
    }
    let own_turn = if wanted.mode() == Mode::Exclusive { &wanted.keys[..] } else { &[] };
    competitor.tickets.reserve_exact(own_turn.len());
    for key in own_turn {
        let ticket = competitor.ticket(key, start).await?;
        competitor.tickets.push(ticket);
    }
    competitor.compete().await
}

/// A request that competes at the nodes. On drop, its latest attempt gets the tickets back, and releases.
struct Competitor<'a> {
    queues: &'a Arc<LocalQueues>,
    wanted: &'a Wanted,
    /// `None` for a request that waits without end.
    deadline: Option<Instant>,
    node_timeout: Duration,
    /// The latest reading of the clock, if nothing was awaited since.
    unawaited: Option<Instant>,
    /// A guard or an earlier task of this manager was in the way.
    has_waited: bool,
    /// Empty while an attempt has them.
    tickets: Vec<Ticket>,
    /// The entry of a reader that waits, shared with others.
    member: Option<Member>,
    attempt: Option<Arc<Attempt>>,
    last: Option<LostRound>,
    /// How many rounds were lost.
    rounds: u32,
    replicas: Replicas,
    /// If one of several keys is wanted. Then each attempt has the ticket of another key.
    choosing: Option<Box<Choosing>>,
}

/// What a request for one of several keys knows.
#[derive(Default)]
struct Choosing {
    turn: Option<Ticket>,
    is_fast_over: bool,
    /// The keys of the fast path.
    tried: Vec<Key>,
    /// The queues in this process that it stands in.
    busy: Vec<Taking>,
    /// It waits for tasks here alone.
    is_local: bool,
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
            attempt.leave(take(&mut self.tickets));
        }
    }
}

impl Competitor<'_> {
    fn cluster(&self) -> &Cluster {
        &self.queues.cluster
    }

    /// The ticket that the wait between processes belongs to.
    fn turn(&self) -> Option<&Ticket> {
        match &self.choosing {
            None => self.tickets.first(),
            Some(choosing) => choosing.turn.as_ref(),
        }
    }

    fn now(&self) -> Instant {
        self.unawaited.unwrap_or_else(|| self.cluster().now())
    }

    /// Waits for the ticket of one key. Without one, the error says what was in the way (A4).
    async fn ticket(&mut self, key: &Key, start: Instant) -> Result<Ticket, LockError> {
        let queues = self.queues;
        let taking = queues.take(key.clone(), self.wanted.waits(), start);
        let mut taking = taking.again(self.last.is_some());
        let taken = match poll_immediate(&mut taking).await {
            Some(taken) => Some(taken),
            None => {
                self.unawaited = None;
                self.has_waited |= taking.is_behind_others();
                queues.cluster.before(self.deadline, taking).boxed().await
            }
        };
        match taken {
            Some(Ok(ticket)) => Ok(ticket),
            Some(Err(NoTicket::Closed)) => Err(LockError::Closed),
            Some(Err(NoTicket::TooMany)) => Err(self.too_many(key)),
            Some(Err(NoTicket::Held)) => Err(LockError::Held(QuorumFailure::default())),
            None => Err(match queues.releasing(key).filter(|_| !self.has_waited) {
                Some(failure) => LockError::NoQuorum(failure),
                None => LockError::Held(QuorumFailure::default()),
            }),
        }
    }

    fn too_many(&self, key: &Key) -> LockError {
        // The key of a turn is no name that a user knows.
        let first = self.wanted.turn.as_ref().and_then(|_| self.wanted.keys.first());
        let most = self.cluster().config.max_waiters.unwrap_or_default();
        LockError::TooManyWaiters { key: first.unwrap_or(key).clone(), most }
    }

    /// Makes attempts until one is won, or the deadline has come, or trying again is pointless.
    async fn compete(&mut self) -> Result<Arc<Attempt>, LockError> {
        loop {
            let is_next = match &self.wanted.turn {
                None => self.is_next().await?,
                Some(turn) => self.choose(turn).boxed().await?,
            };
            if !is_next || self.hear_late() {
                return Err(self.give_up().boxed().await);
            }
            let claim = self.wanted.claim(self.cluster(), &self.tickets)?;
            let mut options = self.wanted.options(self.cluster(), self.deadline)?;
            options.haste = (!self.wanted.waits()).then(|| split::haste(self.rounds));
            options.asks_for_writers = self.gives_way();
            let (tickets, now) = (take(&mut self.tickets), self.now());
            let begun = Attempt::begin(self.queues, claim, options, tickets, now);
            let attempt = Arc::clone(self.attempt.insert(begun.ok_or(LockError::Closed)?));
            self.unawaited = None;
            match attempt.first().await.ok_or(LockError::Closed)? {
                Ok(()) if self.gives_way() && self.is_given_back(&attempt).boxed().await => {
                    if !self.wanted.waits() {
                        return Err(self.give_up().boxed().await);
                    }
                }
                Ok(()) => {
                    self.attempt = None;
                    self.member.take().into_iter().for_each(Member::won);
                    let Some(error) = same_server(self.cluster()) else { return Ok(attempt) };
                    attempt.leave(Vec::new());
                    attempt.undone(self.node_timeout).boxed().await;
                    return Err(error);
                }
                Err(lost) => {
                    if self.is_last(lost) || !self.wanted.waits() && !self.is_split().boxed().await
                    {
                        return Err(self.give_up().boxed().await);
                    }
                }
            }
        }
    }

    /// Takes the tickets of a lost round back. Returns whether it was the last one.
    fn is_last(&mut self, lost: NotWon) -> bool {
        let at = self.cluster().now();
        match &self.attempt {
            // The undo gives its ticket on.
            Some(attempt) if self.choosing.is_some() => attempt.leave(lost.tickets),
            _ => self.tickets = lost.tickets,
        }
        if let (Some(attempt), Loss::Expired) = (&self.attempt, lost.loss) {
            // It may have been won, and have expired before this task heard of it (T2).
            attempt.leave(Vec::new());
        }
        let (took, is_held) = (lost.failure.waited(), lost.loss == Loss::Held);
        telemetry::round_lost(&self.wanted.keys, reason(lost.loss), took, &lost.failure);
        let is_over = self.deadline.is_some_and(|deadline| at >= deadline);
        self.rounds += 1;
        let failure = self.replicas.note(lost.failure, at);
        // A round that the deadline cut short says less than the one before it, or than the guard that was in the
        // way until then (A4).
        let is_cut_short = is_over && !is_held && took < self.node_timeout;
        let earlier = match self.last.take() {
            Some(last) => Some(last.error),
            None => self.has_waited.then(|| LockError::Held(QuorumFailure::default())),
        };
        let earlier = earlier.filter(|_| is_cut_short);
        let error = earlier.unwrap_or_else(|| error_of(self.cluster(), lost.loss, failure));
        let is_permanent = error.is_permanent();
        self.last = Some(LostRound { loss: lost.loss, took, at, error, is_undone: false });
        is_over || is_permanent || self.wanted.needs_quorum() && !is_held
    }

    /// Whether the answers that came after the lost round make another one pointless. Then they are in the error: the
    /// order in which the nodes answer does not matter (A4).
    fn hear_late(&mut self) -> bool {
        let (Some(attempt), Some(last)) = (&self.attempt, &mut self.last) else { return false };
        let failure = self.replicas.note(attempt.failure(), last.at);
        let error = error_of(&self.queues.cluster, last.loss, failure);
        let is_permanent = error.is_permanent();
        if is_permanent {
            last.error = error;
        }
        is_permanent
    }

    /// Whether a lost round of a request that waits for no holder was a split vote. Then the pause before the next round
    /// is over (O8).
    async fn is_split(&mut self) -> bool {
        let cluster = &self.queues.cluster;
        let (Some(attempt), Some(last)) = (&self.attempt, &mut self.last) else { return false };
        if matches!(last.loss, Loss::Expired | Loss::NoToken) {
            return false;
        }
        if self.choosing.is_some() {
            return last.loss == Loss::Held;
        }
        let limit = last.took.min(self.node_timeout).max(LEAST_UNDO);
        let own = attempt.claim.token();
        let verdict = |failure: &QuorumFailure| verdict(own, failure, self.node_timeout);
        if matches!(verdict(&attempt.failure()), Split::First | Split::Later) {
            // A wait of a task that is gone: this one needs none.
            let ticket = self.tickets.first().filter(|ticket| !ticket.has_local());
            let wait = ticket.and_then(|ticket| ticket.end_wait(cluster.now()));
            let left = async {
                if let Some(wait) = wait {
                    wait.input(WaitInput::Cancel);
                    cluster.within(limit, wait.left()).await;
                }
            };
            join(attempt.undone(limit), left).await;
            last.is_undone = true;
        }
        let failure = attempt.failure();
        let split = verdict(&failure);
        if split == Split::No {
            return false;
        }
        last.error = error_of(cluster, Loss::Held, failure);
        if split == Split::Held || self.rounds >= split::MOST_ROUNDS || last.error.is_permanent() {
            return false;
        }
        let pause = match split {
            Split::Later => split::pause(last.took, self.rounds, cluster.random()),
            _ => Duration::ZERO,
        };
        let next_at = saturating_add(cluster.now(), pause);
        if self.deadline.is_some_and(|deadline| next_at >= deadline) {
            return false;
        }
        if !pause.is_zero() {
            cluster.attempts.unless_closed(cluster.runtime.sleep_until(next_at)).await;
        }
        true
    }

    /// Waits until the next attempt is worth making. `false` at the deadline.
    async fn is_next(&mut self) -> Result<bool, LockError> {
        if self.wanted.waits() && (self.last.is_some() || self.others_are_first()) {
            self.unawaited = None;
            let (cluster, deadline) = (&self.queues.cluster, self.deadline);
            let next = cluster.attempts.unless_closed(self.next());
            match cluster.before(deadline, next).boxed().await {
                Some(None) => return Err(LockError::Closed),
                Some(Some(())) => {}
                None => return Ok(false),
            }
        }
        Ok(self.deadline.is_none_or(|deadline| self.now() < deadline))
    }

    /// Whether this request waits for its turn between processes before it competes.
    fn others_are_first(&self) -> bool {
        match self.turn() {
            Some(ticket) => ticket.others_are_first(self.now()),
            None => {
                self.wanted.mode() == Mode::Shared
                    && self.queues.readers.wait_first(&self.wanted.keys, self.now())
            }
        }
    }

    async fn next(&mut self) {
        if self.wanted.mode() == Mode::Shared {
            return self.next_of_readers().await;
        }
        if self.choosing.as_ref().is_some_and(|choosing| choosing.is_local) {
            return pending().await;
        }
        let (Some(ticket), cluster) = (self.turn(), self.cluster()) else { return };
        if let (Some(attempt), false) = (&self.attempt, cluster.nodes.all_ordered()) {
            // Its own key would refuse the next attempt: on a pool that could overtake the undo.
            attempt.undone(self.node_timeout).await;
        }
        let has_gates = cluster.nodes.having(Capabilities::QUEUE).is_some();
        if let Some(last) = self.last.as_ref().filter(|_| has_gates) {
            // Contenders that split the votes do not meet again.
            let pause = last.took.saturating_add(scale(last.took, cluster.random()));
            cluster.sleep(pause.min(self.node_timeout)).await;
        }
        let kept = ticket.wait().filter(|wait| has_gates && !wait.is_outdated());
        if kept.is_none()
            && let Some(wait) = ticket.end_wait(cluster.now())
        {
            wait.input(WaitInput::Cancel);
        }
        let wait = match kept {
            Some(wait) => {
                wait.input(match self.last {
                    Some(_) => WaitInput::Refused,
                    None => WaitInput::TakeOver(Arc::clone(&self.wanted.keys)),
                });
                Some(wait)
            }
            None if has_gates => self.begin_wait(ticket),
            None => None,
        };
        match (wait, &self.last) {
            (Some(wait), _) if self.wanted.waits() => wait.turn().await,
            (Some(wait), _) => wait.answered().await,
            (None, Some(last)) => self.back_off(last.took).await,
            (None, None) => {}
        }
    }

    /// Begins the wait between processes. Its first attempt is the one that was just lost, if there is one.
    fn begin_wait(&self, ticket: &Ticket) -> Option<Arc<RemoteWait>> {
        let (queues, key) = (Arc::clone(self.queues), ticket.key().clone());
        let on_word = move |others_wait, at| queues.note_word(&key, others_wait, at);
        let (is_refused, keys) =
            (self.last.is_some(), (&self.wanted.keys, self.choosing.is_some()));
        let cluster = &self.queues.cluster;
        let mode = Mode::Exclusive;
        let wait = RemoteWait::begin(cluster, keys, mode, self.node_timeout, !is_refused, on_word)?;
        if is_refused {
            wait.input(WaitInput::Refused);
        }
        ticket.keep_wait(Arc::clone(&wait));
        Some(wait)
    }

    /// Waits without a wait queue: for a random delay, or until a node says that the key was written.
    async fn back_off(&self, took: Duration) {
        let cluster = self.cluster();
        let delay = cluster.config.backoff.delay(self.rounds, cluster.random());
        let delay = pin!(cluster.sleep(delay));
        let Some(node) = cluster.nodes.having(Capabilities::WATCH) else { return delay.await };
        let written = pin!(async {
            match cluster.nodes.backend(node).watch(&self.wanted.keys[0], None).await {
                Ok(watched) if watched.is_held() => watched.changed().await,
                // A key that is free here and refused elsewhere is worth no hurry.
                Ok(_) => pending().await,
                Err(error) => {
                    cluster.nodes.note_lack(node, Capabilities::WATCH, &error);
                    pending().await
                }
            }
        });
        if let Either::Left((_, delay)) = select(written, delay).await {
            // All waiters hear of the write at once, and must not split the votes.
            let pause = pin!(cluster.sleep(scale(took, cluster.random())));
            select(pause, delay).await;
        }
    }

    /// Ends the request: its latest attempt takes the tickets, and the error waits for the answers to the undo
    /// and to LEAVE, for as long as the last round took (C8).
    async fn give_up(&mut self) -> LockError {
        // The process may have been stopped in the round.
        let took = self.last.as_ref().map_or(Duration::ZERO, |last| last.took);
        let limit = took.min(self.node_timeout).max(LEAST_UNDO);
        let member = self.member.take();
        let ticket = self.turn();
        let wait = match &member {
            Some(member) => Some(Arc::clone(member.wait())),
            None => ticket.and_then(Ticket::wait),
        };
        // Without a round, only the gate can have said that the lock is held (Q4, A4).
        let none_asked = self.cluster().nodes.none_asked();
        let error = match &wait {
            Some(wait) if wait.has_answer() => LockError::Held(none_asked),
            _ if self.choosing.is_some() && self.has_waited => {
                LockError::Held(QuorumFailure::default())
            }
            _ => LockError::NoQuorum(none_asked),
        };
        let wait = match member {
            Some(member) => member.leave(),
            None => wait.filter(|_| ticket.is_some_and(|ticket| !ticket.has_local())),
        };
        let tickets = take(&mut self.tickets);
        self.choosing = None;
        match &self.attempt {
            Some(attempt) => attempt.leave(tickets),
            None => drop(tickets),
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
        self.hear_late();
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
