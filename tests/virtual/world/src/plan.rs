//! What a world is like: drawn from its seed before anything happens.

use std::time::Duration;

use quorate_core::backend::{Capabilities, Drift, Ttl};
use quorate_memory::{MemoryNode, Sim};

use crate::dice::Dice;
use crate::oracle::Forgetting;
use crate::world::dice_of;

/// `README.md` says what the worlds of each are like, and what is promised in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Promised,
    Broken,
    Guarded,
    Storm,
    Revoked,
    Line,
    Kills,
    Gate,
    Jobs,
    Readers,
    Permits,
    Cut,
    Groups,
}

/// All classes: the word that chooses each, and how many of a thousand seeds are run of it.
pub(crate) const CLASSES: [(Class, &str, u64); 13] = [
    (Class::Promised, "promised", 1_000),
    (Class::Broken, "broken", 50),
    (Class::Guarded, "guarded", 100),
    (Class::Storm, "storm", 100),
    (Class::Revoked, "revoked", 50),
    (Class::Line, "line", 10),
    (Class::Kills, "kills", 2),
    (Class::Gate, "gate", 2),
    (Class::Jobs, "jobs", 20),
    (Class::Readers, "readers", 50),
    (Class::Permits, "permits", 20),
    (Class::Cut, "cut", 50),
    (Class::Groups, "groups", 50),
];

impl Class {
    pub(crate) fn of_word(word: &str) -> Option<Self> {
        CLASSES.iter().find(|(_, known, _)| *known == word).map(|(class, ..)| *class)
    }

    pub(crate) fn word(self) -> &'static str {
        CLASSES[self as usize].1
    }
}

/// What the nodes can do for waiters, or what a process can use of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ability {
    Queue,  // They keep the wait queue, and push when a key has changed.
    Polled, // They keep the wait queue, and push nothing: a process that waits at them asks again and again.
    Watch,  // They push when a key has changed.
    Nothing,
}

impl Ability {
    /// The same node, with these abilities and no others.
    pub(crate) fn of(self, node: MemoryNode) -> MemoryNode {
        match self {
            Self::Queue => node,
            Self::Polled => node.without(Capabilities::WATCH),
            Self::Watch => node.without(Capabilities::QUEUE),
            Self::Nothing => node.without(Capabilities::WATCH | Capabilities::QUEUE),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tokens {
    Nobody,
    Some,
    All,
}

/// What the wall clocks of clients say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wall {
    Right,
    Off(Duration), // Each is up to this far off, and they are set again and again.
    Stopped,       // It is 1970, so that numbers are counted one by one, and nodes come to differ.
}

/// What the processes of a world can use of the nodes: one of these each.
pub(crate) const USED: [&[Ability]; 5] = [
    &[Ability::Queue],
    &[Ability::Queue, Ability::Queue, Ability::Watch, Ability::Nothing, Ability::Polled],
    &[Ability::Queue, Ability::Polled],
    &[Ability::Polled],
    &[Ability::Watch],
];

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) class: Class,
    pub(crate) nodes: usize,
    pub(crate) ability: Ability,
    pub(crate) clients: usize,
    pub(crate) tasks: usize, // How many tasks each client has. They share its manager.
    pub(crate) resources: usize,
    pub(crate) rounds: usize,
    pub(crate) ttl: Duration,
    pub(crate) latency: Duration, // How long a message takes at the most, when nothing is wrong.
    /// How long it takes at most from one renewal to the next; `None` is the default.
    pub(crate) renew_every: Option<Duration>,
    pub(crate) thinking: Duration, // How long clients do something else between two locks, at the most.
    pub(crate) chaos: Duration,
    pub(crate) loss: u32, // How often a message is lost, cut, doubled or reordered: of a million.
    pub(crate) drift: i32, // How much clocks gain or lose, at the most, of a million.
    pub(crate) tokens: Tokens,
    pub(crate) wall: Wall,
    pub(crate) used: &'static [Ability], // What the processes can use of the nodes: one of these each.
    pub(crate) margin: Option<Duration>, // How long before its keys may expire a lease ends; `None` is the default.
    pub(crate) forgetting: Forgetting,
}

