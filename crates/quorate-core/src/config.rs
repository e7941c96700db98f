//! What a manager is told, and what it refuses to be told.

use std::sync::Arc;
use std::time::Duration;

use crate::algorithm::lease::{Drift, InvalidTtl, Ttl};
use crate::algorithm::quorum::NodeCount;
use crate::algorithm::retry::{Backoff, RetryStrategy};
use crate::backend::LockBackend;
use crate::cluster::Cluster;
use crate::manager::LockManager;
use crate::runtime::Runtime;

/// The settings that a round and a request look at.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) ttl: Ttl,
    pub(crate) drift: Drift,
    pub(crate) wait: Duration,
    pub(crate) retry: Arc<dyn RetryStrategy>,
    pub(crate) prefix: Vec<u8>,
    node_timeout: Option<Duration>,
    cleanup_timeout: Option<Duration>,
}

impl Config {
    /// How long a round listens to a node: what was set, or a tenth of the ttl and 500 ms at the
    /// most; never over half of the validity, so that a slow loss leaves time for another try.
    pub(crate) fn node_timeout(&self, ttl: Ttl) -> Duration {
        let default = || (ttl.as_duration() / 10).min(Duration::from_millis(500));
        self.node_timeout.unwrap_or_else(default).min(self.drift.validity_of(ttl) / 2)
    }

    /// How long cleanup goes on for a node that does not answer: what was set, or the ttl, after
    /// which its keys are gone by themselves.
    pub(crate) fn cleanup_timeout(&self, longest_ttl: Duration) -> Duration {
        self.cleanup_timeout.unwrap_or(longest_ttl)
    }

    /// Parses a ttl and checks that the drift leaves something of it.
    pub(crate) fn parse_ttl(&self, ttl: Duration) -> Result<Ttl, InvalidTtl> {
        parse_ttl(ttl, self.drift)
    }
}

/// Sets up a [`LockManager`].
#[derive(Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct LockManagerBuilder {
    runtime: Arc<dyn Runtime>,
    nodes: Vec<Arc<dyn LockBackend>>,
    ttl: Duration,
    drift: Drift,
    node_timeout: Option<Duration>,
    cleanup_timeout: Option<Duration>,
    wait: Duration,
    retry: Arc<dyn RetryStrategy>,
    prefix: Vec<u8>,
}

impl LockManagerBuilder {
    pub(crate) fn new<B: LockBackend>(
        runtime: impl Runtime,
        nodes: impl IntoIterator<Item = B>,
    ) -> Self {
        Self {
            runtime: Arc::new(runtime),
            nodes: nodes.into_iter().map(|node| Arc::new(node) as _).collect(),
            ttl: Duration::from_secs(10),
            drift: Drift::default(),
            node_timeout: None,
            cleanup_timeout: None,
            wait: Duration::from_secs(30),
            retry: Arc::new(Backoff::default()),
            prefix: Vec::new(),
        }
    }

    /// How long the nodes keep a lock that is neither extended nor released. Default: 10 s.
    ///
    /// It bounds how long a crashed holder keeps others out, and how long a holder may work
    /// without an extension.
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How far clocks may run apart within a ttl. Default: 1 % and 2 ms, as the Redlock page has it.
    pub const fn drift(mut self, drift: Drift) -> Self {
        self.drift = drift;
        self
    }

    /// How long a round listens to a node before it goes on without it. Default: a tenth of the
    /// ttl, 500 ms at the most.
    ///
    /// It covers connecting, too. A round ends as soon as its outcome is certain, so this delays
    /// only those rounds that lack a quorum.
    pub const fn node_timeout(mut self, timeout: Duration) -> Self {
        self.node_timeout = Some(timeout);
        self
    }

    /// How long cleanup goes on in the background for a node that does not answer, or fails to
    /// release what it had granted. Default: the longest ttl that the lock was taken or extended
    /// with, after which its key is gone by itself. It is not under the node timeout.
    pub const fn cleanup_timeout(mut self, timeout: Duration) -> Self {
        self.cleanup_timeout = Some(timeout);
        self
    }

