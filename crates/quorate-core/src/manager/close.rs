//! Closing a manager: its waits, and its report.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use event_listener::{Event, EventListener};
use futures_util::future::select;

use crate::algorithm::lease::saturating_add;
use crate::algorithm::node_set::NodeSet;
use crate::algorithm::quorum::NodeId;
use crate::attempt::Attempt;
use crate::cluster::Cluster;
use crate::cluster::attempts::Notice;
use crate::error::Answer;

/// What was left when a manager was closed.
///
/// `Display` is one line, such as `all released; 10.0.0.2 did not answer`: *all* is all but at the
/// nodes that it names. It begins with `not all released` if a node that answers was not clean in
/// time.
#[derive(Clone, Debug)]
#[must_use = "it says whether keys may be left"]
pub struct CloseReport {
    /// The nodes where something may be left, and why.
    left: Vec<(Arc<str>, String)>,
    /// A node that answers was not clean in time.
    is_late: bool,
}

impl CloseReport {
    /// Whether nothing is left on any node.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.left.is_empty()
    }

    /// The nodes where something may be left until its ttl has passed.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.left.iter().map(|(name, _)| &**name)
    }
}

impl fmt::Display for CloseReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_late { "not all released" } else { "all released" })?;
        self.left.iter().try_for_each(|(name, why)| write!(f, "; {name} {why}"))
    }
}

/// How long the close behind a drain may take at least, and at most if its limit is not over.
const CLOSING: Duration = Duration::from_secs(1);
const MOST_CLOSING: Duration = Duration::from_secs(5);

/// Waits until no lease is held, for `limit` at most, and closes.
pub(super) async fn drain(cluster: &Cluster, limit: Duration) -> CloseReport {
    let start = cluster.now();
    let deadline = saturating_add(start, limit);
    for entry in cluster.attempts.close() {
        entry.handle_notice(Notice::Drain, start);
    }
    loop {
        // Before the look, so that no change is missed.
        let over = cluster.attempts.over();
        let now = cluster.now();
        if now >= deadline || Attempt::all_held(cluster).next().is_none() {
            let left = deadline.saturating_duration_since(now);
            return close(cluster, left.clamp(CLOSING, MOST_CLOSING)).await;
        }
        let soon = saturating_add(now, cluster.config.default_node_timeout() / 4);
        select(over, cluster.runtime.sleep_until(soon.min(deadline))).await;
    }
}

pub(super) async fn close(cluster: &Cluster, limit: Duration) -> CloseReport {
    let start = cluster.now();
    let deadline = saturating_add(start, limit);
    for entry in cluster.attempts.close() {
        entry.handle_notice(Notice::Close(limit / 2), start);
    }
    let node_timeout = cluster.config.default_node_timeout();
    // A node that seems silent is named after a pause, if it has not answered by then: this process
    // may have been stopped, or too busy to send or to hear.
    let pause = node_timeout / 4;
    let mut suspected_at: Option<Instant> = None;
    loop {
        // Before the look, so that no change is missed.
        let over = cluster.attempts.over();
        let now = cluster.now();
        let left = look(cluster, node_timeout - pause, now);
        // What a node cannot do now is sent again until the limit.
        let answers = left.iter().any(|(_, why)| answers(why.as_ref()));
        let is_silent = left.iter().any(|(_, why)| matches!(why, Some(Answer::NoReply { .. })));
        if suspected_at.is_none() && is_silent && !answers {
            // What this process has to do first.
            select(next_turn(cluster), cluster.runtime.sleep_until(deadline)).await;
            suspected_at = Some(cluster.now());
            continue;
        }
        suspected_at = suspected_at.or(Some(now)).filter(|_| !answers);
        let named_at =
            suspected_at.map(|at| if is_silent { saturating_add(at, pause) } else { at });
        if named_at.is_some_and(|at| now >= at) || now >= deadline {
            return report(cluster, left, now);
        }
        let soon = saturating_add(now, pause);
        let wake = named_at.map_or(soon, |at| at.min(soon)).min(deadline);
        select(over, cluster.runtime.sleep_until(wake)).await;
    }
}

/// The nodes where something is left, and why each cannot release it; `None` for one that can.
type Remainder = Vec<(NodeId, Option<Answer>)>;

fn look(cluster: &Cluster, silent: Duration, now: Instant) -> Remainder {
    let open = cluster.attempts.open().into_iter();
    let open: NodeSet = open.flat_map(|entry| entry.open_nodes().iter()).collect();
    let why = |node| cluster.nodes.health(node).cannot_release(silent, now);
    open.iter().map(|node| (node, why(node))).collect()
}

/// Whether a node where something is left answers, if only that it cannot now.
fn answers(why: Option<&Answer>) -> bool {
    why.is_none_or(|why| matches!(why, Answer::Failed(error) if error.kind().is_not_now()))
}

fn report(cluster: &Cluster, remainder: Remainder, now: Instant) -> CloseReport {
    let (nodes, mut is_late) = (&cluster.nodes, false);
    let left = nodes.count.ids().filter_map(|node| {
        let why = match remainder.iter().find(|(at, _)| *at == node) {
            Some((_, why)) => {
                is_late |= answers(why.as_ref());
                match why {
                    Some(Answer::Failed(error)) => format!("failed: {error}"),
                    Some(_) => "did not answer".to_owned(),
                    None => "was not clean in time".to_owned(),
                }
            }
            None if nodes.health(node).may_hold(now) => {
                "may keep a key whose call was given up".to_owned()
            }
            None => return None,
        };
        Some((Arc::clone(nodes.name(node)), why))
    });
    CloseReport { left: left.collect(), is_late }
}

/// Resolves when the tasks that are ready now have run, on a runtime that runs them in order.
fn next_turn(cluster: &Cluster) -> EventListener {
    let signal = NotifyOnDrop(Event::new());
    let turn = signal.0.listen();
    cluster.runtime.spawn(Box::pin(async move { drop(signal) }));
    turn
}

/// Notifies when a task has ended, or its runtime has.
struct NotifyOnDrop(Event);

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        self.0.notify(usize::MAX);
    }
}
