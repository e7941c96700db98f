//! Acquires a lock: waits for a turn, then makes attempts until one is won, with a wait between them. The
//! first one waits, too, if the gate, the node that keeps the wait queue, has said of late that other
//! processes wait.
//!
//! ```text
//! enter the local queues ─▶ turn ─┬─ given: the lock was passed on by a guard of this manager
//!                                 └─ competes ─▶ attempt ─┬─ won
//!                                        ▲                └─ not won ─▶ wait ─┐
//!                                        └────────────────────────────────────┘
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::algorithm::attempt::Loss;
use crate::algorithm::fence::FenceHint;
use crate::algorithm::lease::{Ttl, saturating_add};
use crate::attempt::{Attempt, AttemptOptions, NotWon};
use crate::backend::{Capabilities, Claim};
use crate::cluster::Cluster;
use crate::error::{InvalidRequest, LockError, QuorumFailure};
use crate::lease::Lease;
use crate::resource::{InvalidResource, Key, Resources, Token};
use crate::telemetry;
use crate::wait::local_queue::LocalQueues;
use crate::wait::place::{Next, Place};
use crate::wait::{LostRound, Wait};

/// For so long an error may wait for the answers to an undo, however short its round was (C8).
const LEAST_UNDO: Duration = Duration::from_millis(2);

/// What a request asks for, checked.
pub(crate) struct Wanted {
    pub(crate) keys: Arc<[Key]>,
    ttl: Ttl,
    hold_limit: Option<Duration>,
    fencing: bool,
    /// How long to wait; `None` for one round.
    timeout: Option<Duration>,
}

impl Wanted {
    /// Checks a request. Nothing has been sent.
    pub(crate) fn new(
        cluster: &Cluster,
        resources: &Resources,
        ttl: Option<Duration>,
        hold_limit: Option<Duration>,
        fencing: bool,
        timeout: Option<Duration>,
    ) -> Result<Self, InvalidRequest> {
        let config = &cluster.config;
        let ttl = config.parse_ttl(ttl.unwrap_or(config.ttl))?;
        let hold_limit = config.parse_hold_limit(hold_limit)?;
        let keys: Arc<[Key]> =
            resources.as_slice().iter().map(|name| Key::new(&config.key_prefix, name)).collect();
        if keys.iter().any(Key::is_reserved) {
            return Err(InvalidResource::Reserved.into());
        }
        match cluster.nodes.lacking(Capabilities::FENCING) {
            Some(node) if fencing => Err(InvalidRequest::Fencing { node: node.to_string() }),
            _ => Ok(Self { keys, ttl, hold_limit, fencing, timeout }),
        }
    }

