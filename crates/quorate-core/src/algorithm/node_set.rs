//! A set of nodes.

use super::quorum::NodeId;

/// Some of the nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeSet(u64);

impl NodeSet {
    pub(crate) const fn insert(&mut self, node: NodeId) {
        self.0 |= node.bit();
    }

    pub(crate) const fn contains(self, node: NodeId) -> bool {
        self.0 & node.bit() != 0
    }

    pub(crate) const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl FromIterator<NodeId> for NodeSet {
    fn from_iter<T: IntoIterator<Item = NodeId>>(nodes: T) -> Self {
        let mut set = Self::default();
        nodes.into_iter().for_each(|node| set.insert(node));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::super::quorum::NodeCount;
    use super::*;

    #[test]
    fn a_union_has_what_either_has() {
        let ids: Vec<NodeId> = NodeCount::new(5).map(|count| count.ids().collect()).unwrap();
        let [one, other] =
            [&ids[..3], &ids[2..4]].map(|ids| NodeSet::from_iter(ids.iter().copied()));
        let has: Vec<bool> = ids.iter().map(|id| one.union(other).contains(*id)).collect();
        assert_eq!(has, [true, true, true, true, false]);
    }
}
