//! A set of nodes that many threads change.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::algorithm::node_set::NodeSet;
use crate::algorithm::quorum::NodeId;

/// Some of the nodes, known to many threads.
#[derive(Debug, Default)]
pub(crate) struct AtomicNodeSet(AtomicU64);

impl AtomicNodeSet {
    /// Sequentially consistent, and tells the set with the node in it.
    pub(crate) fn insert(&self, node: NodeId) -> NodeSet {
        let before = self.0.fetch_or(NodeSet::only(node).bits(), Ordering::SeqCst);
        NodeSet::of_bits(before).union(NodeSet::only(node))
    }

    pub(crate) fn insert_these(&self, nodes: NodeSet) {
        self.0.fetch_or(nodes.bits(), Ordering::SeqCst);
    }

    /// Puts it in, unless it is there.
    pub(crate) fn try_insert(&self, node: NodeId) -> bool {
        let before = self.0.fetch_or(NodeSet::only(node).bits(), Ordering::SeqCst);
        !NodeSet::of_bits(before).contains(node)
    }

    /// Removes it. Whether it was there.
    pub(crate) fn take(&self, node: NodeId) -> bool {
        let one = NodeSet::only(node).bits();
        self.0.fetch_and(!one, Ordering::SeqCst) & one != 0
    }

    pub(crate) fn take_all(&self) -> NodeSet {
        NodeSet::of_bits(self.0.swap(0, Ordering::SeqCst))
    }

    pub(crate) fn remove(&self, node: NodeId) {
        self.0.fetch_and(!NodeSet::only(node).bits(), Ordering::SeqCst);
    }

    pub(crate) fn insert_all(&self) {
        self.0.store(u64::MAX, Ordering::SeqCst);
    }

    pub(crate) fn get(&self) -> NodeSet {
        NodeSet::of_bits(self.0.load(Ordering::SeqCst))
    }

    pub(crate) fn contains(&self, node: NodeId) -> bool {
        self.get().contains(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::quorum::NodeCount;

    #[test]
    fn what_is_put_in_is_there_until_it_is_taken_out() {
        let nodes = NodeCount::new(NodeCount::MAX).unwrap();
        let set = AtomicNodeSet::default();
        for (place, node) in nodes.ids().enumerate() {
            assert!(!set.contains(node) && set.try_insert(node) && !set.try_insert(node));
            assert_eq!(set.insert(node).len(), place + 1);
        }
        for node in nodes.ids() {
            set.remove(node);
            assert!(!set.contains(node));
        }
        assert!(set.get().is_empty());
        set.insert_all();
        assert!(nodes.ids().all(|node| set.contains(node)));
        assert_eq!((set.take_all(), set.get()), (NodeSet::ALL, NodeSet::default()));
    }
}
