//! The reports of the nodes about themselves, for a check at start-up and for operators.
//!
//! Each node describes itself, and then sets and deletes a key that no lock has: a permission or a
//! key pattern that keeps locks from working shows there and nowhere else.

mod problem;

use std::fmt;
use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

pub use self::problem::Problem;
use self::problem::of_description;
use crate::LockManager;
use crate::backend::{
    AcquireOptions, BackendError, BackendErrorKind, CallReply, Capabilities, Claim, Description,
    Operation, ReleaseOptions, Reply, Vote,
};
use crate::over::access::{NodeId, Ttl};
use crate::resource::{Key, Token};
use crate::runtime::BoxFuture;

/// The longest ttl of any lock, if neither a restart guard nor the caller says it.
const LONGEST_TTL: Duration = Duration::from_secs(600);

/// How long a node keeps the key that a check sets, if it is not deleted.
const KEPT: Duration = Duration::from_secs(1);

impl LockManager {
    /// Asks all nodes what they are and can do, and reports their problems. For a start-up, and for
    /// operators.
    ///
    /// All nodes are asked at once, and each may reply for a node timeout. Then each sets and
    /// deletes a key that no lock can have, `:quorate:check` below the
    /// [prefix](crate::LockManagerBuilder::key_prefix) or `quorate:check` without one, and may take
    /// a node timeout more for each of the two. A node without a problem may fail later.
    ///
    /// ```
    /// use quorate_core::LockManager;
    ///
    /// async fn start(locks: &LockManager) -> Result<(), String> {
    ///     let check = locks.check().await;
    ///     println!("{check}"); // one line for each node
    ///     match check.problems().next() {
    ///         Some((node, problem)) => Err(format!("{}: {problem}", node.name)),
    ///         None => Ok(()),
    ///     }
    /// }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time. Then a node may keep the key of the check for 1 s.
    pub fn check(&self) -> CheckRequest {
        CheckRequest {
            manager: self.clone(),
            longest_ttl: None,
            begins_quarantine: false,
            is_of_restarts: false,
        }
    }
}

/// The reports of all nodes, with the problems of each.
///
/// Returned by [`LockManager::check`](crate::LockManager::check). `Display` is one line for each
/// node.
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
        self.is_quorum(|node| node.description.is_some() || node.round_trip.is_some())
    }

    /// Whether a quorum of the configured nodes grants locks: no problem of theirs
    /// [prevents votes](Problem::prevents_votes).
    ///
    /// False also while the [restart guard](crate::RestartGuard) quarantines new nodes. A program
    /// that is to wait for them goes on when [`has_quorum`](Self::has_quorum) is true: its first
    /// lock begins the quarantine.
    #[must_use]
    pub fn can_lock(&self) -> bool {
        self.is_quorum(NodeReport::is_voting)
    }

    /// Whether two of the configured nodes are one server. Then every lock fails (Q6).
    #[must_use]
    pub fn has_one_server_twice(&self) -> bool {
        self.problems().any(|(_, problem)| matches!(problem, Problem::SameServer { .. }))
    }

    fn is_quorum(&self, counts: impl Fn(&NodeReport) -> bool) -> bool {
        self.nodes.iter().filter(|node| counts(node)).count() > self.nodes.len() / 2
    }

    /// Each problem, with the node that has it.
    pub fn problems(&self) -> impl Iterator<Item = (&NodeReport, &Problem)> {
        self.nodes.iter().flat_map(|node| node.problems.iter().map(move |problem| (node, problem)))
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes: Vec<String> = self.nodes.iter().map(ToString::to_string).collect();
        f.write_str(&nodes.join("\n"))
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
    /// How long the node took to set a key, on a connection that was there.
    pub round_trip: Option<Duration>,
    /// What the node can do: what its backend was built for, without what is known to be missing.
    ///
    /// A node that has never been watched may lack [`Capabilities::WATCH`], which shows at the
    /// first wait.
    pub abilities: Capabilities,
    /// What is wrong with the node.
    pub problems: Vec<Problem>,
}

