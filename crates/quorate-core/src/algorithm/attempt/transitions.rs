//! The transitions between phases, with the calls that they send.

use std::time::{Duration, Instant};

use super::super::fence::Agreement;
use super::super::lease::{Ttl, earlier, saturating_add};
use super::super::quorum::NodeId;
use super::messages::{Action, CallId, End, Loss, Message, Released};
use super::node::{Knowledge, Node, Purpose, RoundVote};
use super::{AttemptMachine, Phase, Round, RoundId, Timers};

/// A round's deadline that is noticed later than this is put off by as much, once. The process was
/// stopped, and replies that are there are not handled yet (T5).
const NOTICED_LATE: Duration = Duration::from_millis(10);

impl<E: Clone, H: Clone + Default> AttemptMachine<E, H> {
    /// Opens a round.
    pub(super) fn open_round(&mut self, ttl: Ttl, now: Instant) {
        let end = self.settings.promise(now, ttl);
        self.round = Round::new(self.round.id.next(), now, ttl, end);
        self.timers.round = Some(self.node_timeout(now));
        self.longest_ttl = self.longest_ttl.max(ttl);
        for node in &mut self.nodes {
            node.open_vote();
        }
    }

    /// The deadline of the open round is due: votes that are open become silent.
    pub(super) fn close_votes(&mut self, due: Instant, now: Instant) {
        let is_ending = matches!(self.phase, Phase::Ending { .. });
        let latest = if is_ending { self.timers.bound } else { Some(self.round.end) };
        let latest = latest.filter(|latest| *latest > now);
        let is_late = now.saturating_duration_since(due) > NOTICED_LATE;
        if is_late && latest.is_some() && !self.round.is_put_off {
            self.round.is_put_off = true;
            self.timers.round = latest.min(Some(saturating_add(now, NOTICED_LATE)));
            return;
        }
        let (queued, before) = (self.queued, self.round.prolonged);
        let connecting = self.settings.connecting;
        let has_just_left =
            |id| self.left_late.contains(id) && before.is_none_or(|before| before.contains(id));
        self.timers.round = None;
        // A round that was cut short, by a contest or by its caller, waits for no connect.
        let is_whole = due >= saturating_add(self.round.start, self.settings.node_timeout);
        let until = if is_ending { None } else { self.settings.deadline };
        let connected = earlier(earlier(latest, until), Some(self.connect_until));
        // An extension has time for another try, and no call in it makes the first connect. A
        // quorum that has granted waits for none (N4).
        let granted = self.nodes.iter().filter(|node| matches!(node.vote, RoundVote::For));
        let may_wait = is_whole
            && !matches!(self.phase, Phase::Extending { .. })
            && granted.count() < self.settings.nodes.quorum();
        let connected = connected.filter(|at| may_wait && latest.is_some() && *at > now);
        for (id, node) in self.settings.nodes.ids().zip(&mut self.nodes) {
            let has_time = is_ending && latest.is_some() && node.is_open();
            if has_time && (queued.contains(id) || has_just_left(id)) {
                self.round.prolonged = Some(queued);
                let end = saturating_add(now, self.settings.node_timeout);
                self.timers.round = earlier(self.timers.round, latest.min(Some(end)));
            } else if node.is_open() && connected.is_some() && connecting.contains(id) {
                self.timers.round = earlier(self.timers.round, connected);
            } else if node.is_open() {
                node.vote = node.reported_vote();
                if node.is_open() {
                    node.vote = RoundVote::Silent;
                }
            }
        }
    }

    /// The open round is decided: keeps its votes.
    pub(super) fn record_votes(&mut self, now: Instant) {
        self.votes.clear();
        self.votes.extend(self.nodes.iter().map(Node::reported_vote));
        self.waited = now.saturating_duration_since(self.round.start);
        self.timers.round = None;
    }

