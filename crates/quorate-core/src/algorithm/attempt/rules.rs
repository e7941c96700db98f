//! How a reply votes, what the votes decide, and what is sent next.

use std::cmp::Ordering;
use std::time::Instant;

use super::super::quorum::NodeId;
use super::messages::{Decision, Loss, Operation, Outcome};
use super::node::{CallKind, Knowledge, Node, Vote};
use super::{Attempt, Phase};

impl Attempt {
    /// The vote of a reply in the open round; `Open` if it has none.
    pub(super) fn vote_of(
        &self,
        node: &Node,
        kind: CallKind,
        outcome: Outcome,
        now: Instant,
    ) -> Vote {
        let plain = match outcome {
            Outcome::Granted(_) => Vote::For,
            Outcome::Refused => Vote::Against,
            Outcome::Failed if planted!("errors_mean_held") => Vote::Against,
            Outcome::Failed | Outcome::NotSent => Vote::Unknown,
        };
        match (self.phase, kind, outcome) {
            (Phase::Acquiring, CallKind::Acquire, _)
            | (Phase::Adopting | Phase::Extending { .. }, CallKind::Extend, _)
            | (Phase::Raising, CallKind::Raise, _) => plain,

            // A late grant votes if it carries the token. With a lower number it is raised.
            (Phase::Raising, CallKind::Acquire, Outcome::Granted(_))
                if planted!("grant_during_a_raise_is_a_vote") =>
            {
                Vote::For
            }
            (Phase::Raising, CallKind::Acquire, Outcome::Granted(number)) => {
                match number.cmp(&self.token) {
                    Ordering::Less => Vote::Open,
                    Ordering::Equal => Vote::For,
                    Ordering::Greater => Vote::Against,
                }
            }
            (Phase::Raising, CallKind::Acquire, _) => plain,
            (Phase::Extending { .. }, CallKind::Repair, _) if planted!("repair_votes") => plain,

            (Phase::Ending { is_awaited: true }, CallKind::Release, Outcome::Granted(_)) => plain,
            // An earlier release may have been executed, and an old key may just have expired.
            (Phase::Ending { is_awaited: true }, CallKind::Release, Outcome::Refused) => {
                let is_resent = node.has_failed_release && !planted!("resent_refusal_is_loss");
                let is_late = now >= self.valid_until && !planted!("expiry_is_loss");
                if is_resent || is_late { Vote::Unknown } else { plain }
            }
            // Nothing more will be sent to this node.
            (Phase::Ending { is_awaited: true }, _, _) if !node.owes_release() => Vote::Unknown,
            _ => Vote::Open,
        }
    }

    /// Compares the votes, and the time, with what each phase waits for. The first match decides.
    pub(super) fn decide(&mut self, now: Instant) {
        let count = |vote| self.nodes.iter().filter(|node| node.vote == vote).count();
        let [votes_for, against, unknown, open] =
            [Vote::For, Vote::Against, Vote::Unknown, Vote::Open].map(count);
        let not_ours = self.nodes.iter().filter(|node| node.know == Knowledge::NotOurs).count();
        let not_ours = if planted!("refusals_are_ignored") { 0 } else { not_ours };
        let (quorum, spare) = (self.settings.nodes.quorum(), self.settings.nodes.spare());

        match self.phase {
            Phase::Acquiring | Phase::Adopting | Phase::Raising => {
                if now >= self.round.valid_until && !planted!("expired_win") {
                    self.lose(Loss::Expired, now);
                } else if open > 0 && planted!("slowest_node_is_waited_for") {
                } else if votes_for >= quorum {
                    self.agree(now);
                } else if votes_for + open < quorum {
                    let is_held = match self.phase {
                        Phase::Raising => false,
                        // An adopter that reads "lost" throws its record away: no quorum may have it.
                        Phase::Adopting => against > spare,
                        _ => unknown <= spare,
                    };
                    self.lose(if is_held { Loss::Held } else { Loss::Unreachable }, now);
                }
            }
            Phase::Held { .. } | Phase::Extending { .. }
                if now >= self.valid_until || not_ours > spare =>
            {
                self.decisions.push_back(Decision::LeaseLost);
                self.end(false, now);
            }
            Phase::Extending { next } => {
                if votes_for >= quorum {
                    self.close_extension(true, next, now);
                } else if votes_for + open < quorum {
                    self.close_extension(false, next, now);
                }
            }
            Phase::Ending { is_awaited: true } => {
                if votes_for >= quorum {
                    self.close_release(Decision::Released);
                } else if against > spare {
                    self.close_release(Decision::LostBefore);
                } else if open == 0 {
                    self.close_release(Decision::Unconfirmed);
                }
            }
            Phase::Held { .. } | Phase::Ending { .. } | Phase::Detached | Phase::Over => {}
        }
    }

    /// Goes on with a node after a reply, if nothing is in flight there.
    pub(super) fn go_on(&mut self, id: NodeId, kind: CallKind, outcome: Outcome, now: Instant) {
        let node = &self.nodes[id.index()];
        if node.is_busy() {
            return;
        }
        match self.phase {
            Phase::Ending { .. }
                if planted!("repair_after_release")
                    && (kind, outcome) == (CallKind::Extend, Outcome::Refused) =>
            {
                self.send(id, Operation::Repair { ttl: self.round.ttl });
            }
            Phase::Ending { .. } if node.owes_release() && kind != CallKind::Release => {
                self.send_release(id);
            }
            Phase::Ending { .. } if node.owes_release() && self.timers.bound.is_some() => {
                self.wait_to_resend(now);
            }
            Phase::Extending { .. } if node.vote == Vote::Open => {
                self.send(id, Operation::Extend { ttl: self.round.ttl });
            }
            Phase::Extending { .. }
                if planted!("repair_votes")
                    && (kind, outcome) == (CallKind::Extend, Outcome::Refused) =>
            {
                self.nodes[id.index()].vote = Vote::Open;
                self.send(id, Operation::Repair { ttl: self.round.ttl });
            }
            Phase::Raising if node.vote == Vote::Open && node.know == Knowledge::Ours => {
                self.send_raise(id);
            }
            // Also a late reply: else a node slower than the renewal is never repaired.
            Phase::Held { repairs: true }
                if matches!(kind, CallKind::Extend | CallKind::OldExtend)
                    && outcome == Outcome::Refused =>
            {
                self.send(id, Operation::Repair { ttl: self.round.ttl });
            }
            _ => {}
        }
    }
}
