//! What must hold of each input. `state.rs` has what must hold in each state.

use std::time::Duration;

use quorate_pure::core_source::algorithm::attempt::{
    Action, Knowledge, Message, Released, Results, RoundId, RoundVote,
};

use crate::place::{Entry, Failure, Kind, Place, Side};
use crate::scope::{MARGIN, NODES, QUORUM, Scope};
use crate::step::Input;
use crate::world::{Caller, Client, Undone, World, time};

mod results;
mod state;

pub(crate) use state::{IN_TENURE, IN_TIME, UNIQUE};

/// What came out of an attempt.
pub(crate) struct Outputs {
    pub(crate) sends: Vec<(usize, Action)>,
    /// The results before and after the input. What was decided is the difference.
    pub(crate) before: Results,
    pub(crate) after: Results,
}

impl Outputs {
    pub(crate) fn is_won(&self) -> bool {
        self.before.first.is_none() && self.after.first == Some(Ok(()))
    }

    pub(crate) fn is_not_won(&self) -> bool {
        self.before.first.is_none() && matches!(self.after.first, Some(Err(_)))
    }

    pub(crate) fn is_extended(&self) -> bool {
        self.before.extended != self.after.extended
    }

    pub(crate) fn is_extend_failed(&self) -> bool {
        self.before.failed != self.after.failed
    }

    /// The latest round of extensions, if it was decided now.
    pub(crate) fn round(&self) -> Option<RoundId> {
        let extended = self.is_extended().then_some(self.after.extended);
        let failed = self.after.failed.filter(|_| self.is_extend_failed());
        extended.max(failed.map(|(round, _)| round))
    }

    pub(crate) fn is_revoked(&self) -> bool {
        !self.before.is_revoked && self.after.is_revoked
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.before.lost.is_none() && self.after.lost.is_some()
    }

    pub(crate) fn is_released(&self) -> bool {
        self.before.released.is_none() && self.after.released.is_some()
    }

    pub(crate) fn is_undone(&self) -> bool {
        !self.before.is_undone && self.after.is_undone
    }

    pub(crate) fn is_cleared(&self) -> bool {
        !self.before.is_cleared && self.after.is_cleared
    }

    /// Whether a round was decided, of acquires, extensions or releases, or the lease has ended.
    fn is_round(&self) -> bool {
        let is_first = self.is_won() || self.is_not_won();
        let is_end = self.is_revoked() || self.is_lost() || self.is_released();
        is_first || self.round().is_some() || is_end
    }
}

/// What must hold of an input to an attempt.
impl World {
    pub(crate) fn sides(&self, from: usize) -> impl Iterator<Item = (&Place, &Side)> {
        self.places.iter().map(move |place| (&**place, &place.sides[from]))
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
        let nodes = || (0..NODES).map(|node| client.node(node));
        let not_ours = nodes().filter(|node| node.knowledge() == Knowledge::NotOurs).count();
        // A node has said that the key is not ours, and no quorum of promises is left.
        let is_taken_back = before.is_valid(self.start) && self.promised(from) == 0;
        let is_denied = not_ours > NODES - QUORUM || scope.has_clock() && is_taken_back;
        self.judge_sends(client, before, outputs)
            .or_else(|| self.judge_push(from, before, outputs, input))
            .or_else(|| self.judge_revoked(client, before, outputs))
            .or_else(|| self.judge_lease(client, is_denied))
            .or_else(|| self.judge_end(scope, from, client))
            .or_else(|| judge_round(client))
            .or_else(|| self.judge_timer(client, before, input))
            .or_else(|| self.judge_loss(scope, from, client, outputs))
            .or_else(|| self.judge_margin(from, before, outputs, input, is_denied))
            .or_else(|| self.judge_cleanup(from, before, outputs, input))
            .or_else(|| self.judge_rest(scope, from, client))
    }