    fn claim(&self, cluster: &Cluster) -> Result<Claim, LockError> {
        // A fresh token for each attempt (C1).
        let token = Token::draw(|bytes| {
            if planted!("token_is_drawn_once_per_manager") {
                bytes.fill(7);
                return Ok(());
            }
            cluster.runtime.fill_random(bytes)
        })?;
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
}

/// A lock that was acquired: its place in the local queues, and its lease.
pub(crate) type Acquired = (Place, Lease);

/// Acquires a lock.
///
/// # Cancel safety
///
/// Dropping the future releases in the background what was acquired.
pub(crate) async fn acquire(
    queues: &Arc<LocalQueues>,
    wanted: &Wanted,
) -> Result<Acquired, LockError> {
    let cluster = &queues.cluster;
    let deadline = wanted.timeout.map(|timeout| saturating_add(cluster.now(), timeout));
    let (mut place, is_in_use) = Place::enter(queues, &wanted.keys, wanted.ttl, wanted.fencing);
    if wanted.timeout.is_none() && is_in_use && !place.is_closed() {
        return Err(LockError::Held(QuorumFailure::default()));
    }
    match cluster.before(deadline, place.turn()).await {
        Some(Next::Compete { others_wait }) => {
            let node_timeout = cluster.config.node_timeout(wanted.ttl);
            place.begin_wait(node_timeout, others_wait && deadline.is_some());
            compete(cluster, wanted, place, deadline).await
        }
        Some(Next::Given) => {
            let acquired = place.hold(wanted.hold_limit).map_err(|_| LockError::Closed)?;
            telemetry::passed_on(&wanted.keys);
            Ok(acquired)
        }
        Some(Next::Closed) => Err(LockError::Closed),
        // Without a round of its own, the error says what was in the way (A4).
        None => {
            let error = match place.releasing() {
                Some(release) => LockError::Unreachable(release.failure()),
                None => LockError::Held(QuorumFailure::default()),
            };
            place.leave(LEAST_UNDO).await;
            Err(error)
        }
    }
}

/// Makes attempts until one is won, or the deadline has come, or trying again is pointless.
async fn compete(
    cluster: &Arc<Cluster>,
    wanted: &Wanted,
    mut place: Place,
    deadline: Option<Instant>,
) -> Result<Acquired, LockError> {
    let node_timeout = cluster.config.node_timeout(wanted.ttl);
    // How long an error may wait for the answers to an undo (C8). The process may have been stopped in a round.
    let undo_bound = |took: Duration| took.min(node_timeout).max(LEAST_UNDO);
    let is_over = || deadline.is_some_and(|deadline| cluster.now() >= deadline);
    let mut last: Option<(LostRound, LockError)> = None;
    loop {
        // The undo of the last round goes on in the background.
        let next = place.next(last.as_ref().map(|(round, _)| *round));
        let is_ready = match cluster.before(deadline, next).await {
            Some(None) => return Err(LockError::Closed),
            Some(Some(())) => !is_over(),
            None => false,
        };
        if !is_ready {
            let none_made = || (Duration::ZERO, no_round(cluster, &mut place));
            let (took, error) = last.map_or_else(none_made, |(round, error)| (round.took, error));
            place.leave(undo_bound(took)).await;
            return Err(error);
        }
        if place.is_closed() && !planted!("acquire_goes_on_after_close") {
            return Err(LockError::Closed);
        }
        let claim = wanted.claim(cluster)?;
        let options = AttemptOptions {
            fencing: wanted.hint(cluster)?,
            gate: place.wait().as_ref().and_then(Wait::gate),
            has_entry: place.wait().as_ref().is_some_and(Wait::has_entry),
            deadline,
        };
        let attempt = Attempt::acquire(cluster, claim, options);
        place.set_attempt(&attempt);
        let lost = match place.unless_closed(attempt.won()).await.ok_or(LockError::Closed)? {
            Err(lost) => lost,
            Ok(took) => {
                let Some(error) = same_server(cluster) else {
                    place.won(attempt).ok_or(LockError::Closed)?;
                    return place.hold(wanted.hold_limit).map_err(|_| LockError::Closed);
                };
                attempt.cancel();
                place.leave(undo_bound(took)).await;
                return Err(error);
            }
        };
        let (took, is_held) = (lost.took, lost.loss == Loss::Held);
        telemetry::round_lost(&wanted.keys, reason(lost.loss), took, &lost.failure);
        let is_last = deadline.is_none() || is_over();
        // A round that the deadline cut short says less than the one before it (A4).
        let is_cut_short = is_last && !is_held && took < node_timeout;
        let rounds = last.as_ref().map_or(0, |(round, _)| round.rounds) + 1;
        let earlier = last.take().map(|(_, error)| error).filter(|_| is_cut_short);
        let error = earlier.unwrap_or_else(|| error_of(cluster, &lost));
        if is_last || (error.is_permanent() && !planted!("permanent_errors_are_retried")) {
            place.leave(undo_bound(took)).await;
            return Err(error);
        }
        last = Some((LostRound { took, rounds, is_held }, error));
    }
}

/// The error of a request that made no round: only the gate can have said that the lock is held (Q4, A4).
fn no_round(cluster: &Cluster, place: &mut Place) -> LockError {
    let none_asked = cluster.nodes.none_asked();
    match place.wait().as_ref().is_some_and(Wait::has_answer) {
        true => LockError::Held(none_asked),
        false => LockError::Unreachable(none_asked),
    }
}

/// The error of a cluster in which two nodes are one server (Q6).
fn same_server(cluster: &Cluster) -> Option<LockError> {
    let (first, second) = cluster.nodes.same_server()?;
    Some(LockError::SameServer { first, second })
}

fn error_of(cluster: &Cluster, lost: &NotWon) -> LockError {
    let failure = lost.failure.clone();
    same_server(cluster).unwrap_or(match lost.loss {
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
