//! How a manager is set up.

use std::sync::Arc;
use std::time::Duration;

use super::{BuildError, Config, HintSource, parse_ttl};
use crate::algorithm::lease::{Drift, Ttl};
use crate::algorithm::quorum::NodeCount;
use crate::algorithm::retry::{Backoff, RetryStrategy};
use crate::backend::LockBackend;
use crate::cluster::Cluster;
use crate::manager::LockManager;
use crate::restarts::RestartGuard;
use crate::runtime::Runtime;

/// Sets up a [`LockManager`].
///
/// # Defaults
///
#[doc = include_str!("defaults.md")]
#[derive(Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct LockManagerBuilder {
    runtime: Arc<dyn Runtime>,
    nodes: Vec<Arc<dyn LockBackend>>,
    pub(super) ttl: Duration,
    drift: Drift,
    node_timeout: Option<Duration>,
    cleanup_timeout: Option<Duration>,
    wait: Duration,
    retry: Arc<dyn RetryStrategy>,
    prefix: Vec<u8>,
    margin: Option<Duration>,
    renew_every: Option<Duration>,
    hold_limit: Option<Duration>,
    repairs: bool,
    watches: bool,
    fence_hint: Option<HintSource>,
    restart_guard: Option<RestartGuard>,
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
            margin: None,
            renew_every: None,
            hold_limit: None,
            repairs: true,
            watches: true,
            fence_hint: None,
            restart_guard: None,
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
    /// only those rounds that lack a quorum. Of a shorter ttl that a request asks for, it takes half
    /// of the validity at the most.
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
    /// Default: 30 s, whatever the ttl: three times the default one. To outlast a crashed holder it
    /// has to be longer than the ttl that holders take.
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

    /// How long before the end of a lease its holder is told that it is lost. Default: a tenth of
    /// the validity, 500 ms at the most.
    ///
    /// It is the time that the work has to stop: to roll back, to close a file, to be dropped.
    /// Renewals are tried until then. Of a shorter ttl that a request asks for, it takes a quarter
    /// at the most.
    pub const fn margin(mut self, margin: Duration) -> Self {
        self.margin = Some(margin);
        self
    }

    /// How long it takes at most from one renewal to the next where a lease is
    /// [kept alive](crate::LockGuard::keep_alive). Default: a third of the validity.
    ///
    /// The moment itself is drawn from the last three tenths of it. Of a shorter ttl that a request
    /// asks for, it leaves time for a second try: two node timeouts and the margin.
    pub const fn renew_every(mut self, interval: Duration) -> Self {
        self.renew_every = Some(interval);
        self
    }

    /// How long a lock is held at the most, however often it is extended, unless a request says
    /// otherwise. Default: no limit.
    ///
    /// A lease ends then, and [`lost`](crate::LockGuard::lost) tells it the margin before.
    pub const fn hold_limit(mut self, limit: Duration) -> Self {
        self.hold_limit = Some(limit);
        self
    }

    /// Leaves nodes that have lost the keys as they are. By default an extension that was won
    /// gives them the keys back, so that a long lease does not lose one node after the other.
    pub const fn without_repair(mut self) -> Self {
        self.repairs = false;
        self
    }

    /// Polls for a lock that is taken, as the retry strategy says, and takes no [place](crate::Queue)
    /// among those who wait. By default waiters are woken by the nodes when the lock is released,
    /// where a quorum of them can tell; where they cannot, a manager polls of its own accord.
    pub const fn without_watching(mut self) -> Self {
        self.watches = false;
        self
    }

    /// Where the hint of a [fencing token](crate::LockRequest::fenced) comes from: microseconds
    /// since 1970. Default: the wall clock of the [runtime](crate::Runtime::unix_micros).
    ///
    /// Tokens go on from there on a node that has lost its data; see
    /// [`FenceHint`](crate::FenceHint). A source that stands still or goes back costs round trips,
    /// and no order as long as nodes keep their data. One that gives more than
    /// [`FenceHint::MAX`](crate::FenceHint::MAX) makes fenced requests fail.
    pub fn fence_hint(mut self, micros: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        self.fence_hint = Some(HintSource(Arc::new(micros)));
        self
    }

    /// Keeps nodes that restarted, or lost their data, from voting until `max_ttl` has passed.
    /// Default: off; operators see to it that such nodes stay away.
    ///
    /// `max_ttl` is the longest ttl that anybody who locks on these nodes asks for: of this manager
    /// a longer one is refused, and nodes refuse managers with another `max_ttl`. Everybody should
    /// guard, or nobody: who does not takes locks from a node that has forgotten. Acquires are then a script
    /// that reads `INFO`, which users of an ACL must be allowed to run.
    ///
    /// A plain duration is [`RestartGuard::strict`]: a cluster that is new, or new to the guard,
    /// grants nothing for `max_ttl` once. See [`restarts`](crate::restarts) for what it covers, what
    /// stays open, and what to know as an operator.
    pub fn restart_guard(mut self, max_ttl: impl Into<RestartGuard>) -> Self {
        self.restart_guard = Some(max_ttl.into());
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
        if let Some(guard) = self.restart_guard {
            Ttl::try_from(guard.max_ttl()).map_err(BuildError::MaxTtl)?;
            let unable = |(node, _): &(&Arc<dyn LockBackend>, _)| node.quarantine().is_none();
            if let Some((_, name)) = self.nodes.iter().zip(&names).find(unable) {
                return Err(BuildError::NotGuarded { node: name.to_string() });
            }
        }
        let ttl = parse_ttl(self.ttl, self.drift, self.restart_guard)?;
        let most = self.drift.validity_of(ttl) / 2;
        match self.node_timeout {
            Some(_) if planted!("node_timeout_as_long_as_the_validity") => {}
            Some(timeout) if timeout.is_zero() || timeout > most => {
                return Err(BuildError::NodeTimeout { timeout, most });
            }
            _ => {}
        }
        let config = self.config(ttl);
        let most = self.drift.validity_of(ttl) / 4;
        match config.margin {
            Some(margin) if margin.is_zero() || margin > most => {
                return Err(BuildError::Margin { margin, most });
            }
            _ => {}
        }
        let most = config.longest_interval(ttl);
        match config.renew_every {
            Some(interval) if interval.is_zero() || interval > most => {
                return Err(BuildError::RenewInterval { interval, most });
            }
            _ => {}
        }
        config
            .check_hold_limit(config.hold_limit, ttl)
            .map_err(|(limit, least)| BuildError::HoldLimit { limit, least })?;
        let least = config.node_timeout(ttl);
        match config.cleanup_timeout {
            Some(timeout) if timeout < least => {
                return Err(BuildError::CleanupTimeout { timeout, least });
            }
            _ => {}
        }
        Ok(LockManager::new(Cluster::new(count, self.nodes, names, self.runtime, config)))
    }

    pub(super) fn config(&self, ttl: Ttl) -> Config {
        Config {
            ttl,
            drift: self.drift,
            wait: self.wait,
            retry: Arc::clone(&self.retry),
            prefix: self.prefix.clone(),
            hold_limit: self.hold_limit,
            repairs: self.repairs,
            watches: self.watches,
            fence_hint: self.fence_hint.clone(),
            restart_guard: self.restart_guard,
            node_timeout: self.node_timeout,
            cleanup_timeout: self.cleanup_timeout,
            margin: self.margin,
            renew_every: self.renew_every,
        }
    }
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
