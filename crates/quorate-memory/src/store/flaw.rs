//! Wrong nodes, which the conformance suite must notice.

/// Declares the flaws, each with its idea, and the list of all.
macro_rules! flaws {
    ($($(#[doc = $idea:literal])+ $flaw:ident,)+) => {
        /// Something that a node gets wrong. Used by tests of the conformance suite only.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Flaw {
            $($(#[doc = $idea])+ $flaw,)+
        }

        impl Flaw {
            /// All flaws.
            pub const ALL: &[Self] = &[$(Self::$flaw,)+];
        }
    };
}

flaws! {
    /// An acquire sets the key without a check that it is free (`SET` without `NX`).
    GrantsHeldKeys,
    /// A refused acquire of several keys sets those that are free.
    SetsTheFreeKeysOfARefusedClaim,
    /// An acquire of several keys that finds its own token is refused.
    RefusesItsOwnToken,
    /// An acquire of several keys that finds its own token sets the ttl again, and may shorten it.
    ResentAcquireSetsTheTtl,
    /// A ttl is cut to whole seconds.
    CutsTtls,
    /// Keys expire 30 ms too late.
    ExpiresLate,
    /// Keys have no ttl.
    NeverExpires,
    /// A key of another type counts as held.
    AnotherTypeIsHeld,
    /// An extension does not compare the token.
    ExtendsAnyToken,
    /// An extension sets keys that are gone.
    ExtensionSetsKeys,
    /// An extension sets the ttl even if that shortens it.
    ExtensionShortens,
    /// An extension of several keys extends those that are ours, though others are not.
    ExtendsKeysOneByOne,
    /// An extension that finds no key is granted.
    ExtensionIsAlwaysGranted,
    /// A release does not compare the token.
    ReleasesAnyToken,
    /// A release deletes the first of several keys.
    ReleasesTheFirstKey,
    /// A release deletes nothing unless all keys are ours.
    ReleasesAllOrNothing,
    /// A release that finds no key is granted.
    ReleaseIsAlwaysGranted,
    /// A connection that promises to keep calls in order does not.
    Reorders,
    /// A node that lacks an ability ignores options that need it, or claims success.
    IgnoresItsLimits,
    /// A fenced grant returns the key's number and does not raise it.
    GrantKeepsTheNumber,
    /// A fenced acquire that comes twice gives two numbers.
    ResentAcquireCounts,
    /// The fencing hint is ignored.
    IgnoresTheHint,
    /// The fencing hint counts only where there is no number yet.
    HintForNewNumbersOnly,
    /// Of several keys, only the number of the first one counts.
    CountsTheFirstKey,
    /// After the last number comes the first one.
    NumbersWrap,
    /// Numbers expire together with their lock.
    NumbersExpire,
    /// A raise does not check the key.
    RaisesWithoutTheKey,
    /// A raise may lower the number.
    RaiseLowers,
    /// A fenced release does not raise the number.
    ReleaseDoesNotRaise,
    /// A fenced release may lower the number.
    ReleaseLowers,
    /// The restart guard accepts the epoch of another server.
    AcceptsAnyEpoch,
    /// A strict restart guard counts the uptime as a part of the quarantine.
    CountsTheUptime,
    /// A quarantine lasts a quarter of what it should.
    QuarantineIsShort,
    /// The acquire that begins a quarantine is carried out.
    GrantsBeforeTheQuarantine,
    /// A quarantined node refuses instead of not voting.
    QuarantineRefuses,
    /// A quarantined node does not recognise a lock that it has.
    QuarantineHidesItsLocks,
    /// A watch is never notified.
    NeverPushes,
    /// A watch reports every key as free.
    EveryWatchedKeyIsFree,
    /// A new entry is put in front of the wait queue.
    JoinsInFront,
    /// A refresh moves its entry to the end.
    RefreshGoesToTheEnd,
    /// An entry that is not refreshed stays in the wait queue.
    EntriesNeverExpire,
    /// A lock key without an expiry counts as held.
    KeysWithoutExpiryAreHeld,
    /// A process that leaves does not take the other entry with it.
    LeavesAlone,
    /// The key of an entry that has left stays.
    LeaveKeepsTheEntrysKey,
    /// The waiters hint is always no.
    NobodyWaits,
}
