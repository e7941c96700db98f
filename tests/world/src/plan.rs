//! What a world is like: drawn from its seed before anything happens.

use std::time::Duration;

use quorate_core::{Drift, Ttl};

use crate::dice::Dice;

/// Which promises of the model the world keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "complete by definition: it keeps them or it does not")]
pub enum Class {
    /// Clocks drift within the allowance, and nodes forget nothing: no two holders, ever.
    Promised,
    /// Nodes restart empty or from an old save, and their clocks jump: two holders are possible.
    Broken,
    /// Nodes restart empty or from an old save, or are flushed, clocks drift within the allowance, and
    /// all managers guard against restarts: no two holders, ever.
    Guarded,
}

/// What a world is like.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "a part of the tests")]
pub struct Plan {
    /// Which promises are kept.
    pub class: Class,
    /// How many nodes, 1 to 7.
    pub nodes: usize,
    /// How many clients, 1 to 50.
    pub clients: usize,
    /// How many resources they share.
    pub resources: usize,
    /// How many locks each client asks for.
    pub rounds: usize,
    /// How long the nodes keep a lock.
    pub ttl: Duration,
    /// How long a message takes at the most, when nothing is wrong.
    pub latency: Duration,
    /// How long it takes at most from one renewal to the next; `None` is the default.
    pub renew_every: Option<Duration>,
    /// How long clients do something else between two locks, at the most.
    pub thinking: Duration,
    /// Until when things break.
    pub chaos: Duration,
    /// How often a message is lost, cut, doubled or reordered: of a million.
    pub loss: u32,
    /// How much clocks gain or lose, at the most, of a million.
    pub drift: i32,
}

impl Plan {
    /// Draws a plan.
    #[must_use]
    pub fn draw(dice: &Dice, class: Class) -> Self {
        let nodes = *dice.pick(&[1, 2, 3, 3, 3, 4, 5, 5, 5, 6, 7]);
        let clients = match dice.below(40) {
            0 => 20 + dice.below(31),
            1..=10 => 1 + dice.below(2),
            _ => 2 + dice.below(5),
        };
        let ttl = *dice.pick(&[20, 100, 1_000, 1_000, 5_000, 10_000, 30_000, 60_000]);
        let ttl = Duration::from_millis(ttl);
        let rounds = if clients > 6 { 2 } else { 3 + dice.below(8) };
        let thinking = ttl * u32::try_from(dice.below(5)).unwrap_or(1);
        let chaos = (thinking / 2 + ttl) * u32::try_from(rounds).unwrap_or(1);
        Self {
            class,
            nodes,
            clients,
            resources: 1 + dice.below(2),
            rounds,
            ttl,
            // There and back within a node timeout.
            latency: (ttl / *dice.pick(&[10_000, 1_000, 200, 50, 25]))
                .min(Duration::from_millis(200)),
            renew_every: dice.percent(30).then_some(ttl / 8),
            thinking,
            chaos,
            loss: *dice.pick(&[0, 0, 1_000, 10_000, 50_000]),
            drift: *dice.pick(&[0, 100, 4_900, 4_900]),
        }
    }

    /// The allowance that the drawn drift stays within: client and node can run apart twice as far.
    #[must_use]
    pub fn allowance(&self) -> Drift {
        Drift::default()
    }

    /// What the allowance leaves of the ttl.
    #[must_use]
    pub fn validity(&self) -> Duration {
        Ttl::try_from(self.ttl).map_or(Duration::ZERO, |ttl| self.allowance().validity_of(ttl))
    }

    /// The longest ttl that a worker asks for.
    #[must_use]
    pub fn max_ttl(&self) -> Duration {
        self.ttl * 2
    }

    /// How long cleanup goes on for a silent node.
    #[must_use]
    pub fn cleanup(&self) -> Duration {
        self.ttl
    }
}
