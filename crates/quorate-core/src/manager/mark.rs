//! A lock that stays on the nodes after its work, and the mark that says so.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use crate::algorithm::lease::Ttl;
use crate::cluster::Cluster;
use crate::error::ExtendError;
use crate::manager::guard::LockGuard;
use crate::resource::Key;
use crate::seam::backend::{Capabilities, Claim, Holder, Mode, Operation, Revoke};
use crate::telemetry;

impl LockGuard {
    /// Ends the lease, and leaves a mark in its place: no client acquires it for `duration`.
    ///
    /// It does not prolong the lease: [`auto_renew`](Self::auto_renew) and [`extend`](Self::extend)
    /// do that. It is for work that is done once: what stays on the nodes marks it as done. On
    /// nodes that keep the order of calls, which a pool does not, it reads *done by*, and not *held
    /// by*, in inspections and errors of all processes. The lock is free after `duration`, or after
    /// its ttl, if that is longer. Once this has returned, no release and no close of the manager
    /// frees it earlier. `duration` is cut to the range from 1 ms to 100 years. Neither the longest
    /// ttl, nor the hold limit, nor the `max_ttl` of the restart guard bounds it. A node that loses
    /// its data forgets the lock, so it is a record only as long as a quorum of nodes has it.
    /// Therefore this returns when each node has it, or has not answered for a node timeout: the
    /// event `kept` names those.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use quorate_core::LockManager;
    /// # async fn migrate() {}
    /// # async fn example(locks: &LockManager) -> Result<(), Box<dyn std::error::Error>> {
    /// let guard = locks.lock("migration:7").await?;
    /// guard.run(migrate()).await?;
    /// guard.keep(Duration::from_secs(24 * 60 * 60)).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// - [`ExtendError::Lost`]: the lease has ended, before or meanwhile. Nothing is kept.
    /// - [`ExtendError::NoQuorum`]: no quorum extended. The lock is released. Before that, a quorum
    ///   has to extend for the plain ttl: if it does not, `duration` is sent to no node. A quorum
    ///   that fails between these two rounds may leave a node that extends and does not answer. It
    ///   is asked for a minute longer than the ttl, and may keep the lock for `duration` after
    ///   that, or if the process ends before it: [`close`](crate::LockManager::close) names that
    ///   node.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases the lock in the background, as after a crash. Where it has only
    /// to be marked as done by then, it is kept, and reads *held*.
    pub async fn keep(mut self, duration: Duration) -> Result<(), ExtendError> {
        let (cluster, attempt) = (self.lease.cluster(), self.lease.attempt());
        let end = Duration::from_micros(cluster.runtime.unix_micros());
        let ran = end.saturating_sub(attempt.held(cluster.now()))..end;
        let ttl = attempt.claim.ttl();
        let kept = async {
            // A node that sets the mark and is away then keeps it if this process ends: so a quorum
            // has to answer first.
            attempt.extend(ttl).await?;
            let lacking = attempt.extend_on_all(Ttl::of_mark(duration).max(ttl)).await?;
            attempt.detach()?;
            Ok(lacking)
        };
        let kept =
            kept.await.inspect_err(|error: &ExtendError| telemetry::not_kept(self.keys(), error));
        let lacking = kept?.iter().map(|node| &**cluster.nodes.name(node)).collect::<Vec<_>>();
        self.is_over = true;
        telemetry::kept(self.keys(), attempt.held(cluster.now()), &lacking);
        mark(cluster, &attempt.claim, &ran).await;
        Ok(())
    }
}

/// Replaces the value of a lock that is kept by that of a mark, at most for a node timeout. The
/// lock stays without it, too.
///
/// A revoke compares and leaves the ttl. Over a pool it could reach the node before the extension,
/// which would then find another value: none is sent.
async fn mark(cluster: &Arc<Cluster>, claim: &Claim, ran: &Range<Duration>) {
    let (nodes, needed) = (&cluster.nodes, Capabilities::ORDERED | Capabilities::REVOKE);
    let of = [Holder::new(claim.token().as_bytes())];
    let how = &Revoke::replace(claim.token().mark(ran)).of(of);
    let ids = nodes.count.ids().filter(|id| nodes.can(*id, needed));
    let keys = || claim.keys().iter().filter(|_| claim.mode() == Mode::Exclusive);
    let revoke = |id, key: &Key| {
        let revoke = Operation::Revoke { key: key.clone(), how: how.clone() };
        cluster.question(id, revoke)
    };
    join_all(ids.flat_map(|id| keys().map(move |key| revoke(id, key)))).await;
}
