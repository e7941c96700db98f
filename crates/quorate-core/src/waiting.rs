//! What a refused waiter does until another round is worth making.
//!
//! Where enough nodes can be watched it waits to be told that a quorum of them may be free, with a
//! timer behind it for the time that the lock still lasts. Where they cannot, it sleeps for as long
//! as the retry strategy says.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::time::{Duration, Instant};

use futures_util::future::{Either, join_all, select, select_all};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};

use crate::algorithm::lease::saturating_add;
use crate::algorithm::node_set::NodeSet;
use crate::algorithm::quorum::{NodeId, Tally, Vote};
use crate::algorithm::retry::scale;
use crate::backend::{BackendError, BackendErrorKind, Holder, Inspect, Watch, Watched};
use crate::cluster::Cluster;
use crate::manager::{Wanted, gates};
use crate::rivals::{Read, Rivals};
use crate::runtime::BoxFuture;

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// A quorum may be free. These nodes were heard to be.
    Woken(NodeSet),
    /// It is time to try.
    Slept,
    /// The deadline comes before the next try.
    TooLong,
}

/// What a node told.
enum Hint {
    /// It may be free. Or it cannot be watched, for good or for now.
    Watched(NodeId, Result<(), BackendErrorKind>),
    /// How long it keeps the keys.
    Left(NodeId, Duration),
    Nothing,
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

/// Waits after a round with these votes was refused, until it is this waiter's turn among its
/// `rivals`: where nodes tell, else until `polls_at`.
///
/// At first one node is watched, the gate that will be asked; for a lock that changes hands quickly
/// that is enough. After a moment without news all are, since that one may be mistaken.
pub(crate) async fn wait(
    cluster: &Cluster,
    wanted: &Wanted,
    votes: &Tally,
    rivals: &mut Rivals,
    polls_at: Instant,
    random: u64,
    deadline: Instant,
) -> Waited {
    let mut gate = gate_to_watch(cluster, wanted, votes);
    loop {
        if let Some(gate) = gate
            && let Some(waited) = at_gate(cluster, wanted, gate, rivals, deadline).await
        {
            return waited;
        }
        let waited = at_all(cluster, wanted, votes, polls_at, random, deadline).await;
        let Waited::Woken(free) = waited else { return waited };
        rivals.released(cluster.runtime.now());
        gate = gates(cluster, &wanted.keys)
            .find(|node| free.contains(*node) && watcher(cluster, votes, *node).is_some());
        if gate.is_none() || rivals.is_our_turn() {
            return waited;
        }
    }
}

/// The first node that can be asked, if none has granted the lost round: then that one is free, but
/// the others are not.
fn gate_to_watch(cluster: &Cluster, wanted: &Wanted, votes: &Tally) -> Option<NodeId> {
    if votes.granted() > 0 {
        return None;
    }
    let hung = cluster.hung(cluster.runtime.now(), wanted.ttl);
    let hangs = |node: NodeId| hung.iter().any(|(hung, _)| *hung == node);
    gates(cluster, &wanted.keys)
        .find(|node| watcher(cluster, votes, *node).is_some() && !hangs(*node))
}

/// Waits for a turn at one node; `None` if it tells nothing for a moment, or nothing more.
async fn at_gate(
    cluster: &Cluster,
    wanted: &Wanted,
    gate: NodeId,
    rivals: &mut Rivals,
    deadline: Instant,
) -> Option<Waited> {
    let runtime = &*cluster.runtime;
    let (watcher, inspector) = (cluster.watcher(gate)?, cluster.node(gate).inspector()?);
    loop {
        if let Some(rest) = rivals.rests() {
            runtime.sleep_until(saturating_add(runtime.now(), rest).min(deadline)).await;
        }
        let until = saturating_add(runtime.now(), MOMENT).min(deadline);
        let told = {
            let news = pin!(news(cluster, wanted, gate, watcher, inspector, rivals));
            match select(news, runtime.sleep_until(until)).await {
                Either::Left((told, _)) => Some(told?),
                Either::Right(_) => None,
            }
        };
        match told {
            Some(()) => {}
            None if runtime.now() >= deadline => return Some(Waited::TooLong),
            None if rivals.may_be_free() && rivals.reads() > 0 => {
                return Some(Waited::Woken(NodeSet::only(gate)));
            }
            None => return None,
        }
        if rivals.is_our_turn() {
            return Some(Waited::Woken(NodeSet::only(gate)));
        }
    }
}

/// Waits until the lock is released at the gate, or is free there and nobody else takes it.
async fn news(
    cluster: &Cluster,
    wanted: &Wanted,
    gate: NodeId,
    watcher: &dyn Watch,
    inspector: &dyn Inspect,
    rivals: &mut Rivals,
) -> Option<()> {
    let runtime = &*cluster.runtime;
    let mut is_early = rivals.is_new();
    if is_early && !rivals.are_one() {
        // Those who are woken take it meanwhile.
        runtime.sleep_until(saturating_add(runtime.now(), PAUSE)).await;
        is_early = false;
    }
    let unless_it_fails = |told: Result<(), BackendErrorKind>| {
        told.map_err(|kind| cluster.unwatchable(gate, kind)).ok()
    };
    loop {
        let seen = match look_at(watcher, wanted).await {
            Ok(seen) => seen,
            Err(kind) => return unless_it_fails(Err(kind)),
        };
        let holders = seen.iter().map(|seen| seen.holder().cloned()).collect();
        match rivals.read(holders) {
            Read::Taken => {
                let taken = seen.into_iter().filter(|seen| seen.holder().is_some());
                let given_back = join_all(taken.map(Watched::changed));
                unless_it_fails(unless_it_panics(given_back).await.and_then(all_told))?;
                rivals.released(runtime.now());
                return Some(());
            }
            Read::Free if rivals.is_our_turn() => return Some(()),
            Read::Free => {
                let taken = select_all(seen.into_iter().map(|seen| seen.changed().boxed()));
                let taken = pin!(unless_it_panics(taken));
                let steps = steps(cluster, wanted, inspector, rivals, is_early);
                let told_so = match select(taken, pin!(steps)).await {
                    Either::Left((taken, _)) => taken,
                    Either::Right((Stepped::Turn, _)) => return Some(()),
                    Either::Right((Stepped::Taken, taken)) => taken.await,
                };
                unless_it_fails(told_so.and_then(|(taken, ..)| told(taken)))?;
                rivals.taken();
                is_early = false;
            }
        }
    }
}

/// How stepping forward ended.
enum Stepped {
    /// It is this waiter's turn.
    Turn,
    /// Somebody has it: that will be told.
    Taken,
}

/// Steps forward as long as nobody takes a lock that is free, until it is this waiter's turn.
async fn steps(
    cluster: &Cluster,
    wanted: &Wanted,
    inspector: &dyn Inspect,
    rivals: &mut Rivals,
    mut is_early: bool,
) -> Stepped {
    let runtime = &*cluster.runtime;
    while !rivals.is_our_turn() {
        let is_prompt = !is_early && rivals.reads() <= PROMPT_READS;
        is_early = false;
        let holders = if is_prompt { holders(inspector, wanted).await } else { None };
        match holders.map(|holders| rivals.read(holders)) {
            Some(Read::Taken) => return Stepped::Taken,
            Some(Read::Free) => {}
            None => {
                runtime.sleep_until(saturating_add(runtime.now(), PAUSE)).await;
                rivals.idled();
            }
        }
    }
    Stepped::Turn
}

/// Looks at all keys at a node, and watches them from then on.
async fn look_at(watcher: &dyn Watch, wanted: &Wanted) -> Result<Vec<Watched>, BackendErrorKind> {
    let all = join_all(wanted.keys.iter().map(|key| watcher.look(key)));
    unless_it_panics(all)
        .await?
        .into_iter()
        .map(|seen| seen.map_err(|error| error.kind()))
        .collect()
}

/// Waits until a quorum of nodes tells that it may be free.
async fn at_all(
    cluster: &Cluster,
    wanted: &Wanted,
    votes: &Tally,
    polls_at: Instant,
    random: u64,
    deadline: Instant,
) -> Waited {
    let runtime = &*cluster.runtime;
    let now = runtime.now();
    let quorum = cluster.count().quorum();
    let mut free = NodeSet::default();
    let mut hints: FuturesUnordered<BoxFuture<'_, Hint>> = FuturesUnordered::new();
    let (mut watched, mut woken) = (0, false);
    for node in cluster.count().ids() {
        if let Some(Vote::Granted) = votes.vote_of(node) {
            free.insert(node);
        } else if let Some(watcher) = watcher(cluster, votes, node) {
            watched += 1;
            hints.push(watch(watcher, node, wanted).boxed());
            let inspector = cluster.node(node).inspector();
            hints.extend(inspector.map(|inspector| look(inspector, node, wanted).boxed()));
        }
    }
    let first = cluster.first_gate(&wanted.keys);
    // When each node is free, as far as it has told.
    let of_granted = |node| free.contains(node).then_some(now);
    let mut ends: Vec<Option<Instant>> = cluster.count().ids().map(of_granted).collect();
    // Nobody keeps a lock for longer without saying so again, as far as is known by now.
    let mut timer =
        runtime.sleep_until(saturating_add(now, wanted.ttl.as_duration()).min(deadline));
    loop {
        match select(hints.next(), timer).await {
            Either::Right(_) if runtime.now() >= deadline => return Waited::TooLong,
            Either::Right(_) if woken => return Waited::Woken(free),
            Either::Right(_) => return Waited::Slept,
            Either::Left((hint, unfinished)) => {
                timer = unfinished;
                match hint {
                    Some(Hint::Watched(node, Ok(()))) => {
                        watched -= 1;
                        free.insert(node);
                        ends[node.index()] = Some(runtime.now());
                        if free.len() >= quorum {
                            if free.contains(first) {
                                return Waited::Woken(free);
                            }
                            // The others will ask that one first, and its news is on the way.
                            woken = true;
                            let until = saturating_add(runtime.now(), GRACE);
                            timer = runtime.sleep_until(until.min(deadline));
                        }
                    }
                    Some(Hint::Watched(node, Err(kind))) => {
                        cluster.unwatchable(node, kind);
                        watched -= 1;
                    }
                    Some(Hint::Left(node, left)) => {
                        if !free.contains(node) {
                            ends[node.index()] = Some(saturating_add(runtime.now(), left));
                        }
                        if let Some(end) = end_of_quorum(&ends, quorum).filter(|_| !woken) {
                            let jitter = LEAST_JITTER + scale(JITTER, random);
                            let end = saturating_add(end, jitter);
                            timer = runtime.sleep_until(end.min(deadline));
                        }
                    }
                    Some(Hint::Nothing) => {}
                    None if woken => return Waited::Woken(free),
                    None => return sleep(cluster, polls_at, deadline).await,
                }
                if free.len() + watched < quorum {
                    return sleep(cluster, polls_at, deadline).await;
                }
            }
        }
    }
}

/// When so many nodes are free that they are a quorum; `None` if too few have told.
fn end_of_quorum(ends: &[Option<Instant>], quorum: usize) -> Option<Instant> {
    let mut told: Vec<Instant> = ends.iter().flatten().copied().collect();
    told.sort();
    told.get(quorum - 1).copied()
}

/// A waiter that has heard nothing for so long asks more than one node.
const MOMENT: Duration = Duration::from_millis(20);

/// For so long the first gate is waited for where a quorum of nodes is free.
const GRACE: Duration = Duration::from_millis(1);

/// So many reads follow each other at once: others are about to take the lock.
const PROMPT_READS: u32 = 12;
/// After them, and before the first.
const PAUSE: Duration = Duration::from_millis(1);

/// Waiters everywhere wake when a lock expires; so they do not ask at once.
const JITTER: Duration = Duration::from_millis(20);
const LEAST_JITTER: Duration = Duration::from_millis(1);

/// Sleeps until the next try, unless that would come too late.
pub(crate) async fn sleep(cluster: &Cluster, until: Instant, deadline: Instant) -> Waited {
    if until >= deadline {
        return Waited::TooLong;
    }
    cluster.runtime.sleep_until(until).await;
    Waited::Slept
}

/// Waits until none of the keys is known to be on the node.
async fn watch(watcher: &dyn Watch, node: NodeId, wanted: &Wanted) -> Hint {
    let all = join_all(wanted.keys.iter().map(|key| watcher.watch(key)));
    Hint::Watched(node, unless_it_panics(all).await.and_then(all_told))
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

/// Asks how long the node keeps the keys.
async fn look(inspector: &dyn Inspect, node: NodeId, wanted: &Wanted) -> Hint {
    let all = join_all(wanted.keys.iter().map(|key| inspector.inspect(key)));
    let Ok(seen) = AssertUnwindSafe(all).catch_unwind().await else { return Hint::Nothing };
    let mut longest = Duration::ZERO;
    for sighting in seen {
        match sighting.map(|sighting| sighting.map(|sighting| sighting.time_left)) {
            Ok(None) => {}
            Ok(Some(Some(left))) => longest = longest.max(left),
            Ok(Some(None)) | Err(_) => return Hint::Nothing,
        }
    }
    Hint::Left(node, longest)
}

/// Asks who holds the keys at a node; `None` if it cannot tell.
async fn holders(inspector: &dyn Inspect, wanted: &Wanted) -> Option<Vec<Option<Holder>>> {
    let all = join_all(wanted.keys.iter().map(|key| inspector.inspect(key)));
    let seen = unless_it_panics(all).await.ok()?;
    seen.into_iter().map(|seen| Some(seen.ok()?.map(|sighting| sighting.holder))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_is_free_when_a_quorum_of_nodes_is() {
        let start = Instant::now();
        let at = |seconds| Some(start + Duration::from_secs(seconds));
        assert_eq!(end_of_quorum(&[at(9), None, at(2), None, at(5)], 3), at(9));
        assert_eq!(end_of_quorum(&[at(9), at(1), at(2), at(7), at(5)], 3), at(5));
        assert_eq!(end_of_quorum(&[at(9), None, at(2), None, None], 3), None);
    }
}
