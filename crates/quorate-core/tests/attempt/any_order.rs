//! Random orders of replies, timeouts and wishes: what must hold after each of them.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use quorate_core::Ttl;
use quorate_core::algorithm::attempt::{
    Action, Attempt, CallId, Decision, Knowledge, Operation, Outcome, Settings,
};
use quorate_core::algorithm::fence::FencingToken;
use quorate_core::algorithm::lease::SafetyMargin;
use quorate_core::algorithm::quorum::{NodeCount, NodeId};

const SEEDS: u64 = 20_000;
const STEPS: usize = 60;
const SECOND: Duration = Duration::from_secs(1);

#[test]
fn no_order_of_events_breaks_an_attempt() {
    let mut seen: HashMap<&str, usize> = HashMap::new();
    for seed in 0..SEEDS {
        Run::new(seed).play(&mut seen);
    }
    let all = ["won", "not won", "extended", "extend failed", "lost", "released", "lost before"];
    for decision in all.iter().chain(&["unconfirmed", "give up", "repair", "raise", "resend"]) {
        assert!(seen.contains_key(decision), "{decision} was never reached: {seen:?}");
    }
}

/// One attempt, its calls in flight, and what a watcher counts on its own.
struct Run {
    seed: u64,
    random: u64,
    settings: Settings,
    start: Instant,
    now: Instant,
    attempt: Attempt,
    in_flight: Vec<(CallId, Operation)>,
    settled: Vec<(CallId, Outcome)>,
    acquires: usize,
    /// The nodes that granted the acquire, whether or not it counted.
    granted: Vec<NodeId>,
    /// The number of releases that each node was sent.
    releases: HashMap<NodeId, usize>,
    is_ending: bool,
    is_detached: bool,
    is_fenced: bool,
}

