//! The vote of a reply, the decision of votes and time, and the next messages.

use std::cmp::Ordering;
use std::time::Instant;

use super::super::lease::saturating_add;
use super::super::quorum::NodeId;
use super::messages::{Loss, Message, Outcome, Released};
use super::node::{Knowledge, Node, Purpose, RoundVote};
use super::{AttemptMachine, Phase};

impl<E: Clone, H: Clone + Default> AttemptMachine<E, H> {
    /// A contested round, in which a quorum has granted or refused, goes on for as long as it took
    /// until then: it does not wait for slow nodes.
    fn make_haste(&mut self, now: Instant) {
        let took = now.saturating_duration_since(self.round.start);
        let end = saturating_add(now, took.max(self.settings.haste));
        self.timers.round = self.timers.round.map(|round| round.min(end));
    }

    /// The vote of a reply in the open round; `Open` if it has none.
    pub(super) fn vote_of(
        &self,
        node: NodeId,
        kind: Purpose,
        outcome: Outcome<E, H>,
        now: Instant,
    ) -> RoundVote<E, H> {
        let node = &self.nodes[node.index()];
        match (self.phase, kind, outcome) {
            // A late grant votes if it carries the token. With a lower number it is raised.
            (Phase::Raising, Purpose::Acquire, Outcome::Granted(number)) => {
                match number.cmp(&self.fencing_token) {
                    Ordering::Less => RoundVote::Open,
                    Ordering::Equal => RoundVote::For,
                    Ordering::Greater => RoundVote::Against(H::default()),
                }
            }
            (Phase::Acquiring | Phase::Raising, Purpose::Acquire, outcome)
            | (Phase::Adopting | Phase::Extending { .. }, Purpose::Extend, outcome)
            | (Phase::Raising, Purpose::Raise, outcome) => outcome.into(),

            (Phase::Ending { .. }, Purpose::Acquire, Outcome::NotSent(_)) => RoundVote::NotAsked,
            (Phase::Ending { .. }, Purpose::Release, Outcome::Refused(_))
                if node.failure.is_some() || self.lease_end().is_some_and(|end| now >= end) =>
            {
                RoundVote::Unclear
            }
            // A release that failed is sent again, and may still vote.
            (Phase::Ending { .. }, Purpose::Release, outcome) if !node.owes_release() => {
                outcome.into()
            }
            _ => RoundVote::Open,
        }
    }

    /// Decides until neither the time nor the votes decide more.
    pub(super) fn decide(&mut self, now: Instant) {
        loop {
            self.decide_by_time(now);
            if !self.decide_by_votes(now) {
                return;
            }
        }
    }

    /// Decides what the time alone decides, whatever the nodes say from now on.
    pub(super) fn decide_by_time(&mut self, now: Instant) {
        match self.phase {
            Phase::Acquiring | Phase::Adopting | Phase::Raising if now >= self.round.end => {
                self.lose(Loss::Expired, now);
            }
            Phase::Held { .. } | Phase::Extending { .. } | Phase::Revoked
                if self.lease_end() <= Some(now) =>
            {
                self.end_lease(false, now);
                self.decide_by_time(now);
            }
            Phase::Lapsed { until } if now >= until => self.begin_release(false, now),
            _ => {}
        }
    }

    /// Takes the first row that matches, and returns whether there was one.
    fn decide_by_votes(&mut self, now: Instant) -> bool {
        // Each row counts what it needs.
        let count =
            |is_so: fn(&Node<E, H>) -> bool| self.nodes.iter().filter(|node| is_so(node)).count();
        let granted = || count(|node| matches!(node.vote, RoundVote::For));
        let against =
            || count(|node| matches!(node.vote, RoundVote::Against(_) | RoundVote::NotAsked));
        let open = || count(Node::is_open);
        let not_ours = || count(|node| node.know == Knowledge::NotOurs);
        let marked = || count(|node| node.know == Knowledge::Marked);
        let (quorum, spare) = (self.settings.nodes.quorum(), self.settings.nodes.spare());

        match self.phase {
            Phase::Acquiring | Phase::Adopting | Phase::Raising => {
                let (granted, open) = (granted(), open());
                if granted >= quorum && !(self.is_unlisted && open > 0) {
                    self.agree(now);
                } else if granted + open < quorum {
                    let unknown = self.nodes.len() - granted - open - against();
                    let loss = match self.phase {
                        Phase::Acquiring if unknown <= spare => Loss::Held,
                        // An adopter that reads "held" throws its record away: no quorum may have
                        // it.
                        Phase::Adopting if against() > spare => Loss::Held,
                        Phase::Raising => Loss::NoToken,
                        _ => Loss::NoQuorum,
                    };
                    self.lose(loss, now);
                } else {
                    let against = against();
                    let is_contested = against > 0 && granted + against >= quorum;
                    if is_contested && !self.is_unlisted && self.phase == Phase::Acquiring {
                        self.make_haste(now);
                    }
                    return false;
                }
            }
            // No extension can win, and no other client gets a marked key before its ttl has
            // passed.
            Phase::Held { .. } | Phase::Extending { .. }
                if marked() > 0 && marked() + not_ours() > spare =>
            {
                self.note_revoked(now);
            }
            Phase::Extending { next } if granted() >= quorum || granted() + open() < quorum => {
                self.close_extension(granted() >= quorum, next, now);
            }
            Phase::Lapsed { .. } if not_ours() > spare => self.begin_release(false, now),
            Phase::Ending { is_awaited: true } => {
                let released = match (granted(), against()) {
                    (granted, _) if granted >= quorum => Released::Ours,
                    (_, against) if against > spare => Released::LostBefore,
                    _ if open() == 0 => Released::Unconfirmed,
                    _ => return false,
                };
                self.close_release(released, now);
            }
            _ => return false,
        }
        true
    }

    /// Goes on with a node after a reply, if nothing is in flight there.
    pub(super) fn go_on(&mut self, id: NodeId, kind: Purpose, is_refused: bool, now: Instant) {
        let node = &self.nodes[id.index()];
        if node.is_busy() {
            return;
        }
        match self.phase {
            Phase::Ending { .. } if node.owes_release() && kind != Purpose::Release => {
                self.send_release(id, now);
            }
            Phase::Ending { .. } if node.owes_release() && self.timers.bound.is_some() => {
                let pause_end = self.node_timeout(now);
                self.timers.resend.get_or_insert(pause_end);
            }
            Phase::Extending { .. } if node.is_open() => {
                self.send(id, Message::Extend { ttl: self.round.ttl }, now);
            }
            Phase::Raising if node.is_open() && node.know == Knowledge::Ours => {
                self.send_raise(id, now);
            }
            Phase::Held { is_won: true } if is_refused && kind == Purpose::Extend => {
                self.send(id, Message::Repair { ttl: self.round.ttl }, now);
            }
            _ => {}
        }
    }
}
