//! What the model checker and the tests see of an attempt. A module of `algorithm/attempt.rs`.

use std::hash::{Hash, Hasher};
use std::time::Instant;

use super::super::quorum::NodeId;
use super::{AttemptMachine, Knowledge, Node, Phase, Round, RoundId, RoundVote, Timers};

impl<E: Clone, H: Clone + Default> AttemptMachine<E, H> {
    /// The open round, or the last one. It changes when an extension begins.
    #[must_use]
    pub const fn round(&self) -> RoundId {
        self.round.id
    }
}

impl<E: Clone, H: Clone> Node<E, H> {
    /// What is known of the keys.
    #[must_use]
    pub const fn knowledge(&self) -> Knowledge {
        self.know
    }

    /// The vote in the open round; after it, in the last one.
    #[must_use]
    pub const fn vote(&self) -> &RoundVote<E, H> {
        &self.vote
    }
}

impl<E: Clone + Hash, H: Clone + Default + Hash> AttemptMachine<E, H> {
    /// Hashes what the attempt will do from now on, nodes apart: each time as the duration until
    /// then, and nothing that only distinguishes one call from an earlier one.
    #[doc(hidden)]
    pub fn fingerprint(&self, now: Instant, hasher: &mut impl Hasher) {
        let left = |at: Instant| at.saturating_duration_since(now);
        let Self { phase, round, timers, hold_until, fencing_token, .. } = self;
        let Self { settings, nodes: _, longest_ttl, calls: _, queued, left_late, .. } = self;
        (self.has_looked, self.is_unlisted).hash(hasher);
        if !settings.connecting.is_empty() {
            left(self.connect_until).hash(hasher);
        }
        let Self { sends, results: _, votes: _, waited: _, promised: _, .. } = self;
        let Round { id: _, start: _, ttl, end, is_put_off, prolonged } = round;
        let Timers { round, resend, bound, last, look } = timers;

        (std::mem::discriminant(phase), sends.len()).hash(hasher);
        self.is_quiescent().hash(hasher);
        if !self.is_quiescent() {
            [round, resend, bound, last, look].map(|timer| timer.map(left)).hash(hasher);
            (fencing_token, longest_ttl, ttl, is_put_off, prolonged, queued, left_late)
                .hash(hasher);
        }
        match phase {
            Phase::Acquiring | Phase::Adopting | Phase::Raising => {
                left(*end).hash(hasher);
            }
            Phase::Held { is_won } => is_won.hash(hasher),
            Phase::Extending { next } => (next, left(*end)).hash(hasher),
            Phase::Lapsed { until } => left(*until).hash(hasher),
            Phase::Ending { is_awaited } => is_awaited.hash(hasher),
            Phase::Revoked | Phase::Detached | Phase::Over => {}
        }
        hold_until.filter(|_| self.is_held()).map(left).hash(hasher);
    }

    /// Hashes what is known of a node.
    #[doc(hidden)]
    pub fn node_fingerprint(&self, id: NodeId, now: Instant, hasher: &mut impl Hasher) {
        let Node { know, calls, promise, vote, number, failure, looking, .. } = self.node(id);
        let is_judged = self.phase == Phase::Ending { is_awaited: true };
        let counts = is_judged || !self.has_ended();
        let left = |end: Instant| counts.then(|| end.saturating_duration_since(now));
        for call in calls {
            (call.kind, call.is_outdated, call.promise.and_then(left)).hash(hasher);
        }
        (calls.len(), know, promise.and_then(left), vote, number).hash(hasher);
        let pause = looking.paused_until.map(|until| until.saturating_duration_since(now));
        (looking.reason, looking.is_told, pause).hash(hasher);
        failure.as_ref().map(|failure| (&failure.reason, failure.is_answered)).hash(hasher);
    }
}
