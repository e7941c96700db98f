//! What the model checker compares of an attempt.

use std::hash::{Hash, Hasher};
use std::time::Instant;

use super::{Attempt, Node, Phase, Round, Timers};

impl Attempt {
    /// Hashes what the attempt will do from now on, nodes apart: each time as the duration until
    /// then, and nothing that only distinguishes one call from an earlier one.
    #[doc(hidden)]
    pub fn fingerprint(&self, now: Instant, hasher: &mut impl Hasher) {
        let left = |at: Instant| at.saturating_duration_since(now);
        let Self { phase, round, timers, valid_until, token, longest_ttl, .. } = self;
        let Self { settings: _, nodes: _, calls: _, sends, decisions, .. } = self;
        let Round { id: _, ttl, valid_until: if_won } = round;
        let Timers { round, resend, pause, bound, last } = timers;

        (phase, sends.len(), decisions.len(), self.is_quiescent()).hash(hasher);
        if !self.is_quiescent() {
            (round.map(left), resend.map(left), bound.map(left), last.map(left)).hash(hasher);
            (token, pause, longest_ttl, ttl).hash(hasher);
        }
        let [counts_if_won, counts] = match phase {
            Phase::Acquiring | Phase::Adopting | Phase::Raising => [true, false],
            Phase::Held { .. } | Phase::Ending { is_awaited: true } => [false, true],
            Phase::Extending { .. } => [true, true],
            Phase::Ending { is_awaited: false } | Phase::Detached | Phase::Over => [false, false],
        };
        (counts_if_won.then(|| left(*if_won)), counts.then(|| left(*valid_until))).hash(hasher);
    }
}

impl Node {
    /// Hashes what is known of this node.
    #[doc(hidden)]
    pub fn fingerprint(&self, hasher: &mut impl Hasher) {
        let Self { is_ordered, know, call, release, vote, number, has_failed_release } = self;
        (is_ordered, know, call.map(|call| call.kind), release.is_some()).hash(hasher);
        (vote, number, has_failed_release).hash(hasher);
    }
}
