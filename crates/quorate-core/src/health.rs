//! Which nodes are worth asking: one that has stopped answering is not sent ever more calls.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::algorithm::quorum::{NodeCount, NodeId};

/// How each node has answered lately.
#[derive(Debug)]
pub(crate) struct Health {
    nodes: Vec<Mutex<Pulse>>,
}

#[derive(Debug, Default)]
struct Pulse {
    /// Calls that it has not answered.
    open: usize,
    /// When it was first asked after its last answer.
    since: Option<Instant>,
    /// When it was last asked though it seemed to hang.
    probed: Option<Instant>,
}

impl Health {
    pub(crate) fn new(nodes: NodeCount) -> Self {
        Self { nodes: nodes.ids().map(|_| Mutex::default()).collect() }
    }

    /// For how long a node has hung, if it is better left alone: it has left calls unanswered, and
    /// given no answer at all, for `patience`.
    ///
    /// Once every `patience` it is worth a call all the same, so that it is found when it wakes.
    pub(crate) fn hangs(&self, node: NodeId, now: Instant, patience: Duration) -> Option<Duration> {
        let mut pulse = self.pulse(node);
        let silent = now.saturating_duration_since(pulse.since.filter(|_| pulse.open > 0)?);
        if silent < patience {
            return None;
        }
        let probed = pulse.probed.or(pulse.since);
        if probed.is_none_or(|probed| now.saturating_duration_since(probed) >= patience) {
            pulse.probed = Some(now);
            return None;
        }
        Some(silent)
    }

    /// Counts a call until it is answered or dropped.
    pub(crate) fn ask(&self, node: NodeId, now: Instant) -> Asked<'_> {
        let mut pulse = self.pulse(node);
        pulse.open += 1;
        if pulse.open == 1 || pulse.since.is_none() {
            (pulse.since, pulse.probed) = (Some(now), None);
        }
        Asked { health: self, node }
    }

    fn pulse(&self, node: NodeId) -> MutexGuard<'_, Pulse> {
        self.nodes[node.index()].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that a node has not answered yet.
pub(crate) struct Asked<'a> {
    health: &'a Health,
    node: NodeId,
}

impl Asked<'_> {
    /// It answered, in whatever way.
    pub(crate) fn answered(self) {
        self.health.pulse(self.node).since = None;
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.health.pulse(self.node).open -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn one() -> (Health, NodeId, Instant) {
        let nodes = NodeCount::new(1).unwrap();
        (Health::new(nodes), nodes.ids().next().unwrap(), Instant::now())
    }

    #[test]
    fn a_node_that_hangs_is_asked_once_in_a_while() {
        let (health, node, start) = one();
        let hangs = |after: Duration| health.hangs(node, start + after, SECOND);
        assert_eq!(hangs(Duration::ZERO), None);
        let first = health.ask(node, start);
        assert_eq!(hangs(SECOND / 2), None, "it may just be slow");
        let _second = health.ask(node, start + SECOND / 2);
        assert_eq!(hangs(SECOND), None, "a probe");
        let _probe = health.ask(node, start + SECOND);
        assert_eq!(hangs(SECOND * 3 / 2), Some(SECOND * 3 / 2));
        assert_eq!(hangs(SECOND * 2), None, "the next probe");
        assert_eq!(hangs(SECOND * 2), Some(SECOND * 2));
        first.answered();
        assert_eq!(hangs(SECOND * 2), None, "it lives");
        let _third = health.ask(node, start + SECOND * 3);
        assert_eq!(hangs(SECOND * 7 / 2), None);
    }

    #[test]
    fn a_node_that_answers_in_time_never_hangs() {
        let (health, node, start) = one();
        for second in 0..100 {
            let now = start + SECOND * second;
            assert_eq!(health.hangs(node, now, SECOND / 2), None);
            health.ask(node, now).answered();
        }
    }

    #[test]
    fn calls_that_are_given_up_are_no_longer_open() {
        let (health, node, start) = one();
        drop(health.ask(node, start));
        assert_eq!(health.hangs(node, start + SECOND * 9, SECOND), None);
    }
}
