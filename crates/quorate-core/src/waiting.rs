//! What a refused waiter does until another round is worth making.
//!
//! Where enough nodes can be watched it [comes first](crate::standing) among those of other processes,
//! and waits to be told that a quorum of nodes may be free, with a timer behind it for the time that
//! the lock still lasts. Where they cannot, it sleeps for as long as the retry strategy says.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{Either, join_all, select};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};

use crate::algorithm::lease::saturating_add;
use crate::algorithm::node_set::NodeSet;
use crate::algorithm::quorum::{NodeId, Tally, Vote};
use crate::backend::{BackendError, BackendErrorKind, Watch, Watched};
use crate::cluster::Cluster;
use crate::manager::{Wanted, gates};
use crate::standing::Standing;

mod everywhere;
mod following;

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// A quorum may be free. These nodes were heard to be.
    Woken(NodeSet),
    /// It is time to try.
    Slept,
    /// The lock has come to its end, as far as is known.
    RanOut,
    /// The deadline comes before the next try.
    TooLong,
}

/// Whether enough nodes can tell when they are free, after a round with these votes was refused.
pub(crate) fn can_watch(cluster: &Cluster, votes: &Tally) -> bool {
    let tells = |node: &NodeId| {
        votes.vote_of(*node) == Some(Vote::Granted) || watcher(cluster, votes, *node).is_some()
    };
    cluster.count().ids().filter(tells).count() >= cluster.count().quorum()
}

/// A node that has the keys of somebody else, or was not heard, and can be watched.
fn watcher<'a>(cluster: &'a Cluster, votes: &Tally, node: NodeId) -> Option<&'a dyn Watch> {
    let failed = votes.vote_of(node).is_none() && !votes.is_open(node);
    cluster.watcher(node).filter(|_| !failed)
}

/// Waits after a round with these votes was refused, until it is this waiter's turn: where nodes
/// tell, else until `polls_at`.
///
/// One node is listened to, the gate that will be asked: who [follows](following) others stays there.
/// For the first that is enough where the lock changes hands quickly; after a moment without news it
/// listens to all, since that one may be mistaken. So do the others where the gate tells nothing.
pub(crate) async fn wait(
    cluster: &Arc<Cluster>,
    wanted: &Wanted,
    votes: &Tally,
    standing: &mut Standing,
    polls_at: Instant,
    random: u64,
    deadline: Instant,
) -> Waited {
    let mut gate = gate_to_watch(cluster, wanted, votes, standing);
    let mut woken = false;
    loop {
        if let Some(gate) = gate {
            if let Some(waited) = at_gate(cluster, wanted, gate, standing, random, deadline).await {
                return waited;
            }
            if woken && !standing.is_first() {
                if let Some(free) = lies_free(cluster, wanted, gate, deadline).await {
                    standing.passes_by();
                    return Waited::Woken(free);
                }
                standing.leaves_a_silent_node();
            }
        }
        // The first need not mind the others.
        let random = if standing.leads() { 0 } else { random };
        match everywhere::wait(cluster, wanted, votes, polls_at, random, deadline).await {
            Waited::Woken(free) => {
                let tells = |node: &NodeId| watcher(cluster, votes, *node).is_some();
                let place = standing.node().filter(tells);
                let mut all = gates(cluster, &wanted.keys).filter(|node| free.contains(*node));
                gate = place.or_else(|| all.find(tells));
                if gate.is_none() || standing.is_first() {
                    return Waited::Woken(free);
                }
            }
            Waited::RanOut if gate.is_some() && !standing.is_first() => {}
            waited => return waited,
        }
        woken = true;
    }
}

/// The nodes where those who go first let it lie, since they are gone; `None` if they are no quorum.
async fn lies_free(
    cluster: &Cluster,
    wanted: &Wanted,
    gate: NodeId,
    deadline: Instant,
) -> Option<NodeSet> {
    // Others may be farther away than the gate.
    let patience = cluster.config.node_timeout(wanted.ttl).max(MOMENT);
    let quorum = cluster.count().quorum();
    let look = async |node: NodeId| {
        let seen = look_at(cluster.watcher(node)?, wanted).await.ok()?;
        (!is_taken(&seen)).then_some(node)
    };
    let mut looks: FuturesUnordered<_> = cluster.count().ids().map(look).collect();
    let nodes = async {
        let mut free = NodeSet::default();
        while free.len() < quorum && free.len() + looks.len() >= quorum {
            if let Some(Some(node)) = looks.next().await {
                free.insert(node);
            }
        }
        Ok(free)
    };
    let free = within(cluster, gate, patience, deadline, nodes).await.ok()?;
    (free.len() >= quorum).then_some(free)
}

/// The first node that can be asked, if none has granted the lost round: then that one is free, but
/// the others are not.
fn gate_to_watch(
    cluster: &Cluster,
    wanted: &Wanted,
    votes: &Tally,
    standing: &Standing,
) -> Option<NodeId> {
    if votes.granted() > 0 {
        return None;
    }
    let hung = cluster.hung(cluster.runtime.now(), wanted.ttl);
    let hangs = |node: NodeId| hung.iter().any(|(hung, _)| *hung == node);
    let mut all = standing.node().into_iter().chain(gates(cluster, &wanted.keys));
    all.find(|node| watcher(cluster, votes, *node).is_some() && !hangs(*node))
}

