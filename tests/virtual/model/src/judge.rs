//! What must hold of each input. `state.rs` has what must hold in each state.

use std::time::Duration;

use quorate_pure::core_source::algorithm::attempt::{
    Action, Decision, End, Knowledge, Message, RoundVote,
};

use crate::place::{Entry, Failure, Kind, Place, Side, small};
use crate::scope::{GRACE, MARGIN, NODES, QUORUM, Scope};
use crate::step::Input;
use crate::world::{Caller, Client, Undone, World, time};

mod state;

pub(crate) use state::{IN_TENURE, IN_TIME, UNIQUE};

/// What came out of an attempt.
pub(crate) struct Outputs {
    pub(crate) sends: Vec<(usize, Action)>,
    pub(crate) decisions: Vec<Decision>,
}

/// What must hold of an input to an attempt.
impl World {
    pub(crate) fn sides(&self, from: usize) -> impl Iterator<Item = (&Place, &Side)> {
        self.places.iter().map(move |place| (&**place, &place.sides[from]))
    }

    /// Compares what an attempt decided with what really happened.
    pub(crate) fn judge_decisions(
        &self,
        scope: &Scope,
        from: usize,
        before: &Client,
        decisions: &[Decision],
        input: Input<'_>,
    ) -> Option<&'static str> {
        let client = self.clients[from].as_deref()?;
        let now = time(self.start, client.now);
        let old_end = before.machine.valid_until();
        let [margin, grace] = [MARGIN, GRACE].map(|ticks| Duration::from_secs(ticks.into()));
        let true_votes = self.sides(from).filter(|(_, side)| side.truth.has_voted).count();
        let deleted = self.sides(from).filter(|(_, side)| side.truth.has_deleted).count();
        let keys = self.places.iter().filter(|place| place.owner == Some(from)).count();
        for decision in decisions {
            let wrong = match *decision {
                Decision::Won { valid_until, token } => {
                    let number = token.map_or(0, small);
                    let agreed = self.sides(from).filter(|(_, it)| it.truth.number == number);
                    if valid_until <= now {
                        Some("T2: an expired win")
                    } else if true_votes < QUORUM {
                        Some("Q1, Q3: won without a quorum of grants")
                    } else if scope.fencing.is_some() && agreed.count() < QUORUM {
                        Some("fencing: no quorum gave or voted the token")
                    } else {
                        None
                    }
                }
                Decision::Extended { valid_until, .. } => {
                    if true_votes < QUORUM {
                        Some("Q3, H3: extended without a quorum of owners in this round")
                    } else if old_end.is_none_or(|end| end <= now || valid_until < end) {
                        Some("H2, H3: an extension came too late or shortened the lease")
                    } else {
                        None
                    }
                }
                Decision::ExtendFailed { .. } => (client.machine.valid_until() != old_end)
                    .then_some("H1: a failed extension changed the lease"),
                Decision::LeaseLost(why) => {
                    let is_true = match why {
                        End::Expired | End::HoldLimit => old_end.is_some_and(|end| now >= end),
                        End::NotOurs => keys < QUORUM || scope.is_delivered_late,
                        End::Closed => matches!(input, Input::Close),
                    };
                    let until = match why {
                        End::Expired | End::HoldLimit => old_end.map(|end| end + margin),
                        End::NotOurs => None,
                        End::Closed => old_end.map(|end| end.min(now + margin.min(grace))),
                    };
                    let is_kept = !client.is_lapsed() || client.machine.next_timeout() == until;
                    if scope.has_clock() && !is_true {
                        Some("H5: lost with validity left and the keys at a quorum")
                    } else {
                        (!is_kept).then_some("H4: the keys are not kept for the margin")
                    }
                }
                Decision::Released => {
                    (deleted < QUORUM).then_some("C7: released although a quorum did not delete")
                }
                Decision::LostBefore => (before.caller == Caller::Releases
                    && (deleted >= QUORUM || !scope.keys_vanish))
                    .then_some("C7: lost before its release although a quorum had the keys"),
                Decision::Undone => {
                    let is_left = |(node, (place, side)): (usize, (&Place, &Side))| {
                        let may_set =
                            |it: &Entry| it.request.kind == Kind::Acquire && it.reply.is_none();
                        let is_freed = client.node(node).knowledge() == Knowledge::Freed;
                        let has_key = place.owner == Some(from) || side.channel.iter().any(may_set);
                        has_key && side.truth.failure.is_none() && !is_freed
                    };
                    (before.undone != Undone::Awaited
                        && !decisions.iter().any(|it| matches!(it, Decision::NotWon(_)))
                        || self.sides(from).enumerate().any(is_left))
                    .then_some("C8: undone, and a node that answers keeps the key")
                }
                Decision::Cleared => {
                    let is_left = |(place, side): &(&Place, &Side)| {
                        place.owner == Some(from) && !side.truth.is_excused
                    };
                    (self.sides(from).filter(is_left).count() > NODES - QUORUM)
                        .then_some("a quorum is not clear")
                }
                Decision::NotWon(_) | Decision::Unconfirmed => None,
            };
            if wrong.is_some() {
                return wrong;
            }
        }
        None
    }

    /// What must hold of an attempt after each input.
    pub(crate) fn judge_machine(
        &self,
        scope: &Scope,
        from: usize,
        before: &Client,
        outputs: &Outputs,
        input: Input<'_>,
    ) -> Option<&'static str> {
        let client = self.clients[from].as_deref()?;
        let machine = &client.machine;
        let now = time(self.start, client.now);
        let nodes = || (0..NODES).map(|node| client.node(node));
        let count = |vote: RoundVote<()>| nodes().filter(|node| *node.vote() == vote).count();
        let (votes_for, open) = (count(RoundVote::For), count(RoundVote::Open));
        let is_round_open = client.caller == Caller::Waits || client.asked.is_some();
        let is_ending = machine.is_releasing();
        let calls = || {
            outputs.sends.iter().filter_map(|(_, action)| match action {
                Action::Send(_, message) => Some(message),
                Action::GiveUp(_) => None,
            })
        };
        let is_release = |it: &&Message| matches!(it, Message::Release { .. });
        let not_ours = nodes().filter(|node| node.knowledge() == Knowledge::NotOurs).count();
        let is_denied = not_ours > NODES - QUORUM;
        let had_ended = before.machine.valid_until().is_some_and(|end| end <= now);
        let timer = machine.next_timeout();
        let was_due = before.is_due(self.start);
        let is_lost = outputs.decisions.iter().any(|it| matches!(it, Decision::NotWon(_)));
        let owes = |node: usize| {
            let (know, side) = (client.node(node).knowledge(), &self.places[node].sides[from]);
            let has_sent = side.channel.iter().any(|it| it.request.kind == Kind::Release);
            let may_send = scope.is_ordered || !client.node(node).is_busy();
            !matches!(know, Knowledge::Blank | Knowledge::Freed) && !has_sent && may_send
        };
        let is_left = client.caller != Caller::Waits && client.caller != Caller::Holds;
        let wrong = [
            (is_left && machine.valid_until().is_some(), "H1: valid although lost or released"),
            (is_ending && !calls().all(|it| is_release(&it)), "H6: more than releases is sent"),
            (
                client.caller == Caller::Parted && calls().next().is_some(),
                "H6: sent after the lock was left to another process",
            ),
            (!is_ending && calls().any(|it| is_release(&it)), "H1: released while held"),
            (
                had_ended && calls().any(|it| matches!(it, Message::Extend { .. })),
                "H4: extended after the end of the lease",
            ),
            (
                is_round_open && (votes_for >= QUORUM || votes_for + open < QUORUM),
                "Q2: the round is decided, and the attempt waits",
            ),
            (
                !machine.is_quiescent() && timer.is_none(),
                "liveness: something is awaited without a timer",
            ),
            (
                (machine.valid_until().is_some() || client.is_lapsed()) && is_denied,
                "H1: the lease or its margin goes on without a quorum of keys",
            ),
            (
                machine.valid_until().is_some_and(|end| end <= now),
                "T5: the end has passed, and the lease goes on",
            ),
            (
                timer.is_some_and(|due| due <= now)
                    && (!was_due || matches!(input, Input::Timeout)),
                "C7: a wake-up is due at once",
            ),
            (
                is_lost && is_ending && (0..NODES).any(owes),
                "C2, C8: the loss was told before each undo was sent",
            ),
        ];
        let wrong = wrong.into_iter().find_map(|(is_wrong, what)| is_wrong.then_some(what));
        wrong
            .or_else(|| self.judge_margin(from, before, outputs, input, is_denied))
            .or_else(|| self.judge_cleanup(from, before, outputs, input))
            .or_else(|| self.judge_rest(scope, from, client))
    }

    /// The end of a lease: its margin, and its release.
    fn judge_margin(
        &self,
        from: usize,
        before: &Client,
        outputs: &Outputs,
        input: Input<'_>,
        is_denied: bool,
    ) -> Option<&'static str> {
        let client = self.clients[from].as_deref()?;
        let (machine, now) = (&client.machine, time(self.start, client.now));
        let margin = Duration::from_secs(MARGIN.into());
        let begins = machine.is_releasing() && !before.machine.is_releasing();
        let had_lease = before.machine.valid_until().is_some() || before.is_lapsed();
        let margin_end = match before.machine.valid_until() {
            Some(end) => Some(end + margin),
            None => before.machine.next_timeout(),
        };
        let is_wish = matches!(input, Input::Release | Input::Cancel);
        let is_late = margin_end.is_some_and(|end| now >= end);
        let was_in_time = before.is_valid(self.start);
        let decided = |decision| outputs.decisions.contains(&decision);
        let wrong = [
            (client.is_lapsed() && !outputs.sends.is_empty(), "Lapsed: something was sent"),
            (
                begins && had_lease && !is_wish && !is_late && !is_denied,
                "Lapsed: the release began before the margin was over",
            ),
            (
                client.is_lapsed() && machine.next_timeout().is_none_or(|until| now >= until),
                "Lapsed: the margin is over, and the release does not begin",
            ),
            (
                before.machine.has_ended() && !machine.has_ended(),
                "Lapsed: a lease that had ended goes on",
            ),
            (
                had_lease && is_wish && !machine.is_releasing(),
                "the guard has gone, and the release does not begin",
            ),
            (
                matches!(input, Input::Release) && !was_in_time && !decided(Decision::LostBefore),
                "a release after the end of the lease is not answered",
            ),
            (
                client.caller == Caller::Releases && machine.is_quiescent(),
                "the caller of a release is never answered",
            ),
        ];
        wrong.into_iter().find_map(|(is_wrong, what)| is_wrong.then_some(what))
    }

    /// Failed releases, the undo, and the votes that are reported.
    fn judge_cleanup(
        &self,
        from: usize,
        before: &Client,
        outputs: &Outputs,
        input: Input<'_>,
    ) -> Option<&'static str> {
        let client = self.clients[from].as_deref()?;
        let is_releasing = before.machine.is_releasing();
        let is_sent = |node: usize| {
            let is_release = |(at, action): &(usize, Action)| {
                *at == node && matches!(action, Action::Send(_, Message::Release { .. }))
            };
            outputs.sends.iter().any(is_release)
        };
        let failure = |node: usize| self.places[node].sides[from].truth.failure;
        let is_stormy = |node| {
            let is_again = is_releasing && failure(node) == Some(Failure::Answered);
            is_again && is_sent(node) && !matches!(input, Input::Timeout)
        };
        let is_before_bound = |it: &Client| {
            it.ended_at.is_some_and(|ended| it.now < ended + u32::from(it.longest_ttl))
        };
        let is_back = |node: usize| {
            let is_idle = !before.node(node).is_busy() && before.node(node).owes_release();
            let is_asked = failure(node) == Some(Failure::Silent) && is_before_bound(before);
            matches!(input, Input::Back(at) if at == node) && is_releasing && is_idle && is_asked
        };
        let is_clean = |node: usize| {
            let know = client.node(node).knowledge();
            !matches!(know, Knowledge::Maybe | Knowledge::Ours) || failure(node).is_some()
        };
        let is_over = client.is_quiescent() && (0..NODES).any(|at| client.node(at).owes_release());
        let clear = (0..NODES).filter(|node| !client.node(*node).owes_release()).count();
        let is_round = |it: &Decision| !matches!(it, Decision::Undone | Decision::Cleared);
        let votes = client.machine.votes();
        let wrong = [
            ((0..NODES).any(is_stormy), "a release that was answered is sent again at once"),
            (
                (0..NODES).any(|node| is_back(node) && !is_sent(node)),
                "a node is back, and its release waits for the pause",
            ),
            (
                client.undone == Undone::Awaited && (0..NODES).all(is_clean) && !is_over,
                "C8: each node has answered or failed, and undone is not decided",
            ),
            (
                client.awaits_cleared && clear >= QUORUM && !is_over,
                "a quorum is clear, and that is not decided",
            ),
            (
                votes != before.machine.votes() && !outputs.decisions.iter().any(is_round),
                "the votes of the last round have changed without a decision",
            ),
        ];
        wrong.into_iter().find_map(|(is_wrong, what)| is_wrong.then_some(what))
    }

    /// Nothing is left once everything has been answered.
    fn judge_rest(&self, scope: &Scope, from: usize, client: &Client) -> Option<&'static str> {
        let is_over_by_itself = client.is_quiescent()
            && (0..NODES).all(|at| !client.node(at).is_busy() && !client.node(at).owes_release());
        let is_left = || {
            self.sides(from).any(|(place, side)| {
                let may_set = |it: &Entry| it.request.sets_key() && it.reply.is_none();
                place.owner == Some(from) && !side.truth.is_excused
                    || side.channel.iter().any(may_set)
            })
        };
        let is_parted = client.caller == Caller::Parted;
        (scope.has_clock() && is_over_by_itself && !is_parted && is_left())
            .then_some("C2, C3: quiescent, and a node keeps a key or may still set it")
    }
}
