//! The flaws, each with the case of the suite that notices it.

/// Declares the flaws: each behind the case of the suite that notices it.
macro_rules! flaws {
    ($($case:literal: $($flaw:ident)+,)+) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Flaw {
            None,
            $($($flaw,)+)+
        }

        /// Each flaw, and the case that notices it.
        pub(crate) const NOTICED: &[(Flaw, &str)] = &[$($((Flaw::$flaw, $case),)+)+];
    };
}

#[rustfmt::skip]
flaws! {
    "a held key is refused and left alone": GrantsHeldKeys,
    "several keys are acquired together or not at all": SetsTheFreeKeysOfARefusedClaim,
    "an acquire that comes twice changes nothing, and repairs several keys": RefusesItsOwnToken,
    "an extension lengthens and never shortens": ResentAcquireSetsTheTtl ExtensionShortens,
    "a free key is granted, with the token and the ttl": CutsTtls ExpiresLate NeverExpires,
    "a value of another type is no lock": AnotherTypeIsHeld,
    "an extension sets no key and touches no other holder's": ExtendsAnyToken ExtendsKeysOneByOne,
    "a key expires by itself when its ttl has passed": ExtensionSetsKeys ExtensionIsAlwaysGranted ReleaseIsAlwaysGranted LosesExtensions,
    "a release deletes our key and no other": ReleasesAnyToken,
    "several keys are released, also if one of them is gone": ReleasesTheFirstKey ReleasesAllOrNothing,
    "calls take effect in the order of their begins": Reorders,
    "an option that is not supported fails with nothing sent": IgnoresItsLimits,
    "an inspection returns the holder and the time left, and changes nothing": InspectionHidesTheTtl,
    "a revoke replaces the token and keeps the ttl": RevokeSetsANewTtl RevokeDeletes,
    "a delete frees the key at once": DeleteReplaces,
    "a key is taken from the holder that is meant, and from no other": RevokesAnyHolder,
    "a key without a ttl is told and left alone, and numbers go on": RevokesKeysWithoutExpiry,
    "a description shows the quarantine": HidesTheQuarantine,
    "a node without an epoch does not vote until its quarantine is over": ServerIdChanges CountsTheUptime QuarantineIsShort GrantsBeforeTheQuarantine QuarantineRefuses,
    "only the holder raises a number, and nobody lowers it": GrantKeepsTheNumber RaisesWithoutTheKey RaiseLowers ReleaseLowers,
    "a fenced acquire that comes twice has the same number": ResentAcquireCounts,
    "a grant with a number sets the key and raises the number": IgnoresTheHint HintForNewNumbersOnly NumbersEndWithTheLock,
    "several keys have one number": CountsTheFirstKey ReleaseDoesNotRaise,
    "numbers end with an error, and none is lower than before": NumbersWrap,
    "a node that restarts with its data is quarantined": AcceptsAnyEpoch,
    "a quarantined node knows the locks that it has": QuarantineHidesItsLocks,
    "a watch is notified of an acquire, of a release and of an expiry": NeverPushes,
    "a watch says whether a key is there, and changes nothing": EveryWatchedKeyIsFree,
    "entries wait in the order in which they joined": JoinsInFront RefreshGoesToTheEnd LeavesAlone PlaceIsZero,
    "an entry expires 2 s after its last refresh": EntriesNeverExpire,
    "a refresh returns the last lock key that is held": KeysWithoutExpiryAreHeld ReportsTheFirstHeldKey,
    "a refresh for one of several keys returns the last one that is free": AnyHeldKeyMeansHeld,
    "the key of an entry exists until the entry leaves": LeaveKeepsTheKeyOfTheEntry,
    "a release that asks says whether an entry is in the queue of a key": NobodyWaits,
    "a leave and a release that asks see what the call before them did": QuestionOvertakes,
    "readers hold a key together, and a lock holds it alone": ReadersExcludeReaders ReadsBesideALock ReaderReleasesAll,
    "a read that comes twice changes nothing, and repairs several keys": ResentReadSetsTheTtl,
    "an inspection shows readers": HidesReaders,
    "readers do not wait for readers": CountsReaders,
    "a call that is dropped or given up disturbs no other": GivesUpTheNextCall,
}
