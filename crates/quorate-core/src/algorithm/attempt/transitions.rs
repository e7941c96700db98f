//! The transitions between phases, with the calls that they send.

use std::time::{Duration, Instant};

use super::super::fence::Agreement;
use super::super::lease::{Ttl, saturating_add};
use super::super::quorum::NodeId;
use super::messages::{Action, CallId, Decision, Loss, Operation};
use super::node::{Knowledge, Vote};
use super::{Attempt, Phase, Round, Timers};

impl Attempt {
    /// Opens a round: everything that it decides counts from now (T1).
    pub(super) fn open_round(&mut self, ttl: Ttl, now: Instant) {
        let valid_until = self.settings.valid_until(now, ttl);
        self.round = Round { id: self.round.id.next(), ttl, valid_until };
        self.timers.round =
            Some(self.node_timeout(now)).filter(|_| !planted!("clients_bound_their_calls"));
        self.longest_ttl = self.longest_ttl.max(ttl);
        for node in &mut self.nodes {
            node.open_vote();
        }
    }

    /// A quorum granted. With fencing, one number from a quorum is the token; else the highest is
    /// raised on the nodes that granted another.
    pub(super) fn agree(&mut self, now: Instant) {
        if self.phase != Phase::Acquiring || !self.settings.fencing {
            return self.win(now);
        }
        let granted = self.nodes.iter().filter(|node| node.vote == Vote::For);
        match Agreement::of(self.settings.nodes, granted.filter_map(|node| node.number)) {
            Some(Agreement::Token(token)) => {
                self.token = Some(token);
                self.win(now);
            }
            Some(Agreement::Raise(token)) if planted!("highest_reply_is_the_token") => {
                self.token = Some(token);
                self.win(now);
            }
            Some(Agreement::Raise(token)) => {
                self.token = Some(token);
                self.phase = Phase::Raising;
                if planted!("raise_moves_the_clock") {
                    self.round.valid_until = self.settings.valid_until(now, self.round.ttl);
                    self.timers.round = Some(self.node_timeout(now));
                }
                for id in self.settings.nodes.ids() {
                    let node = &mut self.nodes[id.index()];
                    if node.vote == Vote::For && node.number != self.token {
                        node.vote = Vote::Open;
                        self.send_raise(id);
                    }
                }
            }
            None => self.lose(Loss::Unreachable, now), // No grant brought a number.
        }
    }

    pub(super) fn win(&mut self, now: Instant) {
        self.phase = Phase::Held { repairs: false };
        self.timers.round = None;
        self.valid_until = self.round.valid_until;
        if [planted!("validity_from_reply"), planted!("expired_win")].contains(&true) {
            self.valid_until = self.settings.valid_until(now, self.round.ttl);
        }
        let (valid_until, token) = (self.valid_until, self.token);
        self.decisions.push_back(Decision::Won { valid_until, token });
    }

    /// The first round is lost. What an adoption leaves may belong to another process.
    pub(super) fn lose(&mut self, loss: Loss, now: Instant) {
        self.decisions.push_back(Decision::NotWon(loss));
        if self.phase == Phase::Adopting && !planted!("failed_adopt_releases") {
            self.part(now)
        } else {
            self.end(false, now)
        }
    }

    /// Opens a round of extensions, for `ttl` or for the rest of the lease, if that is longer.
    ///
    /// Each vote for it so proves that the keys last as long as the lease. A node that was repaired for a
    /// shorter ttl would count for the whole lease otherwise (H3).
    pub(super) fn open_extension(&mut self, ttl: Ttl, now: Instant) {
        let margin = self.settings.safety_margin.of(self.longest_ttl);
        let rest = self.settings.drift.ttl_until(now, saturating_add(self.valid_until, margin));
        let rest = rest.filter(|_| !planted!("extend_shortens"));
        let ttl = rest.map_or(ttl, |rest| rest.max(ttl));
        self.phase = Phase::Extending { next: None };
        self.open_round(ttl, now);
        for id in self.settings.nodes.ids() {
            if !self.nodes[id.index()].is_busy() {
                self.send(id, Operation::Extend { ttl });
            }
        }
    }

