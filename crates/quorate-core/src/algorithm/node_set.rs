//! A set of nodes.

use std::iter;

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

    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The indexes of its nodes.
    pub(crate) fn indexes(self) -> impl Iterator<Item = usize> {
        let mut bits = self.0;
        iter::from_fn(move || {
            let next = (bits != 0).then_some(bits.trailing_zeros() as usize);
            bits &= bits.saturating_sub(1);
            next
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
    fn a_difference_has_what_only_the_first_has() {
        let ids: Vec<NodeId> = NodeCount::new(5).map(|count| count.ids().collect()).unwrap();
        let [one, other] =
            [&ids[..3], &ids[2..4]].map(|ids| NodeSet::from_iter(ids.iter().copied()));
        assert_eq!(one.without(other).indexes().collect::<Vec<_>>(), [0, 1]);
    }
}
