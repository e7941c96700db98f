//! What one attempt does with the answers of the nodes: a state machine without messages or time.

use crate::node::Number;
use crate::set::Set;

/// How many nodes there are.
pub const NODES: usize = 3;

/// How many make a quorum.
pub const QUORUM: usize = NODES / 2 + 1;

/// How far an attempt is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_enums, reason = "a part of the tests")]
pub enum Phase {
    /// Not begun.
    #[default]
    Idle,
    /// Waits for grants.
    Granting,
    /// Waits for votes for the highest number among the grants.
    Raising,
    /// Only a near miss: waits for numbers that it reads from the nodes.
    Reading,
    /// Holds the lock, with a token.
    Holding,
    /// Released the lock, or gave up. The token that it had may still be in use: a zombie's is.
    Ended,
}

/// One attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_structs, reason = "a part of the tests")]
pub struct Client {
    /// How far it is.
    pub phase: Phase,
    /// The number that each node answered last.
    pub numbers: [Option<Number>; NODES],
    /// What it asked to be voted for, once it did.
    pub wanted: Number,
    /// Whom it asked.
    pub asked: Set,
    /// Who voted for it.
    pub votes: Set,
    /// The fencing token, once confirmed.
    pub token: Option<Number>,
    /// The highest number that it has seen, told to the nodes by extensions and by the release.
    pub highest: Number,
}

impl Client {
    /// Sends the acquires.
    pub fn begin(&mut self) {
        self.phase = Phase::Granting;
    }

    /// A node granted, with a number.
    pub fn on_number(&mut self, node: usize, number: Number) {
        self.highest = self.highest.max(number);
        match self.phase {
            Phase::Granting | Phase::Reading => {
                self.numbers[node] = Some(number);
            }
            Phase::Raising if number == self.wanted => self.on_vote(node),
            Phase::Raising if number < self.wanted => self.asked = self.asked.with(node),
            _ => {}
        }
    }

    /// If a quorum answered one number, that is the token: there is no second round.
    pub fn agree(&mut self) {
        if matches!(self.phase, Phase::Granting | Phase::Reading)
            && let Some(number) = self.agreed()
        {
            self.hold(number);
        }
    }

    /// Whether it could go on to a second round.
    #[must_use]
    pub fn has_quorum(&self) -> bool {
        self.phase == Phase::Granting && self.numbers.iter().flatten().count() >= QUORUM
    }

    /// The second round: the highest number is wanted, and who answered another is asked for it.
    pub fn raise(&mut self) {
        self.ask_for(self.highest_number());
    }

    pub(crate) fn highest_number(&self) -> Number {
        self.numbers.iter().flatten().copied().max().unwrap_or(0)
    }

    /// Who answered `wanted` has voted for it already.
    pub(crate) fn ask_for(&mut self, wanted: Number) {
        self.phase = Phase::Raising;
        self.wanted = wanted;
        for (node, number) in self.numbers.iter().enumerate() {
            match number {
                Some(number) if *number == wanted => self.votes = self.votes.with(node),
                Some(_) => self.asked = self.asked.with(node),
                None => {}
            }
        }
        self.numbers = [None; NODES];
    }

    /// A node voted for what is wanted.
    pub fn on_vote(&mut self, node: usize) {
        if self.phase == Phase::Raising {
            self.votes = self.votes.with(node);
            if self.votes.len() >= QUORUM {
                self.hold(self.wanted);
            }
        }
    }

    /// Releases the lock, or gives up.
    pub fn end(&mut self) {
        self.phase = Phase::Ended;
        self.forget();
    }

    /// The token is confirmed.
    pub(crate) fn hold(&mut self, token: Number) {
        self.phase = Phase::Holding;
        self.token = Some(token);
        self.forget();
    }

    /// The number that a quorum answered.
    fn agreed(&self) -> Option<Number> {
        let count = |number| self.numbers.iter().filter(|other| **other == Some(number)).count();
        self.numbers.iter().flatten().copied().find(|number| count(*number) >= QUORUM)
    }

    /// What is in flight stays, and what no longer decides anything goes.
    fn forget(&mut self) {
        self.numbers = [None; NODES];
        self.votes = Set::default();
    }
}
