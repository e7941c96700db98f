//! What must hold of each input. `state.rs` has what must hold in each state.

use std::time::{Duration, Instant};

use quorate_pure::core_source::algorithm::attempt::{
    Action, Knowledge, Message, Node, Released, Results, RoundId, RoundVote,
};

use crate::place::{Entry, Failure, Kind, Place, Side};
use crate::scope::{MARGIN, NODES, QUORUM, Scope};
use crate::step::Input;
use crate::world::{Caller, Client, Undone, World, ticks, time};

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
    fn messages(&self) -> impl Iterator<Item = (usize, Message)> {
        self.sends.iter().filter_map(|(node, action)| match action {
            Action::Send(_, message) => Some((*node, *message)),
            Action::GiveUp(_) => None,
        })
    }

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

/// An input to an attempt, what came out of it, and what really happened at the nodes.
pub(crate) struct Judged<'a> {
    pub(crate) world: &'a World,
    pub(crate) scope: &'a Scope,
    pub(crate) from: usize,
    /// The attempt before the input and after it.
    pub(crate) before: &'a Client,
    pub(crate) client: &'a Client,
    pub(crate) outputs: &'a Outputs,
    pub(crate) input: Input<'a>,
}

impl World {
    pub(crate) fn judged<'a>(
        &'a self,
        scope: &'a Scope,
        from: usize,
        before: &'a Client,
        outputs: &'a Outputs,
        input: Input<'a>,
    ) -> Judged<'a> {
        let client = self.clients[from].as_deref().unwrap_or_else(|| unreachable!());
        Judged { world: self, scope, from, before, client, outputs, input }
    }

    pub(crate) fn sides(&self, from: usize) -> impl Iterator<Item = (&Place, &Side)> {
        self.places.iter().map(move |place| (&**place, &place.sides[from]))
    }

    /// For how many ticks a quorum of nodes has promised to keep the key, as far as an attempt has
    /// heard.
    pub(crate) fn promised(&self, from: usize) -> u8 {
        let mut promised: Vec<u8> = self.sides(from).map(|(_, side)| side.truth.promised).collect();
        promised.sort_unstable();
        promised[NODES - QUORUM]
    }
}

