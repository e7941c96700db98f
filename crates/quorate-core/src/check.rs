//! The reports of the nodes about themselves, for a check at start-up and for operators.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use crate::algorithm::lease::saturating_add;
use crate::backend::{BackendError, BackendErrorKind, Capabilities, Description};
use crate::cluster::Cluster;
use crate::inspect::reply;

/// The reports of all nodes, with the problems of each.
///
/// Returned by [`LockManager::check`](crate::LockManager::check). `Display` is one line for each node.
#[derive(Clone, Debug)]
pub struct Check {
    nodes: Arc<[NodeReport]>,
}

impl Check {
    /// The reports of the nodes, in the order in which the nodes are configured.
    #[must_use]
    pub fn nodes(&self) -> &[NodeReport] {
        &self.nodes
    }

    /// Whether a quorum of the configured nodes answered.
    #[must_use]
    pub fn has_quorum(&self) -> bool {
        let answered = self.nodes.iter().filter(|node| node.description.is_some()).count();
        answered > self.nodes.len() / 2
    }

    /// Each problem, with the node that has it.
    pub fn problems(&self) -> impl Iterator<Item = (&NodeReport, &Problem)> {
        self.nodes.iter().flat_map(|node| node.problems.iter().map(move |problem| (node, problem)))
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, node) in self.nodes.iter().enumerate() {
            write!(f, "{}{node}", if index == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

/// The report of one node, with its problems.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeReport {
    /// The name of the node: its address without secrets.
    pub name: Arc<str>,
    /// The facts that the node reported; `None` if it gave no answer. Then the problem says why.
    pub description: Option<Description>,
    /// How long the node took to answer on a connection that was there.
    pub round_trip: Option<Duration>,
    /// What the node can do: what its backend was built for, without what is known to be missing.
    ///
    /// A node that has never been watched may lack [`Capabilities::WATCH`], which shows at the first wait.
    pub abilities: Capabilities,
    /// What is wrong with the node.
    pub problems: Vec<Problem>,
}

/// A fault of a node. `Display` says what to do.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The node or its backend failed.
    #[error("{0}{advice}", advice = advice(.0.kind()))]
    Failed(BackendError),
    /// The node did not reply within the node timeout.
    #[error("no reply within {waited:.1?}; check the address, and whether the server hangs")]
    NoReply {
        /// The node timeout.
        waited: Duration,
    },
    /// Another configured node is the same server, which would vote twice (Q6).
    #[error("the same server as {other}; configure each server once")]
    SameServer {
        /// The name of the other node.
        other: Arc<str>,
    },
    /// The node is a replica, and grants nothing.
    #[error("a replica: the node grants no locks; use the address of its primary")]
    Replica,
    /// The node may evict keys, and with them locks.
    #[error("maxmemory-policy {policy}: the node may evict locks; set noeviction")]
    Evicting {
        /// The `maxmemory-policy`.
        policy: Arc<str>,
    },
    /// The [restart guard](crate::RestartGuard) keeps the node from voting.
    #[error("quarantined: {}", quarantined(*.left))]
    Quarantined {
        /// For how long. `Duration::MAX`: until an operator deletes the key of the quarantine.
        left: Duration,
    },
    /// The server, or its user, lacks something.
    #[error("{0}")]
    Lack(BackendError),
    /// The node reports no server id.
    #[error(
        "no server id: the node has no fixed place among the gates of wait queues, and two addresses of it count twice; \
         use the same address in all processes, and use it once"
    )]
    NoServerId,
}

/// What to do about an error of this kind.
const fn advice(kind: BackendErrorKind) -> &'static str {
    match kind {
        BackendErrorKind::Auth => "; check the user and the password",
        BackendErrorKind::Connection => "; check the address, and whether the server runs",
        BackendErrorKind::Loading => "; wait",
        BackendErrorKind::Permission => "; allow this to the user of the address",
        BackendErrorKind::Protocol => "; use the address of a Redis or Valkey server",
        _ => "",
    }
}

fn quarantined(left: Duration) -> String {
    match left {
        Duration::MAX => {
            "the node grants no locks until quorate:guard:quarantine is deleted".to_owned()
        }
        left => format!("the node may have forgotten locks and grants none for {left:.1?}; wait"),
    }
}

impl NodeReport {
    fn new(name: Arc<str>, built_for: Capabilities) -> Self {
        let problems = Vec::new();
        Self { name, description: None, round_trip: None, abilities: built_for, problems }
    }

    fn describe(&mut self, description: Description, round_trip: Duration) {
        let told = &description;
        self.abilities = self.abilities.without(told.lacks);
        let replica = told.is_replica.filter(|is_replica| *is_replica).map(|_| Problem::Replica);
        let evicts = |policy: &&Arc<str>| told.max_memory != Some(0) && &***policy != "noeviction";
        let evicting = told.eviction.as_ref().filter(evicts);
        let evicting = evicting.map(|policy| Problem::Evicting { policy: Arc::clone(policy) });
        let quarantined = told.quarantine_left.map(|left| Problem::Quarantined { left });
        self.problems.extend([replica, evicting, quarantined].into_iter().flatten());
        self.problems.extend(told.errors.iter().cloned().map(Problem::Lack));
        self.problems.extend(told.server_id.is_none().then_some(Problem::NoServerId));
        (self.description, self.round_trip) = (Some(description), Some(round_trip));
    }
}