    /// For how long [`lock`](LockManager::lock) tries, unless a request says otherwise.
    /// Default: 30 s, three times the default ttl, so that it outlasts a crashed holder.
    pub const fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// How long to wait between two rounds, unless a request says otherwise. Default:
    /// [`Backoff::default`].
    pub fn retry(mut self, retry: impl RetryStrategy) -> Self {
        self.retry = Arc::new(retry);
        self
    }

    /// What each key starts with. Default: nothing, as in the canonical protocol.
    ///
    /// Locks exclude each other if prefix and name together are the same bytes, so a prefix should
    /// end in something that no name begins with, such as a colon.
    pub fn key_prefix(mut self, prefix: impl Into<Vec<u8>>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Checks the settings. No I/O: the nodes may be down.
    ///
    /// # Errors
    ///
    /// [`BuildError`] if the settings could not make a lock that holds.
    pub fn build(self) -> Result<LockManager, BuildError> {
        let count = NodeCount::new(self.nodes.len())
            .ok_or(BuildError::NodeCount { nodes: self.nodes.len() })?;
        let names = names_of(&self.nodes)?;
        let ttl = parse_ttl(self.ttl, self.drift)?;
        let most = self.drift.validity_of(ttl) / 2;
        match self.node_timeout {
            Some(timeout) if timeout.is_zero() || timeout > most => {
                return Err(BuildError::NodeTimeout { timeout, most });
            }
            _ => {}
        }
        let config = Config {
            ttl,
            drift: self.drift,
            wait: self.wait,
            retry: self.retry,
            prefix: self.prefix,
            node_timeout: self.node_timeout,
            cleanup_timeout: self.cleanup_timeout,
        };
        let least = config.node_timeout(ttl);
        match config.cleanup_timeout {
            Some(timeout) if timeout < least => {
                return Err(BuildError::CleanupTimeout { timeout, least });
            }
            _ => {}
        }
        Ok(LockManager::new(Cluster::new(count, self.nodes, names, self.runtime, config)))
    }
}

/// Why there is no manager with these settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The cleanup timeout is under the node timeout: keys would be left behind at every hitch.
    #[error("a cleanup timeout of {timeout:?} is too short, {least:?} is the least")]
    CleanupTimeout {
        /// The timeout given.
        timeout: Duration,
        /// The shortest that would do: the node timeout.
        least: Duration,
    },
    /// Two nodes have the same name. One node must not vote twice.
    #[error("the node {name} is configured twice")]
    DuplicateNode {
        /// What both are called.
        name: String,
    },
    /// There is no node, or there are more than [`NodeCount::MAX`].
    #[error("{nodes} nodes are configured, 1 to {most} are possible", most = NodeCount::MAX)]
    NodeCount {
        /// How many were given.
        nodes: usize,
    },
    /// The per-node timeout is not far under the ttl: one slow node would use up the validity.
    #[error("a node timeout of {timeout:?} does not fit the ttl, {most:?} is the most")]
    NodeTimeout {
        /// The timeout given.
        timeout: Duration,
        /// The longest that would do: half of the validity.
        most: Duration,
    },
    /// The ttl is too short or too long.
    #[error(transparent)]
    Ttl(#[from] InvalidTtl),
}

fn parse_ttl(ttl: Duration, drift: Drift) -> Result<Ttl, InvalidTtl> {
    let parsed = Ttl::try_from(ttl)?;
    if drift.validity_of(parsed).is_zero() {
        return Err(InvalidTtl::TooShort { ttl, least: drift.least_ttl() });
    }
    Ok(parsed)
}

fn names_of(nodes: &[Arc<dyn LockBackend>]) -> Result<Vec<Arc<str>>, BuildError> {
    let mut names: Vec<Arc<str>> = Vec::with_capacity(nodes.len());
    for (place, node) in (1..).zip(nodes) {
        let name = node.name().map_or_else(|| format!("node {place}").into(), Arc::from);
        if names.contains(&name) {
            return Err(BuildError::DuplicateNode { name: name.to_string() });
        }
        names.push(name);
    }
    Ok(names)
}
