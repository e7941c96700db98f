//! Renews a lease: one extension after the other, until the lease ends.

use std::sync::Arc;

use futures_util::future::select;

use super::LeaseState;
use crate::error::{ExtendError, Lost};

/// Renews until the lease ends, and returns why it did.
///
/// A renewal that fails is tried again until the end of the lease (H1). It runs in a task of its own, or in
/// that of the holder.
pub(crate) async fn renew(lease: Arc<LeaseState>) -> Lost {
    let cluster = &lease.attempt.cluster;
    let ttl = lease.attempt.claim.ttl();
    let renewal = cluster.config.renewal(ttl);
    let mut has_failed = false;
    loop {
        let changed = lease.attempt.changed();
        let end = match lease.check() {
            Ok(end) => end,
            Err(lost) => return lost,
        };
        let (now, random) = (cluster.now(), cluster.random());
        let due = if lease.hold_until == Some(end) {
            end // Nothing is gained by a renewal.
        } else if has_failed && !planted!("failed_renewal_is_not_repeated") {
            renewal.retry(now, end, random)
        } else if has_failed {
            end
        } else {
            renewal.next(end, random)
        };
        select(changed, cluster.runtime.sleep_until(due.min(end))).await;
        if cluster.now() < due || due >= end {
            continue;
        }
        match lease.extend(ttl).await {
            Ok(_) => has_failed = false,
            Err(ExtendError::Lost(lost)) => return lost,
            Err(_) => has_failed = true,
        }
    }
}

/// Renews in the background, unless the lease is renewed already. Calls `lost` when the lease is lost, and
/// not when the holder or a close ends it.
pub(crate) fn renew_in_background(lease: &Arc<LeaseState>, lost: impl FnOnce() + Send + 'static) {
    if lease.begins_renewal() {
        let task = renew(Arc::clone(lease));
        lease.attempt.cluster.tasks.spawn(async move {
            // A holder or a close that ends the lease releases the lock, or detaches it.
            if task.await.reason().is_some() {
                lost();
            }
        });
    }
}
