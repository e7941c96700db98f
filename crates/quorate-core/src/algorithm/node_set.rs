//! Sets of nodes: a bit for each, since there are 64 at the most.

use super::quorum::NodeId;

/// Some of the nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeSet(u64);

impl NodeSet {
    pub(crate) const ALL: Self = Self(u64::MAX);

    pub(crate) const fn only(node: NodeId) -> Self {
        Self(node.bit())
    }

    /// A bit for each, in the order of the configuration.
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    pub(crate) const fn of_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(crate) const fn insert(&mut self, node: NodeId) {
        self.0 |= node.bit();
    }

    /// Takes it out; whether it was there.
    pub(crate) const fn remove(&mut self, node: NodeId) -> bool {
        let was_there = self.contains(node);
        self.0 &= !node.bit();
        was_there
    }

    pub(crate) const fn contains(self, node: NodeId) -> bool {
        self.0 & node.bit() != 0
    }

    pub(crate) const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(crate) const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Takes out the first of them.
    pub(crate) const fn pop(&mut self) -> Option<NodeId> {
        if self.is_empty() {
            return None;
        }
        let node = NodeId::of_bit(self.0.trailing_zeros());
        self.0 &= self.0 - 1;
        Some(node)
    }

    /// In the order of the configuration.
    pub(crate) fn ids(mut self) -> impl Iterator<Item = NodeId> {
        std::iter::from_fn(move || self.pop())
    }

    /// The same from `first` on, and then those before it.
    pub(crate) fn ids_from(self, first: NodeId) -> impl Iterator<Item = NodeId> {
        let before = Self(first.bit() - 1);
        Self(self.0 & !before.0).ids().chain(self.intersection(before).ids())
    }
}

impl FromIterator<NodeId> for NodeSet {
    fn from_iter<T: IntoIterator<Item = NodeId>>(nodes: T) -> Self {
        nodes.into_iter().fold(Self::default(), |set, node| set.union(Self::only(node)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::quorum::NodeCount;
    use super::*;

    #[test]
    fn a_set_has_what_was_put_in_and_gives_it_back_in_order() {
        let nodes = NodeCount::new(NodeCount::MAX).unwrap();
        for step in 1..=NodeCount::MAX {
            let chosen: Vec<NodeId> = nodes.ids().step_by(step).collect();
            let set: NodeSet = chosen.iter().rev().copied().collect();
            assert_eq!(set.len(), chosen.len());
            assert!(nodes.ids().all(|node| set.contains(node) == chosen.contains(&node)));
            assert_eq!(set.ids().collect::<Vec<_>>(), chosen);
            let (before, after) = chosen.split_at(chosen.len() / 2);
            let from: Vec<NodeId> = set.ids_from(after[0]).collect();
            assert_eq!(from, [after, before].concat());
            let (first, mut rest) = (chosen[0], set);
            assert!(rest.remove(first) && !rest.remove(first) && !rest.contains(first));
            assert_eq!(rest.union(NodeSet::only(first)), set);
            rest.insert(first);
            assert_eq!(rest, set);
        }
        assert_eq!(NodeSet::ALL.len(), NodeCount::MAX);
        assert!(NodeSet::default().is_empty() && NodeSet::default().pop().is_none());
    }
}