impl Plan {
    pub(crate) fn draw(seed: u64, dice: &Dice, class: Class) -> Self {
        let nodes = *dice.pick(&[1, 2, 3, 3, 3, 4, 5, 5, 5, 6, 7]);
        let clients = match dice.below(40) {
            0 => 20 + dice.below(31),
            1..=10 => 1 + dice.below(2),
            _ => 2 + dice.below(5),
        };
        let ttl = *dice.pick(&[50, 100, 1_000, 1_000, 5_000, 10_000, 30_000, 60_000]);
        let ttl = Duration::from_millis(ttl);
        let rounds = if clients > 6 { 2 } else { 3 + dice.below(8) };
        let thinking = ttl * u32::try_from(dice.below(5)).unwrap_or(1);
        let chaos = (thinking / 2 + ttl) * u32::try_from(rounds).unwrap_or(1);
        // Drawn apart, so that worlds without tokens are what they were before there were any.
        let apart = dice_of(&Sim::new(!seed));
        let all = Tokens::All;
        let tokens = *apart.pick(&[Tokens::Nobody, Tokens::Nobody, Tokens::Some, all, all, all]);
        let off = |seconds| Wall::Off(Duration::from_secs(seconds));
        let wall = match tokens {
            Tokens::Nobody => Wall::Right,
            _ if class == Class::Guarded => *apart.pick(&[Wall::Right, Wall::Right, off(3_600)]),
            _ => *apart.pick(&[Wall::Right, off(1), off(3_600), Wall::Stopped]),
        };
        let (queue, watch, nothing) = (Ability::Queue, Ability::Watch, Ability::Nothing);
        let plan = Self {
            class,
            nodes,
            clients,
            tasks: if clients > 6 { 1 } else { *apart.pick(&[1, 1, 2, 3]) },
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
            tokens,
            wall,
            used: *apart.pick(&USED),
            // The default hides what is wrong with clocks.
            margin: *apart.pick(&[None, Some(Duration::ZERO), Some(Duration::ZERO)]),
            ability: *apart.pick(&[queue, queue, watch, nothing]),
            // The guard sees to it that numbers go on from clocks, which have to be right for it.
            forgetting: match (class, wall) {
                (Class::Guarded, Wall::Right) => Forgetting::Guarded,
                _ => Forgetting::Excused,
            },
        };
        if class == Class::Storm { plan.stormy(&apart) } else { plan }
    }

    /// Clients of one task that hold one lock again and again. No message is lost unless the world says so.
    pub(crate) fn of_one_lock(seed: u64, dice: &Dice, class: Class) -> Self {
        let ttl = Duration::from_millis(*dice.pick(&[500, 1_000, 10_000]));
        Self {
            tasks: 1,
            resources: 1,
            ttl,
            latency: ttl / *dice.pick(&[1_000, 200, 50]),
            loss: 0,
            drift: 0,
            margin: None,
            renew_every: None,
            ..Self::draw(seed, dice, class)
        }
    }

    /// The same for a storm: every client has tokens, nodes differ, and messages are slow beside
    /// the moments at which keys vanish.
    fn stormy(self, dice: &Dice) -> Self {
        let off = Wall::Off(Duration::from_secs(3_600));
        let latency = (self.ttl / *dice.pick(&[200, 50, 25])).min(Duration::from_millis(100));
        Self {
            tokens: *dice.pick(&[Tokens::Some, Tokens::All, Tokens::All, Tokens::All]),
            wall: *dice.pick(&[off, Wall::Stopped, Wall::Stopped, Wall::Stopped]),
            nodes: *dice.pick(&[3, 3, 3, 4, 5, 5, 7]),
            clients: 2 + dice.below(4),
            resources: 1 + dice.below(3),
            thinking: self.ttl / 4 * u32::try_from(dice.below(3)).unwrap_or(1),
            latency,
            ..self
        }
    }

    /// Whether no node loses a key, and nobody takes one away.
    pub(crate) const fn keeps_keys(&self) -> bool {
        matches!(self.class, Class::Promised | Class::Line | Class::Jobs | Class::Permits)
    }

    /// Whether tokens rise with the moments since which their holders could rely on the lock.
    pub(crate) fn orders(&self) -> bool {
        matches!(self.class, Class::Promised | Class::Revoked | Class::Readers)
            || self.forgetting == Forgetting::Guarded
    }

    /// Whether locks are revoked, and holders are notified.
    pub(crate) const fn revokes(&self) -> bool {
        matches!(self.class, Class::Revoked | Class::Readers)
    }

    pub(crate) fn fences(&self, dice: &Dice) -> bool {
        match self.tokens {
            Tokens::Nobody => false,
            Tokens::Some => dice.percent(50),
            Tokens::All => true,
        }
    }

    /// What the drift and the safety margin leave of a ttl.
    pub(crate) fn validity_of(&self, ttl: Duration) -> Duration {
        // The default drift: client and node can run apart twice as far as each is drawn.
        let validity = Ttl::try_from(ttl).map(|ttl| Drift::default().validity_of(ttl));
        validity.unwrap_or_default().saturating_sub(self.margin_of(ttl))
    }

    pub(crate) fn validity(&self) -> Duration {
        self.validity_of(self.ttl)
    }

    /// How long before its keys may expire a lease of this ttl ends.
    fn margin_of(&self, ttl: Duration) -> Duration {
        self.margin.unwrap_or_else(|| (ttl / 10).min(Duration::from_millis(500)))
    }

    /// How long a lease that ended by time keeps its keys, at the least, by the clock of any client.
    pub(crate) fn least_margin(&self) -> Duration {
        // A hundredth is more than clocks differ. The shortest ttl that is asked for is a quarter, or 3 ms.
        let margin = self.margin_of((self.ttl / 4).max(Duration::from_millis(3)));
        margin - margin / 100
    }

    /// How long a round listens to a node: the default of the manager.
    pub(crate) fn node_timeout(&self) -> Duration {
        (self.ttl / 10).min(Duration::from_millis(500)).min(self.validity() / 2)
    }

    pub(crate) fn max_ttl(&self) -> Duration {
        self.ttl * 2
    }
}
