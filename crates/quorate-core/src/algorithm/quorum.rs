//! The count of votes: a total function from what the nodes said to pending, won or lost.

use std::fmt;

/// Which node, by its place in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u8);

impl NodeId {
    /// The place in the configuration, from 0.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Its place among 64 bits.
    pub(super) const fn bit(self) -> u64 {
        1 << (self.0 & 63)
    }

    /// The node whose bit is the one at `place`.
    pub(crate) const fn of_bit(place: u32) -> Self {
        Self((place & 63) as u8)
    }
}

/// How many nodes are configured: 1 to 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeCount(u8);

impl NodeCount {
    /// The most nodes that one lock can span.
    pub const MAX: usize = 64;

    /// Parses a count; `None` for zero and for more than [`MAX`](Self::MAX).
    #[must_use]
    pub fn new(nodes: usize) -> Option<Self> {
        match u8::try_from(nodes) {
            Ok(count @ 1..=64) => Some(Self(count)),
            _ => None,
        }
    }

    /// The count.
    #[must_use]
    pub const fn get(self) -> usize {
        self.0 as usize
    }

    /// The smallest majority of the **configured** nodes: N/2 + 1. Any two share a node.
    #[must_use]
    pub const fn quorum(self) -> usize {
        self.get() / 2 + 1
    }

    /// How many nodes can fail while a quorum is still to be had: N − quorum.
    #[must_use]
    pub const fn spare(self) -> usize {
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
    /// Acquire: somebody else's. Extend and release: not ours, or no longer there.
    Refused,
}

/// Where a count stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "complete by definition: the states of a vote")]
pub enum Verdict {
    /// Open: the nodes that have not answered decide.
    Pending,
    /// A quorum is for it.
    Won,
    /// No quorum can be had any more.
    Lost,
}

/// The votes of one round. The first answer of a node counts, later ones do not.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    nodes: NodeCount,
    granted: u64,
    refused: u64,
    unknown: u64,
}

impl Tally {
    /// A count in which nobody has voted.
    #[must_use]
    pub const fn new(nodes: NodeCount) -> Self {
        Self { nodes, granted: 0, refused: 0, unknown: 0 }
    }

    /// Counts a vote, unless the node has voted or was given up.
    pub fn on_vote(&mut self, node: NodeId, vote: Vote) {
        if planted!("last_vote_counts") {
            self.granted &= !node.bit();
            self.refused &= !node.bit();
        }
        if self.is_open(node) {
            match vote {
                Vote::Refused if planted!("refusals_count_as_grants") => self.granted |= node.bit(),
                Vote::Granted => self.granted |= node.bit(),
                Vote::Refused => self.refused |= node.bit(),
            }
        }
    }

    /// Gives a node up: it failed, or stayed silent.
    pub fn on_unknown(&mut self, node: NodeId) {
        if self.is_open(node) {
            self.unknown |= node.bit();
        }
    }

    /// Gives up all nodes that have not voted.
    pub fn on_silence(&mut self) {
        for node in self.nodes.ids() {
            if planted!("silence_counts_as_a_grant") {
                self.on_vote(node, Vote::Granted);
            }
            self.on_unknown(node);
        }
    }

    /// Whether a quorum granted, or still can.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        self.decide(self.granted())
    }

    /// The same where either vote serves: a release only needs to hear that the keys are not there.
    #[must_use]
    pub fn verdict_of_any(&self) -> Verdict {
        self.decide(self.granted() + self.refused())
    }

    /// The nodes configured.
    #[must_use]
    pub const fn nodes(&self) -> NodeCount {
        self.nodes
    }

    /// How many granted.
    #[must_use]
    pub const fn granted(&self) -> usize {
        self.granted.count_ones() as usize
    }

    /// How many refused.
    #[must_use]
    pub const fn refused(&self) -> usize {
        self.refused.count_ones() as usize
    }

    /// How many were given up.
    #[must_use]
    pub const fn unknown(&self) -> usize {
        self.unknown.count_ones() as usize
    }

    /// What a node said, if it voted.
    #[must_use]
    pub const fn vote_of(&self, node: NodeId) -> Option<Vote> {
        if self.granted & node.bit() != 0 {
            Some(Vote::Granted)
        } else if self.refused & node.bit() != 0 {
            Some(Vote::Refused)
        } else {
            None
        }
    }

    /// Whether a node has neither voted nor been given up.
    #[must_use]
    pub const fn is_open(&self, node: NodeId) -> bool {
        (self.granted | self.refused | self.unknown) & node.bit() == 0
    }

    const fn open(&self) -> usize {
        self.nodes.get() - self.granted() - self.refused() - self.unknown()
    }

    fn decide(&self, yes: usize) -> Verdict {
        if planted!("slowest_node_is_waited_for") && self.open() > 0 {
            return Verdict::Pending;
        }
        let half = (self.nodes.get() / 2).max(1);
        if planted!("half_is_a_quorum") && yes >= half {
            return Verdict::Won;
        }
        let replies = self.granted() + self.refused();
        if planted!("quorum_of_the_nodes_that_replied") && self.open() == 0 && yes > replies / 2 {
            return Verdict::Won;
        }
        if yes >= self.nodes.quorum() {
            Verdict::Won
        } else if yes + self.open() < self.nodes.quorum() {
            Verdict::Lost
        } else {
            Verdict::Pending
        }
    }
}

/// Prints a letter per node: granted, refused, unknown, or an underscore for one that is open.
impl fmt::Debug for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tally(")?;
        for node in self.nodes.ids() {
            f.write_str(match self.vote_of(node) {
                Some(Vote::Granted) => "g",
                Some(Vote::Refused) => "r",
                None if self.is_open(node) => "_",
                None => "u",
            })?;
        }
        f.write_str(")")
    }
}