    /// A quorum granted. With fencing, one number from a quorum is the token; else the highest is
    /// raised on the nodes that granted another.
    pub(super) fn agree(&mut self, now: Instant) {
        if self.phase != Phase::Acquiring || !self.settings.fencing {
            return self.win(now);
        }
        let granted = self.nodes.iter().filter(|node| matches!(node.vote, RoundVote::For));
        match Agreement::of(self.settings.nodes, granted.filter_map(|node| node.number)) {
            Some(Agreement::Token(token)) => {
                self.fencing_token = Some(token);
                self.win(now);
            }
            Some(Agreement::Raise(token)) => {
                self.fencing_token = Some(token);
                self.phase = Phase::Raising;
                // A round that was awaited to its end has no timer any more.
                let limit = earlier(Some(self.node_timeout(now)), self.settings.deadline);
                self.timers.round = self.timers.round.or(limit);
                for id in self.settings.nodes.ids() {
                    let node = &mut self.nodes[id.index()];
                    if matches!(node.vote, RoundVote::For) && node.number != self.fencing_token {
                        node.vote = RoundVote::Open;
                        self.send_raise(id, now);
                    }
                }
            }
            None => self.lose(Loss::NoToken, now), // No grant brought a number.
        }
    }

    fn win(&mut self, now: Instant) {
        self.record_votes(now);
        self.phase = Phase::Held { is_won: true };
        self.hold_until = self.settings.hold_limit.map(|limit| saturating_add(now, limit));
        self.results.first = Some(Ok(()));
    }

    /// The first round is lost. What an adoption leaves may belong to another process.
    pub(super) fn lose(&mut self, loss: Loss, now: Instant) {
        self.record_votes(now);
        self.results.first = Some(Err(loss));
        if self.phase == Phase::Adopting {
            self.part(now);
        } else {
            self.begin_release(false, now);
        }
    }

    /// Opens a round of extensions.
    pub(super) fn open_extension(&mut self, ttl: Ttl, now: Instant) {
        self.phase = Phase::Extending { next: None };
        self.open_round(ttl, now);
        for id in self.select(|node| !node.is_busy()).iter() {
            self.send(id, Message::Extend { ttl }, now);
        }
    }

    /// A round of extensions is decided. Only one that was won repairs nodes.
    pub(super) fn close_extension(&mut self, is_won: bool, next: Option<Ttl>, now: Instant) {
        self.record_votes(now);
        self.phase = Phase::Held { is_won };
        let Round { id: round, ttl, .. } = self.round;
        if is_won {
            self.results.extended = round;
            let lacks_keys = |node: &Node<E, H>| {
                matches!(node.vote, RoundVote::Against(_))
                    && node.know == Knowledge::NotOurs
                    && !node.is_busy()
            };
            for id in self.select(lacks_keys).iter() {
                self.send(id, Message::Repair { ttl }, now);
            }
        } else {
            self.note_failed(round, now);
        }
        if let Some(ttl) = next {
            self.open_extension(ttl, now);
        }
    }

    fn note_failed(&mut self, round: RoundId, now: Instant) {
        self.results.failed = Some((round, self.lease_end().unwrap_or(now)));
    }

    /// A revoke has taken effect. An extension that is open fails: whatever it gained, no other may
    /// follow, and what is in flight promises nothing (V10).
    pub(super) fn note_revoked(&mut self, now: Instant) {
        if let Phase::Extending { next } = self.phase {
            self.record_votes(now);
            self.note_failed(
                if next.is_some() { self.round.id.next() } else { self.round.id },
                now,
            );
        }
        let calls = self.nodes.iter_mut().flat_map(|node| &mut node.calls);
        calls.for_each(|call| call.promise = None);
        self.phase = Phase::Revoked;
        self.results.is_revoked = true;
    }

    /// The lease has ended: by time, or because a node has taken its promise back. After that
    /// nothing is left to protect.
    pub(super) fn end_lease(&mut self, is_taken_back: bool, now: Instant) {
        let why = match self.end_by_time() {
            End::Expired | End::HoldLimit if is_taken_back => End::NotOurs,
            why => why,
        };
        let end = self.lease_end().filter(|_| !is_taken_back);
        self.lapse(why, end.map_or(now, |end| saturating_add(end, self.margin())), now);
    }

