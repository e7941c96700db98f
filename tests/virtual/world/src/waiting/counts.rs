//! The rules of waiting, and what waiting cost.

use std::fmt;
use std::time::Duration;

/// A rule of waiting, and C8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    /// A free lock was idle for too long while a process waited.
    W1Idle,
    /// A process had less than half of its fair share.
    W2Share,
    /// Under 90 of 100 contested releases went to another process.
    W2HandOver,
    /// A waiter waited for longer than all others together can explain.
    W3Starved,
    /// What a killed waiter left at a node was there 10 s later.
    W3Left,
    /// A waiting process sent too many commands.
    W4Cost,
    /// A waiter was overtaken by a later one of its own process.
    Order,
    /// A failed request had keys on a node that answers.
    C8,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::W1Idle => "W1: a free lock was idle while a process waited",
            Self::W2Share => "W2: a process had less than half of its share",
            Self::W2HandOver => "W2: under 90 of 100 releases went to another process",
            Self::W3Starved => "W3: a waiter was starved",
            Self::W3Left => "W3: the keys of a killed waiter were there after 10 s",
            Self::W4Cost => "W4: a waiting process sent too many commands",
            Self::Order => "order: a waiter was overtaken inside its process",
            Self::C8 => "C8: a failed request had keys on a node that answers",
        })
    }
}

/// What came of one world of waiters, or of many.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Waits {
    /// How many worlds.
    pub(crate) worlds: u64,
    /// How many of them the rules of waiting are about.
    pub(crate) ordered: u64,
    /// How many locks were granted in ordered worlds.
    pub(crate) holds: u64,
    /// How many releases another process was waiting for.
    pub(crate) contested: u64,
    /// How many of those went to another process.
    pub(crate) to_another: u64,
    /// The smallest share of a process in a fault-free world, of its fair share.
    pub(crate) least_share: Option<f64>,
    /// The longest time for which a lock was free while a process waited.
    pub(crate) longest_idle: Duration,
    /// The longest wait for a lock, and the seed of its world.
    pub(crate) longest_wait: (Duration, u64),
}

impl Waits {
    /// The same for a world that the rules of waiting are not about: its figures would blur the others.
    pub(crate) fn unordered(self) -> Self {
        Self { holds: 0, contested: 0, to_another: 0, ..self }
    }

    /// Adds another world.
    pub(crate) fn add(&mut self, other: &Self) {
        self.worlds += other.worlds;
        self.ordered += other.ordered;
        self.holds += other.holds;
        self.contested += other.contested;
        self.to_another += other.to_another;
        self.longest_idle = self.longest_idle.max(other.longest_idle);
        self.longest_wait = self.longest_wait.max(other.longest_wait);
        if let Some(share) = other.least_share {
            self.least_share = Some(self.least_share.map_or(share, |least| least.min(share)));
        }
    }
}

impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "waiting: {} worlds, {} in order with {} locks; {} of {} contested releases went to another \
             process; the least share of a process is {:.2}",
            self.worlds,
            self.ordered,
            self.holds,
            self.to_another,
            self.contested,
            self.least_share.unwrap_or(f64::NAN),
        )?;
        writeln!(
            f,
            "  longest wait {:.3} s (seed {}), longest time without a holder {:.3} s",
            self.longest_wait.0.as_secs_f64(),
            self.longest_wait.1,
            self.longest_idle.as_secs_f64(),
        )
    }
}
