//! Acquires under the restart guard: a node that may have forgotten has no vote.
//!
//! Only what takes keys is guarded. An extension proves itself by the key that is there, a release
//! does no harm, and a repair belongs to a lease that a quorum of others has just confirmed. See
//! [`restarts`](crate::restarts).

use super::Attempt;
use crate::algorithm::fence::{FenceHint, FenceVote, FencingToken};
use crate::algorithm::quorum::{NodeId, Vote};
use crate::backend::{BackendError, BackendErrorKind};
use crate::restarts::{GuardedVote, RestartGuard};

/// The acquire of an attempt on a node, and the number that it gave if it was asked for one.
pub(super) async fn acquire(
    attempt: &Attempt,
    node: NodeId,
    hint: Option<FenceHint>,
    guard: RestartGuard,
) -> Result<(Vote, Option<FencingToken>), BackendError> {
    let cluster = &attempt.cluster;
    let Some(quarantine) = cluster.node(node).quarantine() else {
        return Err(cannot_guard());
    };
    let asked = cluster.runtime.now();
    let said = quarantine.acquire(&attempt.claim, hint, guard).await?;
    let now = cluster.runtime.now();
    cluster.roster().met(node, &said, asked, now, guard.max_ttl())?;
    match said.vote {
        GuardedVote::Granted(number) => Ok((Vote::Granted, number)),
        GuardedVote::Refused => Ok((Vote::Refused, None)),
        GuardedVote::Quarantined { .. } => {
            let kind = BackendErrorKind::Quarantined;
            let text = format!("{}: it restarted, is new or lost its data", said.vote);
            Err(BackendError::new(kind, text))
        }
    }
}

/// The same, as the vote on an acquire with a number.
pub(super) async fn fenced_acquire(
    attempt: &Attempt,
    node: NodeId,
    hint: FenceHint,
    guard: RestartGuard,
) -> Result<FenceVote, BackendError> {
    match acquire(attempt, node, Some(hint), guard).await? {
        (Vote::Granted, Some(number)) => Ok(FenceVote::Granted(number)),
        (Vote::Granted, None) => {
            Err(BackendError::new(BackendErrorKind::Protocol, "granted, but without a number"))
        }
        (Vote::Refused, _) => Ok(FenceVote::Refused),
    }
}

fn cannot_guard() -> BackendError {
    BackendError::new(BackendErrorKind::Other, "not asked: the node cannot be guarded")
}
