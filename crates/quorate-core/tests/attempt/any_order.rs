//! Random orders of replies, timeouts and wishes: what must hold after each of them.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use quorate_pure::core_source::algorithm::attempt::{
    Action, AttemptMachine, CallId, Knowledge, Message, NodeSet, Outcome, Released, Results,
    RoundVote, Settings,
};
use quorate_pure::core_source::algorithm::fence::FencingToken;
use quorate_pure::core_source::algorithm::lease::{SafetyMargin, Ttl};
use quorate_pure::core_source::algorithm::quorum::{NodeCount, NodeId};

use crate::decided::{Decision, decided};

const STEPS: usize = 60;
const SECOND: Duration = Duration::from_secs(1);

/// One attempt, its calls in flight, and what a watcher counts on its own.
pub(crate) struct Run<'a> {
    seed: u64,
    /// Picks a number below its argument.
    pick: &'a mut dyn FnMut(usize) -> usize,
    settings: Settings,
    start: Instant,
    now: Instant,
    attempt: AttemptMachine<usize>,
    in_flight: Vec<(CallId, Message)>,
    promises: Vec<Promised>,
    hold_until: Option<Instant>,
    settled: Vec<(CallId, Outcome<usize>)>,
    acquires: usize,
    granted: Vec<NodeId>, // The nodes that granted the acquire, whether or not it counted.
    releases: HashMap<NodeId, usize>, // The number of releases that each node was sent.
    results: Results,
    votes: Vec<RoundVote<usize>>,
    is_awaited: bool, // The caller of a release waits.
    is_detached: bool,
}

/// What a node has promised, as a watcher sees it.
#[derive(Clone, Default)]
struct Promised {
    until: Option<Instant>,
    /// What calls with a lower number say is out of date.
    since: u32,
    /// When the calls left whose grants promise something.
    sent: HashMap<CallId, Instant>,
}

impl Promised {
    fn hear(&mut self, call: CallId, message: Message, outcome: Outcome<usize>, of: &Settings) {
        let sent = self.sent.remove(&call);
        if call.number < self.since {
            return;
        }
        match (message, outcome) {
            (Message::Raise { .. } | Message::Release { .. }, _) => {}
            (Message::Acquire { ttl } | Message::Extend { ttl }, Outcome::Granted(_)) => {
                let validity = of.safety_margin.validity(of.drift, ttl);
                self.until = self.until.max(sent.map(|sent| sent + validity));
            }
            (_, Outcome::Refused(())) => (self.until, self.since) = (None, call.number),
            (_, Outcome::Marked(())) => self.since = call.number,
            _ => {}
        }
    }
}

impl<'a> Run<'a> {
    pub(crate) fn new(seed: u64, pick: &'a mut dyn FnMut(usize) -> usize) -> Self {
        let start = Instant::now();
        let nodes = NodeCount::new(1 + pick(7)).unwrap();
        let ttl = Ttl::try_from(3 * SECOND).unwrap();
        let mut settings = Settings::new(nodes, ttl, SECOND);
        settings.safety_margin = SafetyMargin::Fixed(SECOND / 2 * pick(2) as u32);
        settings.hold_limit = (pick(4) == 0).then_some(2 * SECOND);
        settings.fencing = pick(4) == 0;
        settings.cleanup_bound = (pick(4) == 0).then_some(2 * SECOND);
        let ordered = pick(3);
        for node in nodes.ids() {
            if ordered == 0 || ordered == 1 && pick(2) == 0 {
                settings.ordered.insert(node);
                if pick(2) == 0 {
                    settings.pushing.insert(node);
                }
            }
        }
        Self {
            seed,
            pick,
            settings,
            start,
            now: start,
            attempt: AttemptMachine::new(settings, start),
            in_flight: Vec::new(),
            promises: vec![Promised::default(); nodes.get()],
            hold_until: None,
            settled: Vec::new(),
            acquires: 0,
            granted: Vec::new(),
            releases: HashMap::new(),
            results: Results::default(),
            votes: Vec::new(),
            is_awaited: false,
            is_detached: false,
        }
    }

