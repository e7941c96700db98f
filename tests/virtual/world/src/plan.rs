//! What a world is like: drawn from its seed before anything happens.

use std::fmt;
use std::time::Duration;

use quorate_core::backend::{Drift, Ttl};
use quorate_memory::Sim;

use crate::ability::Ability;
use crate::dice::Dice;
use crate::oracle::Forgetting;

/// Which promises of the model the world keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Clocks drift within the allowance, and nodes forget nothing: no two holders, ever.
    Promised,
    /// Nodes restart empty or from an old save, and their clocks jump: two holders are possible.
    Broken,
    /// Nodes restart empty or from an old save, or are flushed, clocks drift within the allowance, and
    /// all managers guard against restarts: no two holders, ever.
    Guarded,
    /// Keys vanish at any moment and clocks of nodes jump, but nothing else is forgotten: two
    /// holders are likely, and their fencing tokens are in order.
    Storm,
    /// As [`Promised`](Self::Promised), and locks are revoked at any moment: no two holders, ever.
    Revoked,
    /// Nothing fails: processes of several tasks wait for a few keys.
    Line,
    /// As [`Line`](Self::Line), and waiters are killed and start again.
    Kills,
    /// As [`Line`](Self::Line), and nodes that keep the wait queue hang, die or forget it, and
    /// notifications are lost.
    Gate,
}

impl Class {
    /// All classes, by the word that chooses them.
    pub(crate) const ALL: [(&'static str, Self); 8] = [
        ("promised", Self::Promised),
        ("broken", Self::Broken),
        ("guarded", Self::Guarded),
        ("storm", Self::Storm),
        ("revoked", Self::Revoked),
        ("line", Self::Line),
        ("kills", Self::Kills),
        ("gate", Self::Gate),
    ];

    /// The class of this word.
    pub(crate) fn of_word(word: &str) -> Option<Self> {
        Self::ALL.iter().find_map(|(other, class)| (*other == word).then_some(*class))
    }

    /// The word that chooses it.
    pub(crate) fn word(self) -> &'static str {
        let word = |(word, class): &(&'static str, Self)| (*class == self).then_some(*word);
        Self::ALL.iter().find_map(word).unwrap_or_default()
    }

    /// Whether the world is one of [waiters](crate::waiting).
    pub(crate) const fn is_about_waiting(self) -> bool {
        matches!(self, Self::Line | Self::Kills | Self::Gate)
    }
}

/// Which requests are for locks with a fencing token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tokens {
    /// None.
    Nobody,
    /// Every other request.
    Some,
    /// All.
    All,
}

/// What the wall clocks of clients say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wall {
    /// The right time.
    Right,
    /// Each is up to this far off, and they are set again and again.
    Off(Duration),
    /// It is 1970, so that numbers are counted one by one, and nodes come to differ.
    Stopped,
}

/// What the processes of a world can use of the nodes: one of these each.
const USED: [&[Ability]; 5] = [
    &[Ability::Queue],
    &[Ability::Queue, Ability::Queue, Ability::Watch, Ability::Nothing, Ability::Polled],
    &[Ability::Queue, Ability::Polled],
    &[Ability::Polled],
    &[Ability::Watch],
];

/// What a world is like.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Which promises are kept.
    pub(crate) class: Class,
    /// How many nodes, 1 to 7.
    pub(crate) nodes: usize,
    /// How many clients, 1 to 50.
    pub(crate) clients: usize,
    /// How many tasks each client has. They share its manager.
    pub(crate) tasks: usize,
    /// How many resources they share.
    pub(crate) resources: usize,
    /// How many locks each client asks for.
    pub(crate) rounds: usize,
    /// How long the nodes keep a lock.
    pub(crate) ttl: Duration,
    /// How long a message takes at the most, when nothing is wrong.
    pub(crate) latency: Duration,
    /// How long it takes at most from one renewal to the next; `None` is the default.
    pub(crate) renew_every: Option<Duration>,
    /// How long clients do something else between two locks, at the most.
    pub(crate) thinking: Duration,
    /// Until when things break.
    pub(crate) chaos: Duration,
    /// How often a message is lost, cut, doubled or reordered: of a million.
    pub(crate) loss: u32,
    /// How much clocks gain or lose, at the most, of a million.
    pub(crate) drift: i32,
    /// Which requests ask for fencing tokens.
    pub(crate) tokens: Tokens,
    /// What the wall clocks of clients say.
    pub(crate) wall: Wall,
    /// What the processes can use of the nodes: one of these each.
    pub(crate) used: &'static [Ability],
    /// How long before its keys may expire a lease ends; `None` is the default.
    pub(crate) margin: Option<Duration>,
    /// What the nodes can do for waiters.
    pub(crate) ability: Ability,
    /// What is promised of tokens when they do.
    pub(crate) forgetting: Forgetting,
}

