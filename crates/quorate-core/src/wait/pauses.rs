//! How long a waiter pauses.

use std::time::Duration;

use crate::algorithm::backoff::scale;
use crate::cluster::Cluster;

/// A round that was not won. Its undo was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LostRound {
    /// How long the round took.
    pub(crate) took: Duration,
    /// How many rounds of this wait were lost, with this one.
    pub(crate) rounds: u32,
    /// Whether refusals decided it.
    pub(crate) is_held: bool,
}

/// Sleeps between one and two durations of a lost round, at most a node timeout: contenders that
/// split the votes do not meet again.
pub(super) async fn pause(cluster: &Cluster, took: Duration, node_timeout: Duration) {
    let pause = took.saturating_add(scale(took, cluster.random()));
    cluster.sleep(pause.min(node_timeout)).await;
}

/// Sleeps where no node says when the lock is free.
pub(super) async fn back_off(cluster: &Cluster, rounds: u32) {
    cluster.sleep(cluster.config.backoff.delay(rounds, cluster.random())).await;
}
