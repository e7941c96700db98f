//! Waiting at all nodes, until a quorum of them may be free.

use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use futures_util::future::{Either, join_all, select};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};

use super::{JITTER, Waited, all_told, sleep, unless_it_panics, watcher};
use crate::algorithm::lease::saturating_add;
use crate::algorithm::node_set::NodeSet;
use crate::algorithm::quorum::{NodeId, Tally, Vote};
use crate::algorithm::retry::scale;
use crate::backend::{BackendErrorKind, Inspect, Watch};
use crate::cluster::Cluster;
use crate::manager::Wanted;
use crate::runtime::BoxFuture;

/// For so long the first gate is waited for where a quorum of nodes is free.
const GRACE: Duration = Duration::from_millis(1);

/// At least so much, so that it has surely expired.
const LEAST_JITTER: Duration = Duration::from_millis(1);

/// What a node told.
enum Hint {
    /// It may be free. Or it cannot be watched, for good or for now.
    Watched(NodeId, Result<(), BackendErrorKind>),
    /// How long it keeps the keys.
    Left(NodeId, Duration),
    Nothing,
}

/// Waits until a quorum of nodes tells that it may be free.
pub(super) async fn wait(
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
            Either::Right(_) => return Waited::RanOut,
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

/// Waits until none of the keys is known to be on the node.
async fn watch(watcher: &dyn Watch, node: NodeId, wanted: &Wanted) -> Hint {
    let all = async { join_all(wanted.keys.iter().map(|key| watcher.watch(key))).await };
    Hint::Watched(node, unless_it_panics(all).await.and_then(all_told))
}

/// Asks how long the node keeps the keys.
async fn look(inspector: &dyn Inspect, node: NodeId, wanted: &Wanted) -> Hint {
    let all = async { join_all(wanted.keys.iter().map(|key| inspector.inspect(key))).await };
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
