//! One attempt: the life of one token over all nodes, from the first acquire to the last release.
//!
//! A pure state machine. Replies, timeouts and the caller's wishes go in; calls and the next
//! wake-up come out, and the results can be read. It has no clock, no randomness and no I/O.
//!
//! ```text
//! new ---> Acquiring -> (Raising) -+> Held <-> Extending -> (Lapsed) -+> Ending    releases
//! adopt -> Adopting ---------------+      |                     ^      +> Detached  sends nothing
//!                                         +-----> Revoked ------+
//! ```
//!
//! Each of the phases before Ending may go there directly, except Adopting, which goes to Detached.
//! (The release of a detached lock goes from Adopting to Ending.) In Lapsed the lease has ended,
//! and the keys stay for the safety margin: their holder may stop late (H4). If nodes have taken
//! their promises back, the releases begin at once. Ending and Detached are *quiescent* when
//! nothing is in flight and no release is owed. When the last timer fires before that, Ending
//! becomes Over, and Detached forgets its calls.
//!
//! An undo, a release, a dropped guard and a lost lease are one transition, `begin_release`: each
//! node that was sent something which may set the key gets a release, also one that refused, and
//! nothing but releases is sent from then on (H6).
//!
//! # The end of the lease
//!
//! Each grant is a promise of its node: to keep the keys until the call's own start + ttl − drift
//! − safety margin (T1, T2). Whenever its reply comes, the latest promise of a node counts (H2);
//! *not ours* takes it back; silence and errors take nothing. The lease ends where a quorum of
//! promises ends, or at the hold limit (H5); with fewer than a quorum of promises it ends at once.
//! An extension that was won sets the keys again on nodes that lost them. Such a node promises with
//! its next extension. A round is only what its caller waits for.
//!
//! # Per node
//!
//! A [`Node`] is what is known of the keys there, what it has promised, the calls in flight, and
//! the vote in this round. A call stays in flight after its round was decided, until it settles: by
//! its reply, by the end of its connection, or by *not sent*. At the cleanup bound (by default the
//! longest ttl that was asked for, from the begin of the release), a call is given up if a release
//! still waits behind it; one node timeout later, every call is.
//!
//! # A reply
//!
//! [`AttemptMachine::handle_reply`] removes the call, learns, votes, decides, and then goes on with
//! that node. It decides before it sends, so that a reply that comes after the end of the lease
//! sends no extension.
//!
//! # A push
//!
//! A node that [pushes](Settings::pushing) says that a key was written, or may have been: from the
//! first look or extension on. Pools and readers have no pushes: there the next extension finds the
//! loss. A push alone changes nothing (P1): the attempt looks at the node, and learns from the
//! reply as from any other. In Revoked, more nodes than a quorum can spare have the mark of a
//! revoke in place of the token: no extension can win, and the lease keeps the end that it has.
//!
//! # Delivery
//!
//! On an *ordered* connection a release is sent right behind a call in flight. On a pool, calls to
//! one node have no order, so the release waits until the call before it has settled (C3).
//!
//! # The shell
//!
//! The shell gives an input, then drains [`AttemptMachine::poll_send`], then reads
//! [`AttemptMachine::results`]. It gives the replies that are there before a timeout (T5). It calls
//! [`AttemptMachine::handle_timeout`] at [`AttemptMachine::next_timeout`], until
//! [`AttemptMachine::is_quiescent`].

// Of the tests, which compile the algorithm alone. It sees what is private here.
#[cfg(quorate_pure)]
#[path = "../../../../tests/virtual/pure/src/fingerprint.rs"]
mod fingerprint;
mod look;
mod messages;
mod node;
mod rules;
mod settings;
mod transitions;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::fence::FencingToken;
use super::lease::{Ttl, earlier, saturating_add};
use super::quorum::NodeId;

pub use super::node_set::NodeSet;
pub use messages::{Action, CallId, End, Loss, Message, Outcome, Released, Results, RoundId};
use node::Purpose;
pub use node::{Knowledge, Node, RoundVote};
pub use settings::Settings;