    /// The lease has ended. Its keys stay until `until`, for a holder that stops late (H4).
    pub(super) fn lapse(&mut self, why: End, until: Instant, now: Instant) {
        match self.phase {
            Phase::Extending { .. } => self.record_votes(now),
            Phase::Held { .. } if why == End::NotOurs => {
                for (vote, node) in self.votes.iter_mut().zip(&self.nodes) {
                    if node.know == Knowledge::NotOurs {
                        *vote = RoundVote::Against(H::default());
                    }
                    *vote = node.counted(vote.clone());
                }
            }
            // No node said anything against the lease.
            Phase::Held { is_won: true } => {
                self.votes.clear();
                self.waited = Duration::ZERO;
            }
            _ => {}
        }
        self.timers.look = None;
        self.phase = Phase::Lapsed { until };
        self.results.lost = Some(why);
    }

    /// Begins the release on every node: the undo of a lost round, a release, a dropped guard, and
    /// the end of a lost lease. `is_awaited`: its caller waits for the answer.
    pub(super) fn begin_release(&mut self, is_awaited: bool, now: Instant) {
        self.phase = Phase::Ending { is_awaited };
        self.round = Round { start: now, is_put_off: false, prolonged: None, ..self.round };
        let longest = self.longest_ttl.as_duration();
        let bound = self.settings.cleanup_bound.map_or(longest, |bound| bound.min(longest));
        self.timers = Timers {
            round: is_awaited.then(|| self.node_timeout(now)),
            bound: Some(saturating_add(now, bound)),
            ..Timers::default()
        };
        for id in self.settings.nodes.ids() {
            let is_ordered = self.settings.ordered.contains(id);
            let node = &mut self.nodes[id.index()];
            let is_blank = node.know == Knowledge::Blank;
            node.vote = if is_blank { RoundVote::NotAsked } else { RoundVote::Open };
            // A release never overtakes the call before it (C3).
            if node.owes_release() && (is_ordered || !node.is_busy()) {
                self.send_release(id, now);
            }
        }
    }

    pub(super) fn close_release(&mut self, released: Released, now: Instant) {
        self.record_votes(now);
        self.phase = Phase::Ending { is_awaited: false };
        self.results.released = Some(released);
    }

    /// Sends nothing from now on, and lets the calls in flight settle.
    pub(super) fn part(&mut self, now: Instant) {
        self.phase = Phase::Detached;
        let last = self.node_timeout(now).max(self.connect_until);
        self.timers = Timers { last: Some(last), ..Timers::default() };
    }

    /// Sends a release to each idle node that owes one.
    pub(super) fn resend_releases(&mut self, now: Instant) {
        for id in self.select(|node| node.owes_release() && !node.is_busy()).iter() {
            self.send_release(id, now);
        }
    }

    /// Gives up the calls in front of a release that has not been sent, and sends it.
    pub(super) fn give_up(&mut self, now: Instant) {
        for id in self.settings.nodes.ids() {
            let node = &mut self.nodes[id.index()];
            if node.owes_release() && !node.awaits(Purpose::Release) {
                let given_up = node.calls.drain(..).map(|call| (id, Action::GiveUp(call.id)));
                self.sends.extend(given_up);
                self.send_release(id, now);
            }
        }
    }

    pub(super) fn send_raise(&mut self, id: NodeId, now: Instant) {
        if let Some(token) = self.fencing_token {
            self.send(id, Message::Raise { token }, now);
        }
    }

    pub(super) fn send_release(&mut self, id: NodeId, now: Instant) {
        let received = self.nodes.iter().map(|node| node.number);
        let highest = received.max().flatten().max(self.fencing_token);
        self.send(id, Message::Release { highest }, now);
    }

    /// Sends a message. What its grant promises counts from now, before the first byte of this call
    /// (T1).
    pub(super) fn send(&mut self, id: NodeId, message: Message, now: Instant) {
        self.calls = self.calls.wrapping_add(1);
        let call = CallId { node: id, number: self.calls };
        let promise = match message {
            Message::Acquire { .. } => Some(self.round.end),
            Message::Extend { ttl } => Some(self.settings.promise(now, ttl)),
            _ => None,
        };
        self.nodes[id.index()].record_sent(call, message, promise);
        self.sends.push_back((id, Action::Send(call, message)));
    }

    pub(super) fn node_timeout(&self, start: Instant) -> Instant {
        saturating_add(start, self.settings.node_timeout)
    }
}
