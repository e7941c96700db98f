//! Acquires a lock: takes the tickets of its keys, then makes attempts until one is won.
//!
//! ```text
//! tickets ─▶ (others wait: their turn) ─▶ attempt ─┬─ won
//!                                ▲                 └─ not won ─▶ wait ─┐
//!                                └─────────────────────────────────────┘
//! ```

mod replicas;

use std::mem::take;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{Either, join, poll_immediate, select};

use self::replicas::Replicas;
use crate::algorithm::attempt::Loss;
use crate::algorithm::backoff::scale;
use crate::algorithm::fence::FenceHint;
use crate::algorithm::lease::{Ttl, saturating_add};
use crate::attempt::{Attempt, AttemptOptions, NotWon};
use crate::backend::{Capabilities, Claim};
use crate::cluster::Cluster;
use crate::error::{InvalidRequest, LockError, QuorumFailure};
use crate::remote_wait::{RemoteWait, WaitInput};
use crate::resource::{InvalidResource, Key, Resources, Token};
use crate::telemetry;
use crate::tickets::{LocalQueues, NoTicket, Ticket};

/// How long an error may wait for the answers to an undo, however short its round was (C8).
const LEAST_UNDO: Duration = Duration::from_millis(2);

/// What a request asks for, checked.
pub(crate) struct Wanted {
    /// In sorted order.
    pub(crate) keys: Arc<[Key]>,
    ttl: Ttl,
    hold_limit: Option<Duration>,
    fencing: bool,
    is_renewed: bool,
    /// How long to wait; `None` for one round.
    timeout: Option<Duration>,
}

/// What a request asks for, unchecked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wishes {
    pub(crate) ttl: Option<Duration>,
    pub(crate) hold_limit: Option<Duration>,
    pub(crate) fencing: bool,
    pub(crate) is_renewed: bool,
    /// How long to wait; `None` for one round.
    pub(crate) timeout: Option<Duration>,
}

impl Wanted {
    /// Checks a request. Nothing has been sent.
    pub(crate) fn new(
        cluster: &Cluster,
        resources: &Resources,
        wishes: Wishes,
    ) -> Result<Self, InvalidRequest> {
        let config = &cluster.config;
        let Wishes { ttl, hold_limit, fencing, is_renewed, timeout } = wishes;
        let ttl = config.parse_ttl(ttl.unwrap_or(config.ttl))?;
        let hold_limit = config.parse_hold_limit(hold_limit)?;
        let prefix = &config.key_prefix;
        let keys = resources.as_slice().iter().map(|name| Key::new(prefix, name));
        let mut keys: Vec<Key> = keys.collect();
        if keys.iter().any(|key| key.is_reserved(prefix)) {
            return Err(InvalidResource::Reserved.into());
        }
        keys.sort_unstable();
        match cluster.nodes.lacking(Capabilities::FENCING) {
            Some(node) if fencing => Err(InvalidRequest::Fencing { node: node.to_string() }),
            _ => Ok(Self { keys: keys.into(), ttl, hold_limit, fencing, is_renewed, timeout }),
        }
    }

    /// A claim with a fresh token, for each attempt (C1).
    fn claim(&self, cluster: &Cluster) -> Result<Claim, LockError> {
        let token = Token::draw(|bytes| cluster.runtime.fill_random(bytes))?;
        Ok(Claim::new(Arc::clone(&self.keys), token, self.ttl))
    }

    fn hint(&self, cluster: &Cluster) -> Result<Option<FenceHint>, LockError> {
        if !self.fencing {
            return Ok(None);
        }
        let source = cluster.config.fencing_hint.as_ref();
        let hint = source.map_or_else(|| cluster.runtime.unix_micros(), |source| (source.0)());
        let parsed = FenceHint::new(hint).ok_or(InvalidRequest::FencingHint { hint })?;
        Ok(Some(parsed))
    }

    fn options(
        &self,
        cluster: &Cluster,
        deadline: Option<Instant>,
    ) -> Result<AttemptOptions, LockError> {
        let mut options = AttemptOptions {
            deadline,
            hold_limit: self.hold_limit,
            is_renewed: self.is_renewed,
            ..AttemptOptions::default()
        };
        options.acquire.fencing = self.hint(cluster)?;
        options.acquire.guard = cluster.config.restart_guard;
        Ok(options)
    }
}

