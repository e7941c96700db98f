//! The conformance suite notices every wrong node.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use quorate_core::backend::Capabilities;
use quorate_memory::conformance::{self, Failure, Testbed};
use quorate_memory::{Effect, MemoryNode, Rule, Sim};

mod list;
mod wrong;

use self::list::{Flaw, NOTICED};
use self::wrong::Wrong;

const ALL: [Capabilities; 10] = [
    Capabilities::ORDERED,
    Capabilities::FENCING,
    Capabilities::GUARD,
    Capabilities::WATCH,
    Capabilities::QUEUE,
    Capabilities::INSPECT,
    Capabilities::SERVER_ID,
    Capabilities::REVOKE,
    Capabilities::DESCRIBE,
    Capabilities::SHARED,
];

/// Runs the suite on a node that has been up for an hour, over a network that delays requests
/// unequally.
fn check<T: Testbed>(make: impl FnOnce(&MemoryNode) -> T) -> Result<Vec<&'static str>, Failure> {
    let sim = Sim::new(1);
    let node = MemoryNode::new("node", sim.clone());
    sim.advance(Duration::from_secs(3600));
    node.add_rule(Rule::new(Effect::Reorder(Duration::from_millis(1))));
    sim.block_on(conformance::backend(&make(&node)))
}

#[test]
fn every_flaw_is_noticed() {
    let mut wrong = Vec::new();
    for (flaw, case) in NOTICED {
        match check(|node| Wrong::new(node, *flaw)) {
            Err(failure) if failure.case == *case => {}
            seen => wrong.push(format!("{flaw:?}: {seen:?}")),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_node_without_a_flaw_passes_whatever_it_was_built_for() {
    let all = check(MemoryNode::clone).unwrap();
    check(|node| Wrong::new(node, Flaw::None)).unwrap();
    let none = ALL.into_iter().fold(Capabilities::NONE, |all, one| all | one);
    for lacks in ALL.into_iter().chain([none]) {
        let passed = check(|node| node.without(lacks)).unwrap();
        assert!(passed.len() < all.len() && passed.iter().all(|case| all.contains(case)));
    }
}
