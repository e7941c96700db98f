//! One wait in a queue, by itself: whatever comes, it goes on, and its entries leave.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]
#![expect(clippy::disallowed_methods, reason = "an origin: time passes by hand")]

use std::time::{Duration, Instant};

use quorate_pure::core_source::algorithm::quorum::{NodeCount, NodeId};
use quorate_pure::core_source::algorithm::wait::{
    Entry, REFRESH, Refreshed, WaitAction, WaitMachine, WatchedKey,
};

mod random;

const NODE_TIMEOUT: Duration = Duration::from_millis(50);

fn node(number: usize) -> NodeId {
    NodeCount::new(5).unwrap().ids().nth(number - 1).unwrap()
}

fn entry(name: &str) -> Entry {
    Entry::new(name.as_bytes())
}

fn key(name: &str) -> WatchedKey {
    if name == "lock" { WatchedKey::Lock(0) } else { WatchedKey::Predecessor(entry(name)) }
}

#[test]
fn a_wait_goes_on_whatever_happens_and_leaves_each_queue_once() {
    for seed in 1..=5_000_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // xorshift
        let mut below = |bound| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u32 % bound
        };
        random::run(&mut random::Random(&mut below));
    }
}
