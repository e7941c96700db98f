//! A wait between two rounds without a wait queue.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};

use crate::algorithm::backoff::scale;
use crate::cluster::Cluster;
use crate::resource::Key;
use crate::seam::backend::{CallReply, Capabilities, Operation};

/// Waits for a random delay, or until a node says that `key` was written. `took`: the last of
/// `lost` rounds.
pub(super) async fn back_off(cluster: &Arc<Cluster>, key: &Key, lost: u32, took: Duration) {
    let delay = cluster.config.backoff.delay(lost, cluster.random());
    let delay = pin!(cluster.sleep(delay));
    if let Either::Left((_, delay)) = select(pin!(written(cluster, key)), delay).await {
        // All waiters hear of the write at once, and must not split the votes.
        let pause = pin!(cluster.sleep(scale(took, cluster.random())));
        select(pause, delay).await;
    }
}

/// Resolves when a node says that the key was written, if one can.
async fn written(cluster: &Arc<Cluster>, key: &Key) {
    let able = cluster.nodes.able(Capabilities::WATCH).iter().next();
    let Some(node) = able else { return pending().await };
    let watch = Operation::Watch { key: key.clone(), entry: None };
    let mut asked = cluster.ask(node, watch, cluster.now());
    match (&mut asked).await {
        Ok(CallReply::Watched(true)) => asked.pushed().await,
        // A key that is free here and refused elsewhere is worth no hurry.
        Ok(_) => pending().await,
        Err(error) => {
            cluster.nodes.note_lack(node, Capabilities::WATCH, &error);
            pending().await
        }
    }
}