    /// A round of extensions is decided. Only one that was won moves the lease and repairs nodes.
    pub(super) fn close_extension(&mut self, is_won: bool, next: Option<Ttl>, now: Instant) {
        self.phase = Phase::Held { repairs: is_won };
        self.timers.round = None;
        let Round { id: round, ttl, valid_until } = self.round;
        if is_won {
            self.valid_until = self.valid_until.max(valid_until);
            if planted!("extend_shortens") {
                self.valid_until = valid_until;
            }
            let valid_until = self.valid_until;
            self.decisions.push_back(Decision::Extended { round, valid_until });
            for id in self.settings.nodes.ids() {
                let node = &self.nodes[id.index()];
                if node.vote == Vote::Against && !node.is_busy() {
                    self.send(id, Operation::Repair { ttl });
                }
            }
        } else {
            self.decisions.push_back(Decision::ExtendFailed { round });
            if planted!("failed_extend_releases") {
                return self.end(false, now);
            }
        }
        if let Some(ttl) = next {
            self.open_extension(ttl, now);
        }
    }

    /// Begins the release on every node: the undo of a lost round, a release, a dropped guard, and
    /// the end of a lost lease.
    pub(super) fn end(&mut self, is_awaited: bool, now: Instant) {
        self.phase = Phase::Ending { is_awaited };
        let longest = self.longest_ttl.as_duration();
        let bound = self.settings.cleanup_bound.map_or(longest, |bound| bound.min(longest));
        self.timers = Timers {
            round: is_awaited.then(|| self.node_timeout(now)),
            resend: None,
            pause: if planted!("resend_without_pause") {
                Duration::ZERO
            } else {
                self.settings.node_timeout
            },
            bound: Some(saturating_add(now, bound)).filter(|_| !planted!("never_gives_up")),
            last: None,
        };
        for id in self.settings.nodes.ids() {
            let node = &mut self.nodes[id.index()];
            if is_awaited {
                node.vote = if node.know == Knowledge::Blank { Vote::Against } else { Vote::Open };
            }
            if planted!("cancel_forgets_calls") && !is_awaited && node.know == Knowledge::Maybe {
                (node.know, node.call) = (Knowledge::Blank, None);
            }
            if node.owes_release() && node.takes_release() {
                self.send_release(id);
            }
        }
    }

    pub(super) fn close_release(&mut self, decision: Decision) {
        self.phase = Phase::Ending { is_awaited: false };
        self.timers.round = None;
        self.decisions.push_back(decision);
    }

    /// Sends nothing from now on, and lets the calls in flight settle.
    pub(super) fn part(&mut self, now: Instant) {
        self.phase = Phase::Detached;
        self.timers = Timers { last: Some(self.node_timeout(now)), ..Timers::default() };
    }

    /// A release failed: it is sent again after a pause, which doubles.
    pub(super) fn wait_to_resend(&mut self, now: Instant) {
        if self.timers.resend.is_none() {
            self.timers.resend = Some(saturating_add(now, self.timers.pause));
            self.timers.pause = self.timers.pause.saturating_mul(2);
        }
    }

    pub(super) fn resend_releases(&mut self) {
        for id in self.settings.nodes.ids() {
            let node = &self.nodes[id.index()];
            if node.owes_release() && !node.is_busy() {
                self.send_release(id);
            }
        }
    }

    /// Gives up the calls in front of a release that has not been sent, and sends it.
    pub(super) fn give_up(&mut self) {
        for id in self.settings.nodes.ids() {
            let node = &mut self.nodes[id.index()];
            if node.owes_release() && node.release.is_none() {
                if let Some(call) = node.call.take() {
                    self.sends.push_back((id, Action::GiveUp(call.id)));
                }
                self.send_release(id);
            }
        }
    }

    pub(super) fn send_raise(&mut self, id: NodeId) {
        if let Some(token) = self.token {
            self.send(id, Operation::Raise { token });
        }
    }

    pub(super) fn send_release(&mut self, id: NodeId) {
        let heard = self.nodes.iter().map(|node| node.number);
        let highest = heard.max().flatten().max(self.token);
        self.send(id, Operation::Release { highest });
    }

    pub(super) fn send(&mut self, id: NodeId, operation: Operation) {
        self.calls += 1;
        let call = CallId { node: id, number: self.calls };
        self.nodes[id.index()].record_sent(call, operation);
        self.sends.push_back((id, Action::Call(call, operation)));
    }

    pub(super) fn node_timeout(&self, start: Instant) -> Instant {
        saturating_add(start, self.settings.node_timeout)
    }
}
