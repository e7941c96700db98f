//! How a waiter follows those who go first.
//!
//! It watches the place of the one before it, and leaves the lock to the others: if all who wait
//! watched that, each release would wake them all, at the very moment in which one of them has to be
//! quick. But that one may be gone, and nobody tells. So after some time without news a waiter watches
//! the lock, too, and when that has changed, it looks whether anybody takes it: soon if it is the
//! second, and later the others.

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, TryFutureExt, join, select};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};

use super::{
    JITTER, MOMENT, Waited, given_back, heard, is_taken, lies_free, look_at, told,
    unless_it_panics, within,
};
use crate::algorithm::node_set::NodeSet;
use crate::algorithm::quorum::NodeId;
use crate::algorithm::retry::scale;
use crate::backend::{BackendErrorKind, Watch, Watched};
use crate::cluster::Cluster;
use crate::manager::{Wanted, gates};
use crate::standing::Standing;

/// For so long one who is not even the second does not look whether anybody takes the lock.
const LONG_MOMENT: Duration = Duration::from_millis(200);

/// A lock that lies free for so long is let lie by the one who goes first; for the others by all of
/// those between, too.
const LIES: Duration = Duration::from_millis(40);
const LIES_LONG: Duration = Duration::from_millis(60);

/// What can be new to a waiter.
#[derive(Clone, Copy)]
enum News {
    /// Who goes first does not any more.
    Moved,
    /// The lock was given back, or taken, or prolonged.
    Changed,
    /// It was at another node.
    Elsewhere,
}

type Tidings<'a> = BoxFuture<'a, Result<News, BackendErrorKind>>;

/// Waits until who stands `before` has moved. The error is how the wait ended otherwise; `None` if the
/// gate tells nothing.
pub(super) async fn follow(
    cluster: &Arc<Cluster>,
    wanted: &Wanted,
    gate: NodeId,
    standing: &mut Standing,
    before: Watched,
    random: u64,
    deadline: Instant,
) -> Result<(), Option<Waited>> {
    let runtime = &*cluster.runtime;
    let watcher = cluster.watcher(gate).ok_or(None)?;
    let mut moved = tell(before, News::Moved);
    loop {
        // Whoever has little time looks in time.
        let left = deadline.saturating_duration_since(runtime.now());
        let quiet = if standing.is_second() { MOMENT } else { LONG_MOMENT };
        let quiet = quiet.min(left / 3).max(MOMENT);
        if heard(cluster, gate, quiet, deadline, &mut moved).await?.is_some() {
            return Ok(());
        }
        let patience = standing.patience(cluster.config.node_timeout(wanted.ttl));
        let looks = async {
            let (seen, ()) = join(look_at(watcher, wanted), standing.looks_further(watcher)).await;
            seen
        };
        let seen = within(cluster, gate, patience, deadline, looks).await;
        standing.hears(&seen);
        let seen = seen?;
        let news = if is_taken(&seen) {
            let mut here = either(&mut moved, given_back(seen).map_ok(|()| News::Changed).boxed());
            let others = elsewhere(cluster, wanted, gate).boxed();
            let time = standing.stands_for(wanted.ttl.as_duration());
            match heard(cluster, gate, time, deadline, either(&mut here, others)).await? {
                // Then the gate should tell, too.
                Some(News::Elsewhere) => heard(cluster, gate, patience, deadline, here).await?,
                news => news,
            }
        } else {
            let here = either(&mut moved, taken(seen));
            let lies = if standing.is_second() { LIES } else { LIES_LONG + scale(JITTER, random) };
            let news = heard(cluster, gate, lies, deadline, here).await?;
            if news.is_none()
                && let Some(free) = lies_free(cluster, wanted, gate, deadline).await
            {
                standing.passes_by();
                return Err(Some(Waited::Woken(free.union(NodeSet::only(gate)))));
            }
            news
        };
        match news {
            Some(News::Moved) => return Ok(()),
            Some(News::Changed | News::Elsewhere) => {}
            None => return Err(None),
        }
    }
}

/// Tells when the lock has changed at another node. So many are watched that, with the gate, they are
/// more than may fail.
async fn elsewhere(
    cluster: &Cluster,
    wanted: &Wanted,
    gate: NodeId,
) -> Result<News, BackendErrorKind> {
    let others = gates(cluster, &wanted.keys).filter(|node| *node != gate);
    let others = others.filter_map(|node| cluster.watcher(node)).take(cluster.count().spare());
    let changes = others.map(|other| change_at(other, wanted));
    match changes.collect::<FuturesUnordered<_>>().next().await {
        Some(()) => Ok(News::Elsewhere),
        None => pending().await,
    }
}

/// Waits until a node that has the keys, or will have them, may not have them any more. One that
/// cannot tell is no news.
async fn change_at(watcher: &dyn Watch, wanted: &Wanted) {
    loop {
        let Ok(seen) = look_at(watcher, wanted).await else { return pending().await };
        let is_taken = is_taken(&seen);
        let told = if is_taken { given_back(seen).await } else { taken(seen).await.map(drop) };
        match told {
            Ok(()) if is_taken => return,
            Ok(()) => {}
            Err(_) => return pending().await,
        }
    }
}

/// Tells when somebody has taken what was free.
fn taken(seen: Vec<Watched>) -> Tidings<'static> {
    let mut changes: FuturesUnordered<_> =
        seen.into_iter().map(|seen| tell(seen, News::Changed)).collect();
    async move {
        match changes.next().await {
            Some(news) => news,
            None => pending().await,
        }
    }
    .boxed()
}

/// Tells `news` when what was seen has changed.
fn tell(seen: Watched, news: News) -> Tidings<'static> {
    let told = async move { unless_it_panics(seen.changed()).await.and_then(told) };
    told.map_ok(move |()| news).boxed()
}

/// What comes first.
fn either<'a>(one: &'a mut Tidings<'_>, other: Tidings<'a>) -> Tidings<'a> {
    select(one, other).map(|first| first.factor_first().0).boxed()
}
