//! How a manager is set up.

use std::sync::Arc;
use std::time::Duration;

use super::LockManager;
use crate::algorithm::backoff::Backoff;
use crate::algorithm::lease::{Drift, SafetyMargin};
use crate::cluster::Cluster;
use crate::cluster::attempts::Attempts;
use crate::cluster::nodes::Nodes;
use crate::config::Config;
use crate::error::BuildError;
use crate::resource::Label;
use crate::seam::backend::{Capabilities, LockBackend, RestartGuard};
use crate::seam::runtime::Runtime;
use crate::telemetry;
use crate::turns::ManagerState;

/// Sets up a [`LockManager`].
///
/// # Defaults
///
#[doc = include_str!("../config/defaults.md")]
#[derive(Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct LockManagerBuilder {
    runtime: Option<Arc<dyn Runtime>>,
    nodes: Vec<Arc<dyn LockBackend>>,
    label: Option<String>,
    config: Config,
}

impl LockManagerBuilder {
    pub(super) fn new(nodes: Vec<Arc<dyn LockBackend>>) -> Self {
        Self { runtime: None, nodes, label: None, config: Config::default() }
    }

    /// The async runtime. Default: tokio with the feature `tokio`, else smol with the feature
    /// `smol`.
    pub fn runtime(mut self, runtime: impl Runtime) -> Self {
        self.runtime = Some(Arc::new(runtime));
        self
    }

    /// How long the nodes keep a lock that is neither extended nor released. Default: 10 s.
    ///
    /// It bounds how long a crashed holder keeps others out, and how long a holder may work without
    /// an extension.
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.config.ttl = ttl;
        self
    }

    /// How long [`lock`](LockManager::lock) and [`with`](LockManager::with) try. Default: 30 s.
    ///
    /// To outlast a crashed holder, it has to be longer than the ttl of the holders.
    pub const fn wait_timeout(mut self, timeout: Duration) -> Self {
        self.config.wait_timeout = timeout;
        self
    }

    /// The allowance for clocks that run at different rates. Default: 1 % of the ttl and 2 ms, as
    /// on the Redlock page.
    pub const fn drift(mut self, drift: Drift) -> Self {
        self.config.drift = drift;
        self
    }

    /// How long before its keys may expire a lease ends. Default: a tenth of the ttl, at most 500
    /// ms.
    ///
    /// If the lock is not released, its keys expire this long after
    /// [`lost`](crate::Lease::lost) resolves, or later. Zero gives the bare formula of Redlock.
    pub const fn safety_margin(mut self, margin: Duration) -> Self {
        self.config.safety_margin = SafetyMargin::Fixed(margin);
        self
    }

    /// How long a round waits for votes, from its start. Default: a tenth of the ttl, at most 500
    /// ms.
    ///
    /// It includes connecting, and with fencing both round trips. A round ends as soon as it is
    /// decided, so this delays only rounds without a quorum. Half of the validity is the most, also
    /// for a shorter ttl that a request asks for.
    pub const fn node_timeout(mut self, timeout: Duration) -> Self {
        self.config.node_timeout = Some(timeout);
        self
    }

    /// The longest time between two renewals. Default: a third of the validity.
    ///
    /// The moment itself is drawn at random from the last three tenths of it. Two node timeouts are
    /// left for a second try.
    pub const fn renew_interval(mut self, interval: Duration) -> Self {
        self.config.renew_interval = Some(interval);
        self
    }

    /// How long a lock is held at most, however often it is extended. Default: no limit.
    pub const fn hold_limit(mut self, limit: Duration) -> Self {
        self.config.hold_limit = Some(limit);
        self
    }

    /// How many tasks of this manager may be queued for one key, behind the task that holds it or
    /// competes for it. Default: no limit.
    ///
    /// One more fails, when it comes to that name, with
    /// [`LockError::TooManyWaiters`](crate::LockError::TooManyWaiters), and nothing is sent.
    /// Readers, and a request that waits for no holder, are never queued. Requests for one of the
    /// same names ([`lock_any`](LockManager::lock_any)) have one queue.
    pub const fn max_waiters(mut self, most: usize) -> Self {
        self.config.max_waiters = Some(most);
        self
    }

    /// The random delay between rounds where no node can keep a wait queue: up to `base` at first,
    /// doubling up to `most`. Default: 10 ms and 1 s. `base` is at least 1 ms, and at most `most`.
    pub const fn backoff(mut self, base: Duration, most: Duration) -> Self {
        self.config.backoff = Backoff { base, most };
        self
    }

    /// The text before each key. Default: none, as in the canonical protocol.
    ///
    /// Two locks exclude each other if prefix and name together are the same bytes. So a prefix
    /// should end with a byte that no name begins with, such as a colon.
    pub fn key_prefix(mut self, prefix: impl Into<Vec<u8>>) -> Self {
        self.config.key_prefix = prefix.into();
        self
    }

    /// What other processes see of this manager's locks: a host name and a purpose, for example.
    /// Default: none.
    ///
    /// 1 to 200 bytes of UTF-8 without control characters. The nodes store it in clear text behind
    /// the token of each lock, and the refusals and the inspections of all processes show it.
    /// [`LockRequest::label`](crate::LockRequest::label) overrides it.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Refuses votes from a node that may have forgotten locks, for the longest ttl of any lock.
    /// Default: off.
    ///
    /// Every process that locks on these nodes needs the same setting. A new cluster grants nothing
    /// for that time, once.
    pub fn restart_guard(mut self, guard: impl Into<RestartGuard>) -> Self {
        self.config.restart_guard = Some(guard.into());
        self
    }

    /// Checks the settings, and builds the manager. Nothing is sent.
    ///
    /// # Errors
    ///
    /// [`BuildError`]: settings contradict each other, or the nodes cannot carry them out.
    pub fn build(mut self) -> Result<LockManager, BuildError> {
        self.config.check()?;
        self.config.label = self.label.map(Label::new).transpose()?;
        let nodes = Nodes::new(self.nodes)?;
        if let Some(node) = nodes.lacking(Capabilities::GUARD)
            && self.config.restart_guard.is_some()
        {
            return Err(BuildError::RestartGuard { node: node.to_string() });
        }
        let runtime = match self.runtime {
            Some(runtime) => runtime,
            None => default_runtime()?,
        };
        telemetry::describe_metrics();
        let node_timeout = self.config.default_node_timeout();
        let attempts = Attempts::new(Arc::clone(&runtime), node_timeout);
        let cluster = Cluster { config: self.config, runtime, nodes, attempts };
        Ok(LockManager { state: ManagerState::new(cluster) })
    }
}

#[allow(clippy::unnecessary_wraps, reason = "an error without both features")]
fn default_runtime() -> Result<Arc<dyn Runtime>, BuildError> {
    #[cfg(feature = "tokio")]
    let runtime = Ok(Arc::new(crate::seam::runtime::TokioRuntime::new()) as _);
    #[cfg(all(feature = "smol", not(feature = "tokio")))]
    let runtime = Ok(Arc::new(crate::seam::runtime::SmolRuntime) as _);
    #[cfg(not(any(feature = "smol", feature = "tokio")))]
    let runtime = Err(BuildError::NoRuntime);
    runtime
}
