//! What a world of waiters is like, beside the plan of all worlds.

use std::ops::Deref;
use std::time::Duration;

use crate::dice::Dice;
use crate::plan::{Ability, Class, Plan, USED};

pub(crate) const MS: Duration = Duration::from_millis(1);

/// The plan of a world, and how its tasks use locks. Without thinking they do so in a tight loop.
#[derive(Clone, Debug)]
pub(crate) struct Habits {
    plan: Plan,
    pub(crate) hold: Duration,
    /// Whether tasks also do all that a user can do: give up, cancel, lock several keys, close.
    pub(crate) mixed: bool,
}

impl Deref for Habits {
    type Target = Plan;

    fn deref(&self) -> &Plan {
        &self.plan
    }
}

impl Habits {
    pub(crate) fn draw(seed: u64, dice: &Dice, class: Class) -> Self {
        let mixed = dice.percent(if class == Class::Line { 60 } else { 25 });
        let ability = match dice.below(10) {
            0 => Ability::Watch,
            1 if class == Class::Line => Ability::Nothing,
            _ => Ability::Queue,
        };
        let (clients, holds): (&[usize], _) = match class {
            Class::Line => (&[1, 2, 3, 4, 6, 8, 8], &[0, 1, 1, 5, 50][..]),
            Class::Kills => (&[4, 6, 6, 6, 8], &[1, 5, 20, 50][..]),
            _ => (&[1, 2, 3, 4, 6, 8, 8], &[1, 5, 20, 50][..]),
        };
        let (clients, hold) = (*dice.pick(clients), *dice.pick(holds));
        let latency = Duration::from_micros(*dice.pick(&[200, 200, 500, 5_000]));
        let thinking = MS * *dice.pick(&[0, 0, 0, hold, 3 * hold]);
        // In most worlds all processes wait in the queue: the rules of waiting are about these.
        let used = if mixed && dice.percent(33) { USED[1] } else { USED[0] };
        let hold = MS * hold;
        // What one lock takes, at the most.
        let turn = hold + latency * 6;
        let plan = Plan {
            nodes: *dice.pick(&[1, 3, 3, 3, 5, 5]),
            ability,
            clients,
            tasks: *dice.pick(&[1, 1, 1, 2, 3]),
            resources: if mixed { 1 + dice.below(2) } else { 1 },
            ttl: MS * *dice.pick(&[2_000, 5_000, 10_000]),
            latency,
            renew_every: None,
            thinking,
            chaos: match class {
                Class::Line => turn * 40 * u32::try_from(clients).unwrap_or(1),
                _ => (turn * *dice.pick(&[300, 300, 300, 1_500])).min(MS * 70_000),
            },
            loss: 0,
            drift: 0,
            used,
            margin: None,
            ..Plan::draw(seed, dice, class)
        };
        let mut habits = Self { plan, hold, mixed };
        if habits.is_even() {
            // Shares are those of some refreshes.
            habits.plan.chaos = MS * 5_000;
        }
        habits
    }

    /// Whether the rules of waiting are about this world: all wait in order, for one key each.
    pub(crate) fn is_ordered(&self) -> bool {
        self.ability == Ability::Queue && self.used == USED[0] && self.resources == 1
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
}
