//! One attempt: the life of one token over all nodes, from the first acquire to the last release.
//!
//! A pure state machine. Replies, timeouts and the caller's wishes go in; calls, decisions and the
//! next wake-up come out. It has no clock, no randomness and no I/O.
//!
//! ```text
//! new ───▶ Acquiring ──▶ (Raising) ──▶ Held ⇄ Extending ──┬─▶ Ending     releases
//! adopt ─▶ Adopting ───────────────────┘                  └─▶ Detached   sends nothing
//! ```
//!
//! Acquiring and Raising may go to Ending directly, and Adopting to Detached. These two are the usual ends:
//! they are *quiescent* when nothing is in flight and no release is owed. Where the last timer fires before
//! that, the attempt is Over.
//!
//! An undo, a release, a dropped guard and a lost lease are one transition, `end`: each node that was sent
//! something which may set the key gets a release, also one that refused, and nothing but releases is sent from
//! then on (H6). A lock that is held needs no driver. So the machine is not called at the end of an idle
//! lease: `lost()` resolves by the clock, and the release begins with the next input.
//!
//! # Per node
//!
//! A [`Node`] is what is known of the keys there, the calls in flight, and the vote in this round.
//! A call stays in flight after its round was decided, until it settles: by its reply, by the end of
//! its connection, or by *not sent*. At the cleanup bound, a call is given up if a release still waits behind
//! it; one node timeout later, everything is.
//!
//! # A reply
//!
//! [`Attempt::handle_reply`] removes the call, learns, votes, decides, and then goes on with that
//! node. It decides before it sends, so that a reply that comes after the end of the lease sends no
//! extension.
//!
//! # Delivery
//!
//! On an *ordered* connection a release is sent right behind a call in flight. On a pool, calls to
//! one node have no order, so the release waits until the call before it has settled (C3).
//!
//! # The driver
//!
//! The driver gives its inputs, then drains [`Attempt::poll_send`] and [`Attempt::poll_decision`], and
//! waits for a reply or for [`Attempt::next_timeout`]. It feeds the replies that are there before the
//! timeout (T5). It stops when its caller has a result and none of its own calls is in flight; the last driver
//! of an attempt that has ended goes on until [`Attempt::is_quiescent`].

mod fingerprint;
mod messages;
mod node;
mod rules;
mod settings;
mod transitions;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::fence::FencingToken;
use super::lease::Ttl;
use super::node_set::NodeSet;
use super::quorum::NodeId;
use node::CallKind;

pub use messages::{Action, CallId, Decision, Loss, Operation, Outcome, RoundId};
pub use node::{Knowledge, Node, Vote};
pub use settings::Settings;

/// The life of one token over all nodes.
#[derive(Clone, Debug)]
pub struct Attempt {
    settings: Settings,
    phase: Phase,
    nodes: Vec<Node>,
    round: Round,
    timers: Timers,
    /// The end of the lease; in Ending, the end that it had.
    valid_until: Instant,
    /// The fencing token; in Raising, the number that becomes it.
    token: Option<FencingToken>,
    /// The longest ttl that any round asked for.
    longest_ttl: Ttl,
    /// How many calls were made.
    calls: u64,
    sends: VecDeque<(NodeId, Action)>,
    decisions: VecDeque<Decision>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// The acquires are decided on.
    Acquiring,
    /// The extensions of an adopted lock are decided on. It may belong to another process.
    Adopting,
    /// The nodes that granted another number are asked to raise it to the token.
    Raising,
    /// `repairs`: the last extension was won, so a node that lost the keys is repaired.
    Held { repairs: bool },
    /// `next`: the ttl of an extension that begins when this one is decided.
    Extending { next: Option<Ttl> },
    /// Only releases are sent. `is_awaited`: the caller of `release` waits for a decision.
    Ending { is_awaited: bool },
    /// Nothing is sent: the lock may belong to another process.
    Detached,
    /// The last timer has fired.
    Over,
}

/// The open round of acquires or extensions, or the last one.
#[derive(Clone, Copy, Debug)]
struct Round {
    id: RoundId,
    ttl: Ttl,
    /// The end of the lease if the round is won. It counts from the round's start (T1).
    valid_until: Instant,
}

#[derive(Clone, Copy, Debug, Default)]
struct Timers {
    /// Votes that are still open become unknown.
    round: Option<Instant>,
    /// Failed releases are sent again.
    resend: Option<Instant>,
    /// How long the next failed release waits.
    pause: Duration,
    /// The cleanup bound: calls in front of a release are given up, and a last release leaves.
    bound: Option<Instant>,
    /// The end, whatever is in flight.
    last: Option<Instant>,
}

