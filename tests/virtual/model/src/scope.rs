//! What may happen in one exploration.

pub(crate) const NODES: usize = 3;
pub(crate) const QUORUM: usize = 2;
/// In ticks.
pub(crate) const TTL: u8 = 3;
/// The safety margin, in ticks; there is no drift.
pub(crate) const MARGIN: u8 = 1;
/// The time that `close` gives a holder, in ticks.
pub(crate) const GRACE: u8 = 1;
/// The most attempts.
pub(crate) const MOST: usize = 3;

/// One exploration: what may happen, and how often.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Scope {
    pub(crate) name: &'static str,
    /// How many attempts compete.
    pub(crate) attempts: usize,
    pub(crate) beginning: Beginning,
    /// One ordered connection per attempt and node, or a pool.
    pub(crate) is_ordered: bool,
    pub(crate) time: Time,
    pub(crate) replies: Replies,
    /// How many connections are lost.
    pub(crate) drops: u8,
    /// A request that had reached the node is executed after its connection was lost.
    pub(crate) is_delivered_late: bool,
    /// Keys vanish at any moment.
    pub(crate) keys_vanish: bool,
    /// A foreign client takes and frees keys.
    pub(crate) has_foreign: bool,
    /// Nodes answer with errors, as a quarantined one does, requests do not leave, replies come twice.
    pub(crate) has_errors: bool,
    /// The caller drops its futures and its guard.
    pub(crate) is_cancelled: bool,
    /// The manager is closed.
    pub(crate) is_closed: bool,
    /// The hold limit, in ticks.
    pub(crate) hold_limit: Option<u8>,
    /// The second attempt is the next one of the same request: it begins when the first is lost.
    pub(crate) is_again: bool,
    pub(crate) extensions: u8,
    /// What an extension asks for, in ticks.
    pub(crate) extension_ttl: u8,
    /// How many calls of each attempt a tick may find in flight.
    pub(crate) under_way: Option<[u8; 2]>,
    pub(crate) fencing: Option<Fencing>,
    /// How often a request is executed twice.
    pub(crate) repeats: u8,
    /// Nodes push, at any moment and for nothing as well.
    pub(crate) has_pushes: bool,
    /// How many keys revokes mark, at any moment.
    pub(crate) revokes: u8,
    /// How often a node loses its data.
    pub(crate) losses: u8,
    /// What no client can prevent counts as a violation.
    pub(crate) is_strict: bool,
    /// A node reads a new connection before the one that was lost.
    pub(crate) reads_new_first: bool,
}

/// How an attempt begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Beginning {
    #[default]
    Acquire,
    /// Keys may be at the nodes, from another process.
    Adopt,
}

/// What the clocks do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Time {
    /// One clock in ticks; no attempt is late for a timer.
    #[default]
    Ticks,
    /// The clock also ticks while a timer is due.
    LateTimers,
    /// Each timer fires at any moment, as if nodes and attempts had clocks without a common rate.
    Any,
}

/// When the reply of a request arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Replies {
    /// At any moment after its execution, in the order of its connection.
    #[default]
    Later,
    /// As `Later`. The replies of one connection may be handled in any order.
    Shuffled,
    /// With the execution, or never.
    AtOnce,
    /// With the execution.
    Certain,
}

/// How attempts get a fencing token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fencing {
    /// The numbers that the nodes begin with.
    pub(crate) numbers: [u8; NODES],
    pub(crate) hints: Hints,
}

/// Where the hints of acquires come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hints {
    /// From clocks that say this, whatever the nodes have.
    Given([u8; 3]),
    /// From clocks ahead of every number, read when an attempt begins.
    Begin,
    /// From clocks ahead of every number, read when a request arrives.
    Arrival,
    /// As `Begin`, and a node that lost its data refuses attempts that began before (restart guard).
    Quarantine,
}

impl Scope {
    /// One attempt that acquires and releases, and nothing goes wrong.
    pub(crate) fn new(name: &'static str, is_ordered: bool) -> Self {
        Self { name, is_ordered, attempts: 1, extension_ttl: TTL, ..Self::default() }
    }

    /// What a report calls it.
    pub(crate) fn title(&self) -> String {
        let delivery = if self.is_ordered { "ordered" } else { "pool" };
        match self.fencing {
            Some(Fencing { numbers, hints: Hints::Given(hints), .. }) if !self.has_clock() => {
                let hints = &hints[..self.attempts];
                format!("{}, {numbers:?}, hints {hints:?}", self.name)
            }
            _ => format!("{}, {delivery}", self.name),
        }
    }

    /// Whether no hint depends on the numbers of the nodes.
    pub(crate) fn has_given_hints(&self) -> bool {
        self.fencing.is_none_or(|fencing| matches!(fencing.hints, Hints::Given(_)))
    }

    /// Whether nodes and attempts have one clock.
    pub(crate) fn has_clock(&self) -> bool {
        self.time != Time::Any
    }

    /// Whether a node reads what arrived on an old connection before it reads a newer one.
    pub(crate) const fn reads_old_first(&self) -> bool {
        self.is_ordered && !self.reads_new_first
    }
}
