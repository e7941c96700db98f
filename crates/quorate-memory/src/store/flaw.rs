//! Wrong nodes, which the conformance suite must notice.

/// Declares the flaws, each with its idea, and the list of all.
macro_rules! flaws {
    ($($(#[doc = $idea:literal])+ $flaw:ident,)+) => {
        /// Something that a store could get wrong. Tests of the conformance suite only.
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
    /// An acquire sets the keys without looking whether they are free (`SET` without `NX`).
    GrantsTakenKeys,
    /// An acquire of several keys sets those that are free, though one is taken.
    SetsTheFreeKeysOfARefusedClaim,
    /// An acquire that finds its own token in place is refused.
    RefusesItsOwnToken,
    /// An acquire that finds its own token in place sets the ttl again, and may shorten it.
    ResentAcquireSetsTheTtl,
    /// A ttl is cut to whole seconds.
    CutsTtls,
    /// Keys expire 30 ms too late.
    ExpiresLate,
    /// Keys have no ttl.
    NeverExpires,
    /// A key of another type is taken for a lock that somebody holds.
    AnotherTypeIsHeld,
    /// An extension does not compare the token.
    ExtendsAnyToken,
    /// An extension sets keys that are gone.
    ExtensionSetsKeys,
    /// An extension sets the ttl also if that shortens it.
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
    /// A fenced grant gives the number that the key has, and does not raise it.
    GrantKeepsTheNumber,
    /// A fenced acquire that comes twice gives two numbers.
    ResentAcquireCounts,
    /// The fencing hint is ignored.
    IgnoresTheHint,
    /// The fencing hint counts only where there is no number yet.
    HintForNewNumbersOnly,
    /// Of several keys, only the number of the first one counts.
    CountsTheFirstKey,
    /// Behind the last number comes the first one.
    NumbersWrap,
    /// Numbers expire together with their lock.
    NumbersExpire,
    /// A raise does not ask for the key.
    RaisesWithoutTheKey,
    /// A raise may lower the number.
    RaiseLowers,
    /// A fenced release does not bring the number forward.
    ReleaseDoesNotRaise,
    /// A fenced release may lower the number.
    ReleaseLowers,
    /// The restart guard accepts the epoch of another run of the node.
    AcceptsAnyEpoch,
    /// A strict restart guard counts the uptime of the node as a part of the quarantine.
    CountsTheUptime,
    /// A quarantine lasts a quarter of what it should.
    QuarantineIsShort,
    /// The acquire that begins a quarantine is carried out.
    GrantsBeforeTheQuarantine,
    /// A node in quarantine refuses, in place of saying that it does not vote.
    QuarantineRefuses,
    /// A node in quarantine does not know a lock that it has.
    QuarantineHidesItsLocks,
    /// A connection that promises to keep calls in order does not.
    Reorders,
}