/// The beginning, the caller's wishes, replies and timeouts.
impl Attempt {
    /// Acquires on all nodes.
    #[must_use]
    pub fn new(settings: Settings, now: Instant) -> Self {
        let mut attempt = Self::begin(settings, Phase::Acquiring, None, now);
        for id in settings.nodes.ids() {
            attempt.send(id, Operation::Acquire { ttl: settings.ttl });
        }
        attempt
    }

    /// Takes over a lock that another process detached: extends it on all nodes.
    ///
    /// No time comes from the other process. `token` is the lock's fencing token.
    #[must_use]
    pub fn adopt(settings: Settings, token: Option<FencingToken>, now: Instant) -> Self {
        let mut attempt = Self::begin(settings, Phase::Adopting, token, now);
        for id in settings.nodes.ids() {
            attempt.nodes[id.index()].know = Knowledge::Maybe;
            attempt.send(id, Operation::Extend { ttl: settings.ttl });
        }
        attempt
    }

    fn begin(settings: Settings, phase: Phase, token: Option<FencingToken>, now: Instant) -> Self {
        let nodes = settings.nodes.ids().map(|id| Node::new(settings.is_ordered(id)));
        let round = Round { id: RoundId(0), ttl: settings.ttl, valid_until: now };
        let mut attempt = Self {
            settings,
            phase,
            nodes: nodes.collect(),
            round,
            timers: Timers::default(),
            valid_until: now,
            token,
            longest_ttl: settings.ttl,
            calls: 0,
            sends: VecDeque::new(),
            decisions: VecDeque::new(),
        };
        attempt.open_round(settings.ttl, now);
        if let Some(deadline) = settings.deadline {
            attempt.timers.round = attempt.timers.round.min(Some(deadline));
        }
        attempt
    }

    /// Extends the lease to `ttl` from now.
    ///
    /// Returns the round that answers: the open one if it asks for at least `ttl`, else the next one. With
    /// `afresh` it is never an open one, so no node was asked before this call. The first decision about that
    /// round or a later one is the answer. Returns `None` if the lease has ended. If it ends before the decision,
    /// [`Decision::LeaseLost`] comes instead.
    pub fn extend(&mut self, ttl: Ttl, afresh: bool, now: Instant) -> Option<RoundId> {
        if !planted!("expired_lease_is_extended") {
            self.decide(now);
        }
        match &mut self.phase {
            Phase::Held { .. } => self.open_extension(ttl, now),
            Phase::Extending { .. } if !afresh && ttl <= self.round.ttl => {}
            Phase::Extending { next } => {
                *next = (*next).max(Some(ttl));
                return Some(self.round.id.next());
            }
            _ => return None,
        }
        Some(self.round.id)
    }

    /// Releases the lock on all nodes, with a caller that waits for the decision.
    ///
    /// A lease that has ended by now is [lost](Decision::LeaseLost), and one that had ended before is
    /// [`LostBefore`](Decision::LostBefore). Before a decision on the first round it only cancels.
    pub fn release(&mut self, now: Instant) {
        match self.phase {
            Phase::Acquiring | Phase::Adopting | Phase::Raising => self.cancel(now),
            Phase::Held { .. } | Phase::Extending { .. } => {
                self.decide(now);
                if self.is_held() {
                    self.end(true, now);
                    self.decide(now);
                }
            }
            Phase::Ending { .. } | Phase::Detached | Phase::Over => {
                self.decisions.push_back(Decision::LostBefore);
            }
        }
    }

    /// The lock is not wanted any more, and its end interests no caller (C5).
    ///
    /// Not for the future of an extension: its round goes on.
    pub fn cancel(&mut self, now: Instant) {
        match self.phase {
            Phase::Acquiring | Phase::Raising | Phase::Held { .. } | Phase::Extending { .. } => {
                self.end(false, now);
            }
            Phase::Adopting => self.part(now),
            Phase::Ending { .. } => {
                self.phase = Phase::Ending { is_awaited: false };
                self.timers.round = None;
            }
            Phase::Detached | Phase::Over => {}
        }
    }

    /// Leaves the lock to another process. A lease that has ended by now is lost instead.
    pub fn detach(&mut self, now: Instant) {
        self.decide(now);
        if self.is_held() {
            self.part(now);
        }
    }

    /// Leaves the lock as it is, although the lease may have ended by now.
    pub fn abandon(&mut self, now: Instant) {
        if self.is_held() {
            self.part(now);
        }
    }

