//! How many nodes there are, and how many of them decide.

/// Which node, by its place in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u8);

impl NodeId {
    /// The first node of a configuration.
    pub(crate) const FIRST: Self = Self(0);

    /// The place in the configuration, from 0.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Its place among 64 bits.
    pub(super) const fn bit(self) -> u64 {
        1 << (self.0 & 63)
    }

    /// The node with the lowest place among these bits; `None` if there is none.
    pub(super) const fn lowest(bits: u64) -> Option<Self> {
        // At most 63, so nothing is cut off.
        if bits == 0 { None } else { Some(Self(bits.trailing_zeros() as u8)) }
    }
}

/// How many nodes are configured: 1 to 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeCount(u8);

impl NodeCount {
    /// The most nodes that one lock can span.
    pub const MAX: usize = 64;

    /// Parses a count; `None` for zero and for more than [`MAX`](Self::MAX).
    pub fn new(nodes: usize) -> Option<Self> {
        u8::try_from(nodes).ok().filter(|_| (1..=Self::MAX).contains(&nodes)).map(Self)
    }

    /// The count.
    pub const fn get(self) -> usize {
        self.0 as usize
    }

    /// The smallest majority of the **configured** nodes: N/2 + 1. Any two share a node.
    pub fn quorum(self) -> usize {
        self.get() / 2 + 1
    }

    /// How many nodes can fail while a quorum is still possible: N − quorum.
    pub fn spare(self) -> usize {
        self.get() - self.quorum()
    }

    /// The ids, in order.
    pub fn ids(self) -> impl DoubleEndedIterator<Item = NodeId> + ExactSizeIterator {
        (0..self.0).map(NodeId)
    }
}

/// What a node said.
///
/// A node that said nothing, or answered with an error, is neither: it is *unknown*.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "complete by definition: a vote is for or against")]
pub enum Vote {
    /// Acquire: the keys are ours. Extend: they were, and live longer. Release: they are gone.
    Granted,
    /// Acquire: the keys are another holder's. Extend and release: not ours, or no longer there.
    Refused,
}