impl NodeReport {
    fn new(name: Arc<str>, built_for: Capabilities) -> Self {
        let problems = Vec::new();
        Self { name, description: None, round_trip: None, abilities: built_for, problems }
    }

    fn is_voting(&self) -> bool {
        !self.problems.iter().any(Problem::prevents_votes)
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
            told.uptime.map(|time| format!("up for {} s", time.as_secs())),
            told.max_memory.map(|bytes| format!("maxmemory {bytes}")),
            told.eviction.as_deref().map(|policy| format!("maxmemory-policy {policy}")),
            told.is_append_only.map(|is| format!("appendonly {}", yes_or_no(is))),
            told.fsync.as_deref().map(|fsync| format!("appendfsync {fsync}")),
            told.runs_scripts.map(|runs| format!("scripts {}", yes_or_no(runs))),
            Some(format!("can do: {}", self.abilities)),
        ];
        let facts: Vec<String> = facts.into_iter().flatten().collect();
        write!(f, " ({})", facts.join(", "))
    }
}

/// A check of all nodes. From [`LockManager::check`](crate::LockManager::check); await it.
///
/// Its settings are those of the question and not of the manager: no lock depends on them.
///
/// # Cancel safety
///
/// The future can be dropped at any time. Then a node may keep the key of the check for 1 s.
#[derive(Clone, Debug)]
#[must_use = "a check does nothing until it is awaited"]
pub struct CheckRequest {
    manager: LockManager,
    longest_ttl: Option<Duration>,
    begins_quarantine: bool,
    is_of_restarts: bool,
}

impl CheckRequest {
    /// The longest ttl of any lock on these nodes, by any client: for so long a node that restarted
    /// and kept nothing is [a problem](Problem::Restarted), and one that kept its data [may
    /// be](Self::between_restarts). Default: 10 min, or the ttl of this manager if that is longer.
    ///
    /// With a [restart guard](crate::RestartGuard), its `max_ttl` is the longest one.
    pub const fn longest_ttl(mut self, ttl: Duration) -> Self {
        self.longest_ttl = Some(ttl);
        self
    }

    /// Begins a quarantine that the [restart guard](crate::RestartGuard) would begin at the next
    /// lock, so that it is over sooner. Nothing without a guard.
    pub const fn begin_quarantine(mut self) -> Self {
        self.begins_quarantine = true;
        self
    }

    /// Reports also what only the restart of another node makes a problem: a node that restarted
    /// with its data less than the [longest ttl](Self::longest_ttl) ago may [refuse free
    /// locks](Problem::MayRefuse). For rolling restarts, one node after the other. Nothing with a
    /// restart guard, which waits for as long.
    pub const fn between_restarts(mut self) -> Self {
        self.is_of_restarts = true;
        self
    }

    /// Asks all nodes at once. No task is spawned.
    async fn check(self) -> Check {
        let reports = self.manager.cluster().nodes.count.ids().map(|id| self.report(id));
        let mut reports = join_all(reports).await;
        let nodes = &self.manager.cluster().nodes;
        for (report, id) in reports.iter_mut().zip(nodes.count.ids()) {
            let twin = nodes.twin(id).map(|other| Problem::SameServer { other: Arc::clone(other) });
            report.problems.extend(twin);
        }
        let groups = &nodes.groups;
        let judged = groups.judge(&[]).unwrap_or_default();
        for (report, stranger) in reports.iter_mut().zip(judged.0) {
            report.problems.extend(stranger.map(Problem::Failed));
        }
        for (report, not_kept) in reports.iter_mut().zip(groups.not_kept()) {
            report.problems.extend(not_kept.map(Problem::Failed));
        }
        Check { nodes: reports.into() }
    }

