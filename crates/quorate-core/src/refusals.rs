//! Which nodes have said that they cannot do something, and when.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::algorithm::quorum::{NodeCount, NodeId};

/// For how long a node is not asked again. Somebody may change it meanwhile.
const REST: Duration = Duration::from_secs(60);

/// The nodes that have said that they cannot do one thing.
#[derive(Debug)]
pub(crate) struct Refusals {
    start: Instant,
    /// When each last said so, in nanoseconds after the start, and one more; zero for never.
    last: Vec<AtomicU64>,
}

impl Refusals {
    pub(crate) fn new(nodes: NodeCount, start: Instant) -> Self {
        Self { start, last: nodes.ids().map(|_| AtomicU64::new(0)).collect() }
    }

    /// Notes that a node refused. Whether it is the first time.
    pub(crate) fn note(&self, node: NodeId, now: Instant) -> bool {
        self.last[node.index()].swap(self.moment(now), Ordering::Relaxed) == 0
    }

    /// Whether a node is better not asked. The time is only asked for where it matters.
    pub(crate) fn hold(&self, node: NodeId, now: impl FnOnce() -> Instant) -> bool {
        let last = self.last[node.index()].load(Ordering::Relaxed);
        last != 0 && Duration::from_nanos(self.moment(now()).saturating_sub(last)) < REST
    }

    fn moment(&self, now: Instant) -> u64 {
        let nanos = now.saturating_duration_since(self.start).as_nanos();
        u64::try_from(nanos).unwrap_or(u64::MAX).saturating_add(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_holds_for_its_node_and_for_a_minute() {
        let (nodes, start) = (NodeCount::new(2).unwrap(), Instant::now());
        let refusals = Refusals::new(nodes, start);
        let [one, other] = [0, 1].map(|place| nodes.ids().nth(place).unwrap());
        assert!(!refusals.hold(one, || unreachable!("it has refused nothing")));
        assert!(refusals.note(one, start));
        assert!(refusals.hold(one, || start + REST - Duration::from_nanos(1)));
        assert!(!refusals.hold(one, || start + REST));
        assert!(!refusals.note(one, start + REST), "it is not the first time");
        assert!(refusals.hold(one, || start + REST));
        assert!(!refusals.hold(other, || start));
    }
}