    pub(crate) fn play(&mut self, seen: &mut HashMap<&'static str, usize>) {
        self.drain(seen);
        for _ in 0..STEPS {
            self.wish(seen);
            self.drain(seen);
            if let Some(end) = self.attempt.valid_until() {
                let mut promised: Vec<_> = self.promises.iter().map(|it| it.until).collect();
                promised.sort_unstable_by(|one, other| other.cmp(one));
                let promised = promised[self.settings.nodes.quorum() - 1];
                let limited = promised.map(|it| self.hold_until.map_or(it, |limit| it.min(limit)));
                assert_eq!(Some(end), limited, "seed {}: the end is what is promised", self.seed);
            }
        }
        // From now on no node answers: the timers alone bring it to its end.
        self.attempt.close(SECOND / 4, self.now);
        self.drain(seen);
        let mut wakes = 0;
        while let Some(due) = self.attempt.next_timeout() {
            self.now = self.now.max(due);
            self.attempt.handle_timeout(self.now);
            self.drain(seen);
            wakes += 1;
            assert!(wakes < 10, "seed {}: wakes without an end", self.seed);
        }
        assert!(self.attempt.is_quiescent(), "seed {}: not quiescent", self.seed);
    }

    fn wish(&mut self, seen: &mut HashMap<&'static str, usize>) {
        let is_valid = self.attempt.valid_until().is_some_and(|end| self.now < end);
        match (self.pick)(24) {
            0 => {
                let ttl = SECOND * (2 + (self.pick)(3) as u32);
                self.attempt.extend(Ttl::try_from(ttl).unwrap(), self.now);
            }
            1 if self.attempt.valid_until().is_some() => {
                self.attempt.release(self.now);
                self.is_awaited = is_valid;
            }
            2 if (self.pick)(8) == 0 => {
                self.attempt.cancel(self.now);
                self.is_awaited = false;
            }
            3 if (self.pick)(8) == 0 && self.attempt.valid_until().is_some() => {
                self.attempt.detach(self.now);
                self.is_detached = is_valid;
            }
            4..8 => {
                self.now += SECOND * (self.pick)(6) as u32 / 4;
                let queued = self.in_flight.iter().map(|(call, _)| call.node);
                let queued: Vec<_> = queued.take((self.pick)(3)).collect();
                let (queued, left) = queued.split_at((self.pick)(queued.len() + 1));
                let of = |nodes: &[NodeId]| nodes.iter().copied().collect::<NodeSet>();
                self.attempt.note_queued(of(queued), of(left));
                self.attempt.handle_timeout(self.now);
            }
            8 if !self.settled.is_empty() => {
                let (call, outcome) = self.settled[(self.pick)(self.settled.len())];
                self.attempt.handle_reply(call, outcome, self.now);
            }
            9 => {
                let waiting = self.attempt.awaits_back();
                for node in self.settings.nodes.ids() {
                    self.attempt.handle_back(node, self.now);
                }
                if waiting.iter().next().is_some() {
                    *seen.entry("back").or_default() += 1;
                }
            }
            11 => {
                let at = (self.pick)(self.settings.nodes.get());
                let node = self.settings.nodes.ids().nth(at).unwrap();
                let end = self.attempt.valid_until();
                self.attempt.handle_push(node, self.now);
                assert!(!is_valid || end == self.attempt.valid_until(), "seed {}: P1", self.seed);
            }
            10 if (self.pick)(32) == 0 => {
                self.attempt.close(SECOND / 4, self.now);
            }
            _ => self.reply(),
        }
    }

    fn reply(&mut self) {
        if self.in_flight.is_empty() {
            return;
        }
        let at = (self.pick)(self.in_flight.len());
        let (call, message) = self.in_flight.remove(at);
        let number = FencingToken::new(7 + (self.pick)(2) as u64);
        let outcome = match (self.pick)(10) {
            0 => Outcome::Failed(at),
            1 => Outcome::NotSent(at),
            4 => Outcome::Lost(at),
            2 | 3 => Outcome::Refused(()),
            5 if (self.pick)(2) == 0 && !matches!(message, Message::Release { .. }) => {
                Outcome::Marked(())
            }
            _ => Outcome::Granted(number.filter(|_| self.settings.fencing)),
        };
        if let (Message::Acquire { .. }, Outcome::Granted(_)) = (message, outcome) {
            self.granted.push(call.node);
        }
        let is_won = self.results.first == Some(Ok(()));
        if let (Message::Acquire { .. }, Some(vote @ RoundVote::Open), false) =
            (message, self.votes.get_mut(call.node.index()), is_won)
        {
            // An answer to a first round that is lost already (A4).
            *vote = outcome.into();
        }
        self.settled.push((call, outcome));
        self.promises[call.node.index()].hear(call, message, outcome, &self.settings);
        self.attempt.handle_reply(call, outcome, self.now);
    }

