//! Runs `examples.txt` through the machine.

use std::time::{Duration, Instant};

use super::super::quorum::{NodeCount, NodeId};
use super::{Entry, REFRESH, Refreshed, WaitAction, WaitMachine, WatchedKey};

const NODE_TIMEOUT: Duration = Duration::from_millis(50);

fn node(number: usize) -> NodeId {
    NodeCount::new(5).expect("in range").ids().nth(number - 1).expect("one of five")
}

fn entry(name: &str) -> Entry {
    Entry::new(name.as_bytes())
}

fn key(name: &str) -> WatchedKey {
    if name == "lock" { WatchedKey::Lock(0) } else { WatchedKey::Predecessor(entry(name)) }
}

fn show(action: &WaitAction) -> String {
    let name = |entry: &Entry| String::from_utf8_lossy(entry.as_bytes()).into_owned();
    let (text, gate) = match action {
        WaitAction::Attempt => return "ATTEMPT".to_owned(),
        WaitAction::Refresh(gate) => ("REFRESH".to_owned(), gate),
        WaitAction::Watch(gate, WatchedKey::Lock(0)) => ("WATCH lock".to_owned(), gate),
        WaitAction::Watch(gate, WatchedKey::Lock(n)) => (format!("WATCH lock {n}"), gate),
        WaitAction::Watch(gate, WatchedKey::Predecessor(entry)) => {
            (format!("WATCH {}", name(entry)), gate)
        }
        WaitAction::Leave { gate, also: None } => ("LEAVE".to_owned(), gate),
        WaitAction::Leave { gate, also: Some(entry) } => (format!("LEAVE {}", name(entry)), gate),
        WaitAction::Skip(gate) => ("SKIP".to_owned(), gate),
    };
    match gate.index() {
        0 => text,
        at => format!("{text} at gate {}", at + 1),
    }
}

/// A machine with what its shell knows of the gates.
struct Example {
    machine: Option<WaitMachine>,
    ranks: Vec<NodeId>,
    skipped: Vec<(NodeId, Instant)>,
}

impl Example {
    fn new() -> Self {
        Self { machine: None, ranks: vec![node(1), node(2)], skipped: Vec::new() }
    }

    fn gates(&self, now: Instant) -> Vec<NodeId> {
        let is_skipped = |gate| self.skipped.iter().any(|(node, at)| *node == gate && now < *at);
        self.ranks.iter().copied().filter(|gate| !is_skipped(*gate)).collect()
    }

    /// Feeds one input to the machine, and returns the actions and the next timeout.
    fn step(&mut self, words: &[&str], now: Instant) -> (String, Option<Instant>) {
        let gates = self.gates(now);
        match words {
            ["begin", hint, kind @ ..] => {
                let own = match kind {
                    ["polling"] => "pe",
                    ["reading"] => "er",
                    _ => "me",
                };
                let begun =
                    WaitMachine::begin(&gates, &entry(own), NODE_TIMEOUT, *hint == "hint", now);
                self.machine = Some(begun);
            }
            ["gates", "none"] => self.ranks.clear(),
            ["gates", numbers @ ..] => {
                self.ranks = numbers.iter().map(|n| node(n.parse().expect("a number"))).collect();
            }
            _ => {
                let machine = self.machine.as_mut().expect("a wait has begun");
                machine.set_gates(&gates);
                input(machine, words, now);
            }
        }
        let Some(machine) = &mut self.machine else { return ("-".to_owned(), None) };
        let mut actions = Vec::new();
        while let Some(action) = machine.poll_action() {
            if let WaitAction::Skip(gate) = action {
                self.skipped.push((gate, now + Duration::from_secs(1)));
            }
            actions.push(show(&action));
        }
        let actions = if actions.is_empty() { "-".to_owned() } else { actions.join(", ") };
        (actions, machine.next_timeout())
    }
}

