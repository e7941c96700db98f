//! What is explored: how many attempts, with which clocks, and what is wrong.

use crate::client::NODES;
use crate::flaw::Flaw;
use crate::node::Number;
use crate::world::{IN_TENURE, IN_TIME, UNIQUE};

/// One exploration of all that can happen to `A` attempts.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "a part of the tests")]
pub struct Case<const A: usize> {
    /// What it is called.
    pub name: &'static str,
    /// What the protocol does wrong.
    pub flaw: Option<Flaw>,
    /// The numbers that the nodes begin with; each with all clocks.
    pub fences: Vec<[Number; NODES]>,
    /// What the clients' clocks say; each with all numbers.
    pub clocks: Vec<[Number; A]>,
    /// How many acquires each client may resend and have granted again.
    pub resends: u8,
    /// Whether replies may be lost.
    pub is_lossy: bool,
    /// Whether acquires and raises may arrive after their client has ended.
    pub is_late: bool,
    /// Whether holders extend, and repair what an extension finds lost.
    pub is_extended: bool,
    /// How often a node loses its data.
    pub losses: u8,
    /// Where hints come from.
    pub hints: Hints,
}

/// Where hints come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a part of the tests")]
pub enum Hints {
    /// From clocks that say whatever the case says: nobody may depend on them.
    Given,
    /// From clocks ahead of every number, read when an attempt begins.
    Begin,
    /// From clocks ahead of every number, read when a request is sent; a request does not outlive
    /// the node that it was sent to. (Or the node writes a floor when it finds its data gone.)
    Send,
    /// As `Begin`, and a node that lost its data grants nothing to who began before.
    Quarantine,
}

/// Clocks that are equal, apart, and far apart, either way round.
pub const CLOCKS: [[Number; 2]; 8] =
    [[0, 0], [0, 2], [2, 0], [2, 2], [0, 3], [3, 0], [2, 3], [3, 2]];

/// Numbers that are equal, apart, and far apart.
pub const FENCES: [[Number; NODES]; 6] =
    [[0, 0, 0], [0, 0, 1], [0, 1, 1], [0, 0, 2], [0, 1, 2], [0, 2, 2]];

impl<const A: usize> Case<A> {
    /// The right protocol on new nodes, with no hints and nothing resent.
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            flaw: None,
            fences: vec![[0; NODES]],
            clocks: vec![[0; A]],
            resends: 0,
            is_lossy: true,
            is_late: true,
            is_extended: true,
            losses: 0,
            hints: Hints::Given,
        }
    }
}

impl Case<2> {
    /// Two attempts with all of [`CLOCKS`] on nodes whose numbers are equal, or have drifted apart.
    #[must_use]
    pub fn two() -> Self {
        let (fences, clocks) = (FENCES.to_vec(), CLOCKS.to_vec());
        Self { fences, clocks, is_extended: false, ..Self::new("two attempts") }
    }

    /// The same on nodes whose numbers have drifted apart, with extensions and repairs.
    #[must_use]
    pub fn two_extended() -> Self {
        let fences = vec![[0, 1, 2]];
        Self { fences, ..Self::new("two attempts, numbers apart, extensions") }
    }

    /// Each client may have an acquire granted again.
    #[must_use]
    pub fn two_resent() -> Self {
        Self { resends: 1, is_extended: false, ..Self::new("two attempts, granted again") }
    }

    /// A node loses its data, once.
    #[must_use]
    pub fn two_lost(name: &'static str, hints: Hints) -> Self {
        Self { losses: 1, hints, is_extended: false, ..Self::new(name) }
    }

    /// What must not hold, and what it violates.
    #[must_use]
    pub fn near_misses() -> Vec<(Self, Vec<&'static str>)> {
        let flawed = |name, flaw| Self {
            flaw: Some(flaw),
            fences: vec![[0, 0, 0], [0, 0, 2]],
            is_extended: false,
            ..Self::new(name)
        };
        let all = || vec![UNIQUE, IN_TIME, IN_TENURE];
        vec![
            (flawed("the highest of the replies is the token", Flaw::MaxOfReplies), all()),
            (flawed("F <= t without the bump in the grant", Flaw::NoBump), vec![UNIQUE]),
            (flawed("a vote without the key", Flaw::RaiseWithoutKey), vec![UNIQUE, IN_TENURE]),
            (flawed("the token is read back later", Flaw::ReadBack), all()),
            (Self::two_lost("a loss, no hints", Hints::Given), vec![UNIQUE, IN_TIME]),
            (Self::two_lost("a loss, hints from before it", Hints::Begin), vec![UNIQUE, IN_TENURE]),
        ]
    }
}

impl Case<3> {
    /// Three attempts; every reply arrives, and nothing comes after its client's end.
    #[must_use]
    pub fn three() -> Self {
        Self {
            is_lossy: false,
            is_late: false,
            is_extended: false,
            ..Self::new("three attempts, nothing lost or too late")
        }
    }
}