/// The life of one token over all nodes. `E` is the reason of a node that did not vote, `H` is what
/// the reply of a node that refused says of the holder.
#[derive(Clone, Debug)]
pub struct AttemptMachine<E, H = ()> {
    settings: Settings,
    phase: Phase,
    nodes: Vec<Node<E, H>>,
    round: Round,
    timers: Timers,
    /// The promise with which a quorum of them ends: the q-th latest.
    promised: Option<Instant>,
    /// When the nodes that are connecting are so no more.
    connect_until: Instant,
    /// The end by the hold limit.
    hold_until: Option<Instant>,
    /// The fencing token; in Raising, the number that becomes it.
    fencing_token: Option<FencingToken>,
    /// The longest ttl that any round asked for.
    longest_ttl: Ttl,
    /// How many calls were made.
    calls: u32,
    /// No node that has answered keeps a list of its group.
    is_unlisted: bool,
    /// The nodes that push have been looked at for the first time.
    has_looked: bool,
    /// The nodes whose release is in the client's own queue, and those whose release has left it
    /// late.
    queued: NodeSet,
    left_late: NodeSet,
    sends: VecDeque<(NodeId, Action)>,
    /// What was decided, without what the nodes say.
    results: Results,
    /// The votes of the last decided round.
    votes: Vec<RoundVote<E, H>>,
    /// How long that round took.
    waited: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The acquires are decided on.
    Acquiring,
    /// The extensions of an adopted lock are decided on. It may belong to another process.
    Adopting,
    /// The nodes that granted another number are asked to raise it to the token.
    Raising,
    /// `is_won`: the last round was won, so a node that lost the keys is repaired.
    Held { is_won: bool },
    /// `next`: the ttl of an extension that begins when this one is decided.
    Extending { next: Option<Ttl> },
    /// A revoke has taken effect: nothing is extended, and the lease goes on to its end.
    Revoked,
    /// The lease has ended, and nothing is sent. `until`: when the release begins by itself.
    Lapsed { until: Instant },
    /// Only releases are sent. `is_awaited`: the caller of `release` waits for the answer.
    Ending { is_awaited: bool },
    /// Nothing is sent: the lock may belong to another process.
    Detached,
    /// The last timer has fired.
    Over,
}

/// The open round of acquires, extensions or releases, or the last one.
#[derive(Clone, Copy, Debug)]
struct Round {
    id: RoundId,
    start: Instant,
    ttl: Ttl,
    /// After this time it wins nothing any more: its first promises are over (T2).
    end: Instant,
    /// Whether its deadline was put off because it was noticed late.
    is_put_off: bool,
    /// The nodes whose release was still queued when its deadline was moved last.
    prolonged: Option<NodeSet>,
}

