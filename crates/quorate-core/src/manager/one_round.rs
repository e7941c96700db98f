//! One round: all nodes are asked for the keys, under a token of its own.

use std::sync::Arc;
use std::time::Duration;

use super::Wanted;
use crate::algorithm::node_set::NodeSet;
use crate::algorithm::quorum::{NodeId, Tally};
use crate::algorithm::round::{Loss, Round, Step};
use crate::backend::Claim;
use crate::cluster::Cluster;
use crate::driver::{Attempt, Fencing, Flight, Gate, Operation};
use crate::error::{LockError, NodeVote, Said, Votes};
use crate::guard::LockGuard;
use crate::lease::Tenure;
use crate::observe;
use crate::resource::{Key, Token};

/// Which nodes are asked first, one by one.
pub(super) enum Gates {
    /// All nodes are asked at once.
    None,
    /// Those that were heard to be free.
    Of(NodeSet),
    /// Any of them.
    All,
}

/// A lost round. Dropping it releases on all nodes in the background.
pub(super) struct Defeat {
    pub(super) loss: Loss,
    pub(super) permanent: bool,
    pub(super) error: LockError,
    pub(super) votes: Tally,
    /// How long the round took.
    pub(super) took: Duration,
    pub(super) undo: Flight,
}

impl Defeat {
    /// Whether so many nodes have failed, and not just been silent, that more time would not help.
    pub(super) fn has_failed(&self, cluster: &Cluster) -> bool {
        let is_failed = |vote: &&NodeVote| matches!(vote.said, Said::Failed(_));
        let votes = self.error.votes().into_iter().flatten();
        votes.filter(is_failed).count() > cluster.count().spare()
    }
}

/// One round under a token of its own. `Err` means that there is no point in another.
pub(super) async fn attempt(
    cluster: &Arc<Cluster>,
    wanted: &Wanted,
    patience: Duration,
    gates: &Gates,
) -> Result<Result<LockGuard, Defeat>, LockError> {
    if cluster.register().is_closed() && !planted!("acquire_goes_on_after_close") {
        return Err(LockError::Closed);
    }
    let token = Token::draw(|bytes| {
        if planted!("token_is_drawn_once_per_manager") {
            let place = Arc::as_ptr(cluster) as usize;
            bytes[..size_of::<usize>()].copy_from_slice(&place.to_ne_bytes());
            return Ok(());
        }
        cluster.runtime.fill_random(bytes)
    })?;
    let claim = Claim::new(Arc::clone(&wanted.keys), token, wanted.ttl);
    let fencing = if wanted.fenced { Some(Fencing::new(cluster)?) } else { None };
    let attempt = Attempt::new(Arc::clone(cluster), claim, fencing);
    let (count, drift) = (cluster.count(), cluster.config.drift);

    let start = cluster.runtime.now();
    let mut round = Round::acquire(count, start, patience, wanted.ttl, drift);
    let mut flight = Flight::to_none(&attempt, &Operation::Acquire);
    let outcome = match flight
        .pass_gate(&mut round, in_order(cluster, gates, &wanted.keys), patience / 4)
        .await
    {
        Gate::Decided(outcome) => outcome,
        Gate::Open(asked) => {
            let others = count.ids().filter(|node| !asked.contains(node));
            let now = if asked.is_empty() { start } else { cluster.runtime.now() };
            flight.ask(now, &Operation::Acquire, others);
            flight.decide(&mut round).await
        }
    };

    let granted = matches!(outcome.step, Step::Won { .. });
    let outcome = flight.agree(outcome, &round).await;

    if let Some((first, second)) = cluster.conflict() {
        return Err(LockError::SameServer { first, second });
    }
    let loss = match outcome.step {
        Step::Won { valid_until } => {
            let valid_until = if planted!("validity_starts_with_the_last_reply") {
                drift.valid_until(cluster.runtime.now(), wanted.ttl)
            } else {
                valid_until
            };
            let tenure = Tenure::new(attempt, start, valid_until, wanted.hold_limit);
            // The cap on the time of holding may have been reached sooner than the validity.
            if tenure.held().is_ok() || planted!("acquire_wins_after_its_validity") {
                let guard = LockGuard::new(tenure).ok_or(LockError::Closed)?;
                flight.keep();
                return Ok(Ok(guard));
            }
            Loss::Expired
        }
        Step::Lost(loss) => loss,
        // `decide` returns no open round.
        Step::Wait => Loss::Unreachable,
    };
    let votes = outcome.votes(cluster, start);
    let error = match loss {
        Loss::Refused if granted => LockError::NoToken { votes },
        loss => error(loss, votes),
    };
    observe::refused(cluster, &wanted.keys, start, loss, &error);
    let took = cluster.runtime.now().saturating_duration_since(start);
    let (permanent, votes) = (outcome.is_permanent(), outcome.tally);
    Ok(Err(Defeat { loss, permanent, error, votes, took, undo: flight }))
}

/// The gates for these keys, in an order that is the same for everybody.
fn in_order(
    cluster: &Cluster,
    gates: &Gates,
    keys: &[Key],
) -> impl Iterator<Item = NodeId> + use<> {
    let free = match gates {
        Gates::None => NodeSet::default(),
        Gates::Of(free) => *free,
        Gates::All => NodeSet::ALL,
    };
    self::gates(cluster, keys).filter(move |node| free.contains(*node))
}

/// All nodes, in the order in which everybody asks for these keys.
pub(crate) fn gates(cluster: &Cluster, keys: &[Key]) -> impl Iterator<Item = NodeId> + use<> {
    NodeSet::from_iter(cluster.count().ids()).ids_from(cluster.first_gate(keys))
}

pub(super) async fn release_undone(cluster: &Cluster, flight: Flight, patience: Duration) {
    let mut round = Round::release(cluster.count(), cluster.runtime.now(), patience);
    flight.undo().decide(&mut round).await;
}

const fn error(loss: Loss, votes: Votes) -> LockError {
    match loss {
        Loss::Refused => LockError::Held { votes },
        Loss::Unreachable => LockError::NoQuorum { votes },
        Loss::Expired => LockError::Expired { votes },
    }
}
