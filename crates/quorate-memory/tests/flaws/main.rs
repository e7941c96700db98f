//! The conformance suite notices every wrong node.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use quorate_core::backend::Capabilities;
use quorate_memory::conformance::{self, Failure, Testbed};
use quorate_memory::{Effect, MemoryNode, Rule, Sim};

mod wrong;

use self::wrong::{Flaw, Wrong};

const ALL: [Capabilities; 9] = [
    Capabilities::ORDERED,
    Capabilities::FENCING,
    Capabilities::GUARD,
    Capabilities::WATCH,
    Capabilities::QUEUE,
    Capabilities::INSPECT,
    Capabilities::SERVER_ID,
    Capabilities::REVOKE,
    Capabilities::DESCRIBE,
];

/// Each flaw, and the case that notices it.
#[rustfmt::skip]
const NOTICED: &[(Flaw, &str)] = &[
    (Flaw::GrantsHeldKeys, "a held key is refused and left alone"),
    (Flaw::SetsTheFreeKeysOfARefusedClaim, "several keys are acquired together or not at all"),
    (Flaw::RefusesItsOwnToken, "an acquire that comes twice changes nothing, and repairs several keys"),
    (Flaw::ResentAcquireSetsTheTtl, "an extension lengthens and never shortens"),
    (Flaw::CutsTtls, "a free key is granted, with the token and the ttl"),
    (Flaw::ExpiresLate, "a free key is granted, with the token and the ttl"),
    (Flaw::NeverExpires, "a free key is granted, with the token and the ttl"),
    (Flaw::AnotherTypeIsHeld, "a value of another type is no lock"),
    (Flaw::ExtendsAnyToken, "an extension sets no key and touches no other holder's"),
    (Flaw::ExtensionSetsKeys, "a key expires by itself when its ttl has passed"),
    (Flaw::ExtensionShortens, "an extension lengthens and never shortens"),
    (Flaw::ExtendsKeysOneByOne, "an extension sets no key and touches no other holder's"),
    (Flaw::ExtensionIsAlwaysGranted, "a key expires by itself when its ttl has passed"),
    (Flaw::ReleasesAnyToken, "a release deletes our key and no other"),
    (Flaw::ReleasesTheFirstKey, "several keys are released, also if one of them is gone"),
    (Flaw::ReleasesAllOrNothing, "several keys are released, also if one of them is gone"),
    (Flaw::ReleaseIsAlwaysGranted, "a key expires by itself when its ttl has passed"),
    (Flaw::Reorders, "calls take effect in the order of their begins"),
    (Flaw::IgnoresItsLimits, "an option that is not supported fails with nothing sent"),
    (Flaw::InspectionHidesTheTtl, "an inspection returns the holder and the time left, and changes nothing"),
    (Flaw::RevokeSetsANewTtl, "a revoke replaces the token and keeps the ttl"),
    (Flaw::RevokeDeletes, "a revoke replaces the token and keeps the ttl"),
    (Flaw::DeleteReplaces, "a delete frees the key at once"),
    (Flaw::RevokesKeysWithoutExpiry, "a key without a ttl is told and left alone, and numbers go on"),
    (Flaw::HidesTheQuarantine, "a description shows the quarantine"),
    (Flaw::ServerIdChanges, "a node without an epoch does not vote until its quarantine is over"),
    (Flaw::GrantKeepsTheNumber, "only the holder raises a number, and nobody lowers it"),
    (Flaw::ResentAcquireCounts, "a fenced acquire that comes twice has the same number"),
    (Flaw::IgnoresTheHint, "a grant with a number sets the key and raises the number"),
    (Flaw::HintForNewNumbersOnly, "a grant with a number sets the key and raises the number"),
    (Flaw::CountsTheFirstKey, "several keys have one number"),
    (Flaw::NumbersWrap, "numbers end with an error, and none is lower than before"),
    (Flaw::NumbersEndWithTheLock, "a grant with a number sets the key and raises the number"),
    (Flaw::RaisesWithoutTheKey, "only the holder raises a number, and nobody lowers it"),
    (Flaw::RaiseLowers, "only the holder raises a number, and nobody lowers it"),
    (Flaw::ReleaseDoesNotRaise, "several keys have one number"),
    (Flaw::ReleaseLowers, "only the holder raises a number, and nobody lowers it"),
    (Flaw::AcceptsAnyEpoch, "a node that restarts with its data is quarantined"),
    (Flaw::CountsTheUptime, "a node without an epoch does not vote until its quarantine is over"),
    (Flaw::QuarantineIsShort, "a node without an epoch does not vote until its quarantine is over"),
    (Flaw::GrantsBeforeTheQuarantine, "a node without an epoch does not vote until its quarantine is over"),
    (Flaw::QuarantineRefuses, "a node without an epoch does not vote until its quarantine is over"),
    (Flaw::QuarantineHidesItsLocks, "a quarantined node knows the locks that it has"),
    (Flaw::NeverPushes, "a watch is notified of an acquire, of a release and of an expiry"),
    (Flaw::EveryWatchedKeyIsFree, "a watch says whether a key is there, and changes nothing"),
    (Flaw::JoinsInFront, "entries wait in the order in which they joined"),
    (Flaw::RefreshGoesToTheEnd, "entries wait in the order in which they joined"),
    (Flaw::EntriesNeverExpire, "an entry expires 2 s after its last refresh"),
    (Flaw::KeysWithoutExpiryAreHeld, "a refresh returns the last lock key that is held"),
    (Flaw::ReportsTheFirstHeldKey, "a refresh returns the last lock key that is held"),
    (Flaw::LeavesAlone, "entries wait in the order in which they joined"),
    (Flaw::LeaveKeepsTheKeyOfTheEntry, "the key of an entry exists until the entry leaves"),
    (Flaw::PlaceIsZero, "entries wait in the order in which they joined"),
    (Flaw::NobodyWaits, "the hint says whether an entry is in the queue of the key"),
    (Flaw::HintOvertakes, "a leave and a hint take effect after the call before them"),
    (Flaw::LosesExtensions, "a key expires by itself when its ttl has passed"),
    (Flaw::GivesUpTheNextCall, "a call that is dropped or given up disturbs no other"),
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
    let listed: Vec<Flaw> = NOTICED.iter().map(|(flaw, _)| *flaw).collect();
    assert_eq!(listed, Flaw::ALL);
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
    let none = ALL.into_iter().fold(Capabilities::NONE, |all, one| all | one);
    for lacks in ALL.into_iter().chain([none]) {
        let passed = check(|node| node.without(lacks)).unwrap();
        assert!(passed.len() < all.len() && passed.iter().all(|case| all.contains(case)));
    }
}
