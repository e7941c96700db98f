//! What must hold of each result of an attempt: it is compared with what really happened.

use std::time::Duration;

use quorate_pure::core_source::algorithm::attempt::{End, Knowledge, Released};

use super::{Judged, first_of};
use crate::place::{Entry, Kind, Place, Side, small};
use crate::scope::{GRACE, MARGIN, NODES, QUORUM};
use crate::step::Input;
use crate::world::{Caller, Undone};

impl Judged<'_> {
    pub(crate) fn judge_results(&self) -> Option<&'static str> {
        let outputs = self.outputs;
        let released = outputs.after.released.filter(|_| outputs.is_released());
        let judged: [(bool, &dyn Fn() -> Option<&'static str>); 8] = [
            (outputs.is_won(), &|| self.won()),
            (outputs.is_extended(), &|| self.extended()),
            (outputs.is_extend_failed(), &|| self.extend_failed()),
            (outputs.is_revoked(), &|| self.revoked()),
            (outputs.is_lost(), &|| self.lease_lost(outputs.after.lost?)),
            (outputs.is_undone(), &|| self.undone()),
            (outputs.is_cleared(), &|| self.cleared()),
            (outputs.is_released(), &|| match released? {
                Released::Ours => self.released(),
                Released::LostBefore => {
                    let had_keys = self.deleted() >= QUORUM || !self.scope.keys_vanish;
                    (self.before.caller == Caller::Releases && had_keys)
                        .then_some("C7: lost before its release although a quorum had the keys")
                }
                Released::Unconfirmed => None,
            }),
        ];
        judged.into_iter().filter(|(is_new, _)| *is_new).find_map(|(_, judge)| judge())
    }

    fn count(&self, is_it: impl Fn(&Place, &Side) -> bool) -> usize {
        self.sides().filter(|(place, side)| is_it(place, side)).count()
    }

    /// How many nodes have voted for the round.
    fn votes(&self) -> usize {
        self.count(|_, side| side.truth.has_voted)
    }

    /// How many nodes have deleted the key.
    fn deleted(&self) -> usize {
        self.count(|_, side| side.truth.has_deleted)
    }

    fn won(&self) -> Option<&'static str> {
        let number = self.client.machine.fencing_token().map_or(0, small);
        let agreed = self.count(|_, side| side.truth.number == number);
        let is_nobodys = self.scope.fencing.is_some() && agreed < QUORUM;
        first_of(&[
            (!self.client.is_valid(self.world.start), "T2: an expired win"),
            (self.votes() < QUORUM, "Q1, Q3: won without a quorum of grants"),
            (is_nobodys, "fencing: no quorum gave or voted the token"),
        ])
    }

    fn extended(&self) -> Option<&'static str> {
        let valid_until = self.client.machine.valid_until();
        let is_in_time = |end| end > self.now() && valid_until.is_none_or(|after| after >= end);
        let is_wrong = !self.before.machine.valid_until().is_some_and(is_in_time);
        first_of(&[
            (self.votes() < QUORUM, "Q3, H3: extended without a quorum of owners in this round"),
            (is_wrong, "H2, H3: an extension came too late or shortened the lease"),
        ])
    }

    fn extend_failed(&self) -> Option<&'static str> {
        (self.client.machine.valid_until() > self.before.machine.valid_until())
            .then_some("H1: a failed extension moved the lease on")
    }

    fn lease_lost(&self, why: End) -> Option<&'static str> {
        let [margin, grace] = [MARGIN, GRACE].map(|ticks| Duration::from_secs(ticks.into()));
        let (now, old_end) = (self.now(), self.before.machine.valid_until());
        // Whether it is so, and until when the keys are to be kept.
        let (is_true, until) = match why {
            End::Expired | End::HoldLimit => {
                (old_end.is_some_and(|end| now >= end), old_end.map(|end| end + margin))
            }
            End::Revoked => (
                self.outputs.after.is_revoked,
                old_end.filter(|end| now >= *end).map(|end| end + margin),
            ),
            End::NotOurs => (self.world.promised(self.from) == 0, None),
            End::Closed => (
                matches!(self.input, Input::Close),
                old_end.map(|end| end.min(now + margin.min(grace))),
            ),
            End::Released | End::Detached => (false, None),
        };
        let is_kept = !self.client.is_lapsed() || self.client.machine.next_timeout() == until;
        let is_false = self.scope.has_clock() && !is_true;
        first_of(&[
            (is_false, "H5: lost with validity left and the keys at a quorum"),
            (!is_kept, "H4: the keys are not kept for the margin"),
        ])
    }

    fn released(&self) -> Option<&'static str> {
        (self.deleted() < QUORUM).then_some("C7: released although a quorum did not delete")
    }

    fn undone(&self) -> Option<&'static str> {
        let is_left = |(node, (place, side)): (usize, (&Place, &Side))| {
            let may_set = |it: &Entry| it.request.kind == Kind::Acquire && it.reply.is_none();
            let is_freed = self.client.node(node).knowledge() == Knowledge::Freed;
            let has_key = place.owner == Some(self.from) || side.channel.iter().any(may_set);
            has_key && side.truth.failure.is_none() && !is_freed
        };
        let was_awaited = self.before.undone == Undone::Awaited || self.outputs.is_not_won();
        (!was_awaited || self.sides().enumerate().any(is_left))
            .then_some("C8: undone, and a node that answers keeps the key")
    }

    fn cleared(&self) -> Option<&'static str> {
        let left =
            self.count(|place, side| place.owner == Some(self.from) && !side.truth.is_excused);
        (left > NODES - QUORUM).then_some("a quorum is not clear")
    }

    fn revoked(&self) -> Option<&'static str> {
        let tokens = self.count(|place, _| place.owner == Some(self.from) && !place.is_marked);
        (tokens >= QUORUM).then_some("V10: revoked, and a quorum has the token")
    }
}