/// Waits for a turn at one node; `None` if it tells nothing for a moment, or nothing more.
async fn at_gate(
    cluster: &Arc<Cluster>,
    wanted: &Wanted,
    gate: NodeId,
    standing: &mut Standing,
    random: u64,
    deadline: Instant,
) -> Option<Waited> {
    match turn_at(cluster, wanted, gate, standing, random, deadline).await {
        Ok(()) => Some(Waited::Woken(NodeSet::only(gate))),
        Err(waited) => waited,
    }
}

async fn turn_at(
    cluster: &Arc<Cluster>,
    wanted: &Wanted,
    gate: NodeId,
    standing: &mut Standing,
    random: u64,
    deadline: Instant,
) -> Result<(), Option<Waited>> {
    let watcher = cluster.watcher(gate).ok_or(None)?;
    let patience = standing.patience(cluster.config.node_timeout(wanted.ttl));
    let joins = standing.join(cluster, wanted, gate).map(Ok);
    let joined = within(cluster, gate, patience, deadline, joins).await;
    // Who stands there already has asked nothing.
    if joined.is_err() {
        standing.hears(&joined);
    }
    joined?;
    loop {
        let look = async { unless_it_panics(standing.look(watcher)).await? };
        let seen = within(cluster, gate, patience, deadline, look).await;
        standing.hears(&seen);
        let Some(before) = seen? else { break };
        following::follow(cluster, wanted, gate, standing, before, random, deadline).await?;
    }
    let seen = within(cluster, gate, patience, deadline, look_at(watcher, wanted)).await;
    standing.hears(&seen);
    let seen = seen?;
    if is_taken(&seen) {
        standing.meets();
        within(cluster, gate, MOMENT, deadline, given_back(seen)).await?;
    }
    Ok(())
}

fn is_taken(seen: &[Watched]) -> bool {
    seen.iter().any(|seen| seen.holder().is_some())
}

/// Waits until what was seen taken has been given back, or prolonged.
async fn given_back(seen: Vec<Watched>) -> Result<(), BackendErrorKind> {
    let taken = seen.into_iter().filter(|seen| seen.holder().is_some());
    unless_it_panics(join_all(taken.map(Watched::changed))).await.and_then(all_told)
}

/// What a node tells, unless that takes longer than `time`.
async fn within<T>(
    cluster: &Cluster,
    node: NodeId,
    time: Duration,
    deadline: Instant,
    tells: impl Future<Output = Result<T, BackendErrorKind>>,
) -> Result<T, Option<Waited>> {
    heard(cluster, node, time, deadline, tells).await?.ok_or(None)
}

/// What a node tells; `None` if nothing within `time`.
async fn heard<T>(
    cluster: &Cluster,
    node: NodeId,
    time: Duration,
    deadline: Instant,
    tells: impl Future<Output = Result<T, BackendErrorKind>>,
) -> Result<Option<T>, Option<Waited>> {
    let runtime = &*cluster.runtime;
    let until = saturating_add(runtime.now(), time).min(deadline);
    match select(pin!(tells), runtime.sleep_until(until)).await {
        Either::Left((Ok(told), _)) => Ok(Some(told)),
        Either::Left((Err(kind), _)) => {
            cluster.unwatchable(node, kind);
            Err(None)
        }
        Either::Right(_) if runtime.now() >= deadline => Err(Some(Waited::TooLong)),
        Either::Right(_) => Ok(None),
    }
}

/// Looks at all keys at a node, and watches them from then on.
async fn look_at(watcher: &dyn Watch, wanted: &Wanted) -> Result<Vec<Watched>, BackendErrorKind> {
    let all = async { join_all(wanted.keys.iter().map(|key| watcher.look(key))).await };
    unless_it_panics(all)
        .await?
        .into_iter()
        .map(|seen| seen.map_err(|error| error.kind()))
        .collect()
}

/// A waiter that has heard nothing for so long asks more than one node.
pub(crate) const MOMENT: Duration = Duration::from_millis(20);

/// Waiters everywhere wake when a lock expires; so they do not ask at once.
const JITTER: Duration = Duration::from_millis(20);

/// Sleeps until the next try, unless that would come too late.
pub(crate) async fn sleep(cluster: &Cluster, until: Instant, deadline: Instant) -> Waited {
    if until >= deadline {
        return Waited::TooLong;
    }
    cluster.runtime.sleep_until(until).await;
    Waited::Slept
}

fn all_told(answers: Vec<Result<(), BackendError>>) -> Result<(), BackendErrorKind> {
    answers.into_iter().try_for_each(told)
}

fn told(answer: Result<(), BackendError>) -> Result<(), BackendErrorKind> {
    answer.map_err(|error| error.kind())
}

async fn unless_it_panics<F: Future>(future: F) -> Result<F::Output, BackendErrorKind> {
    AssertUnwindSafe(future).catch_unwind().await.map_err(|_panic| BackendErrorKind::Other)
}