/// Acquires a lock.
///
/// # Cancel safety
///
/// Dropping the future releases in the background what was acquired.
pub(crate) async fn acquire(
    queues: &Arc<LocalQueues>,
    wanted: &Wanted,
) -> Result<Arc<Attempt>, LockError> {
    let cluster = &queues.cluster;
    let start = cluster.now();
    let deadline = wanted.timeout.map(|timeout| saturating_add(start, timeout));
    let mut turn = Turn { tickets: Vec::with_capacity(wanted.keys.len()), attempt: None };
    let mut has_waited = false;
    for key in wanted.keys.iter() {
        turn.tickets.push(ticket(queues, key, start, deadline, &mut has_waited).await?);
    }
    let node_timeout = cluster.config.node_timeout(wanted.ttl);
    let competitor = Competitor { queues, wanted, deadline, node_timeout, has_waited };
    competitor.compete(turn).await
}

/// Waits for the ticket of one key. Without one, the error says what was in the way (A4).
async fn ticket(
    queues: &Arc<LocalQueues>,
    key: &Key,
    now: Instant,
    deadline: Option<Instant>,
    has_waited: &mut bool,
) -> Result<Ticket, LockError> {
    let mut taking = pin!(queues.take(key.clone(), deadline.is_some(), now));
    let taken = match poll_immediate(taking.as_mut()).await {
        Some(taken) => Some(taken),
        None => {
            *has_waited |= taking.is_behind_others();
            queues.cluster.before(deadline, taking).await
        }
    };
    let releasing = || queues.releasing(key).filter(|_| !*has_waited);
    match taken {
        Some(Ok(ticket)) => Ok(ticket),
        Some(Err(NoTicket::Closed)) => Err(LockError::Closed),
        Some(Err(NoTicket::Held)) => Err(LockError::Held(QuorumFailure::default())),
        None => Err(match releasing() {
            Some(failure) => LockError::Unreachable(failure),
            None => LockError::Held(QuorumFailure::default()),
        }),
    }
}

/// The tickets of a request, and its latest attempt. Dropped, the request is over: the attempt has the tickets then.
struct Turn {
    /// Empty while an attempt has them.
    tickets: Vec<Ticket>,
    attempt: Option<Arc<Attempt>>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(attempt) = self.attempt.take() {
            attempt.leave(take(&mut self.tickets));
        }
    }
}

/// A round that was lost, with the error that it gives.
struct LostRound {
    loss: Loss,
    took: Duration,
    /// How many rounds of this request were lost, with this one.
    rounds: u32,
    /// When it was decided.
    at: Instant,
    replicas: Replicas,
    error: LockError,
}

/// A request that competes at the nodes.
struct Competitor<'a> {
    queues: &'a Arc<LocalQueues>,
    wanted: &'a Wanted,
    /// `None` for one round.
    deadline: Option<Instant>,
    node_timeout: Duration,
    /// A guard or an earlier task of this manager was in the way.
    has_waited: bool,
}