impl Run {
    fn new(seed: u64) -> Self {
        let (start, mut random) = (Instant::now(), seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut pick = |below| next(&mut random, below);
        let nodes = NodeCount::new(1 + pick(7)).unwrap();
        let ttl = Ttl::try_from(3 * SECOND).unwrap();
        let mut settings = Settings::new(nodes, ttl, SECOND);
        settings.safety_margin = SafetyMargin::Fixed(Duration::ZERO);
        settings.fencing = pick(4) == 0;
        settings.cleanup_bound = (pick(4) == 0).then_some(2 * SECOND);
        let ordered = pick(3);
        for node in nodes.ids() {
            if ordered == 0 || ordered == 1 && pick(2) == 0 {
                settings = settings.ordered(node);
            }
        }
        Self {
            seed,
            random,
            settings,
            start,
            now: start,
            attempt: Attempt::new(settings, start),
            in_flight: Vec::new(),
            settled: Vec::new(),
            acquires: 0,
            granted: Vec::new(),
            releases: HashMap::new(),
            is_ending: false,
            is_detached: false,
            is_fenced: settings.fencing,
        }
    }

    fn play(&mut self, seen: &mut HashMap<&'static str, usize>) {
        self.drain(seen);
        for _ in 0..STEPS {
            let old_end = self.attempt.valid_until();
            match next(&mut self.random, 24) {
                0 => {
                    let ttl =
                        Ttl::try_from(SECOND * (2 + next(&mut self.random, 3) as u32)).unwrap();
                    self.attempt.extend(ttl, false, self.now);
                }
                1 if self.attempt.valid_until().is_some() => {
                    self.attempt.release(self.now);
                    self.is_ending = true;
                }
                2 if next(&mut self.random, 8) == 0 => {
                    self.attempt.cancel(self.now);
                    self.is_ending |= !self.is_detached;
                }
                3 if next(&mut self.random, 8) == 0 && self.attempt.valid_until().is_some() => {
                    self.attempt.detach(self.now);
                    self.is_detached =
                        self.attempt.valid_until().is_none() && self.is_in_time(old_end);
                }
                4..8 => {
                    self.now += SECOND * next(&mut self.random, 6) as u32 / 4;
                    self.attempt.handle_timeout(self.now);
                }
                8 if !self.settled.is_empty() => {
                    let (call, outcome) = self.settled[next(&mut self.random, self.settled.len())];
                    self.attempt.handle_reply(call, outcome, self.now);
                }
                _ => self.reply(),
            }
            self.drain(seen);
            if let (Some(old), Some(end)) = (old_end, self.attempt.valid_until()) {
                assert!(end >= old, "seed {}: an extension shortened the lease", self.seed);
            }
        }
        // From now on no node answers: the timers alone bring it to its end.
        self.attempt.cancel(self.now);
        self.is_ending |= !self.is_detached;
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

    fn is_in_time(&self, end: Option<Instant>) -> bool {
        end.is_some_and(|end| self.now < end)
    }

    fn reply(&mut self) {
        if self.in_flight.is_empty() {
            return;
        }
        let at = next(&mut self.random, self.in_flight.len());
        let (call, operation) = self.in_flight.remove(at);
        let number = FencingToken::new(7 + next(&mut self.random, 2) as u64);
        let outcome = match next(&mut self.random, 10) {
            0 => Outcome::Failed,
            1 => Outcome::NotSent,
            2 | 3 => Outcome::Refused,
            _ => Outcome::Granted(number.filter(|_| self.is_fenced)),
        };
        if let (Operation::Acquire { .. }, Outcome::Granted(_)) = (operation, outcome) {
            self.granted.push(call.node());
        }
        self.settled.push((call, outcome));
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
                Action::Call(call, operation) => {
                    let before = self.in_flight.iter().filter(|(call, _)| call.node() == id);
                    let before: Vec<Operation> = before.map(|(_, operation)| *operation).collect();
                    let is_ordered = self.settings.is_ordered(id);
                    match operation {
                        Operation::Acquire { .. } => self.acquires += 1,
                        Operation::Release { .. } => {
                            let know = self.attempt.nodes().nth(id.index()).unwrap().1.knowledge();
                            assert_ne!(know, Knowledge::Blank, "seed {seed}: nothing to release");
                            let is_second =
                                |other: &Operation| matches!(other, Operation::Release { .. });
                            assert!(!before.iter().any(is_second), "seed {seed}: two releases");
                            assert!(is_ordered || before.is_empty(), "seed {seed}: C3");
                            let releases = self.releases.entry(id).or_default();
                            *releases += 1;
                            if *releases > 1 {
                                *seen.entry("resend").or_default() += 1;
                            }
                            self.is_ending = true;
                        }
                        _ => assert!(before.is_empty(), "seed {seed}: two calls at {id:?}"),
                    }
                    let is_release = matches!(operation, Operation::Release { .. });
                    assert!(is_release || self.releases.is_empty(), "seed {seed}: H6");
                    assert!(!self.is_detached, "seed {seed}: sent after it was detached");
                    match operation {
                        Operation::Repair { .. } => *seen.entry("repair").or_default() += 1,
                        Operation::Raise { .. } => *seen.entry("raise").or_default() += 1,
                        _ => {}
                    }
                    self.in_flight.push((call, operation));
                }
            }
        }
        assert_eq!(self.acquires, self.settings.nodes.get(), "seed {seed}: C6");
        while let Some(decision) = self.attempt.poll_decision() {
            let name = match decision {
                Decision::Won { valid_until, .. } => {
                    assert!(self.granted.len() >= quorum, "seed {seed}: Q1");
                    assert!(self.now < valid_until, "seed {seed}: T2");
                    assert_eq!(valid_until, self.start + self.validity(), "seed {seed}: T1");
                    "won"
                }
                Decision::NotWon(_) => "not won",
                Decision::Extended { valid_until, .. } => {
                    assert!(self.now < valid_until, "seed {seed}: H3");
                    "extended"
                }
                Decision::ExtendFailed { .. } => "extend failed",
                Decision::LeaseLost => "lost",
                Decision::Released => "released",
                Decision::LostBefore => "lost before",
                Decision::Unconfirmed => "unconfirmed",
            };
            *seen.entry(name).or_default() += 1;
        }
        let is_waiting = self.attempt.next_timeout().is_some();
        assert_ne!(is_waiting, self.attempt.is_quiescent(), "seed {seed}: nothing wakes it");
    }

    fn validity(&self) -> Duration {
        self.settings.drift.validity_of(self.settings.ttl)
    }
}

/// xorshift64*.
fn next(state: &mut u64, below: usize) -> usize {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    ((state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize) % below
}
