//! What the model checker compares of an attempt.

use std::hash::{Hash, Hasher};
use std::time::Instant;

use super::{AttemptMachine, Node, NodeSet, Phase, Round, Timers};

impl<E: Clone + Hash, H: Clone + Default + Hash> AttemptMachine<E, H> {
    /// Hashes what the attempt will do from now on, nodes apart: each time as the duration until
    /// then, and nothing that only distinguishes one call from an earlier one.
    #[doc(hidden)]
    pub fn fingerprint(&self, now: Instant, hasher: &mut impl Hasher) {
        let left = |at: Instant| at.saturating_duration_since(now);
        let Self { phase, round, timers, valid_until, hold_until, margin, token, .. } = self;
        let Self { settings, nodes: _, longest_ttl, calls: _, queued, left_late, .. } = self;
        self.has_looked.hash(hasher);
        if settings.connecting_nodes() != NodeSet::default() {
            left(self.connect_until).hash(hasher);
        }
        let Self { sends, decisions, votes: _, is_lost: _, waited: _, .. } = self;
        let Round { id: _, start: _, ttl, valid_until: if_won, is_put_off, prolonged } = round;
        let Timers { round, resend, bound, last, look } = timers;

        (std::mem::discriminant(phase), sends.len(), decisions.len()).hash(hasher);
        self.is_quiescent().hash(hasher);
        if !self.is_quiescent() {
            [round, resend, bound, last, look].map(|timer| timer.map(left)).hash(hasher);
            (token, longest_ttl, ttl, is_put_off, prolonged, queued, left_late).hash(hasher);
        }
        match phase {
            Phase::Acquiring | Phase::Adopting | Phase::Raising => left(*if_won).hash(hasher),
            Phase::Held { is_won } => is_won.hash(hasher),
            Phase::Extending { next } => (next, left(*if_won)).hash(hasher),
            Phase::Lapsed { until } => left(*until).hash(hasher),
            Phase::Ending(awaited) => awaited.hash(hasher),
            Phase::Revoked | Phase::Detached | Phase::Over => {}
        }
        match phase {
            Phase::Held { .. } | Phase::Extending { .. } | Phase::Revoked => {
                (left(*valid_until), hold_until.map(left), margin).hash(hasher);
            }
            Phase::Ending(awaited) if awaited.release => left(*valid_until).hash(hasher),
            _ => {}
        }
    }
}

impl<E: Clone + Hash, H: Clone + Hash> Node<E, H> {
    /// Hashes what is known of this node.
    #[doc(hidden)]
    pub fn fingerprint(&self, now: Instant, hasher: &mut impl Hasher) {
        let Self { is_ordered, know, call, release, vote, number, failure, look, looking } = self;
        look.is_some().hash(hasher);
        looking.fingerprint(now, hasher);
        (is_ordered, know, call.map(|call| call.kind), release.is_some()).hash(hasher);
        (vote, number).hash(hasher);
        failure.as_ref().map(|failure| (&failure.reason, failure.is_answered)).hash(hasher);
    }
}
