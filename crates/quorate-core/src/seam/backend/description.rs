//! The facts that a node reports about itself.

use std::sync::Arc;
use std::time::Duration;

use super::error::BackendError;
use super::options::Capabilities;

/// The facts that a node reports to [`Operation::Describe`](super::Operation::Describe).
///
/// The default has none. A field is `None` if the node does not report it.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Description {
    /// The software with its version, such as `Redis 7.0.15`.
    pub version: Option<Arc<str>>,
    /// The id that no other server has.
    pub server_id: Option<Arc<str>>,
    /// Whether the node is a replica, which accepts no locks.
    pub is_replica: Option<bool>,
    /// How long the process of the server has been running, in whole seconds. It may be a second
    /// too long.
    pub uptime: Option<Duration>,
    /// Whether the server is one of a Redis Cluster (`cluster_enabled`).
    pub is_clustered: Option<bool>,
    /// How much memory the node may use for its data, in bytes. Zero: as much as there is.
    pub max_memory: Option<u64>,
    /// How much of that memory is used, in bytes.
    pub used_memory: Option<u64>,
    /// What the node does when that memory is full (`maxmemory-policy`).
    pub eviction: Option<Arc<str>>,
    /// Whether the node writes its data to a log on its disk (`appendonly`).
    pub is_append_only: Option<bool>,
    /// When that log is on the disk (`appendfsync`). With `always`: before the node answers. Any
    /// other text, such as `always, no-appendfsync-on-rewrite yes`: at times later.
    pub fsync: Option<Arc<str>>,
    /// For how long the [restart guard](crate::RestartGuard) keeps the node from voting.
    ///
    /// `Duration::MAX`: until an operator deletes the key of the quarantine. `None`: it votes, or
    /// no guard can run.
    pub quarantine_left: Option<Duration>,
    /// The `max_ttl` of the [restart guard](crate::RestartGuard) that has used the node; `None` if
    /// none has.
    pub guard_max_ttl: Option<Duration>,
    /// Whether that guard knows the data of this run of the server. If not, it quarantines the node
    /// at the next lock.
    pub is_known_to_guard: bool,
    /// Whether scripts run. `None` for a node that needs none.
    pub runs_scripts: Option<bool>,
    /// What the backend was built for, and this server lacks or forbids.
    pub lacks: Capabilities,
    /// Why: what the server answered where something is missing here.
    pub errors: Vec<BackendError>,
}

impl Description {
    /// Whether each write is on the disk before the node answers: then a restart forgets no lock.
    /// `None` if the node does not report whether it writes a log.
    #[must_use]
    pub fn keeps_writes(&self) -> Option<bool> {
        self.is_append_only.map(|is| is && self.fsync.as_deref() == Some("always"))
    }
}
