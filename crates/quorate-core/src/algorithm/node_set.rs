//! A set of nodes.

use std::iter;

use super::quorum::NodeId;

/// Some of the nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeSet(u64);

impl NodeSet {
    /// Adds a node.
    pub const fn insert(&mut self, node: NodeId) {
        self.0 |= node.bit();
    }

    /// Takes a node out.
    pub const fn remove(&mut self, node: NodeId) {
        self.0 &= !node.bit();
    }

    /// Adds a node, or takes it out.
    pub const fn set(&mut self, node: NodeId, is_in: bool) {
        match is_in {
            true => self.insert(node),
            false => self.remove(node),
        }
    }

    /// Whether a node is in the set.
    pub const fn contains(self, node: NodeId) -> bool {
        self.0 & node.bit() != 0
    }

    /// How many nodes it has.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether the set has no node.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The nodes, in the order of the configuration.
    pub fn iter(mut self) -> impl Iterator<Item = NodeId> {
        iter::from_fn(move || {
            let next = NodeId::lowest(self.0)?;
            self.remove(next);
            Some(next)
        })
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
    fn a_set_has_what_was_inserted_and_not_removed() {
        let ids: Vec<NodeId> = NodeCount::new(64).map(|count| count.ids().collect()).unwrap();
        let mut set: NodeSet = ids[..3].iter().chain(&ids[62..]).copied().collect();
        assert_eq!(set.iter().map(NodeId::index).collect::<Vec<_>>(), [0, 1, 2, 62, 63]);
        set.remove(ids[1]);
        assert!(set.contains(ids[0]) && !set.contains(ids[1]));
    }
}