    /// Asks one node: for its description, and then for a lock. Each may take a node timeout.
    async fn report(&self, id: NodeId) -> NodeReport {
        let cluster = self.manager.cluster();
        let (config, nodes) = (&cluster.config, &cluster.nodes);
        let described = cluster.question(id, Operation::Describe).await;
        let mut report = NodeReport::new(Arc::clone(nodes.name(id)), nodes.health(id).abilities);
        match described {
            Ok(CallReply::Described(told)) => {
                report.abilities = report.abilities.without(told.lacks);
                let longest = self.longest_ttl.unwrap_or_else(|| config.ttl.max(LONGEST_TTL));
                let guard = config.restart_guard;
                report.problems = of_description(&told, guard, longest, self.is_of_restarts);
                report.description = Some(*told);
            }
            Ok(_) => report.problems.push(Problem::Failed(BackendError::mixed_up())),
            Err(error) => report.problems.push(Problem::Failed(error)),
        }
        // A node that did not answer is not asked again.
        if report.description.is_none() && !report.is_voting() {
            return report;
        }
        let is_voting = report.is_voting();
        let key = Key::of_check(&config.key_prefix);
        match self.set_and_delete(id, &key).await {
            Ok(time) => report.round_trip = Some(time),
            // Another problem says why.
            Err(_) if !is_voting => {}
            Err(error) if error.kind() == BackendErrorKind::TimedOut => {
                report.problems.push(Problem::Failed(error));
            }
            Err(error) => report.problems.push(Problem::CannotLock { key, error }),
        }
        report
    }

    /// Sets `key` and deletes it, as a lock does. Returns how long it took to set it.
    async fn set_and_delete(&self, id: NodeId, key: &Key) -> Result<Duration, BackendError> {
        let cluster = self.manager.cluster();
        let token = Token::draw(|bytes| cluster.runtime.fill_random(bytes)).map_err(|error| {
            BackendError::new(BackendErrorKind::Other, error.to_string()).not_sent()
        })?;
        let claim = Claim::new([key.clone()], token, Ttl::of_mark(KEPT));
        let guard = cluster.config.restart_guard.filter(|_| self.begins_quarantine);
        let options = AcquireOptions { guard, ..AcquireOptions::default() };
        let asked_at = cluster.now();
        let acquire = Operation::Acquire(claim.clone(), options);
        let set = cluster.question(id, acquire).await?;
        let round_trip = cluster.now().saturating_duration_since(asked_at);
        match set {
            CallReply::Voted(Reply { vote: Vote::Granted, .. }) => {
                let release = Operation::Release(claim, ReleaseOptions::default());
                cluster.question(id, release).await.map(|_| round_trip)
            }
            // Another check has set the key.
            CallReply::Voted(_) => Ok(round_trip),
            _ => Err(BackendError::mixed_up()),
        }
    }
}

impl IntoFuture for CheckRequest {
    type Output = Check;
    type IntoFuture = BoxFuture<'static, Check>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.check())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quorum_of_the_configured_nodes_decides() {
        let replica = || Problem::Replica;
        for (answered, voting, nodes, has_quorum, can_lock) in [
            (0, 0, 1, false, false),
            (1, 1, 1, true, true),
            (1, 1, 2, false, false),
            (2, 2, 2, true, true),
            (2, 1, 3, true, false),
            (2, 2, 3, true, true),
            (4, 2, 4, true, false),
            (3, 3, 4, true, true),
            (5, 0, 5, true, false),
        ] {
            let report = |at| {
                let mut report = NodeReport::new("n".into(), Capabilities::NONE);
                report.description = (at < answered).then(Description::default);
                report.problems = (at >= voting).then(replica).into_iter().collect();
                report
            };
            let check = Check { nodes: (0..nodes).map(report).collect() };
            assert_eq!(
                (check.has_quorum(), check.can_lock()),
                (has_quorum, can_lock),
                "{answered} and {voting} of {nodes}"
            );
        }
    }
}
