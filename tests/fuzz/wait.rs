//! A wait, as the random runs of the core's tests play it.

use std::time::{Duration, Instant};

use quorate_pure::core_source::algorithm::quorum::{NodeCount, NodeId};
use quorate_pure::core_source::algorithm::wait::{
    Entry, REFRESH, Refreshed, WaitAction, WaitMachine, WatchedKey,
};

use super::Bytes;

#[path = "../../crates/quorate-core/tests/wait/random.rs"]
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

pub(super) fn run(bytes: &mut Bytes<'_>) {
    random::run(&mut random::Random(&mut |bound| bytes.below(bound as usize) as u32));
}
