//! The line of this process, before the nodes are asked: how long to stand in it, and what to say
//! where it does not move.

use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt;

use super::{Gates, Wanted, attempt, before, left, random_bits};
use crate::algorithm::lease::saturating_add;
use crate::algorithm::quorum::Tally;
use crate::cluster::Cluster;
use crate::error::LockError;
use crate::guard::LockGuard;
use crate::queue::{self, Turn};
use crate::standing::Standing;
use crate::waiting::{self, Waited};

/// How one fared in the line of this process.
pub(super) enum Place {
    /// Nobody was there.
    First(Turn),
    /// Others were. With what kept the line from moving, if it is known.
    Behind(Turn, Option<LockError>),
    /// The line did not move, and the lock was free all the same.
    OutOfTurn(LockGuard),
}

/// Waits in the line of this process, for the holder in this process, and for those elsewhere who
/// go first. The error is what is in the way when the deadline comes; a round that is made here ends
/// by the `latest`.
pub(super) async fn wait(
    cluster: &Arc<Cluster>,
    wanted: &Wanted,
    (deadline, latest): (Instant, Instant),
    standing: &mut Standing,
    gates: &mut Gates,
) -> Result<Place, LockError> {
    let runtime = &*cluster.runtime;
    // Some time is left for asking.
    let node_timeout = cluster.config.node_timeout(wanted.ttl);
    let reserve = node_timeout.min(left(runtime, deadline) / 2);
    let before_deadline = deadline.checked_sub(reserve).unwrap_or(deadline);
    let mut turn = pin!(async {
        let mut turn = queue::turn(cluster, &wanted.keys).await;
        turn.vacated().await;
        turn.asks(saturating_add(runtime.now(), node_timeout));
        turn
    });
    if let Some(turn) = turn.as_mut().now_or_never() {
        let has_waited = others_first(cluster, wanted, before_deadline, standing, gates).await?;
        return Ok(if has_waited { Place::Behind(turn, None) } else { Place::First(turn) });
    }
    let in_the_way = || cluster.queues().in_the_way(&wanted.keys);
    let why = in_the_way();
    if let Some(turn) = before(cluster, before_deadline, turn.as_mut()).await? {
        others_first(cluster, wanted, before_deadline, standing, gates).await?;
        return Ok(Place::Behind(turn, why));
    }
    let why = loop {
        if let Some(why) = in_the_way() {
            break why;
        }
        // Nobody knows anything. It may even be free: who has the turn waits for other keys, too.
        let (keys, now) = (&*wanted.keys, runtime.now());
        let until = saturating_add(now, node_timeout.min(latest.saturating_duration_since(now)));
        match cluster.queues().ask_out_of_turn(keys, now, until, deadline) {
            Ok(()) => match attempt(cluster, wanted, left(runtime, latest), &Gates::None).await? {
                Ok(guard) => return Ok(Place::OutOfTurn(guard)),
                Err(defeat) => {
                    cluster.queues().tell(keys, &defeat.error);
                    break defeat.error;
                }
            },
            // Somebody does already, and what the nodes say is heard here, too.
            Err(until) if until < deadline => {
                if let Some(turn) = before(cluster, until, turn.as_mut()).await? {
                    return Ok(Place::Behind(turn, why));
                }
            }
            Err(_) => break why.unwrap_or_else(LockError::held_here),
        }
    };
    match before(cluster, deadline, turn).await? {
        Some(turn) => Ok(Place::Behind(turn, Some(why))),
        None => Err(in_the_way().unwrap_or(why)),
    }
}

/// Lets those elsewhere go first whom the last holder met, if there are any.
async fn others_first(
    cluster: &Arc<Cluster>,
    wanted: &Wanted,
    deadline: Instant,
    standing: &mut Standing,
    gates: &mut Gates,
) -> Result<bool, LockError> {
    let now = cluster.runtime.now();
    let Some((met, until)) = cluster.queues().yields_to(&wanted.keys, now) else {
        return Ok(false);
    };
    *standing = Standing::after(met);
    let (votes, random) = (Tally::new(cluster.count()), random_bits(&*cluster.runtime)?);
    // They may not be there.
    let waits = waiting::wait(cluster, wanted, &votes, standing, until, random, deadline);
    match before(cluster, deadline, waits).await? {
        None | Some(Waited::TooLong) => {}
        Some(Waited::Woken(_)) if standing.is_alone() => {}
        Some(Waited::Woken(free)) => *gates = Gates::Of(free),
        Some(Waited::Slept | Waited::RanOut) => {}
    }
    Ok(true)
}
