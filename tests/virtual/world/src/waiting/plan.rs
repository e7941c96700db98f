//! What a world of waiters is like.

use std::time::Duration;

use crate::dice::Dice;
use crate::plan::{Ability, Class};

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) class: Class,
    pub(crate) nodes: usize,
    pub(crate) ability: Ability,
    pub(crate) processes: usize,
    pub(crate) tasks: usize,
    pub(crate) keys: usize,
    pub(crate) latency: Duration, // How long a message takes at the most; at the least two thirds of it.
    pub(crate) ttl: Duration,
    pub(crate) hold: Duration,
    /// How long a task does something else between two locks, at the most. Zero is a tight loop.
    pub(crate) thinking: Duration,
    /// Whether tasks also do all that a user can do: give up, cancel, lock several keys, close.
    pub(crate) mixed: bool,
    pub(crate) others: usize, // How many percent of the managers wait without a queue.
    pub(crate) holds: u64,
    pub(crate) lasting: Duration,
}

pub(crate) const MS: Duration = Duration::from_millis(1);

impl Plan {
    pub(crate) fn draw(dice: &Dice, class: Class) -> Self {
        let mixed = dice.percent(if class == Class::Line { 60 } else { 25 });
        let ability = match dice.below(10) {
            0 => Ability::Watch,
            1 if class == Class::Line => Ability::Nothing,
            _ => Ability::Queue,
        };
        let processes = match class {
            Class::Kills => *dice.pick(&[4, 6, 6, 6, 8]),
            _ => *dice.pick(&[1, 2, 3, 4, 6, 8, 8]),
        };
        let hold = match class {
            Class::Line => *dice.pick(&[0, 1, 1, 5, 50]),
            _ => *dice.pick(&[1, 5, 20, 50]),
        };
        let plan = Self {
            class,
            nodes: *dice.pick(&[1, 3, 3, 3, 5, 5]),
            processes,
            tasks: *dice.pick(&[1, 1, 1, 2, 3]),
            keys: if mixed { 1 + dice.below(2) } else { 1 },
            latency: Duration::from_micros(*dice.pick(&[200, 200, 500, 5_000])),
            ttl: MS * *dice.pick(&[2_000, 5_000, 10_000]),
            hold: MS * hold,
            thinking: MS * *dice.pick(&[0, 0, 0, hold, 3 * hold]),
            mixed,
            ability,
            others: if mixed { *dice.pick(&[0, 0, 20]) } else { 0 },
            holds: match class {
                Class::Line => 40 * processes as u64,
                _ => *dice.pick(&[400, 400, 400, 2_000]),
            },
            lasting: MS * *dice.pick(&[20_000, 70_000]),
        };
        // Shares are those of some refreshes.
        if plan.is_even() { Self { holds: u64::MAX, lasting: MS * 5_000, ..plan } } else { plan }
    }

    /// Whether the rules of waiting are about this world: all wait in order, for one key each.
    pub(crate) fn is_ordered(&self) -> bool {
        self.ability == Ability::Queue && self.others == 0 && self.keys == 1
    }

    /// Whether all processes do the same, so that each may expect the same share.
    pub(crate) fn is_even(&self) -> bool {
        let is_tight = !self.mixed && self.class == Class::Line && self.thinking.is_zero();
        self.is_ordered() && is_tight && self.shows_its_holders()
    }

    /// Whether a lock is held for long enough to be seen at the gate. A lock that two refused attempts in
    /// a row found free there misleads its first waiter, which then rests.
    pub(crate) fn shows_its_holders(&self) -> bool {
        self.hold >= MS && self.hold >= self.round_trip() * 2
    }

    /// From the first byte of a request to its reply, at the most.
    pub(crate) fn round_trip(&self) -> Duration {
        self.latency * 2
    }

    pub(crate) fn node_timeout(&self) -> Duration {
        (self.ttl / 10).min(MS * 500)
    }
}
