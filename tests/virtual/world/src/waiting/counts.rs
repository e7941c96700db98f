//! What came of a world of waiters.

use std::fmt;
use std::time::Duration;

/// The rules of waiting, the order inside a process, and C8, as a report names them.
pub(crate) mod rule {
    pub(crate) const W1_IDLE: &str = "W1: a free lock was idle while a process waited";
    pub(crate) const W2_SHARE: &str = "W2: a process had less than half of its share";
    pub(crate) const W2_HAND_OVER: &str = "W2: under 90 of 100 releases went to another process";
    /// It waited for longer than all others together can explain.
    pub(crate) const W3_STARVED: &str = "W3: a waiter was starved";
    pub(crate) const W3_LEFT: &str = "W3: the keys of a killed waiter were there after 10 s";
    pub(crate) const W4_COST: &str = "W4: a waiting process sent too many commands";
    pub(crate) const ORDER: &str = "order: a waiter was overtaken inside its process";
    pub(crate) const C8: &str = "C8: a failed request had keys on a node that answers";
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Waits {
    pub(crate) worlds: u64,
    pub(crate) ordered: u64,
    pub(crate) holds: u64,
    pub(crate) contested: u64, // How many releases another process was waiting for.
    pub(crate) to_another: u64,
    pub(crate) least_share: Option<f64>, // The smallest share of a process in a fault-free world, of its fair share.
    pub(crate) longest_idle: Duration, // The longest time for which a lock was free while a process waited.
    pub(crate) longest_wait: (Duration, u64), // The longest wait for a lock, and the seed of its world.
}

impl Waits {
    /// The same for a world that the rules of waiting are not about: its figures would blur the others.
    pub(crate) fn unordered(self) -> Self {
        Self { holds: 0, contested: 0, to_another: 0, ..self }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.worlds += other.worlds;
        self.ordered += other.ordered;
        self.holds += other.holds;
        self.contested += other.contested;
        self.to_another += other.to_another;
        self.longest_idle = self.longest_idle.max(other.longest_idle);
        self.longest_wait = self.longest_wait.max(other.longest_wait);
        let shares = [self.least_share, other.least_share].into_iter().flatten();
        self.least_share = shares.reduce(f64::min);
    }
}

impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { worlds, ordered, holds, contested, to_another, .. } = self;
        let (share, idle) = (self.least_share.unwrap_or(f64::NAN), self.longest_idle.as_secs_f64());
        let (wait, seed) = (self.longest_wait.0.as_secs_f64(), self.longest_wait.1);
        writeln!(
            f,
            "waiting: {worlds} worlds, {ordered} in order with {holds} locks; {to_another} of {contested} contested \
             releases went to another process; the least share of a process is {share:.2}\n  longest wait {wait:.3} s \
             (seed {seed}), longest time without a holder {idle:.3} s"
        )
    }
}
