//! Renews a lease: one extension after the other, until the lease ends.

use futures_util::future::select;

use super::Lease;
use crate::error::ExtendError;

/// Renews until the lease ends.
///
/// A renewal that fails is tried again until the end of the lease (H1). It runs in a task of its own, or in
/// that of the holder.
pub(crate) async fn renew(lease: Lease) {
    let cluster = lease.cluster();
    let ttl = lease.attempt().claim.ttl();
    let renewal = cluster.config.renewal(ttl);
    let mut has_failed = false;
    loop {
        let changed = lease.attempt().changed();
        let Ok(end) = lease.check_and_release() else { return };
        let (now, random) = (cluster.now(), cluster.random());
        let due = if lease.state.hold_until == Some(end) {
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
            Err(ExtendError::Lost(_)) => return,
            Err(_) => has_failed = true,
        }
    }
}

/// Renews in the background, unless the lease is renewed already.
pub(crate) fn renew_in_background(lease: &Lease) {
    if lease.begins_renewal() {
        lease.cluster().tasks.spawn(renew(lease.clone()));
    }
}