/// What must hold of each input to an attempt.
impl Judged<'_> {
    pub(crate) fn judge_machine(&self) -> Option<&'static str> {
        let is_not_ours = |node: &&Node<()>| node.knowledge() == Knowledge::NotOurs;
        let not_ours = self.nodes().filter(is_not_ours).count();
        // A node has said that the key is not ours, and no quorum of promises is left.
        let is_taken_back = self.was_valid() && self.world.promised(self.from) == 0;
        let is_denied = not_ours > NODES - QUORUM || self.scope.has_clock() && is_taken_back;
        self.judge_sends()
            .or_else(|| self.judge_push())
            .or_else(|| self.judge_revoked())
            .or_else(|| self.judge_lease(is_denied))
            .or_else(|| self.judge_end())
            .or_else(|| self.judge_round())
            .or_else(|| self.judge_timer())
            .or_else(|| self.judge_loss())
            .or_else(|| self.judge_margin(is_denied))
            .or_else(|| self.judge_cleanup())
            .or_else(|| self.judge_rest())
    }

    /// By the clock of the attempt.
    fn now(&self) -> Instant {
        time(self.world.start, self.client.now)
    }

    fn sides(&self) -> impl Iterator<Item = (&Place, &Side)> {
        self.world.sides(self.from)
    }

    fn side(&self, node: usize) -> &Side {
        &self.world.places[node].sides[self.from]
    }

    fn nodes(&self) -> impl Iterator<Item = &Node<()>> {
        (0..NODES).map(|node| self.client.node(node))
    }

    /// Whether the lease was valid until the input came.
    fn was_valid(&self) -> bool {
        self.before.is_valid(self.world.start)
    }

    /// What may be sent, and when.
    fn judge_sends(&self) -> Option<&'static str> {
        let is_ending = self.client.machine.is_releasing();
        let had_ended = self.before.machine.valid_until().is_some_and(|end| end <= self.now());
        self.outputs.messages().find_map(|(_, message)| {
            let is_release = matches!(message, Message::Release { .. });
            let is_late = had_ended && matches!(message, Message::Extend { .. });
            let is_left = self.client.caller == Caller::Parted;
            first_of(&[
                (is_ending && !is_release, "H6: more than releases is sent"),
                (is_left, "H6: sent after the lock was left to another process"),
                (!is_ending && is_release, "H1: released while held"),
                (is_late, "H4: extended after the end of the lease"),
            ])
        })
    }

    /// A push leads to a look and to nothing else, and not to a second one.
    fn judge_push(&self) -> Option<&'static str> {
        let Self { before, client, outputs, .. } = self;
        let is_look =
            |(_, action): &(usize, Action)| matches!(action, Action::Send(_, Message::Look));
        let is_quiet = outputs.before == outputs.after
            && client.machine.valid_until() == before.machine.valid_until()
            && outputs.sends.iter().all(is_look);
        let looks =
            |side: &Side| side.channel.iter().filter(|it| it.request.kind == Kind::Look).count();
        first_of(&[
            (
                matches!(self.input, Input::Push(_)) && self.was_valid() && !is_quiet,
                "P1: a push alone has changed something",
            ),
            (
                self.sides().any(|(_, side)| looks(side) > 1),
                "P3: two looks at a node are in flight",
            ),
        ])
    }

    fn judge_revoked(&self) -> Option<&'static str> {
        let before = Some(self.before).filter(|before| before.is_revoked)?;
        let has_moved_on = self.client.machine.valid_until() > before.machine.valid_until();
        let is_extend = |(_, message)| matches!(message, Message::Extend { .. });
        first_of(&[
            (has_moved_on, "V10: the end of a lease has moved on after its revoke"),
            (self.outputs.messages().any(is_extend), "V10: extended after the revoke"),
        ])
    }

    fn judge_lease(&self, is_denied: bool) -> Option<&'static str> {
        let client = self.client;
        let valid_until = client.machine.valid_until();
        let is_left = client.caller != Caller::Waits && client.caller != Caller::Holds;
        let is_over = valid_until.is_some_and(|end| end <= self.now());
        let goes_on = (valid_until.is_some() || client.is_lapsed()) && is_denied;
        first_of(&[
            (is_left && valid_until.is_some(), "H1: valid although lost or released"),
            (goes_on, "H1: the lease or its margin goes on without a quorum of keys"),
            (is_over, "T5: the end has passed, and the lease goes on"),
        ])
    }

    /// A lease ends where a quorum of promises ends, or at its hold limit.
    fn judge_end(&self) -> Option<&'static str> {
        let end = self.client.machine.valid_until().filter(|_| self.scope.has_clock())?;
        let promised = self.now() + ticks(self.world.promised(self.from)).as_duration();
        let is_early = end < promised && self.scope.hold_limit.is_none();
        first_of(&[
            (end > promised, "H5: the lease goes on past the promises of a quorum"),
            (is_early, "H5: the lease ends before the promises of a quorum"),
        ])
    }

    fn judge_timer(&self) -> Option<&'static str> {
        let start = self.world.start;
        let is_awaited = !self.client.machine.is_quiescent();
        let is_missing = is_awaited && self.client.machine.next_timeout().is_none();
        let is_due = self.client.is_due(start);
        let was_due = self.before.is_due(start) && !matches!(self.input, Input::Timeout);
        first_of(&[
            (is_missing, "liveness: something is awaited without a timer"),
            (is_due && !was_due, "C7: a wake-up is due at once"),
        ])
    }

    /// A loss is reported behind the undo at each node that may have something, where nothing is in its way.
    fn judge_loss(&self) -> Option<&'static str> {
        let client = self.client;
        let owes = |node: usize| {
            let (know, side) = (client.node(node).knowledge(), self.side(node));
            let has_sent = side.channel.iter().any(|it| it.request.kind == Kind::Release);
            let may_send = self.scope.is_ordered || !client.node(node).is_busy();
            !matches!(know, Knowledge::Blank | Knowledge::Freed) && !has_sent && may_send
        };
        (self.outputs.is_not_won() && client.machine.is_releasing() && (0..NODES).any(owes))
            .then_some("C2, C8: the loss was told before each undo was sent")
    }

    /// The end of a lease: its margin, and its release.
    fn judge_margin(&self, is_denied: bool) -> Option<&'static str> {
        let Self { before, client, outputs, input, .. } = self;
        let (machine, now) = (&client.machine, self.now());
        let margin = Duration::from_secs(MARGIN.into());
        let begins = machine.is_releasing() && !before.machine.is_releasing();
        let had_lease = before.machine.valid_until().is_some() || before.is_lapsed();
        let margin_end = match before.machine.valid_until() {
            Some(end) => Some(end + margin),
            None => before.machine.next_timeout(),
        };
        let is_wish = matches!(input, Input::Release | Input::Cancel);
        let is_late = margin_end.is_some_and(|end| now >= end);
        let is_lost_before = outputs.after.released == Some(Released::LostBefore);
        let begins_early = begins && had_lease && !is_wish && !is_late && !is_denied;
        let is_over = machine.next_timeout().is_none_or(|until| now >= until);
        let goes_on = before.machine.has_ended() && !machine.has_ended();
        let is_ignored = had_lease && is_wish && !machine.is_releasing();
        let is_unanswered = matches!(input, Input::Release) && !self.was_valid() && !is_lost_before;
        let waits_for_ever = client.caller == Caller::Releases && machine.is_quiescent();
        first_of(&[
            (client.is_lapsed() && !outputs.sends.is_empty(), "Lapsed: something was sent"),
            (begins_early, "Lapsed: the release began before the margin was over"),
            (
                client.is_lapsed() && is_over,
                "Lapsed: the margin is over, and the release does not begin",
            ),
            (goes_on, "Lapsed: a lease that had ended goes on"),
            (is_ignored, "the guard has gone, and the release does not begin"),
            (is_unanswered, "a release after the end of the lease is not answered"),
            (waits_for_ever, "the caller of a release is never answered"),
        ])
    }

    /// Failed releases, the undo, and the votes that are reported.
    fn judge_cleanup(&self) -> Option<&'static str> {
        let Self { before, client, outputs, input, .. } = self;
        let is_releasing = before.machine.is_releasing();
        let is_sent = |node: usize| {
            let is_release = |message| matches!(message, Message::Release { .. });
            outputs.messages().any(|(at, message)| at == node && is_release(message))
        };
        let failure = |node: usize| self.side(node).truth.failure;
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
            matches!(input, Input::Back(at) if *at == node) && is_releasing && is_idle && is_asked
        };
        let is_clean = |node: usize| {
            let know = client.node(node).knowledge();
            !matches!(know, Knowledge::Maybe | Knowledge::Ours) || failure(node).is_some()
        };
        // The last timer has fired, and no decision comes after it.
        let is_over = client.is_quiescent()
            && (before.is_quiescent() || self.nodes().any(Node::owes_release));
        let clear = self.nodes().filter(|node| !node.owes_release()).count();
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
        let is_late = (0..NODES).any(|node| is_back(node) && !is_sent(node));
        let is_undone = client.undone == Undone::Awaited && (0..NODES).all(is_clean) && !is_over;
        let is_cleared = client.awaits_cleared && clear >= QUORUM && !is_over;
        let has_other_votes = votes != client.machine.votes() && !outputs.is_round();
        first_of(&[
            ((0..NODES).any(is_stormy), "a release that was answered is sent again at once"),
            (is_late, "a node is back, and its release waits for the pause"),
            (is_undone, "C8: each node has answered or failed, and undone is not decided"),
            (is_cleared, "a quorum is clear, and that is not decided"),
            (
                has_other_votes,
                "A4: not the votes of the last round, with the late answers to a first one that was lost",
            ),
        ])
    }

    /// Nothing is left once everything has been answered.
    fn judge_rest(&self) -> Option<&'static str> {
        let client = self.client;
        let is_over_by_itself = client.is_quiescent()
            && self.nodes().all(|node| !node.is_busy() && !node.owes_release());
        let is_left = || {
            self.sides().any(|(place, side)| {
                let may_set = |it: &Entry| it.request.sets_key() && it.reply.is_none();
                place.owner == Some(self.from) && !side.truth.is_excused
                    || side.channel.iter().any(may_set)
            })
        };
        let is_parted = client.caller == Caller::Parted;
        (self.scope.has_clock() && is_over_by_itself && !is_parted && is_left())
            .then_some("C2, C3: quiescent, and a node keeps a key or may still set it")
    }

    /// A round that is decided is over.
    fn judge_round(&self) -> Option<&'static str> {
        let count = |vote: RoundVote<()>| self.nodes().filter(|it| *it.vote() == vote).count();
        let (votes_for, open) = (count(RoundVote::For), count(RoundVote::Open));
        let is_round_open = self.client.caller == Caller::Waits || self.client.asked.is_some();
        (is_round_open && (votes_for >= QUORUM || votes_for + open < QUORUM))
            .then_some("Q2: the round is decided, and the attempt waits")
    }
}

fn first_of(wrong: &[(bool, &'static str)]) -> Option<&'static str> {
    wrong.iter().find_map(|(is_wrong, what)| is_wrong.then_some(*what))
}