    /// A call settled.
    pub fn handle_reply(&mut self, call: CallId, outcome: Outcome, now: Instant) {
        let id = call.node();
        let Some(kind) = self.nodes.get_mut(id.index()).and_then(|node| node.settle(call)) else {
            if planted!("second_reply_votes")
                && matches!((self.phase, outcome), (Phase::Acquiring, Outcome::Granted(_)))
                && let Some(node) = self.nodes.iter_mut().find(|node| node.vote == Vote::Open)
            {
                node.vote = Vote::For;
                self.decide(now);
            }
            return;
        };
        self.nodes[id.index()].learn(kind, outcome);
        let is_late = !matches!(self.phase, Phase::Acquiring | Phase::Raising);
        if planted!("late_grant_is_forgotten") && is_late && kind == CallKind::Acquire {
            self.nodes[id.index()].know = Knowledge::Blank;
        }
        let vote = self.vote_of(&self.nodes[id.index()], kind, outcome, now);
        let node = &mut self.nodes[id.index()];
        if node.vote == Vote::Open {
            node.vote = vote; // The first vote of a node in a round counts (Q3).
        }
        if planted!("go_on_before_deciding") {
            self.go_on(id, kind, outcome, now);
        }
        self.decide(now);
        self.go_on(id, kind, outcome, now);
    }

    /// A timer may be due. Replies that are there come first (T5).
    pub fn handle_timeout(&mut self, now: Instant) {
        let is_due = |timer: Option<Instant>| timer.is_some_and(|due| now >= due);
        if is_due(self.timers.round) {
            self.timers.round = None;
            for node in self.nodes.iter_mut().filter(|node| node.vote == Vote::Open) {
                node.vote = Vote::Unknown;
            }
        }
        self.decide(now);
        if planted!("deadline_settles_a_call") && matches!(self.phase, Phase::Ending { .. }) {
            self.give_up();
        }
        if is_due(self.timers.resend) {
            self.timers.resend = None;
            self.resend_releases();
        }
        if is_due(self.timers.bound) {
            self.timers = Timers { last: Some(self.node_timeout(now)), ..Timers::default() };
            self.give_up();
        } else if is_due(self.timers.last) {
            self.phase = Phase::Over;
            self.timers = Timers::default();
        }
    }
}

/// Calls and decisions to act on, and the next wake-up.
impl Attempt {
    /// The next call to send, or to drop. The order of calls to one node is the order to send them in.
    pub fn poll_send(&mut self) -> Option<(NodeId, Action)> {
        self.sends.pop_front()
    }

    /// The next decision; `None` as long as [`poll_send`](Self::poll_send) has not been drained (C8).
    pub fn poll_decision(&mut self) -> Option<Decision> {
        if self.sends.is_empty() { self.decisions.pop_front() } else { None }
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        let Timers { round, resend, pause: _, bound, last } = self.timers;
        let timers = [round, resend, bound, last, self.valid_until()];
        timers.into_iter().flatten().min().filter(|_| !self.is_quiescent())
    }

    /// Whether the attempt has ended and nothing is in flight or to be released, or the last timer has fired. What is in
    /// flight then can be dropped: the ttl is the backstop.
    #[must_use]
    pub fn is_quiescent(&self) -> bool {
        let is_busy = || self.nodes.iter().any(Node::is_busy);
        match self.phase {
            Phase::Ending { .. } => !is_busy() && !self.nodes.iter().any(Node::owes_release),
            Phase::Detached => !is_busy(),
            Phase::Over => true,
            _ => false,
        }
    }

    /// The end of the lease while it is held. From then on it has ended, whether or not the attempt
    /// has been woken (H4).
    #[must_use]
    pub fn valid_until(&self) -> Option<Instant> {
        self.is_held().then_some(self.valid_until)
    }

    /// The open round, or the last one. It changes when an extension begins.
    #[must_use]
    pub const fn round(&self) -> RoundId {
        self.round.id
    }

    /// Whether the lease has ended or was never won: only releases are sent, or nothing.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Ending { .. } | Phase::Detached | Phase::Over)
    }

    /// The nodes where a call is in flight, or a release is owed, or will be if the first round ends.
    pub(crate) fn open_nodes(&self) -> NodeSet {
        let owes_all =
            matches!(self.phase, Phase::Acquiring | Phase::Raising | Phase::Ending { .. });
        let owes = |node: &Node| owes_all && node.owes_release();
        let is_open = |node: &Node| node.is_busy() || owes(node);
        match self.phase {
            Phase::Over => NodeSet::default(),
            _ => self.nodes().filter(|(_, node)| is_open(node)).map(|(id, _)| id).collect(),
        }
    }

    /// What is known of each node.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = (NodeId, &Node)> {
        self.settings.nodes.ids().zip(&self.nodes)
    }

    /// Whether each node has nothing of ours, or has answered a release with an error (C8).
    #[must_use]
    pub fn has_answered_undo(&self) -> bool {
        self.nodes.iter().all(Node::has_answered_undo)
    }

    const fn is_held(&self) -> bool {
        matches!(self.phase, Phase::Held { .. } | Phase::Extending { .. })
    }
}
