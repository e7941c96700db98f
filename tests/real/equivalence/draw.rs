//! What is asked of the nodes.

use std::time::Duration;

use quorate::FencingToken;
use quorate::backend::{
    AcquireOptions, Choice, Claim, Entry, ExtendOptions, FenceHint, Holder, Leaves, Mode,
    Operation, ReleaseOptions, Revoke, Ttl,
};
use quorate::memory::Sim;
use quorate::resource::{Key, Label, Token};
use quorate_tests::keys::{COUNTERS, counter};

use super::{GUARD, SESSIONS};
use crate::calls::key;

/// One of these.
pub(super) fn pick<'a, T>(sim: &Sim, from: &'a [T]) -> &'a T {
    &from[usize::try_from(sim.random_below(from.len() as u64)).unwrap()]
}

pub(super) fn draw(sim: &Sim, names: &[String], tokens: &[Token], entries: &[Entry]) -> Operation {
    let below = |bound: u64| sim.random_below(bound);
    let (count, first) = (*pick(sim, &[1, 1, 1, 2, 3]), below(names.len() as u64) as usize);
    let keys = (0..count).map(|place| key(&names[(first + place) % names.len()]));
    let mut locks: Vec<Key> = keys.collect();
    let first = locks[0].clone();
    let ttl = Duration::from_millis(*pick(sim, &[10, 20, 50, 100, 60_000]));
    let ttl = Ttl::try_from(ttl).unwrap();
    let mode = *pick(sim, &[Mode::Exclusive, Mode::Exclusive, Mode::Shared]);
    let claim = Claim::new(locks.clone(), pick(sim, tokens).clone(), ttl).with_mode(mode);
    locks.sort();
    let lock = locks[0].clone();
    let entry = pick(sim, entries).clone();
    let other = Some(pick(sim, entries).clone()).filter(|other| *other != entry);
    // Around small numbers, where calls meet, and around the last ones.
    let number = below(12);
    let number = if below(40) == 0 { FencingToken::MAX.get() - number } else { number + 1 };
    let number = FencingToken::new(number).unwrap();
    let hint = FenceHint::new(below(12));
    let acquire = |fencing, guard| {
        let mut options = AcquireOptions::default();
        (options.fencing, options.guard) = (fencing, guard);
        Operation::Acquire(claim.clone(), options)
    };
    // A server that compares by itself is asked for the mark of a revoke only about what was held.
    let release = |raise_to| {
        let mut options = ReleaseOptions::default();
        (options.raise_to, options.was_held) = (raise_to, true);
        Operation::Release(claim.clone(), options)
    };
    let leave = |also| Operation::Leave { key: lock.clone(), entry: entry.clone(), also };
    match below(20) {
        0 => acquire(None, None),
        1 => Operation::Extend(claim, ExtendOptions::default()),
        2 => release(None),
        3 => Operation::Inspect { key: first },
        4 | 5 => acquire(hint, None),
        6 => Operation::Raise(claim, number),
        7 | 8 => acquire(None, Some(GUARD)),
        9 => acquire(hint, Some(GUARD)),
        10..=12 | 18 => {
            let choice = *pick(sim, &[Choice::All, Choice::Any]);
            Operation::Refresh { key: lock, entry, locks: locks.into(), choice }
        }
        13 => leave(None),
        14 => leave(other),
        15 if mode == Mode::Shared => {
            let mut options = AcquireOptions::default();
            options.asks = true;
            Operation::Acquire(claim, options)
        }
        15 => {
            let mut options = ReleaseOptions::default();
            (options.asks, options.raise_to) =
                (Some(locks.into()), Some(number).filter(|_| below(2) == 0));
            Operation::Release(claim, options)
        }
        16 | 17 => {
            let mut how = Revoke::delete();
            how.leaves = match below(3) {
                0 => Leaves::Value(pick(sim, tokens).clone()),
                1 => Leaves::Mark(Label::lossy("admin")),
                _ => Leaves::Nothing,
            };
            let of: Vec<_> =
                (0..below(3)).map(|_| Holder::new(pick(sim, tokens).as_bytes())).collect();
            Operation::Revoke { key: first, how: if below(2) == 0 { how } else { how.of(of) } }
        }
        _ => release(Some(number)),
    }
}

/// Names of a session, and the keys where their numbers are. No other session has those; two names
/// share one.
pub(super) fn names_of(session: u64) -> (Vec<String>, Vec<String>) {
    let is_ours = |counter: &String| {
        let place: u64 = counter.rsplit(':').next().unwrap().parse().unwrap();
        place / (u64::from(COUNTERS) / SESSIONS) == session
    };
    let mut candidates = (0..).map(|n| format!("{session}:{n}"));
    let mut names = Vec::new();
    let mut counters: Vec<String> = Vec::new();
    while names.len() < 4 {
        let name = candidates.next().unwrap();
        let counter = counter(&name);
        let shares = counters.contains(&counter);
        // The second one, and only that, shares the number of the first.
        if is_ours(&counter) && shares == (names.len() == 1) {
            names.push(name);
            if !shares {
                counters.push(counter);
            }
        }
    }
    (names, counters)
}