    /// What may be sent, and when.
    fn judge_sends(
        &self,
        client: &Client,
        before: &Client,
        outputs: &Outputs,
    ) -> Option<&'static str> {
        let now = time(self.start, client.now);
        let is_ending = client.machine.is_releasing();
        let had_ended = before.machine.valid_until().is_some_and(|end| end <= now);
        let messages = outputs.sends.iter().filter_map(|(_, action)| match action {
            Action::Send(_, message) => Some(message),
            Action::GiveUp(_) => None,
        });
        messages.into_iter().find_map(|message| {
            let is_release = matches!(message, Message::Release { .. });
            let is_late = had_ended && matches!(message, Message::Extend { .. });
            first_of(&[
                (is_ending && !is_release, "H6: more than releases is sent"),
                (
                    client.caller == Caller::Parted,
                    "H6: sent after the lock was left to another process",
                ),
                (!is_ending && is_release, "H1: released while held"),
                (is_late, "H4: extended after the end of the lease"),
            ])
        })
    }

    /// A push leads to a look and to nothing else, and not to a second one.
    fn judge_push(
        &self,
        from: usize,
        before: &Client,
        outputs: &Outputs,
        input: Input<'_>,
    ) -> Option<&'static str> {
        let client = self.clients[from].as_deref()?;
        let is_look =
            |(_, action): &(usize, Action)| matches!(action, Action::Send(_, Message::Look));
        let is_quiet = outputs.before == outputs.after
            && client.machine.valid_until() == before.machine.valid_until()
            && outputs.sends.iter().all(is_look);
        let looks =
            |side: &Side| side.channel.iter().filter(|it| it.request.kind == Kind::Look).count();
        first_of(&[
            (
                matches!(input, Input::Push(_)) && before.is_valid(self.start) && !is_quiet,
                "P1: a push alone has changed something",
            ),
            (
                self.sides(from).any(|(_, side)| looks(side) > 1),
                "P3: two looks at a node are in flight",
            ),
        ])
    }

    fn judge_revoked(
        &self,
        client: &Client,
        before: &Client,
        outputs: &Outputs,
    ) -> Option<&'static str> {
        let is_extend = |(_, action): &(usize, Action)| {
            matches!(action, Action::Send(_, Message::Extend { .. }))
        };
        let end = client.machine.valid_until();
        first_of(&[
            (
                before.is_revoked && end > before.machine.valid_until(),
                "V10: the end of a lease has moved on after its revoke",
            ),
            (
                before.is_revoked && outputs.sends.iter().any(is_extend),
                "V10: extended after the revoke",
            ),
        ])
    }

    fn judge_lease(&self, client: &Client, is_denied: bool) -> Option<&'static str> {
        let valid_until = client.machine.valid_until();
        let is_left = client.caller != Caller::Waits && client.caller != Caller::Holds;
        let is_over = valid_until.is_some_and(|end| end <= time(self.start, client.now));
        first_of(&[
            (is_left && valid_until.is_some(), "H1: valid although lost or released"),
            (
                (valid_until.is_some() || client.is_lapsed()) && is_denied,
                "H1: the lease or its margin goes on without a quorum of keys",
            ),
            (is_over, "T5: the end has passed, and the lease goes on"),
        ])
    }

    /// For how many ticks a quorum of nodes has promised to keep the key, as far as an attempt has
    /// heard.
    pub(crate) fn promised(&self, from: usize) -> u8 {
        let mut promised: Vec<u8> = self.sides(from).map(|(_, side)| side.truth.promised).collect();
        promised.sort_unstable();
        promised[NODES - QUORUM]
    }

    /// A lease ends where a quorum of promises ends, or at its hold limit.
    fn judge_end(&self, scope: &Scope, from: usize, client: &Client) -> Option<&'static str> {
        let end = client.machine.valid_until().filter(|_| scope.has_clock())?;
        let promised = time(self.start, client.now + u32::from(self.promised(from)));
        first_of(&[
            (end > promised, "H5: the lease goes on past the promises of a quorum"),
            (
                end < promised && scope.hold_limit.is_none(),
                "H5: the lease ends before the promises of a quorum",
            ),
        ])
    }

    fn judge_timer(
        &self,
        client: &Client,
        before: &Client,
        input: Input<'_>,
    ) -> Option<&'static str> {
        let timer = client.machine.next_timeout();
        let is_due = timer.is_some_and(|due| due <= time(self.start, client.now));
        let was_due = before.is_due(self.start) && !matches!(input, Input::Timeout);
        first_of(&[
            (
                !client.machine.is_quiescent() && timer.is_none(),
                "liveness: something is awaited without a timer",
            ),
            (is_due && !was_due, "C7: a wake-up is due at once"),
        ])
    }

    /// A loss is reported behind the undo at each node that may have something, where nothing is in its way.
    fn judge_loss(
        &self,
        scope: &Scope,
        from: usize,
        client: &Client,
        outputs: &Outputs,
    ) -> Option<&'static str> {
        let is_lost = outputs.is_not_won();
        let owes = |node: usize| {
            let (know, side) = (client.node(node).knowledge(), &self.places[node].sides[from]);
            let has_sent = side.channel.iter().any(|it| it.request.kind == Kind::Release);
            let may_send = scope.is_ordered || !client.node(node).is_busy();
            !matches!(know, Knowledge::Blank | Knowledge::Freed) && !has_sent && may_send
        };
        (is_lost && client.machine.is_releasing() && (0..NODES).any(owes))
            .then_some("C2, C8: the loss was told before each undo was sent")
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
        let is_lost_before = outputs.after.released == Some(Released::LostBefore);
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
                matches!(input, Input::Release) && !was_in_time && !is_lost_before,
                "a release after the end of the lease is not answered",
            ),
            (
                client.caller == Caller::Releases && machine.is_quiescent(),
                "the caller of a release is never answered",
            ),
        ];
        first_of(&wrong)
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
        // The last timer has fired, and no decision comes after it.
        let is_over = client.is_quiescent()
            && (before.is_quiescent() || (0..NODES).any(|at| client.node(at).owes_release()));
        let clear = (0..NODES).filter(|node| !client.node(*node).owes_release()).count();
        let mut votes = before.machine.votes().to_vec();
        if let Input::Replies(replies) = input
            && !before.has_won
        {
            let of_a_round = |kind: &Kind| matches!(kind, Kind::Acquire | Kind::Extend);
            for (call, _, outcome) in replies.iter().filter(|(_, kind, _)| of_a_round(kind)) {
                if let Some(vote @ RoundVote::Open) = votes.get_mut(call.node.index()) {
                    *vote = (*outcome).into();
                }
            }
        }
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
                votes != client.machine.votes() && !outputs.is_round(),
                "A4: not the votes of the last round, with the late answers to a first one that was lost",
            ),
        ];
        first_of(&wrong)
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

/// A round that is decided is over.
fn judge_round(client: &Client) -> Option<&'static str> {
    let nodes = || (0..NODES).map(|node| client.node(node));
    let count = |vote: RoundVote<()>| nodes().filter(|node| *node.vote() == vote).count();
    let (votes_for, open) = (count(RoundVote::For), count(RoundVote::Open));
    let is_round_open = client.caller == Caller::Waits || client.asked.is_some();
    (is_round_open && (votes_for >= QUORUM || votes_for + open < QUORUM))
        .then_some("Q2: the round is decided, and the attempt waits")
}

fn first_of(wrong: &[(bool, &'static str)]) -> Option<&'static str> {
    wrong.iter().find_map(|(is_wrong, what)| is_wrong.then_some(*what))
}