    fn drain(&mut self, seen: &mut HashMap<&'static str, usize>) {
        let seed = self.seed;
        let quorum = self.settings.nodes.quorum();
        while let Some((id, action)) = self.attempt.poll_send() {
            match action {
                Action::GiveUp(call) => {
                    self.in_flight.retain(|(other, _)| *other != call);
                    *seen.entry("give up").or_default() += 1;
                }
                Action::Send(call, message) => {
                    let before = self.in_flight.iter().filter(|(call, _)| call.node == id);
                    let before: Vec<Message> = before.map(|(_, message)| *message).collect();
                    let is_look = |other: &Message| matches!(other, Message::Look);
                    let has_looked = before.iter().any(is_look);
                    let before: Vec<_> = before.into_iter().filter(|it| !is_look(it)).collect();
                    let is_ordered = self.settings.ordered.contains(id);
                    match message {
                        Message::Acquire { .. } => self.acquires += 1,
                        Message::Release { .. } => {
                            let know = self.attempt.node(id).knowledge();
                            assert_ne!(know, Knowledge::Blank, "seed {seed}: nothing to release");
                            let is_second =
                                |other: &Message| matches!(other, Message::Release { .. });
                            assert!(!before.iter().any(is_second), "seed {seed}: two releases");
                            assert!(is_ordered || before.is_empty(), "seed {seed}: C3");
                            let releases = self.releases.entry(id).or_default();
                            *releases += 1;
                            if *releases > 1 {
                                *seen.entry("resend").or_default() += 1;
                            }
                        }
                        Message::Look => assert!(!has_looked, "seed {seed}: P3"),
                        _ => assert!(before.is_empty(), "seed {seed}: two calls at {id:?}"),
                    }
                    let is_release = matches!(message, Message::Release { .. });
                    assert!(is_release || self.releases.is_empty(), "seed {seed}: H6");
                    assert!(!self.is_detached, "seed {seed}: sent after it was detached");
                    match message {
                        Message::Repair { .. } => *seen.entry("repair").or_default() += 1,
                        Message::Raise { .. } => *seen.entry("raise").or_default() += 1,
                        Message::Look => *seen.entry("look").or_default() += 1,
                        Message::Extend { .. } => {
                            assert!(!self.results.is_revoked, "seed {seed}: V10");
                        }
                        _ => {}
                    }
                    self.in_flight.push((call, message));
                    let promised = &mut self.promises[id.index()];
                    match message {
                        Message::Repair { .. } => promised.since = call.number,
                        _ => drop(promised.sent.insert(call, self.now)),
                    }
                }
            }
        }
        assert_eq!(self.acquires, self.settings.nodes.get(), "seed {seed}: C6");
        let mut is_decided = false;
        let before = std::mem::replace(&mut self.results, self.attempt.results());
        for decision in decided(&before, &self.results) {
            let name = match decision {
                Decision::Won => {
                    let valid_until = self.attempt.valid_until().expect("a lease");
                    assert!(self.granted.len() >= quorum, "seed {seed}: Q1");
                    assert!(self.now < valid_until, "seed {seed}: T2");
                    let Settings { safety_margin, drift, ttl, hold_limit, .. } = self.settings;
                    let end = self.start + safety_margin.validity(drift, ttl);
                    let end = hold_limit.map_or(end, |limit| end.min(self.now + limit));
                    assert_eq!(valid_until, end, "seed {seed}: T1, H7");
                    self.hold_until = hold_limit.map(|limit| self.now + limit);
                    "won"
                }
                Decision::NotWon(_) => "not won",
                Decision::Extended => "extended",
                Decision::ExtendFailed => "extend failed",
                Decision::LeaseLost(_) => "lost",
                Decision::Revoked => {
                    self.promises.iter_mut().for_each(|promised| promised.sent.clear());
                    "revoked"
                }
                Decision::Released(Released::Ours) => "released",
                Decision::Released(Released::LostBefore) => "lost before",
                Decision::Released(Released::Unconfirmed) => "unconfirmed",
                Decision::Undone => "undone",
                Decision::Cleared => "cleared",
            };
            let is_round = !matches!(decision, Decision::Undone | Decision::Cleared);
            if matches!(name, "released" | "lost before" | "unconfirmed") {
                self.is_awaited = false;
            }
            is_decided |= is_round;
            *seen.entry(name).or_default() += 1;
        }
        let votes = self.attempt.votes().to_vec();
        assert!(is_decided || votes == self.votes, "seed {seed}: votes without a decision");
        self.votes = votes;
        let is_answered = !self.is_awaited || !self.attempt.is_quiescent();
        assert!(is_answered, "seed {seed}: the caller of a release is forgotten");
        let is_waiting = self.attempt.next_timeout().is_some();
        assert_ne!(is_waiting, self.attempt.is_quiescent(), "seed {seed}: nothing wakes it");
    }
}