/// Prints the problems first, then what the node reported.
impl fmt::Display for NodeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.name)?;
        if self.problems.is_empty() {
            f.write_str("ok")?;
        }
        for (index, problem) in self.problems.iter().enumerate() {
            write!(f, "{}{problem}", if index == 0 { "" } else { "; " })?;
        }
        let Some(told) = &self.description else { return Ok(()) };
        let yes_or_no = |is: bool| if is { "yes" } else { "no" };
        let facts = [
            self.round_trip.map(|time| format!("{time:.1?}")),
            told.version.as_deref().map(str::to_owned),
            told.is_replica.map(|is| (if is { "replica" } else { "primary" }).to_owned()),
            told.server_id.as_deref().map(|id| format!("server id {}", id.get(..8).unwrap_or(id))),
            told.max_memory.map(|bytes| format!("maxmemory {bytes}")),
            told.eviction.as_deref().map(|policy| format!("maxmemory-policy {policy}")),
            told.is_append_only.map(|is| format!("appendonly {}", yes_or_no(is))),
            told.runs_scripts.map(|runs| format!("scripts {}", yes_or_no(runs))),
            Some(format!("can do: {}", self.abilities)),
        ];
        let facts: Vec<String> = facts.into_iter().flatten().collect();
        write!(f, " ({})", facts.join(", "))
    }
}

/// Asks all nodes at once, each for one node timeout at most.
///
/// # Cancel safety
///
/// The future can be dropped at any time. Nothing is written, and no task is spawned.
pub(crate) async fn check(cluster: &Cluster) -> Check {
    let (nodes, runtime) = (&cluster.nodes, &*cluster.runtime);
    let node_timeout = cluster.config.default_node_timeout();
    let deadline = saturating_add(runtime.now(), node_timeout);
    let reports = nodes.count().ids().map(|id| async move {
        let describes = async {
            // The first answer shows that there is a connection. The second is timed.
            nodes.backend(id).describe().await?;
            let asked_at = runtime.now();
            let description = nodes.backend(id).describe().await?;
            Ok((description, runtime.now().saturating_duration_since(asked_at)))
        };
        let answer = reply(runtime, deadline, describes).await;
        nodes.note_asked(id, matches!(answer, Some(Ok(_))), runtime.now());
        let mut report = NodeReport::new(Arc::clone(nodes.name(id)), nodes.abilities(id));
        match answer {
            Some(Ok((description, round_trip))) => report.describe(description, round_trip),
            Some(Err(error)) => report.problems.push(Problem::Failed(error)),
            None => report.problems.push(Problem::NoReply { waited: node_timeout }),
        }
        report
    });
    let mut reports = join_all(reports).await;
    let servers = reports.iter().map(|node| node.description.as_ref()?.server_id.clone());
    let servers: Vec<Option<Arc<str>>> = servers.collect();
    for at in 0..reports.len() {
        let is_twin =
            |other: &usize| *other != at && servers[at].is_some() && servers[*other] == servers[at];
        if let Some(other) = (0..servers.len()).find(is_twin) {
            let other = Arc::clone(&reports[other].name);
            reports[at].problems.push(Problem::SameServer { other });
        }
    }
    Check { nodes: reports.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(description: Option<Description>) -> NodeReport {
        let mut report = NodeReport::new("n".into(), Capabilities::NONE);
        if let Some(description) = description {
            report.describe(description, Duration::ZERO);
        }
        report
    }

    #[test]
    fn a_quorum_of_the_configured_nodes_answered() {
        for (answered, nodes, has_quorum) in [
            (0, 1, false),
            (1, 1, true),
            (1, 2, false),
            (2, 2, true),
            (1, 3, false),
            (2, 3, true),
            (2, 4, false),
            (3, 4, true),
            (2, 5, false),
            (5, 5, true),
        ] {
            let described = |at| (at < answered).then(Description::default);
            let check = Check { nodes: (0..nodes).map(|at| report(described(at))).collect() };
            assert_eq!(check.has_quorum(), has_quorum, "{answered} of {nodes}");
        }
    }

    #[test]
    fn a_node_evicts_with_a_limit_and_a_policy() {
        for (max_memory, eviction, evicts) in [
            (Some(0), "noeviction", false),
            (Some(0), "allkeys-lru", false),
            (Some(1), "noeviction", false),
            (Some(1), "allkeys-lru", true),
            (None, "allkeys-lru", true),
            (None, "noeviction", false),
        ] {
            let eviction = Some(eviction.into());
            let seen = report(Some(Description { max_memory, eviction, ..Default::default() }));
            let found = seen.problems.iter().any(|it| matches!(it, Problem::Evicting { .. }));
            assert_eq!(found, evicts, "{seen}");
        }
    }

    #[test]
    fn an_error_of_a_node_says_what_to_do() {
        for (kind, text) in [
            (BackendErrorKind::Auth, "text; check the user and the password"),
            (BackendErrorKind::Connection, "text; check the address, and whether the server runs"),
            (BackendErrorKind::Loading, "text; wait"),
            (BackendErrorKind::Permission, "text; allow this to the user of the address"),
            (BackendErrorKind::Protocol, "text; use the address of a Redis or Valkey server"),
            (BackendErrorKind::Other, "text"),
        ] {
            assert_eq!(Problem::Failed(BackendError::new(kind, "text")).to_string(), text);
        }
    }
}
