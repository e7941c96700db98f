//! Which nodes are worth asking: one that has stopped answering is not sent ever more calls.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::algorithm::quorum::{NodeCount, NodeId};

/// How each node has answered lately.
///
/// A guess, on which no vote depends: what two threads say at once may be mixed.
#[derive(Debug)]
pub(crate) struct Health {
    start: Instant,
    nodes: Vec<Pulse>,
}

/// Moments in nanoseconds after the start, and one more; zero for none.
#[derive(Debug, Default)]
struct Pulse {
    /// Calls that it has not answered.
    open: AtomicUsize,
    /// When it was first asked after its last answer.
    since: AtomicU64,
    /// When it was last asked though it seemed to hang.
    probed: AtomicU64,
}

impl Health {
    pub(crate) fn new(nodes: NodeCount, start: Instant) -> Self {
        Self { start, nodes: nodes.ids().map(|_| Pulse::default()).collect() }
    }

    /// For how long a node has hung, if it is better left alone: it has left calls unanswered, and
    /// given no answer at all, for `patience`.
    ///
    /// Once every `patience` it is worth a call all the same, so that it is found when it wakes.
    pub(crate) fn hangs(&self, node: NodeId, now: Instant, patience: Duration) -> Option<Duration> {
        let pulse = &self.nodes[node.index()];
        let since = pulse.since.load(Ordering::Relaxed);
        if since == 0 || pulse.open.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let now = self.moment(now);
        let silent = Duration::from_nanos(now.saturating_sub(since));
        if silent < patience {
            return None;
        }
        let probed = pulse.probed.load(Ordering::Relaxed);
        // A probe of an earlier silence lies before this one.
        let last = since.max(probed);
        let is_due = Duration::from_nanos(now.saturating_sub(last)) >= patience;
        let ours = || {
            let (new, order) = (now, Ordering::Relaxed);
            pulse.probed.compare_exchange(probed, new, order, order).is_ok()
        };
        if is_due && ours() { None } else { Some(silent) }
    }

    /// Notes that the node is asked.
    pub(crate) fn asked(&self, node: NodeId, now: Instant) {
        let pulse = &self.nodes[node.index()];
        let earlier = pulse.open.fetch_add(1, Ordering::Relaxed);
        if earlier == 0 || pulse.since.load(Ordering::Relaxed) == 0 {
            pulse.since.store(self.moment(now), Ordering::Relaxed);
        }
    }

    /// Notes that it has answered one of the calls.
    pub(crate) fn answered(&self, node: NodeId) {
        self.nodes[node.index()].since.store(0, Ordering::Relaxed);
        self.given_up(node);
    }

    /// Notes that nobody waits for one of the answers any more.
    pub(crate) fn given_up(&self, node: NodeId) {
        self.nodes[node.index()].open.fetch_sub(1, Ordering::Relaxed);
    }

    fn moment(&self, now: Instant) -> u64 {
        let nanos = now.saturating_duration_since(self.start).as_nanos();
        u64::try_from(nanos).unwrap_or(u64::MAX).saturating_add(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn one() -> (Health, NodeId, Instant) {
        let (nodes, start) = (NodeCount::new(1).unwrap(), Instant::now());
        (Health::new(nodes, start), nodes.ids().next().unwrap(), start)
    }

    #[test]
    fn a_node_that_hangs_is_asked_once_in_a_while() {
        let (health, node, start) = one();
        let hangs = |after: Duration| health.hangs(node, start + after, SECOND);
        assert_eq!(hangs(Duration::ZERO), None);
        health.asked(node, start);
        assert_eq!(hangs(SECOND / 2), None, "it may just be slow");
        health.asked(node, start + SECOND / 2);
        assert_eq!(hangs(SECOND), None, "a probe");
        health.asked(node, start + SECOND);
        assert_eq!(hangs(SECOND * 3 / 2), Some(SECOND * 3 / 2));
        assert_eq!(hangs(SECOND * 2), None, "the next probe");
        assert_eq!(hangs(SECOND * 2), Some(SECOND * 2));
        health.answered(node);
        assert_eq!(hangs(SECOND * 2), None, "it lives");
        health.asked(node, start + SECOND * 3);
        assert_eq!(hangs(SECOND * 7 / 2), None);
    }

    #[test]
    fn a_node_that_answers_in_time_never_hangs() {
        let (health, node, start) = one();
        for second in 0..100 {
            let now = start + SECOND * second;
            assert_eq!(health.hangs(node, now, SECOND / 2), None);
            health.asked(node, now);
            health.answered(node);
        }
    }

    #[test]
    fn calls_that_are_given_up_are_no_longer_open() {
        let (health, node, start) = one();
        health.asked(node, start);
        health.given_up(node);
        let (late, hangs) = (start + SECOND * 9, |now| health.hangs(node, now, SECOND));
        assert_eq!(hangs(late), None);
        assert_eq!(hangs(late), None, "nor was that a probe");
        // What is asked now has its own time.
        health.asked(node, late);
        assert_eq!(hangs(late + SECOND / 2), None);
        assert_eq!(hangs(late + SECOND / 2), None, "nor was that a probe");
    }

    #[test]
    fn a_node_that_has_answered_once_can_hang_while_older_calls_are_open() {
        let (health, node, start) = one();
        health.asked(node, start);
        health.asked(node, start);
        health.answered(node);
        health.asked(node, start + SECOND);
        let later = start + SECOND * 2;
        assert_eq!(health.hangs(node, later, SECOND), None, "a probe");
        assert_eq!(health.hangs(node, later, SECOND), Some(SECOND), "since it was asked again");
    }
}