impl Round {
    const fn new(id: RoundId, start: Instant, ttl: Ttl, end: Instant) -> Self {
        Self { id, start, ttl, end, is_put_off: false, prolonged: None }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Timers {
    /// Votes that are still open become silent.
    round: Option<Instant>,
    /// Failed releases are sent again.
    resend: Option<Instant>,
    /// The cleanup bound: calls in front of a release are given up, and a last release leaves.
    bound: Option<Instant>,
    /// The end, whatever is in flight.
    last: Option<Instant>,
    /// Nodes are looked at.
    look: Option<Instant>,
}

/// The beginning, the caller's wishes, replies and timeouts.
impl<E: Clone, H: Clone + Default> AttemptMachine<E, H> {
    /// Acquires on all nodes.
    pub fn new(settings: Settings, now: Instant) -> Self {
        let mut attempt = Self::begin(settings, Phase::Acquiring, None, now);
        for id in settings.nodes.ids() {
            attempt.send(id, Message::Acquire { ttl: settings.ttl }, now);
        }
        attempt
    }

    /// Takes over a lock that another process detached: extends it on all nodes.
    ///
    /// No time comes from the other process. `token` is the lock's fencing token.
    pub fn adopt(settings: Settings, token: Option<FencingToken>, now: Instant) -> Self {
        let mut attempt = Self::begin(settings, Phase::Adopting, token, now);
        for id in settings.nodes.ids() {
            attempt.nodes[id.index()].know = Knowledge::Maybe;
            attempt.send(id, Message::Extend { ttl: settings.ttl }, now);
        }
        attempt
    }

    /// Releases a lock that another process detached, on all nodes, with a caller that waits for
    /// the decision.
    ///
    /// `token` is the lock's fencing token.
    pub fn release_detached(settings: Settings, token: Option<FencingToken>, now: Instant) -> Self {
        let mut attempt = Self::begin(settings, Phase::Adopting, token, now);
        attempt.nodes.iter_mut().for_each(|node| node.know = Knowledge::Maybe);
        attempt.begin_release(true, now);
        attempt
    }

    fn begin(
        settings: Settings,
        phase: Phase,
        fencing_token: Option<FencingToken>,
        now: Instant,
    ) -> Self {
        let nodes = settings.nodes.ids().map(|_| Node::new());
        let limits = settings.nodes.ids().map(|id| settings.call_limit(id));
        let longest = limits.max().unwrap_or(settings.node_timeout);
        let mut attempt = Self {
            settings,
            phase,
            nodes: nodes.collect(),
            round: Round::new(RoundId(0), now, settings.ttl, now),
            timers: Timers::default(),
            promised: None,
            connect_until: saturating_add(now, longest),
            hold_until: None,
            fencing_token,
            longest_ttl: settings.ttl,
            calls: 0,
            is_unlisted: false,
            has_looked: false,
            queued: NodeSet::default(),
            left_late: NodeSet::default(),
            sends: VecDeque::with_capacity(settings.nodes.get()),
            results: Results::default(),
            votes: Vec::new(),
            waited: Duration::ZERO,
        };
        attempt.open_round(settings.ttl, now);
        attempt.plan_first_look(now);
        attempt.timers.round = earlier(attempt.timers.round, settings.deadline);
        attempt
    }

    /// Extends the lease to `ttl` from now.
    ///
    /// Returns the round that answers: the open one if it asks for at least `ttl`, else the next
    /// one. The first result of that round or a later one is the answer. Returns `None` if the
    /// lease has ended. It may also end before there is a result.
    pub fn extend(&mut self, ttl: Ttl, now: Instant) -> Option<RoundId> {
        self.decide(now);
        match &mut self.phase {
            Phase::Held { .. } => self.open_extension(ttl, now),
            Phase::Extending { .. } if ttl <= self.round.ttl => {}
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
    /// A lease that has ended is [`LostBefore`](Released::LostBefore). Before a decision on the
    /// first round it only cancels.
    pub fn release(&mut self, now: Instant) {
        self.decide(now);
        match self.phase {
            Phase::Held { .. } | Phase::Extending { .. } | Phase::Revoked => {
                self.begin_release(true, now);
                self.decide(now);
            }
            Phase::Acquiring | Phase::Adopting | Phase::Raising => self.cancel(now),
            Phase::Lapsed { .. } => {
                self.begin_release(false, now);
                self.results.released = Some(Released::LostBefore);
            }
            Phase::Ending { .. } | Phase::Detached | Phase::Over => {
                self.results.released.get_or_insert(Released::LostBefore);
            }
        }
    }

    /// The lock is not wanted any more, and its end interests no caller (C5).
    ///
    /// Not for the future of an extension: its round goes on.
    pub fn cancel(&mut self, now: Instant) {
        self.decide(now);
        match self.phase {
            Phase::Adopting => self.part(now),
            Phase::Ending { is_awaited: true } => {
                self.phase = Phase::Ending { is_awaited: false };
                self.timers.round = None;
            }
            Phase::Ending { .. } | Phase::Detached | Phase::Over => {}
            _ => self.begin_release(false, now),
        }
        self.decide(now);
    }

    /// Limits the cleanup that follows. For a mark that was not set: its ttl is days, and its
    /// process goes away before.
    pub fn limit_cleanup(&mut self, bound: Duration) {
        let bound = self.settings.cleanup_bound.map_or(bound, |earlier| earlier.min(bound));
        self.settings.cleanup_bound = Some(bound);
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
        if self.is_held() || matches!(self.phase, Phase::Lapsed { .. }) {
            self.part(now);
        }
    }

    /// Ends the attempt because the manager is closed: cancels before a win, else ends the lease.
    ///
    /// The holder has the rest of the lease, but not more than the safety margin or `grace`, to
    /// stop. Then the release begins, as it does when the guard goes.
    pub fn close(&mut self, grace: Duration, now: Instant) {
        self.decide(now);
        match self.phase {
            Phase::Acquiring | Phase::Adopting | Phase::Raising => self.cancel(now),
            Phase::Held { .. } | Phase::Extending { .. } | Phase::Revoked => {
                let latest = saturating_add(now, self.margin().min(grace));
                self.lapse(End::Closed, self.lease_end().unwrap_or(now).min(latest), now);
            }
            Phase::Lapsed { until } => {
                self.phase = Phase::Lapsed { until: until.min(saturating_add(now, grace)) };
            }
            Phase::Ending { .. } | Phase::Detached | Phase::Over => {}
        }
        self.decide(now);
    }

    /// A call settled.
    pub fn handle_reply(&mut self, call: CallId, outcome: Outcome<E, H>, now: Instant) {
        // A lease that is over by now stays over, whatever the node says.
        self.decide_by_time(now);
        let id = call.node;
        let node = self.nodes.get_mut(id.index());
        let Some(kind) = node.and_then(|node| node.settle(call, &outcome, now)) else { return };
        self.nodes[id.index()].expel();
        if kind != Purpose::Release {
            self.note_promises();
        }
        let node = &self.nodes[id.index()];
        // Nothing is repaired at a stranger.
        let is_refused = matches!(outcome, Outcome::Refused(_)) && node.stranger.is_none();
        let is_first = matches!(kind, Purpose::Acquire | Purpose::Extend);
        if self.is_lost()
            && is_first
            && let Some(vote @ RoundVote::Open) = self.votes.get_mut(id.index())
        {
            *vote = node.counted(outcome.clone().into());
        }
        if node.is_open() {
            // The first vote of a node in a round counts (Q3).
            let vote = node.counted(self.vote_of(id, kind, outcome, now));
            self.nodes[id.index()].vote = vote;
        }
        if self.is_held() && self.lease_end() <= Some(now) {
            self.end_lease(true, now);
        }
        self.decide(now);
        match kind {
            Purpose::Look => self.look_at(id, now),
            _ => self.go_on(id, kind, is_refused, now),
        }
    }

    /// Judges all nodes again: for each why it is a stranger to the others, if it is one (N3). Such
    /// a node promises nothing, and its votes are unknown, in whatever order they came.
    ///
    /// `is_unlisted`: no node that has answered keeps a list of its group. A win then waits for the
    /// nodes that have not answered, to the end of its round at most: they may keep one (N4).
    pub fn judge(&mut self, strangers: Vec<Option<E>>, is_unlisted: bool, now: Instant) {
        self.is_unlisted = is_unlisted;
        for (node, stranger) in self.nodes.iter_mut().zip(strangers) {
            node.stranger = stranger;
            node.expel();
        }
        self.note_promises();
        if self.is_held() && self.lease_end() <= Some(now) {
            // The other nodes keep the keys for a holder that stops late (H4).
            self.lapse(End::NotOurs, saturating_add(now, self.margin()), now);
        }
        self.decide(now);
    }

    /// Notes the nodes whose release is in the client's own queue, and those whose release has left
    /// it late, before [`handle_timeout`](Self::handle_timeout).
    ///
    /// At the deadline of a release a vote stays open for a node timeout more while the release is
    /// queued, and once after that.
    pub const fn note_queued(&mut self, queued: NodeSet, left_late: NodeSet) {
        (self.queued, self.left_late) = (queued, left_late);
    }

    /// A timer may be due. Replies that are there come first (T5).
    pub fn handle_timeout(&mut self, now: Instant) {
        let is_due = |timer: Option<Instant>| timer.is_some_and(|due| now >= due);
        if let Some(due) = self.timers.round.filter(|due| now >= *due) {
            self.close_votes(due, now);
        }
        self.decide(now);
        if is_due(self.timers.look) {
            self.look(now);
        }
        if is_due(self.timers.resend) {
            self.timers.resend = None;
            self.resend_releases(now);
        }
        if is_due(self.timers.bound) {
            let last = Some(self.node_timeout(now));
            self.timers = Timers { resend: None, bound: None, last, ..self.timers };
            self.give_up(now);
        } else if is_due(self.timers.last) {
            if self.phase == Phase::Detached {
                // The key that a late call may set belongs to another process.
                self.nodes.iter_mut().for_each(|node| node.calls.clear());
            } else {
                self.phase = Phase::Over;
            }
            self.timers = Timers::default();
        }
    }

    /// A node that had failed has answered another call. A release that failed there without an
    /// answer is sent again at once; one that was answered with an error waits for the pause.
    pub fn handle_back(&mut self, node: NodeId, now: Instant) {
        if self.timers.bound.is_some_and(|bound| now < bound) && self.awaits_back().contains(node) {
            self.send_release(node, now);
        }
    }
}

/// Calls to send, the results, the next wake-up, and what the attempt knows.
impl<E: Clone, H: Clone + Default> AttemptMachine<E, H> {
    /// The next call to send, or to drop. The order of calls to one node is the order to send them
    /// in.
    pub fn poll_send(&mut self) -> Option<(NodeId, Action)> {
        self.sends.pop_front()
    }

    /// What was decided by now. It is told to callers once [`poll_send`](Self::poll_send) has been
    /// drained (C8).
    pub fn results(&self) -> Results {
        let is_failing =
            |(round, end)| round > self.results.extended && self.lease_end() <= Some(end);
        Results {
            is_failing: self.results.failed.is_some_and(is_failing),
            is_undone: self.is_lost()
                && self.is_releasing()
                && self.nodes.iter().all(Node::has_answered_undo),
            is_cleared: matches!(self.phase, Phase::Ending { is_awaited: false } | Phase::Over)
                && self.select(|node| !node.owes_release()).len() >= self.settings.nodes.quorum(),
            ..self.results
        }
    }

    /// Why the lease has ended before its release: one of the [results](Self::results).
    pub const fn lost(&self) -> Option<End> {
        self.results.lost
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    pub fn next_timeout(&self) -> Option<Instant> {
        if self.is_quiescent() {
            return None;
        }
        let Timers { round, resend, bound, last, look } = self.timers;
        let of_phase = match self.phase {
            Phase::Lapsed { until } => Some(until),
            _ => self.valid_until(),
        };
        [round, resend, bound, last, look].into_iter().fold(of_phase, earlier)
    }

    /// Whether the attempt has ended and nothing is in flight or to be released, or the last timer
    /// has fired. A call in flight can be dropped then: the ttl is the backstop.
    pub fn is_quiescent(&self) -> bool {
        let is_busy = || self.nodes.iter().any(Node::is_busy);
        match self.phase {
            Phase::Ending { .. } => !is_busy() && !self.nodes.iter().any(Node::owes_release),
            Phase::Detached => !is_busy(),
            Phase::Over => true,
            _ => false,
        }
    }

    /// Whether the lease has ended or was never won: nothing but releases is sent.
    pub const fn has_ended(&self) -> bool {
        self.is_releasing() || matches!(self.phase, Phase::Lapsed { .. } | Phase::Detached)
    }

    /// Whether the release has begun.
    pub const fn is_releasing(&self) -> bool {
        matches!(self.phase, Phase::Ending { .. } | Phase::Over)
    }

    /// Whether an extension is open.
    pub const fn is_extending(&self) -> bool {
        matches!(self.phase, Phase::Extending { .. })
    }

    /// The end of the lease while it is held, hold limit included. From then on it has ended,
    /// whether or not the attempt has been woken (H4).
    pub fn valid_until(&self) -> Option<Instant> {
        if self.is_held() { self.lease_end() } else { None }
    }

    /// The fencing token of a lock that was won.
    pub const fn fencing_token(&self) -> Option<FencingToken> {
        self.fencing_token
    }

    /// Why the lease ends, if nothing happens before its end. At its hold limit, no extension gains
    /// anything.
    pub fn end_by_time(&self) -> End {
        let is_limited = self.hold_until.is_some_and(|limit| Some(limit) < self.promised);
        match self.phase {
            Phase::Revoked => End::Revoked,
            _ if is_limited => End::HoldLimit,
            _ => End::Expired,
        }
    }

    /// The longest ttl that any round asked for: no call of this attempt lets a key live for
    /// longer.
    pub const fn longest_ttl(&self) -> Ttl {
        self.longest_ttl
    }

    /// The votes of the last decided round, in the order of the nodes. A late reply fills an open
    /// vote of a first round that was lost: the order in which the nodes answer does not matter
    /// (A4). It changes no other vote.
    ///
    /// Of a lost lease: the votes of the extension that was open, else of the last one if it
    /// failed. Nodes that denied the lease after the last round count as `Against`. Empty if no
    /// node denied it.
    pub fn votes(&self) -> &[RoundVote<E, H>] {
        &self.votes
    }

    /// What each node has answered to the releases by now, and how long they have been asked.
    pub fn release_votes(&self, now: Instant) -> (Vec<RoundVote<E, H>>, Duration) {
        let vote = |node: &Node<E, H>| match node.reported_vote() {
            RoundVote::Open => RoundVote::Silent,
            vote => vote,
        };
        let waited = now.saturating_duration_since(self.round.start);
        (self.nodes.iter().map(vote).collect(), waited)
    }

    /// The time from the start of that round to its decision.
    pub const fn waited(&self) -> Duration {
        self.waited
    }

    /// The nodes where a call is in flight, or a release is owed, or will be if the first round
    /// ends.
    pub fn open_nodes(&self) -> NodeSet {
        let owes_all = match self.phase {
            Phase::Over => return NodeSet::default(),
            Phase::Adopting | Phase::Detached => false,
            _ => !self.is_held(),
        };
        self.select(|node| node.is_busy() || owes_all && node.owes_release())
    }

    /// The nodes that a release goes to, or that have not answered one.
    pub fn owing(&self) -> NodeSet {
        self.select(Node::owes_release)
    }

    /// The nodes where a call is in flight, also after the last timer.
    pub fn unsettled(&self) -> NodeSet {
        self.select(Node::is_busy)
    }

    /// The nodes that have not promised to keep the keys until `end`.
    pub fn lacking(&self, end: Instant) -> NodeSet {
        self.select(|node| node.promise < Some(end))
    }

    /// The idle nodes whose release failed without an answer, before the cleanup bound: those for
    /// which [`handle_back`](Self::handle_back) does something.
    pub fn awaits_back(&self) -> NodeSet {
        match self.timers.bound {
            Some(_) => self.select(Node::awaits_back),
            None => NodeSet::default(),
        }
    }

    /// The settings that it was given.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// All that is known of a node.
    pub fn node(&self, node: NodeId) -> &Node<E, H> {
        &self.nodes[node.index()]
    }

    fn select(&self, is_meant: impl Fn(&Node<E, H>) -> bool) -> NodeSet {
        self.settings.nodes.ids().filter(|id| is_meant(self.node(*id))).collect()
    }

    /// A promise may have changed.
    fn note_promises(&mut self) {
        let promises = || self.nodes.iter().filter_map(|node| node.promise);
        let quorum = self.settings.nodes.quorum();
        let lasts = |end: &Instant| promises().filter(|other| other >= end).count() >= quorum;
        // Those of one round are the same.
        let latest = || promises().max().filter(lasts).or_else(|| promises().filter(lasts).max());
        self.promised = if promises().count() < quorum { None } else { latest() };
    }

    /// The end of the lease; `None` without a quorum of promises.
    fn lease_end(&self) -> Option<Instant> {
        let end = self.promised?;
        Some(self.hold_until.map_or(end, |limit| limit.min(end)))
    }

    /// The keys stay for so long after the lease. A promise for a shorter ttl has a shorter one.
    fn margin(&self) -> Duration {
        self.settings.safety_margin.of(self.longest_ttl)
    }

    /// Whether the first round was lost: a late reply to it is a vote that is reported, and changes
    /// nothing else.
    const fn is_lost(&self) -> bool {
        matches!(self.results.first, Some(Err(_)))
    }

    const fn is_held(&self) -> bool {
        matches!(self.phase, Phase::Held { .. } | Phase::Extending { .. } | Phase::Revoked)
    }
}
