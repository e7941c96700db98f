//! Closing a manager: what is waited for, and what is reported.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};

use crate::algorithm::lease::saturating_add;
use crate::algorithm::quorum::NodeId;
use crate::error::Lost;
use crate::lease::Lease;
use crate::nodes::Silence;
use crate::telemetry;
use crate::wait::local_queue::LocalQueues;
use crate::wait::place::Place;
use crate::wait::task::Task;

/// What was left when a manager was closed.
///
/// `Display` is one line, such as `all released; 10.0.0.2 did not answer`: *all* is all but at the nodes that
/// it names.
#[derive(Clone, Debug)]
#[must_use = "it says whether keys may be left"]
pub struct CloseReport {
    /// The nodes, and why each does not answer; `None` for one that was not clean in time.
    left: Vec<(Arc<str>, Option<Silence>)>,
}

impl CloseReport {
    /// Whether nothing is left on any node. What was given up at a cleanup bound before is not counted.
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
        f.write_str("all released")?;
        for (name, reason) in &self.left {
            match reason {
                Some(Silence::NoReply) => write!(f, "; {name} did not answer")?,
                Some(Silence::Failed(error)) => write!(f, "; {name} failed: {error}")?,
                None => write!(f, "; {name} was not clean in time")?,
            }
        }
        Ok(())
    }
}

pub(super) async fn close(queues: &Arc<LocalQueues>, limit: Duration) -> CloseReport {
    let cluster = &queues.cluster;
    let deadline = saturating_add(cluster.now(), limit);
    cluster.tasks.close();
    for (task, lease) in queues.close() {
        end(queues, &task, &lease, limit / 2);
    }
    let node_timeout = cluster.config.default_node_timeout();
    // Since when all that is left seems silent. It is named after a pause, if it has not answered by then:
    // this process may have been stopped, or too busy to send or to hear.
    let (mut suspected_at, pause) = (None, node_timeout / 4);
    let silent = node_timeout - pause;
    loop {
        // Before the nodes are looked at, so that no change is missed.
        let changed = cluster.tasks.changed();
        let now = cluster.now();
        let ids = cluster.nodes.count().ids().filter(|id| cluster.tasks.is_open(*id));
        let silence = |id| (id, cluster.nodes.health(id).silence(silent, now));
        let left: Vec<(NodeId, Option<Silence>)> = ids.map(silence).collect();
        let answers = left.iter().any(|(_, silence)| silence.is_none());
        let is_silent = left.iter().any(|(_, why)| matches!(why, Some(Silence::NoReply)));
        if suspected_at.is_none() && is_silent && !answers && now < deadline {
            // What this process has to do first.
            select(cluster.tasks.turn(), cluster.runtime.sleep_until(deadline)).await;
            suspected_at = Some(cluster.now());
            continue;
        }
        suspected_at = suspected_at.or(Some(now)).filter(|_| !answers);
        let named_at = suspected_at.map(|at| match is_silent {
            true if !planted!("busy_process_calls_its_nodes_silent") => saturating_add(at, pause),
            _ => at,
        });
        let is_over = named_at.is_some_and(|at| now >= at) || now >= deadline;
        if is_over || planted!("close_does_not_wait") {
            let named = |(id, reason)| (Arc::clone(cluster.nodes.name(id)), reason);
            return CloseReport { left: left.into_iter().map(named).collect() };
        }
        // A release that is owed may leave after this look at the calls in flight.
        let next = named_at.or_else(|| cluster.nodes.next_silence(silent, now));
        let wake = next.unwrap_or_else(|| saturating_add(now, silent)).min(deadline);
        select(changed, cluster.runtime.sleep_until(wake)).await;
    }
}

/// Ends a lease. Its lock is released when its guard is gone, or after the safety margin, but not later
/// than after `most` or at the end of the lease.
fn end(queues: &Arc<LocalQueues>, task: &Arc<Task>, lease: &Lease, most: Duration) {
    let cluster = &queues.cluster;
    let ttl = lease.attempt().claim.ttl();
    let left = lease.remaining();
    match lease.end(Lost::Closed) {
        Ok(()) => telemetry::closed(lease.keys(), lease.held(cluster.now())),
        Err(Lost::Closed | Lost::Released | Lost::Detached) => return,
        // It has no time left, and its keys may still be on the nodes.
        Err(_) => {}
    }
    let grace = cluster.config.safety_margin.of(ttl).min(most).min(left);
    let until = saturating_add(cluster.now(), grace);
    let mut work = cluster.tasks.begin();
    work.set(cluster.nodes.count().ids().collect());
    let (queues, task, lease) = (Arc::clone(queues), Arc::clone(task), lease.clone());
    cluster.tasks.spawn(async move {
        let attempt = lease.attempt();
        let mut timer = lease.cluster().runtime.sleep_until(until);
        loop {
            let changed = attempt.changed();
            if attempt.has_ended() {
                break;
            }
            timer = match select(changed, timer).await {
                Either::Left(((), timer)) => timer,
                Either::Right(_) => break,
            };
        }
        if !planted!("close_forgets_the_leases") {
            Place::release_abandoned(&queues, &task);
            // An adopted lock may be in no queue.
            if !attempt.has_ended() {
                attempt.cancel();
            }
        }
        drop(work);
    });
}
