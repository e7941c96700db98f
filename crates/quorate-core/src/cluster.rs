//! What all floors above share: settings, runtime, nodes, and all that is not over.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{Either, select};

use crate::algorithm::lease::saturating_add;
use crate::attempts::Attempts;
use crate::config::Config;
use crate::nodes::Nodes;
use crate::runtime::Runtime;

/// The settings, the runtime, the nodes and the open attempts of one manager.
pub(crate) struct Cluster {
    pub(crate) config: Config,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) nodes: Nodes,
    pub(crate) attempts: Arc<Attempts>,
}

impl Cluster {
    pub(crate) fn now(&self) -> Instant {
        self.runtime.now()
    }

    pub(crate) async fn sleep(&self, duration: Duration) {
        self.runtime.sleep_until(saturating_add(self.now(), duration)).await;
    }

    /// The output of `future`, or `None` once the deadline has come. What is ready comes first (T5).
    pub(crate) async fn before<T>(
        &self,
        deadline: Option<Instant>,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        let Some(deadline) = deadline else { return Some(future.await) };
        match select(pin!(future), self.runtime.sleep_until(deadline)).await {
            Either::Left((output, _)) => Some(output),
            Either::Right(_) => None,
        }
    }

    /// The output of `future`, if it resolves within `limit`.
    pub(crate) async fn within<T>(
        &self,
        limit: Duration,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        self.before(Some(saturating_add(self.now(), limit)), future).await
    }

    /// Random bits for jitter. Without randomness all processes wait equally long, which is worse, but
    /// not wrong.
    pub(crate) fn random(&self) -> u64 {
        let mut bits = [0; 8];
        match self.runtime.fill_random(&mut bits) {
            Ok(()) => u64::from_ne_bytes(bits),
            Err(_) => 0,
        }
    }
}
