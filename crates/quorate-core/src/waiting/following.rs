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

use futures_util::future::{BoxFuture, TryFutureExt, select};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};

use super::{MOMENT, Waited, given_back, heard, is_taken, lies_free, look_at, told, within};
use crate::algorithm::node_set::NodeSet;
use crate::algorithm::quorum::NodeId;
use crate::backend::{BackendErrorKind, Watch, Watched};
use crate::cluster::Cluster;
use crate::manager::{Wanted, gates};
use crate::standing::Standing;

/// For so long one who is not even the second does not look whether anybody takes the lock.
const LONG_MOMENT: Duration = Duration::from_millis(200);

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
    deadline: Instant,
) -> Result<(), Option<Waited>> {
    let watcher = cluster.watcher(gate).ok_or(None)?;
    let mut moved: Tidings<'_> = before.changed().map(told).map_ok(|()| News::Moved).boxed();
    loop {
        let quiet = if standing.is_second() { MOMENT } else { LONG_MOMENT };
        if heard(cluster, gate, quiet, deadline, &mut moved).await?.is_some() {
            return Ok(());
        }
        let patience = standing.patience(cluster.config.node_timeout(wanted.ttl));
        let seen = within(cluster, gate, patience, deadline, look_at(watcher, wanted)).await;
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
            let news = heard(cluster, gate, MOMENT, deadline, here).await?;
            if news.is_none()
                && let Some(free) = lies_free(cluster, wanted, gate, patience, deadline).await
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

/// Tells when the lock has changed at another node. So many are watched that one of them, or the gate,
/// is there.
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

/// Waits until a node that had the keys may not have them any more, or can no longer tell.
async fn change_at(watcher: &dyn Watch, wanted: &Wanted) {
    match look_at(watcher, wanted).await {
        Ok(seen) if is_taken(&seen) => drop(given_back(seen).await),
        _ => pending().await,
    }
}

/// Tells when somebody has taken what was free.
fn taken(seen: Vec<Watched>) -> Tidings<'static> {
    let mut changes: FuturesUnordered<_> = seen.into_iter().map(Watched::changed).collect();
    let any = async move {
        match changes.next().await {
            Some(change) => told(change).map(|()| News::Changed),
            None => pending().await,
        }
    };
    any.boxed()
}

/// What comes first.
fn either<'a>(one: &'a mut Tidings<'_>, other: Tidings<'a>) -> Tidings<'a> {
    select(one, other).map(|first| first.factor_first().0).boxed()
}
