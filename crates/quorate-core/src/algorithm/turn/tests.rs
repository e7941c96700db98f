//! Runs `examples.txt` through the machine.

use std::time::{Duration, Instant};

use super::super::quorum::{NodeCount, NodeId};
use super::{Command, Entry, Refreshed, Turn, WatchedKey};

const NODE_TIMEOUT: Duration = Duration::from_millis(50);

fn gates(count: usize) -> impl Iterator<Item = NodeId> {
    NodeCount::new(5).expect("in range").ids().take(count)
}

fn entry(name: &str) -> Entry {
    Entry::new(name.as_bytes())
}

fn key(name: &str) -> WatchedKey {
    if name == "lock" { WatchedKey::Lock(0) } else { WatchedKey::Predecessor(entry(name)) }
}

fn show(command: &Command) -> String {
    let name = |entry: &Entry| String::from_utf8_lossy(entry.as_bytes()).into_owned();
    let (text, gate) = match command {
        Command::Attempt => return "attempt".to_owned(),
        Command::Refresh(gate) => ("refresh".to_owned(), gate),
        Command::Watch(gate, WatchedKey::Lock(0)) => ("watch lock".to_owned(), gate),
        Command::Watch(gate, WatchedKey::Lock(n)) => (format!("watch lock {n}"), gate),
        Command::Watch(gate, WatchedKey::Predecessor(entry)) => {
            (format!("watch {}", name(entry)), gate)
        }
        Command::Leave { gate, also: None } => ("leave".to_owned(), gate),
        Command::Leave { gate, also: Some(entry) } => (format!("leave with {}", name(entry)), gate),
        Command::Skip(gate) => ("skip".to_owned(), gate),
    };
    match gate.index() {
        0 => text,
        at => format!("{text} at gate {}", at + 1),
    }
}

/// Feeds one input to the machine.
fn step(turn: &mut Turn, words: &[&str], now: Instant) {
    let refresh = super::REFRESH;
    match words {
        ["refused"] => turn.handle_refused(refresh, now),
        ["won"] => turn.handle_won(),
        ["timeout"] => turn.handle_timeout(now),
        ["failed"] => turn.handle_failure(now),
        ["cancel"] => turn.cancel(),
        ["push", name] => turn.handle_push(&key(name), now),
        ["watched", presence] => turn.handle_watched(*presence == "there", now),
        ["refreshed", predecessor, first, lock] => {
            let predecessor = (*predecessor != "none").then(|| entry(predecessor));
            let held = (*lock == "held").then_some(0);
            turn.handle_refreshed(
                Refreshed { predecessor, first: entry(first), held },
                refresh,
                now,
            );
        }
        _ => panic!("no such input: {words:?}"),
    }
}

#[test]
fn the_examples_hold_step_by_step() {
    let start = Instant::now();
    let mut turn = None;
    let mut steps = 0;
    for line in include_str!("examples.txt").lines().filter(|line| line.contains(" > ")) {
        if line.starts_with('#') {
            continue;
        }
        let (input, expected) = line.split_once(" > ").expect("filtered");
        let (at, words) = input.split_once(' ').expect("a time and an input");
        let at: f64 = at.parse().expect("a time in seconds");
        let now = start + Duration::from_secs_f64(at);
        let words: Vec<&str> = words.split_whitespace().collect();
        match (&words[..], turn.as_mut()) {
            (["begin", hint], _) => {
                turn = Some(Turn::begin(gates(2), NODE_TIMEOUT, *hint == "hint", now))
            }
            (words, Some(turn)) => step(turn, words, now),
            (words, None) => panic!("{words:?} before a wait began"),
        }
        let turn = turn.as_mut().expect("begun");
        let mut commands = Vec::new();
        while let Some(command) = turn.poll_command() {
            commands.push(show(&command));
        }
        let commands = if commands.is_empty() { "-".to_owned() } else { commands.join(", ") };
        let next = turn
            .next_timeout()
            .map_or_else(|| "-".to_owned(), |at| format!("{:.2}", (at - start).as_secs_f64()));
        let found = format!("{commands} ? {next}");
        let expected = expected.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(found, expected, "after `{line}`");
        steps += 1;
    }
    assert!(steps > 60, "only {steps} steps were found");
}

#[test]
fn refresh_intervals_are_within_a_fifth_of_the_mean() {
    let (least, most) = (super::REFRESH * 4 / 5, super::REFRESH * 6 / 5);
    assert_eq!(Turn::refresh_interval(0), least);
    for random in [1, 1023, 1024, 1025, u32::MAX] {
        let interval = Turn::refresh_interval(random);
        assert!(interval >= least && interval <= most, "{random} gave {interval:?}");
    }
    let widest = (0..2000).map(Turn::refresh_interval).max().expect("some");
    assert!(most - widest < Duration::from_millis(1), "the longest is {widest:?}");
}

/// A request for several keys watches the one that the gate names.
#[test]
fn of_several_lock_keys_the_held_one_is_watched() {
    let now = Instant::now();
    let mut turn = Turn::begin(gates(1), NODE_TIMEOUT, true, now);
    let held = |lock| Refreshed { predecessor: None, first: entry("me"), held: Some(lock) };
    turn.handle_refreshed(held(2), super::REFRESH, now);
    turn.handle_watched(true, now);
    turn.handle_timeout(now + super::REFRESH);
    turn.handle_refreshed(held(1), super::REFRESH, now + super::REFRESH);
    let commands: Vec<_> = std::iter::from_fn(|| turn.poll_command()).collect();
    let gate = gates(1).next().expect("one");
    let (refresh, watch) = (Command::Refresh(gate), |n| Command::Watch(gate, WatchedKey::Lock(n)));
    assert_eq!(commands, [refresh.clone(), watch(2), refresh, watch(1)]);
}

#[test]
fn without_a_candidate_for_the_gate_a_wait_attempts_and_joins_nothing() {
    let mut turn = Turn::begin(gates(0), NODE_TIMEOUT, true, Instant::now());
    assert_eq!((turn.gate(), turn.has_entry()), (None, false));
    assert_eq!(turn.poll_command(), Some(Command::Attempt));
    turn.cancel();
    assert_eq!(turn.poll_command(), None);
}
