//! Locks that processes with either client contend for, while the nodes lose their data one after the other.
//!
//! The processes take locks with fencing tokens, hold them, some for longer than a ttl, and write what they do to
//! counters that check tokens and to one that does not. A nemesis kills nodes without persistence and starts them
//! again, empties them, rolls them back to an old file, and puts a replica that lags in their place. Each hold is
//! recorded on the one clock of the machine, and judged when all is over. With the restart guard no holds overlap
//! and no token falls. So it is on nodes that remember. Without both, which shows that the judge can see it, they do
//! overlap, and the counter refuses the stale writer.
//!
//! `cargo xtask restarts` sets `QUORATE_CYCLES`, for many more losses than a test run has.

use std::env;
use std::time::Duration;

use quorate_tests::judge::{LOCKS, Verdict, judge};
use quorate_tests::resource::{counted, lost_without_tokens};
use quorate_tests::wait::{eventually, times};
use quorate_tests::{Nodes, RedisServer};

use crate::client::Client;
use crate::working::{holds, start_with};

mod nemesis;

/// Of all locks, and the longest that the guard is set for.
const TTL: Duration = Duration::from_millis(500);

/// The nemesis goes on until there is enough to judge, for so many times the cycles.
const PATIENCE: u32 = 100;

/// One run.
#[derive(Clone, Copy, Debug)]
struct Plan {
    nodes: usize,
    /// How often a node is killed and started again, at the least.
    cycles: u32,
    /// How many holds there are to judge, at the least.
    holds: usize,
    has_guard: bool,
    /// Whether the nodes log every write to disk. Then they are only killed.
    remembers: bool,
}

impl Plan {
    const fn new(nodes: usize, cycles: u32, has_guard: bool) -> Self {
        Self { nodes, cycles, holds: cycles as usize, has_guard, remembers: false }
    }

    /// Without the guard, two may hold one lock that nodes have lost.
    const fn is_safe(self) -> bool {
        self.has_guard || self.remembers
    }
}

/// As many cycles as in the scheduled run, or else few.
fn cycles(few: u32) -> u32 {
    env::var("QUORATE_CYCLES").ok().map_or(few, |cycles| cycles.parse().unwrap())
}

#[test]
fn with_the_guard_nobody_overlaps_and_no_token_falls_on_three_nodes() {
    check(Plan::new(3, cycles(times(5, 10)), true));
}

#[test]
fn with_the_guard_nobody_overlaps_and_no_token_falls_on_five_nodes() {
    check(Plan::new(5, cycles(times(8, 15)), true));
}

#[test]
fn crashing_nodes_that_remember_lose_no_lock() {
    check(Plan { holds: 150, remembers: true, ..Plan::new(5, cycles(times(7, 30)), false) });
}

/// And so the others would see it.
#[test]
fn without_the_guard_two_hold_one_lock_and_the_stale_one_is_refused() {
    check(Plan::new(3, cycles(times(40, 80)) / 10, false));
}

/// Nodes, client processes, the nemesis, and the judge.
#[expect(clippy::print_stdout, reason = "figures")]
fn check(plan: Plan) {
    let mut nodes = Nodes::start_with(plan.nodes, &nemesis::node(plan));
    let store = RedisServer::start();
    let (port, ttl) = (store.port().to_string(), TTL.as_millis().to_string());
    let guard = if plan.has_guard { "on" } else { "off" };
    let words = |client: Client| ["locks", client.word(), &ttl, &port, guard];
    let mut clients = Client::ALL.map(|client| start_with(&words(client), &nodes.addresses()));
    let sum = |of: fn(&RedisServer, &str) -> u64| -> u64 {
        (0..LOCKS).map(|lock| of(&store, &lock.to_string())).sum()
    };
    // However slow the machine is, and however few locks clients get on it.
    let has_enough = || {
        let holds = holds(&clients);
        let refused = holds.iter().any(|hold| hold.refused > 0);
        let is_seen = || judge(&holds).overlaps > 0 && refused && sum(lost_without_tokens) > 0;
        let written = holds.iter().any(|hold| hold.written > 0);
        written && holds.len() >= plan.holds && (plan.is_safe() || is_seen())
    };
    let most = PATIENCE.saturating_mul(plan.cycles);
    let cycles = nemesis::strike(plan, &mut nodes, |cycles| {
        cycles >= plan.cycles && (has_enough() || cycles >= most)
    });
    clients.iter_mut().for_each(|client| drop(client.end()));
    let holds = holds(&clients);
    // Writes that the counter which checks tokens refused, though the lease had not ended when their holder last looked.
    // With the guard on, it has by then: the holder did not run.
    let refused: u64 = holds.iter().map(|hold| u64::from(hold.refused)).sum();
    let written: u64 = holds.iter().map(|hold| u64::from(hold.written)).sum();
    let (verdict, lost_without_tokens) = (judge(&holds), sum(lost_without_tokens));
    let told = format!(
        "{plan:?}: {cycles} cycles, {verdict:?}, {written} written, {refused} refused, {lost_without_tokens} lost \
         without tokens"
    );
    println!("{told}");
    assert_eq!(written, sum(counted), "each acknowledged write is there: {told}");
    assert!(written > 0 && verdict.tokens >= plan.holds, "{told}");
    if plan.is_safe() {
        let Verdict { overlaps, repeated, fallen, .. } = verdict;
        assert_eq!((overlaps, repeated, fallen), (0, 0, 0), "{told}");
    } else {
        let is_seen = verdict.overlaps > 0 && refused > 0 && lost_without_tokens > 0;
        assert!(is_seen, "without the guard, so the judge would not see it: {told}");
    }
    // A node that could not be asked to release forgets when the ttl is over.
    let is_left = |(_, key): &(usize, String)| key.starts_with("contended:");
    eventually("no lock key is left", || !nodes.keys_left().iter().any(is_left));
}
