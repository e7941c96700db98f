//! Adopts or releases a lock that another process has detached.

use std::sync::Arc;
use std::time::Duration;

use crate::algorithm::attempt::Loss;
use crate::attempt::lease::Lease;
use crate::attempt::{Attempt, Machine};
use crate::error::{AdoptError, Closed, InvalidRequest, LeaseEnd, LockError, ReleaseError};
use crate::manager::detached::DetachedLock;
use crate::manager::guard::LockGuard;
use crate::seam::backend::{Capabilities, Mode};
use crate::telemetry;
use crate::turns::ManagerState;

/// See [`LockManager::adopt`](super::LockManager::adopt).
pub(super) async fn adopt(
    manager: &Arc<ManagerState>,
    record: &DetachedLock,
) -> Result<LockGuard, AdoptError> {
    let cluster = &manager.cluster;
    let start = cluster.now();
    let result = try_adopt(manager, record).await;
    let waited = cluster.now().saturating_duration_since(start);
    match &result {
        Ok(guard) => telemetry::adopted(record.keys(), waited, guard.remaining()),
        Err(error) => telemetry::not_adopted(record.keys(), waited, error),
    }
    result
}

async fn try_adopt(
    manager: &Arc<ManagerState>,
    record: &DetachedLock,
) -> Result<LockGuard, AdoptError> {
    let cluster = &manager.cluster;
    let ttl = cluster.config.parse_ttl(record.ttl());
    let ttl = ttl.map_err(|error| LockError::Invalid(error.into()))?;
    if let Some(node) = cluster.nodes.lacking(Capabilities::SHARED)
        && record.claim().mode() == Mode::Shared
    {
        return Err(LockError::Invalid(InvalidRequest::Readers { node: node.to_string() }).into());
    }
    let (claim, token) = (record.claim().with_ttl(ttl), record.fencing_token());
    let attempt = Attempt::of_record(manager, claim, token, Machine::adopt);
    let attempt = attempt.ok_or(LockError::Closed(Closed))?;
    let mut adopting = Adopting(Some(Arc::clone(&attempt)));
    let result = attempt.first().await;
    Err(match (cluster.nodes.same_server(), result) {
        (Some(error), _) => error.into(),
        (None, Some(Ok(()))) => {
            adopting.0 = None;
            return Ok(LockGuard::new(Lease::new(attempt)));
        }
        (None, None) => LockError::Closed(Closed).into(),
        (None, Some(Err(lost))) => match lost.loss {
            Loss::Held => AdoptError::Lost(lost.failure),
            _ => LockError::NoQuorum(lost.failure).into(),
        },
    })
}

/// See [`LockManager::release`](super::LockManager::release).
pub(super) async fn release(
    manager: &Arc<ManagerState>,
    record: &DetachedLock,
) -> Result<(), ReleaseError> {
    let start = manager.cluster.now();
    let (claim, token) = (record.claim().clone(), record.fencing_token());
    let result = match Attempt::of_record(manager, claim, token, Machine::release_detached) {
        Some(attempt) => attempt.released().await,
        None => Err(ReleaseError::Lost(LeaseEnd::Closed(record.keys().into()))),
    };
    let took = manager.cluster.now().saturating_duration_since(start);
    let unknown = Duration::ZERO;
    telemetry::released(record.keys(), Some(&result), Some(took), unknown, unknown);
    result
}

/// An adoption that is not decided. Dropped, it leaves the lock as it was.
struct Adopting(Option<Arc<Attempt>>);

impl Drop for Adopting {
    fn drop(&mut self) {
        if let Some(attempt) = &self.0 {
            attempt.abandon();
        }
    }
}
