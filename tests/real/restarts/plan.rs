//! What to run.

use std::path::PathBuf;
use std::time::Duration;

/// Whether the managers keep nodes that lost their data away for the longest ttl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "complete by definition: on or off")]
pub enum Guard {
    /// They do.
    On,
    /// They do not: two may hold one lock.
    Off,
}

impl Guard {
    /// The word for it on a command line.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
        }
    }

    /// Reads the word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::On, Self::Off].into_iter().find(|guard| guard.word() == word)
    }
}

/// One run.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "a part of the tests")]
pub struct Plan {
    /// How many nodes there are: 3 or 5.
    pub nodes: usize,
    /// How often a node is killed and started again, at the least.
    pub cycles: u32,
    /// Of all locks, and the longest that the guard is set for.
    pub ttl: Duration,
    /// Of all managers.
    pub guard: Guard,
    /// Of the choices of the nemesis and of the clients. What follows from them hangs on the
    /// machine, too.
    pub seed: u64,
    /// The program that is a client process: this one's `main`.
    pub program: PathBuf,
}

/// Locks that are contended for.
pub const LOCKS: u32 = 8;

impl Plan {
    /// How many nodes may be away and leave a quorum.
    #[must_use]
    pub const fn spare(&self) -> usize {
        (self.nodes - 1) / 2
    }
}
