//! The conformance suite notices every wrong node.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use quorate_memory::conformance::{self, Failure};
use quorate_memory::{Effect, Flaw, MemoryNode, Rule, Sim};

/// Each flaw, and the case that notices it.
#[rustfmt::skip]
const NOTICED: &[(Flaw, &str)] = &[
    (Flaw::GrantsTakenKeys, "a taken key is refused and left alone"),
    (Flaw::SetsTheFreeKeysOfARefusedClaim, "several keys are taken together or not at all"),
    (Flaw::RefusesItsOwnToken, "our own token in place is a grant"),
    (Flaw::ResentAcquireSetsTheTtl, "an extension lengthens and never shortens"),
    (Flaw::CutsTtls, "a free key is granted, with the token and the ttl"),
    (Flaw::ExpiresLate, "a free key is granted, with the token and the ttl"),
    (Flaw::NeverExpires, "a free key is granted, with the token and the ttl"),
    (Flaw::AnotherTypeIsHeld, "a value of another type is an unknown vote"),
    (Flaw::ExtendsAnyToken, "an extension neither takes nor brings back"),
    (Flaw::ExtensionSetsKeys, "a key ends by itself when its ttl is over"),
    (Flaw::ExtensionShortens, "an extension lengthens and never shortens"),
    (Flaw::ExtendsKeysOneByOne, "an extension neither takes nor brings back"),
    (Flaw::ExtensionIsAlwaysGranted, "a key ends by itself when its ttl is over"),
    (Flaw::ReleasesAnyToken, "an expired key is free"),
    (Flaw::ReleasesTheFirstKey, "a key ends by itself when its ttl is over"),
    (Flaw::ReleasesAllOrNothing, "several keys are taken together or not at all"),
    (Flaw::ReleaseIsAlwaysGranted, "an expired key is free"),
    (Flaw::GrantKeepsTheNumber, "a grant with a number takes the key and raises the number"),
    (Flaw::ResentAcquireCounts, "our own token in place is a grant with the same number"),
    (Flaw::IgnoresTheHint, "a grant with a number takes the key and raises the number"),
    (Flaw::HintForNewNumbersOnly, "a grant with a number takes the key and raises the number"),
    (Flaw::CountsTheFirstKey, "several keys have one number"),
    (Flaw::NumbersWrap, "numbers end with an error, and none is lower than before"),
    (Flaw::NumbersExpire, "a number outlives its lock, and excludes nobody"),
    (Flaw::RaisesWithoutTheKey, "only the holder raises a number, and nobody lowers it"),
    (Flaw::RaiseLowers, "only the holder raises a number, and nobody lowers it"),
    (Flaw::ReleaseDoesNotRaise, "several keys have one number"),
    (Flaw::ReleaseLowers, "only the holder raises a number, and nobody lowers it"),
    (Flaw::AcceptsAnyEpoch, "a node that restarts with its data is quarantined"),
    (Flaw::CountsTheUptime, "a node without an epoch neither grants nor refuses until its quarantine is over"),
    (Flaw::QuarantineIsShort, "a node without an epoch neither grants nor refuses until its quarantine is over"),
    (Flaw::GrantsBeforeTheQuarantine, "a node without an epoch neither grants nor refuses until its quarantine is over"),
    (Flaw::QuarantineRefuses, "a node without an epoch neither grants nor refuses until its quarantine is over"),
    (Flaw::QuarantineHidesItsLocks, "a quarantined node knows what is there"),
    (Flaw::Reorders, "calls arrive in the order in which they set out"),
];

/// Runs the suite on a node that has been up for an hour, over a connection that delays requests
/// unequally.
fn checked(flaw: Option<Flaw>) -> Result<Vec<&'static str>, Failure> {
    let sim = Sim::new(1);
    let node = MemoryNode::new("node", sim.clone()).in_order();
    if let Some(flaw) = flaw {
        node.plant(flaw);
    }
    sim.advance(Duration::from_secs(3600));
    node.add_rule(Rule::new(Effect::Reorder(Duration::from_millis(1))));
    sim.block_on(conformance::backend(&node))
}

#[test]
fn every_flaw_is_noticed() {
    let listed: Vec<Flaw> = NOTICED.iter().map(|(flaw, _)| *flaw).collect();
    assert_eq!(listed, Flaw::ALL);
    for (flaw, case) in NOTICED {
        let Err(failure) = checked(Some(*flaw)) else { panic!("{flaw:?} is not noticed") };
        assert_eq!(failure.case, *case, "{flaw:?}: {}", failure.detail);
    }
}

#[test]
fn nothing_is_noticed_of_a_node_without_a_flaw() {
    checked(None).unwrap();
}
