//! The pure state machine of one attempt: tables to be read, and random orders of events.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]
#![expect(clippy::disallowed_methods, reason = "an origin: time passes by hand")]

use std::collections::HashMap;

mod any_order;
mod decided;
mod fingerprint;
mod golden;
mod player;

/// Rule H6.
#[test]
fn no_order_of_events_breaks_an_attempt() {
    let mut seen: HashMap<&str, usize> = HashMap::new();
    for seed in 0..20_000_u64 {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        any_order::Run::new(seed, &mut |below| next(&mut random, below)).play(&mut seen);
    }
    let all = ["won", "not won", "extended", "extend failed", "lost", "released", "lost before"];
    let more = ["unconfirmed", "undone", "cleared", "give up", "repair", "raise", "resend", "back"];
    for decision in all.iter().chain(&more) {
        assert!(seen.contains_key(decision), "{decision} was never reached: {seen:?}");
    }
}

/// xorshift64*.
fn next(state: &mut u64, below: usize) -> usize {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    ((state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize) % below
}