fn input(machine: &mut WaitMachine, words: &[&str], now: Instant) {
    match words {
        ["refused"] => machine.handle_refused(REFRESH, now),
        ["won"] => machine.handle_won(),
        ["timeout"] => machine.handle_timeout(now),
        ["failed"] => machine.handle_failure(now),
        ["cancel"] => machine.cancel(),
        ["take", "over"] => machine.take_over(),
        ["push", name] => machine.handle_push(&key(name), now),
        ["watched", presence] => machine.handle_watched(*presence == "there", now),
        ["refreshed", before, first, lock, place @ ..] => {
            let predecessor = (*before != "none").then(|| entry(before));
            let place = match place {
                [place] => place.parse().expect("a number"),
                _ => usize::from(predecessor.is_some()),
            };
            let (is_read, first) = (*lock == "read", entry(first));
            let held = match lock.strip_prefix("held") {
                Some("") => Some(0),
                Some(number) => Some(number.parse().expect("a number")),
                None => is_read.then_some(0),
            };
            let reply = Refreshed { predecessor, first, held, free: None, is_read, place };
            machine.handle_refreshed(reply, REFRESH, now);
        }
        _ => panic!("no such input: {words:?}"),
    }
}

/// Rules W1, W2, W3, W4.
#[test]
fn the_examples_hold_step_by_step() {
    let start = Instant::now();
    let (mut example, mut title) = (Example::new(), "");
    let mut steps = 0;
    for line in include_str!("examples.txt").lines() {
        if line.starts_with("# ") {
            (example, title) = (Example::new(), line);
        }
        for text in line.strip_prefix("! ").into_iter().flat_map(|line| line.split(" ; ")) {
            let (input, expected) = text.split_once(" > ").expect("an input and what follows");
            let (actions, timeout) = expected.split_once(" ? ").expect("actions and a timeout");
            let (at, words) = input.split_once(' ').expect("a time and an input");
            let seconds = |text: &str| Duration::from_secs_f64(text.parse().expect("seconds"));
            let words: Vec<&str> = words.split_whitespace().collect();
            let (found, next) = example.step(&words, start + seconds(at));
            assert_eq!(found, actions, "after `{text}` of `{title}`");
            let next = next.map(|next| next - start);
            let is_right = match (next, timeout) {
                (None, "-") => true,
                (Some(next), at) if at != "-" => {
                    next.abs_diff(seconds(at)) < Duration::from_micros(500)
                }
                _ => false,
            };
            assert!(is_right, "the next timeout is {next:?} after `{text}` of `{title}`");
            steps += 1;
        }
    }
    assert!(steps > 200, "only {steps} steps were found");
}

#[test]
fn refresh_intervals_are_within_a_fifth_of_the_mean() {
    let (least, most) = (REFRESH * 4 / 5, REFRESH * 6 / 5);
    assert_eq!(WaitMachine::refresh_interval(0), least);
    for random in [1, 1023, 1024, 1025, u32::MAX] {
        let interval = WaitMachine::refresh_interval(random);
        assert!(interval >= least && interval <= most, "{random} gave {interval:?}");
    }
    let widest = (0..2000).map(WaitMachine::refresh_interval).max().expect("some");
    assert!(most - widest < Duration::from_millis(1), "the longest is {widest:?}");
}

#[test]
fn an_entry_is_printable_and_shows_whether_its_process_gets_pushes() {
    let random = [0x0f, 0xa0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 0xef];
    let (pushed, polling) = (Entry::draw(random, true), Entry::draw(random, false));
    assert_eq!(pushed, entry("0fa00102030405060708090a0b0c0def"));
    assert_eq!(polling, entry("pfa00102030405060708090a0b0c0def"));
    assert!(polling.is_polling() && !pushed.is_polling());
}

#[test]
fn a_cancelled_wait_makes_no_attempt() {
    let mut machine =
        WaitMachine::begin(&[node(1)], &entry("me"), NODE_TIMEOUT, false, Instant::now());
    machine.take_over();
    machine.cancel();
    assert_eq!(machine.poll_action(), None);
}

#[test]
fn the_gate_is_that_of_the_entry_until_a_better_one_has_replied() {
    let now = Instant::now();
    let mut machine = WaitMachine::begin(&[node(1)], &entry("me"), NODE_TIMEOUT, true, now);
    let ours = || Refreshed {
        predecessor: None,
        first: entry("me"),
        held: Some(0),
        free: None,
        is_read: false,
        place: 0,
    };
    machine.handle_refreshed(ours(), REFRESH, now);
    machine.handle_watched(true, now);
    machine.set_gates(&[node(2), node(1)]);
    machine.handle_timeout(now + REFRESH);
    assert_eq!(machine.gate(), Some(node(1)));
    machine.handle_refreshed(ours(), REFRESH, now + REFRESH);
    assert_eq!(machine.gate(), Some(node(2)));
}