impl Plan {
    /// Draws a plan.
    pub(crate) fn draw(seed: u64, dice: &Dice, class: Class) -> Self {
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
        // Drawn apart, so that worlds without tokens are what they were before there were any.
        let apart = Dice::new(Sim::new(!seed));
        let all = Tokens::All;
        let tokens = *apart.pick(&[Tokens::Nobody, Tokens::Nobody, Tokens::Some, all, all, all]);
        let off = |seconds| Wall::Off(Duration::from_secs(seconds));
        let wall = match tokens {
            Tokens::Nobody => Wall::Right,
            _ if class == Class::Guarded => *apart.pick(&[Wall::Right, Wall::Right, off(3_600)]),
            _ => *apart.pick(&[Wall::Right, off(1), off(3_600), Wall::Stopped]),
        };
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
            ability: *apart.pick(&[
                Ability::Queue,
                Ability::Queue,
                Ability::Watch,
                Ability::Nothing,
            ]),
            // The guard sees to it that numbers go on from clocks, which have to be right for it.
            forgetting: match (class, wall) {
                (Class::Guarded, Wall::Right) => Forgetting::Guarded,
                _ => Forgetting::Excused,
            },
        };
        if class == Class::Storm { plan.stormy(&apart) } else { plan }
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

    /// Whether no two may hold one resource at a time.
    pub(crate) fn excludes(&self) -> bool {
        matches!(self.class, Class::Promised | Class::Guarded | Class::Revoked)
    }

    /// Whether nodes lose their data.
    pub(crate) fn forgets(&self) -> bool {
        matches!(self.class, Class::Broken | Class::Guarded)
    }

    /// Whether tokens rise with the moments since which their holders could rely on the lock.
    pub(crate) fn orders(&self) -> bool {
        matches!(self.class, Class::Promised | Class::Revoked)
            || self.forgetting == Forgetting::Guarded
    }

    /// Whether the next request is for a lock with a fencing token.
    pub(crate) fn fences(&self, dice: &Dice) -> bool {
        match self.tokens {
            Tokens::Nobody => false,
            Tokens::Some => dice.percent(50),
            Tokens::All => true,
        }
    }

    /// The allowance that the drawn drift stays within: client and node can run apart twice as far.
    pub(crate) fn allowance(&self) -> Drift {
        Drift::default()
    }

    /// What the allowance and the safety margin leave of the ttl.
    pub(crate) fn validity(&self) -> Duration {
        self.validity_of(self.ttl)
    }

    /// The same for another ttl.
    pub(crate) fn validity_of(&self, ttl: Duration) -> Duration {
        let validity =
            Ttl::try_from(ttl).map_or(Duration::ZERO, |ttl| self.allowance().validity_of(ttl));
        validity.saturating_sub(self.margin_of(ttl))
    }

    /// How long before its keys may expire a lease of this ttl ends.
    pub(crate) fn margin_of(&self, ttl: Duration) -> Duration {
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

    /// The longest ttl that a worker asks for.
    pub(crate) fn max_ttl(&self) -> Duration {
        self.ttl * 2
    }

    /// How long cleanup goes on for a silent node.
    pub(crate) fn cleanup(&self) -> Duration {
        self.ttl
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} nodes ({:?}), {} clients of {} tasks, {} resources, ttl {:?}, latency up to {:?}, drift up to {} ppm, loss \
             {} ppm, tokens for {:?}, wall clocks {:?}, used as {:?}, margin {:?}",
            self.nodes,
            self.ability,
            self.clients,
            self.tasks,
            self.resources,
            self.ttl,
            self.latency,
            self.drift,
            self.loss,
            self.tokens,
            self.wall,
            self.used,
            self.margin,
        )
    }
}