impl Competitor<'_> {
    fn cluster(&self) -> &Arc<Cluster> {
        &self.queues.cluster
    }

    /// Makes attempts until one is won, or the deadline has come, or trying again is pointless.
    async fn compete(&self, mut turn: Turn) -> Result<Arc<Attempt>, LockError> {
        let cluster = self.cluster();
        let mut last: Option<LostRound> = None;
        loop {
            let is_next = self.is_next(&turn, last.as_ref()).await?;
            if !is_next || self.hear_late(turn.attempt.as_ref(), last.as_mut()) {
                return Err(self.give_up(turn, last).await);
            }
            let claim = self.wanted.claim(cluster)?;
            let options = self.wanted.options(cluster, self.deadline)?;
            let (tickets, now) = (take(&mut turn.tickets), cluster.now());
            let begun = Attempt::begin(self.queues, claim, options, tickets, now);
            let attempt = Arc::clone(turn.attempt.insert(begun.ok_or(LockError::Closed)?));
            let lost = match attempt.first().await.ok_or(LockError::Closed)? {
                Ok(()) => match same_server(cluster) {
                    None => {
                        turn.attempt = None;
                        return Ok(attempt);
                    }
                    Some(error) => {
                        attempt.leave(Vec::new());
                        attempt.undone(self.node_timeout).await;
                        return Err(error);
                    }
                },
                Err(lost) => lost,
            };
            let (lost, is_last) = self.lost(&mut turn, lost, last.take());
            if is_last {
                return Err(self.give_up(turn, Some(lost)).await);
            }
            last = Some(lost);
        }
    }

    /// Takes the tickets of a lost round back. Returns whether it was the last one.
    fn lost(
        &self,
        turn: &mut Turn,
        lost: NotWon,
        mut before: Option<LostRound>,
    ) -> (LostRound, bool) {
        let (cluster, at) = (self.cluster(), self.cluster().now());
        turn.tickets = lost.tickets;
        let (took, is_held) = (lost.failure.waited(), lost.loss == Loss::Held);
        telemetry::round_lost(&self.wanted.keys, reason(lost.loss), took, &lost.failure);
        let is_over = self.deadline.is_none_or(|deadline| at >= deadline);
        // A round that the deadline cut short says less than the one before it, or than the guard that was in the
        // way until then (A4).
        let is_cut_short = is_over && !is_held && took < self.node_timeout;
        let rounds = before.as_ref().map_or(0, |before| before.rounds) + 1;
        let mut replicas =
            before.as_mut().map_or_else(Replicas::default, |before| take(&mut before.replicas));
        let failure = replicas.note(lost.failure, at);
        let in_the_way = || self.has_waited.then(|| LockError::Held(QuorumFailure::default()));
        let earlier = before.map(|before| before.error).or_else(in_the_way);
        let earlier = earlier.filter(|_| is_cut_short);
        let error = earlier.unwrap_or_else(|| error_of(cluster, lost.loss, failure));
        let is_last = is_over || error.is_permanent();
        (LostRound { loss: lost.loss, took, rounds, at, replicas, error }, is_last)
    }

    /// Whether the answers that came after the lost round make another one pointless. Then they are in the error: the
    /// order in which the nodes answer does not matter (A4).
    fn hear_late(&self, attempt: Option<&Arc<Attempt>>, last: Option<&mut LostRound>) -> bool {
        let (Some(attempt), Some(last)) = (attempt, last) else { return false };
        let error =
            error_of(self.cluster(), last.loss, last.replicas.note(attempt.failure(), last.at));
        let is_permanent = error.is_permanent();
        if is_permanent {
            last.error = error;
        }
        is_permanent
    }

    /// Waits until the next attempt is worth making. `false` at the deadline.
    async fn is_next(&self, turn: &Turn, last: Option<&LostRound>) -> Result<bool, LockError> {
        let cluster = self.cluster();
        if last.is_none() && !self.others_are_first(turn) {
            return Ok(!self.is_over());
        }
        let next = cluster.attempts.unless_closed(self.next(turn, last));
        match cluster.before(self.deadline, next).await {
            Some(None) => Err(LockError::Closed),
            Some(Some(())) => Ok(!self.is_over()),
            None => Ok(false),
        }
    }

    fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| self.cluster().now() >= deadline)
    }

    /// Whether this request waits for its turn between processes before it competes.
    fn others_are_first(&self, turn: &Turn) -> bool {
        let ticket = turn.tickets.first().filter(|_| self.deadline.is_some());
        ticket.is_some_and(|ticket| {
            ticket.wait().is_some() || ticket.others_wait(self.cluster().now())
        })
    }

    async fn next(&self, turn: &Turn, last: Option<&LostRound>) {
        let (Some(ticket), cluster) = (turn.tickets.first(), self.cluster()) else { return };
        if let (Some(attempt), false) = (&turn.attempt, cluster.nodes.all_ordered()) {
            // Its own key would refuse the next attempt: on a pool that could overtake the undo.
            attempt.undone(self.node_timeout).await;
        }
        let has_gates = cluster.nodes.having(Capabilities::QUEUE).is_some();
        if let Some(last) = last.filter(|_| has_gates) {
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
                let keys = Arc::clone(&self.wanted.keys);
                wait.input(if last.is_some() {
                    WaitInput::Refused
                } else {
                    WaitInput::TakeOver(keys)
                });
                Some(wait)
            }
            None if has_gates => self.begin_wait(ticket, last.is_some()),
            None => None,
        };
        match (wait, last) {
            (Some(wait), _) => wait.turn().await,
            (None, Some(last)) => self.back_off(last).await,
            (None, None) => {}
        }
    }

    /// Begins the wait between processes. `is_refused`: its first attempt is the one that was just lost.
    fn begin_wait(&self, ticket: &Ticket, is_refused: bool) -> Option<Arc<RemoteWait>> {
        let (queues, key) = (Arc::clone(self.queues), ticket.key().clone());
        let on_word = move |others_wait, at| queues.note_word(&key, others_wait, at);
        let (cluster, keys) = (self.cluster(), &self.wanted.keys);
        let wait = RemoteWait::begin(cluster, keys, self.node_timeout, !is_refused, on_word)?;
        if is_refused {
            wait.input(WaitInput::Refused);
        }
        ticket.keep_wait(Arc::clone(&wait));
        Some(wait)
    }

    /// Waits where no node keeps a queue: for a random delay, or until a node says that the key was written.
    async fn back_off(&self, last: &LostRound) {
        let cluster = self.cluster();
        let delay = cluster.config.backoff.delay(last.rounds, cluster.random());
        let delay = pin!(cluster.sleep(delay));
        let Some(node) = cluster.nodes.having(Capabilities::WATCH) else { return delay.await };
        let written = pin!(async {
            match cluster.nodes.backend(node).watch(&self.wanted.keys[0], None).await {
                Ok(watched) if watched.is_held() => watched.changed().await,
                // A key that is free here and refused elsewhere is worth no hurry.
                Ok(_) => std::future::pending().await,
                Err(error) => {
                    cluster.nodes.note_lack(node, Capabilities::WATCH, &error);
                    std::future::pending().await
                }
            }
        });
        if let Either::Left((_, delay)) = select(written, delay).await {
            // All waiters hear of the write at once, and must not split the votes.
            let pause = pin!(cluster.sleep(scale(last.took, cluster.random())));
            select(pause, delay).await;
        }
    }

    /// Ends the request: its latest attempt takes the tickets, and the error waits for the answers to the undo
    /// and to LEAVE, for as long as the last round took (C8).
    async fn give_up(&self, mut turn: Turn, mut last: Option<LostRound>) -> LockError {
        let cluster = self.cluster();
        // The process may have been stopped in the round.
        let took = last.as_ref().map_or(Duration::ZERO, |last| last.took);
        let limit = took.min(self.node_timeout).max(LEAST_UNDO);
        let ticket = turn.tickets.first().filter(|ticket| !ticket.has_local());
        let wait = ticket.and_then(Ticket::wait);
        // Without a round, only the gate can have said that the lock is held (Q4, A4).
        let error = match turn.tickets.first().and_then(Ticket::wait) {
            Some(wait) if wait.has_answer() => LockError::Held(cluster.nodes.none_asked()),
            _ => LockError::Unreachable(cluster.nodes.none_asked()),
        };
        let attempt = turn.attempt.take();
        let tickets = take(&mut turn.tickets);
        match &attempt {
            Some(attempt) => attempt.leave(tickets),
            None => drop(tickets),
        }
        let undone = async {
            if let Some(attempt) = &attempt {
                attempt.undone(limit).await;
            }
        };
        let left = async {
            if let Some(wait) = &wait {
                cluster.within(limit, wait.left()).await;
            }
        };
        join(undone, left).await;
        self.hear_late(attempt.as_ref(), last.as_mut());
        last.map_or(error, |last| last.error)
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
        Loss::Held | Loss::Unreachable | Loss::Expired => LockError::Unreachable(failure),
    })
}

const fn reason(loss: Loss) -> &'static str {
    match loss {
        Loss::Held => "held",
        Loss::Unreachable => "unreachable",
        Loss::Expired => "expired",
    }
}
