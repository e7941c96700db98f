//! Renews a lease: one extension after the other, until the lease ends.

use std::mem;
use std::sync::Arc;

use futures_util::future::select;

use super::Lease;
use crate::error::ExtendError;

/// Renews until the lease ends. Its release is left to the caller.
///
/// A renewal that fails is tried again until the end of the lease (H1).
pub(crate) async fn renew(lease: &Lease) {
    let cluster = lease.cluster();
    let ttl = lease.attempt().claim.ttl();
    let renewal = cluster.config.renewal(ttl);
    let mut has_failed = false;
    loop {
        let changed = lease.attempt().changed();
        let Ok(end) = lease.check() else { return };
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

/// Renews in the background, unless the lease is renewed already. Then releases.
pub(crate) fn renew_in_background(lease: &Lease) {
    let is_renewed = mem::replace(&mut lease.history().is_renewed, true);
    if !is_renewed {
        let (tasks, lease) = (Arc::clone(&lease.cluster().tasks), lease.clone());
        tasks.spawn(async move {
            renew(&lease).await;
            lease.release_at_its_end().await;
        });
    }
}
