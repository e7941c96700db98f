//! One fan-out of one operation to all nodes, from the first byte to the decision.
//!
//! A pure state machine: votes and the present come in, a [`Step`] goes out. Who waits, and on
//! what, is the driver's business.

use std::time::{Duration, Instant};

use super::lease::{Drift, Ttl, saturating_add};
use super::quorum::{NodeCount, NodeId, Tally, Verdict, Vote};

/// Where a round stands.
#[must_use = "a decision that nobody reads leaves keys behind"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "complete by definition: open, won or lost")]
pub enum Step {
    /// The decision is open.
    Wait,
    /// A quorum has voted for it, in time.
    Won {
        /// Until when the lease holds. For a release: now, nothing is held any longer.
        valid_until: Instant,
    },
    /// A quorum cannot be had.
    Lost(Loss),
}

/// Why a round was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "complete by definition: every lost round is one of these"
)]
pub enum Loss {
    /// Nodes refused, and faults alone did not rule a quorum out when the round ended.
    Refused,
    /// So many nodes failed or stayed silent that no votes of the others could have made a quorum.
    Unreachable,
    /// A quorum granted, but too late: nothing was left of the validity.
    Expired,
}

/// One round of votes on one operation.
#[derive(Clone, Debug)]
pub struct Round {
    tally: Tally,
    deadline: Instant,
    goal: Goal,
}

#[derive(Clone, Copy, Debug)]
enum Goal {
    /// The lease, and the moment after which a win comes too late.
    Lease { valid_until: Instant, within: Instant },
    /// The keys are not there: others can win.
    Release,
    /// The same, and it is known whether they had been there to the end.
    TellingRelease,
}

impl Round {
    /// An acquire whose first byte is sent after `start`, and which hears nodes for `patience`.
    #[must_use]
    pub fn acquire(
        nodes: NodeCount,
        start: Instant,
        patience: Duration,
        ttl: Ttl,
        drift: Drift,
    ) -> Self {
        let valid_until = drift.valid_until(start, ttl);
        let within = if planted!("acquire_wins_after_its_validity") {
            saturating_add(start, Duration::MAX)
        } else {
            valid_until
        };
        Self::new(nodes, start, patience, Goal::Lease { valid_until, within })
    }

    /// An extension of a lease that is valid until `held_until`. It must be won before that, and
    /// never shortens the lease.
    #[must_use]
    pub fn extend(
        nodes: NodeCount,
        start: Instant,
        patience: Duration,
        ttl: Ttl,
        drift: Drift,
        held_until: Instant,
    ) -> Self {
        let extended = drift.valid_until(start, ttl);
        let within = if planted!("extension_wins_after_the_lease") {
            saturating_add(start, Duration::MAX)
        } else {
            held_until
        };
        let valid_until = if planted!("extension_shortens_the_lease") {
            extended
        } else {
            extended.max(held_until)
        };
        let goal = Goal::Lease { valid_until, within };
        Self::new(nodes, start, patience, goal)
    }

    /// A release: won once a quorum has said that the keys are not there, whoever removed them,
    /// since from then on somebody else can win.
    #[must_use]
    pub fn release(nodes: NodeCount, start: Instant, patience: Duration) -> Self {
        Self::new(nodes, start, patience, Goal::Release)
    }

    /// A release that also tells whether the lease had been held to the end: it goes on until a
    /// quorum has granted, or so many have refused that no quorum can still have had the keys, or
    /// nobody is left to be heard.
    #[must_use]
    pub fn telling_release(nodes: NodeCount, start: Instant, patience: Duration) -> Self {
        Self::new(nodes, start, patience, Goal::TellingRelease)
    }

    fn new(nodes: NodeCount, start: Instant, patience: Duration, goal: Goal) -> Self {
        Self { tally: Tally::new(nodes), deadline: saturating_add(start, patience), goal }
    }

    /// A second fan-out within the same round: nobody has voted on it, but it has to be over by the
    /// same deadline, and what it wins lasts no longer.
    #[must_use]
    pub const fn again(&self) -> Self {
        Self { tally: Tally::new(self.tally.nodes()), deadline: self.deadline, goal: self.goal }
    }

    /// A node voted.
    pub fn on_vote(&mut self, node: NodeId, vote: Vote, now: Instant) -> Step {
        self.tally.on_vote(node, vote);
        self.step(now)
    }

    /// A node failed: its vote is unknown.
    pub fn on_unknown(&mut self, node: NodeId, now: Instant) -> Step {
        if planted!("errors_count_as_grants") {
            self.tally.on_vote(node, Vote::Granted);
        }
        self.tally.on_unknown(node);
        self.step(now)
    }

    /// The timer fired. Too early is no harm: the deadline decides, not the wake-up.
    pub fn on_timeout(&mut self, now: Instant) -> Step {
        if now >= self.deadline || planted!("timer_ends_the_round") {
            self.tally.on_silence();
        }
        self.step(now)
    }

    /// When to call [`on_timeout`](Self::on_timeout) if the round is still open.
    #[must_use]
    pub const fn next_timeout(&self) -> Instant {
        self.deadline
    }

    /// The votes so far.
    #[must_use]
    pub const fn tally(&self) -> &Tally {
        &self.tally
    }

    fn step(&self, now: Instant) -> Step {
        let verdict = match self.goal {
            Goal::Lease { .. } => self.tally.verdict(),
            Goal::Release => self.tally.verdict_of_any(),
            Goal::TellingRelease if self.tells() => self.tally.verdict_of_any(),
            Goal::TellingRelease => Verdict::Pending,
        };
        match (verdict, self.goal) {
            (Verdict::Pending, _) => Step::Wait,
            (Verdict::Lost, _) => Step::Lost(self.loss()),
            (Verdict::Won, Goal::Lease { within, .. }) if now >= within => {
                Step::Lost(Loss::Expired)
            }
            (Verdict::Won, Goal::Lease { valid_until, .. }) => Step::Won { valid_until },
            (Verdict::Won, _) => Step::Won { valid_until: now },
        }
    }

    /// Whether more votes could not tell more.
    fn tells(&self) -> bool {
        let tally = &self.tally;
        tally.granted() >= tally.nodes().quorum()
            || tally.refused() > tally.nodes().spare()
            || tally.unknown() > tally.nodes().spare()
            || tally.nodes().ids().all(|node| !tally.is_open(node))
    }

    /// Contention and faults are told apart by what the faults alone would have done.
    fn loss(&self) -> Loss {
        if planted!("errors_mean_held") {
            return Loss::Refused;
        }
        if self.tally.unknown() > self.tally.nodes().spare() {
            Loss::Unreachable
        } else {
            Loss::Refused
        }
    }
}
