//! What a refused waiter does until another round is worth making.
//!
//! Where enough nodes can be watched it waits to be told that a quorum of them may be free, with a
//! timer behind it for the time that the lock still lasts. Where they cannot, it sleeps for as long
//! as the retry strategy says.

use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use futures_util::future::{Either, join_all, select};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};

use crate::algorithm::lease::saturating_add;
use crate::algorithm::quorum::{NodeId, Tally, Vote};
use crate::algorithm::retry::scale;
use crate::backend::{BackendErrorKind, Inspect, Watch};
use crate::cluster::Cluster;
use crate::manager::Wanted;
use crate::runtime::BoxFuture;

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// A quorum may be free. These nodes were heard to be.
    Woken(Free),
    /// It is time to try.
    Slept,
    /// The deadline comes before the next try.
    TooLong,
}

/// Nodes that may be free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Free(u64);

impl Free {
    pub(crate) const ALL: Self = Self(u64::MAX);

    pub(crate) const fn contains(self, node: NodeId) -> bool {
        self.0 & (1 << node.index()) != 0
    }

    const fn insert(&mut self, node: NodeId) {
        self.0 |= 1 << node.index();
    }

    const fn len(self) -> usize {
        self.0.count_ones() as usize
    }
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

/// Waits after a round with these votes was refused: for nodes that tell, else until `polls_at`.
pub(crate) async fn wait(
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
    let mut free = Free::default();
    let mut hints: FuturesUnordered<BoxFuture<'_, Hint>> = FuturesUnordered::new();
    let mut watched = 0;
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
    // When each node is free, as far as it has told.
    let of_granted = |node| free.contains(node).then_some(now);
    let mut ends: Vec<Option<Instant>> = cluster.count().ids().map(of_granted).collect();
    // Nobody keeps a lock for longer without saying so again, as far as is known by now.
    let mut timer =
        runtime.sleep_until(saturating_add(now, wanted.ttl.as_duration()).min(deadline));
    loop {
        match select(hints.next(), timer).await {
            Either::Right(_) if runtime.now() >= deadline => return Waited::TooLong,
            Either::Right(_) => return Waited::Slept,
            Either::Left((hint, unfinished)) => {
                timer = unfinished;
                match hint {
                    Some(Hint::Watched(node, Ok(()))) => {
                        watched -= 1;
                        free.insert(node);
                        ends[node.index()] = Some(runtime.now());
                        if free.len() >= quorum {
                            return Waited::Woken(free);
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
                        if let Some(end) = end_of_quorum(&ends, quorum) {
                            let jitter = LEAST_JITTER + scale(JITTER, random);
                            let end = saturating_add(end, jitter);
                            timer = runtime.sleep_until(end.min(deadline));
                        }
                    }
                    Some(Hint::Nothing) => {}
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
    let heard = AssertUnwindSafe(all).catch_unwind().await;
    let failure = match heard {
        Ok(answers) => answers.into_iter().find_map(Result::err).map(|error| error.kind()),
        Err(_panic) => Some(BackendErrorKind::Other),
    };
    Hint::Watched(node, failure.map_or(Ok(()), Err))
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
