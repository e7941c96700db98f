//! Wrong backends over a right node.

use std::future::pending;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{Either, select};
use quorate_core::backend::{
    AcquireOptions, Call, Capabilities, Claim, Description, Entry, ExtendOptions, FenceHint,
    LockBackend, NotSent, Operation, Refreshed, ReleaseOptions, Reply, Revoke, Sighting, Ttl, Vote,
    Watched, ask,
};
use quorate_core::resource::{Key, Token};
use quorate_core::{BackendError, BackendErrorKind, FencingToken, RestartGuard, Runtime};
use quorate_memory::conformance::Testbed;
use quorate_memory::{MemoryNode, Value};

/// Declares the flaws, each with its idea, and the list of all.
macro_rules! flaws {
    ($($(#[doc = $idea:literal])+ $flaw:ident,)+) => {
        /// Something that a backend gets wrong.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Flaw {
            $($(#[doc = $idea])+ $flaw,)+
        }

        impl Flaw {
            pub(crate) const ALL: &[Self] = &[$(Self::$flaw,)+];
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
    /// An acquire that finds its own token sets the ttl again, and may shorten it.
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
    /// A pool promises to keep calls in order.
    Reorders,
    /// A node without the restart guard ignores that option.
    IgnoresItsLimits,
    /// An inspection reports a key without its expiry.
    InspectionHidesTheTtl,
    /// A revoke sets the ttl of a new lock.
    RevokeSetsANewTtl,
    /// A revoke deletes the key.
    RevokeDeletes,
    /// A delete replaces the token and keeps the key.
    DeleteReplaces,
    /// A revoke replaces keys of other programs, too.
    RevokesKeysWithoutExpiry,
    /// A description does not show the quarantine.
    HidesTheQuarantine,
    /// The server id is another one with each question.
    ServerIdChanges,
    /// A fenced grant does not raise the number.
    GrantKeepsTheNumber,
    /// A fenced acquire that comes twice has two numbers.
    ResentAcquireCounts,
    /// The fencing hint is ignored.
    IgnoresTheHint,
    /// The fencing hint counts only where there is no number yet.
    HintForNewNumbersOnly,
    /// Of several keys, only the number of the first one counts.
    CountsTheFirstKey,
    /// After the last number comes the first one.
    NumbersWrap,
    /// Numbers are gone when their lock is.
    NumbersEndWithTheLock,
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
    /// A refresh reports the first lock key that is held.
    ReportsTheFirstHeldKey,
    /// A process that leaves does not take the other entry with it.
    LeavesAlone,
    /// The key of an entry that has left stays.
    LeaveKeepsTheKeyOfTheEntry,
    /// A refresh reports every entry as the first by its place.
    PlaceIsZero,
    /// The hint is always no.
    NobodyWaits,
    /// A hint goes over another connection than the release before it.
    HintOvertakes,
    /// An extension that was begun is dropped.
    LosesExtensions,
    /// The call behind one that was given up is lost.
    GivesUpTheNextCall,
}

const EPOCH: &str = "quorate:guard:epoch2";
const QUARANTINE: &str = "quorate:guard:quarantine";

/// A backend with one flaw.
#[derive(Clone, Debug)]
pub(crate) struct Wrong {
    pub(crate) node: MemoryNode,
    pub(crate) flaw: Flaw,
    /// The entries that were refreshed and have not left.
    entries: Arc<Mutex<Vec<(Key, Entry)>>>,
    /// Whether a call was given up, and no other was begun since.
    is_given_up: Arc<AtomicBool>,
}

impl Wrong {
    pub(crate) fn new(node: &MemoryNode, flaw: Flaw) -> Self {
        let node = match flaw {
            Flaw::Reorders => node.unordered(),
            Flaw::IgnoresItsLimits => node.without(Capabilities::GUARD),
            _ => node.clone(),
        };
        Self { node, flaw, entries: Arc::default(), is_given_up: Arc::default() }
    }

    fn is(&self, flaw: Flaw) -> bool {
        self.flaw == flaw
    }

    /// The keys of a claim that hold its token, a key that another token holds, and the free ones.
    fn sorted<'a>(&self, claim: &'a Claim) -> (Vec<&'a Key>, Vec<&'a Key>, Vec<&'a Key>) {
        let token = Value::String(claim.token().as_bytes().to_vec());
        let (held, free): (Vec<_>, Vec<_>) =
            claim.keys().iter().partition(|key| self.node.get(key.as_bytes()).is_some());
        let is_ours = |key: &&Key| self.node.get(key.as_bytes()).as_ref() == Some(&token);
        let (ours, theirs) = held.into_iter().partition(is_ours);
        (ours, theirs, free)
    }

    fn numbers(&self) -> Vec<(Vec<u8>, Value)> {
        let keys = self.node.keys().into_iter().filter(|key| key.starts_with(b"quorate:fence:"));
        keys.filter_map(|key| Some((key.clone(), self.node.get(key)?))).collect()
    }

    fn set_numbers(&self, number: FencingToken) {
        for (key, _) in self.numbers() {
            self.node.put(key, Value::String(number.to_string().into_bytes()));
        }
    }

    fn claim_with(&self, claim: &Claim) -> Claim {
        let ttl = claim.ttl().as_duration();
        let ttl = match self.flaw {
            Flaw::CutsTtls => Duration::from_secs(ttl.as_secs().max(1)),
            Flaw::ExpiresLate => ttl + Duration::from_millis(30),
            _ => ttl,
        };
        claim.with_ttl(Ttl::try_from(ttl).unwrap())
    }

    fn options(&self, claim: &Claim, mut options: AcquireOptions) -> AcquireOptions {
        let has_number = !self.numbers().is_empty();
        match self.flaw {
            Flaw::IgnoresItsLimits => options.guard = None,
            Flaw::IgnoresTheHint => options.fencing = options.fencing.map(|_| FenceHint::default()),
            Flaw::HintForNewNumbersOnly if has_number => {
                options.fencing = options.fencing.map(|_| FenceHint::default());
            }
            Flaw::NumbersEndWithTheLock if self.sorted(claim).2.len() == claim.keys().len() => {
                self.numbers().iter().for_each(|(key, _)| self.node.expire(key));
            }
            Flaw::CountsTheUptime => {
                options.guard = options.guard.map(|guard| RestartGuard::soft(guard.max_ttl()));
            }
            Flaw::QuarantineIsShort => {
                options.guard =
                    options.guard.map(|guard| RestartGuard::strict(guard.max_ttl() / 4));
            }
            _ => {}
        }
        options
    }
}

fn vote(is_granted: bool) -> Vote {
    if is_granted { Vote::Granted } else { Vote::Refused }
}

fn only(claim: &Claim, key: &Key) -> Claim {
    Claim::new([key.clone()], claim.token().clone(), claim.ttl())
}

#[async_trait]
impl LockBackend for Wrong {
    async fn acquire(&self, claim: &Claim, options: AcquireOptions) -> Result<Reply, BackendError> {
        let (claim, options) = (self.claim_with(claim), self.options(claim, options));
        let (ours, theirs, free) = self.sorted(&claim);
        let is_several = claim.keys().len() > 1;
        let numbers = self.numbers();
        let had_epoch = self.node.get(EPOCH).is_some();
        let was_quarantined = self.node.get(QUARANTINE).is_some();
        match self.flaw {
            Flaw::GrantsHeldKeys => theirs.iter().for_each(|key| self.node.expire(key.as_bytes())),
            Flaw::SetsTheFreeKeysOfARefusedClaim if !theirs.is_empty() => {
                for key in free {
                    self.node.acquire(&only(&claim, key), AcquireOptions::default()).await?;
                }
            }
            Flaw::RefusesItsOwnToken if is_several && !ours.is_empty() => {
                return Ok(Reply::new(Vote::Refused));
            }
            Flaw::ResentAcquireSetsTheTtl => {
                ours.iter().for_each(|key| self.node.expire(key.as_bytes()));
            }
            Flaw::ResentAcquireCounts if options.fencing.is_some() => {
                ours.iter().for_each(|key| self.node.expire(key.as_bytes()));
            }
            Flaw::CountsTheFirstKey if is_several && options.fencing.is_some() => {
                let acquired = self.node.acquire(&only(&claim, &claim.keys()[0]), options).await?;
                self.node.acquire(&claim, AcquireOptions::default()).await?;
                return Ok(acquired);
            }
            _ => {}
        }
        let mut seen = self.node.acquire(&claim, options).await;
        let kind = seen.as_ref().err().map(BackendError::kind);
        let is_granted = seen.as_ref().is_ok_and(|acquired| acquired.vote == Vote::Granted);
        match (self.flaw, kind) {
            (Flaw::NeverExpires, _) if is_granted => {
                for key in claim.keys() {
                    self.node.put(key.as_bytes(), Value::String(claim.token().as_bytes().to_vec()));
                }
            }
            (Flaw::AnotherTypeIsHeld, Some(BackendErrorKind::WrongType))
            | (Flaw::QuarantineRefuses, Some(BackendErrorKind::Quarantined)) => {
                return Ok(Reply::new(Vote::Refused));
            }
            (Flaw::GrantKeepsTheNumber, _) => {
                numbers.into_iter().for_each(|(key, number)| self.node.put(key, number));
            }
            (Flaw::NumbersWrap, Some(BackendErrorKind::Fence)) => {
                seen = self.node.acquire(&claim, AcquireOptions::default()).await;
                if let Ok(acquired) = &mut seen {
                    acquired.number = FencingToken::new(1);
                }
            }
            (Flaw::AcceptsAnyEpoch, _)
                if had_epoch && !was_quarantined && self.node.get(QUARANTINE).is_some() =>
            {
                self.node.expire(QUARANTINE);
                seen = self.node.acquire(&claim, options).await;
            }
            (Flaw::GrantsBeforeTheQuarantine, Some(BackendErrorKind::Quarantined))
                if !was_quarantined =>
            {
                seen = self.node.acquire(&claim, AcquireOptions::default()).await;
                if let Ok(acquired) = &mut seen {
                    acquired.server = Some(Arc::from("server"));
                }
            }
            (Flaw::QuarantineHidesItsLocks, None) if was_quarantined && options.guard.is_some() => {
                return Err(BackendError::new(BackendErrorKind::Quarantined, "for another 1 s"));
            }
            _ => {}
        }
        seen
    }

    async fn extend(&self, claim: &Claim, options: ExtendOptions) -> Result<Reply, BackendError> {
        let claim = self.claim_with(claim);
        let (ours, _, free) = self.sorted(&claim);
        if self.is(Flaw::ExtendsKeysOneByOne) {
            for key in &ours {
                self.node.extend(&only(&claim, key), options).await?;
            }
        }
        let mut extended = self.node.extend(&claim, options).await?;
        let is_granted = extended.vote == Vote::Granted;
        match self.flaw {
            Flaw::ExtendsAnyToken if free.is_empty() => extended.vote = Vote::Granted,
            Flaw::ExtensionIsAlwaysGranted if free.len() == claim.keys().len() => {
                extended.vote = Vote::Granted;
            }
            Flaw::ExtensionSetsKeys if !is_granted => {
                extended.vote = self.node.acquire(&claim, AcquireOptions::default()).await?.vote;
            }
            Flaw::ExtensionShortens if is_granted => {
                self.node.release(&claim, ReleaseOptions::default()).await?;
                self.node.acquire(&claim, AcquireOptions::default()).await?;
            }
            _ => {}
        }
        Ok(extended)
    }

    async fn release(
        &self,
        claim: &Claim,
        mut options: ReleaseOptions,
    ) -> Result<Reply, BackendError> {
        let (ours, theirs, _) = self.sorted(claim);
        let is_all = ours.len() == claim.keys().len();
        match self.flaw {
            Flaw::ReleasesAnyToken if !theirs.is_empty() => {
                theirs.iter().for_each(|key| self.node.expire(key.as_bytes()));
                return Ok(Reply::new(Vote::Granted));
            }
            Flaw::ReleasesTheFirstKey => {
                self.node.release(&only(claim, &claim.keys()[0]), options).await?;
                return Ok(Reply::new(vote(is_all)));
            }
            Flaw::ReleasesAllOrNothing if !is_all => return Ok(Reply::new(Vote::Refused)),
            Flaw::ReleaseDoesNotRaise => options.raise_to = None,
            _ => {}
        }
        let mut released = self.node.release(claim, options).await?;
        match (self.flaw, options.raise_to) {
            (Flaw::ReleaseIsAlwaysGranted, _) => released.vote = Vote::Granted,
            (Flaw::ReleaseLowers, Some(number)) if is_all => self.set_numbers(number),
            _ => {}
        }
        Ok(released)
    }

    fn capabilities(&self) -> Capabilities {
        match self.flaw {
            Flaw::Reorders => self.node.capabilities() | Capabilities::ORDERED,
            _ => self.node.capabilities(),
        }
    }

    async fn raise(&self, claim: &Claim, number: FencingToken) -> Result<Reply, BackendError> {
        let reply = self.node.raise(claim, number).await?;
        let (_, theirs, free) = self.sorted(claim);
        let is_ours = theirs.is_empty() && free.is_empty();
        if self.is(Flaw::RaisesWithoutTheKey) && !is_ours || self.is(Flaw::RaiseLowers) && is_ours {
            self.set_numbers(number);
            return Ok(Reply::new(Vote::Granted));
        }
        Ok(reply)
    }

    async fn inspect(&self, key: &Key) -> Result<Option<Sighting>, BackendError> {
        let mut seen = self.node.inspect(key).await?;
        if let Some(seen) = &mut seen
            && self.is(Flaw::InspectionHidesTheTtl)
        {
            seen.time_left = None;
        }
        Ok(seen)
    }

    async fn revoke(&self, key: &Key, how: &Revoke) -> Result<Option<Sighting>, BackendError> {
        let token = Token::draw(|_| Ok(())).unwrap();
        let found = match (self.flaw, how) {
            (Flaw::RevokeDeletes, _) => self.node.revoke(key, &Revoke::Delete).await,
            (Flaw::DeleteReplaces, Revoke::Delete) => {
                self.node.revoke(key, &Revoke::Replace(token)).await
            }
            _ => self.node.revoke(key, how).await,
        }?;
        match (self.flaw, how, &found) {
            (Flaw::RevokeSetsANewTtl, Revoke::Replace(token), Some(_)) => {
                let ttl = Ttl::try_from(Duration::from_secs(90)).unwrap();
                let claim = Claim::new([key.clone()], token.clone(), ttl);
                self.node.extend(&claim, ExtendOptions::default()).await?;
            }
            (Flaw::RevokesKeysWithoutExpiry, _, Some(Sighting { time_left: None, .. })) => {
                self.node.expire(key.as_bytes());
            }
            _ => {}
        }
        Ok(found)
    }

    async fn describe(&self) -> Result<Description, BackendError> {
        let mut told = self.node.describe().await?;
        if self.is(Flaw::HidesTheQuarantine) {
            told.quarantine_left = None;
        }
        Ok(told)
    }

    async fn server_id(&self) -> Result<Option<String>, BackendError> {
        if self.is(Flaw::ServerIdChanges) {
            self.node.restart();
        }
        self.node.server_id().await
    }

    async fn hint(&self, key: &Key) -> Result<bool, BackendError> {
        Ok(self.node.hint(key).await? && !self.is(Flaw::NobodyWaits))
    }

    async fn watch(&self, key: &Key, entry: Option<&Entry>) -> Result<Watched, BackendError> {
        let watched = self.node.watch(key, entry).await?;
        Ok(match self.flaw {
            Flaw::NeverPushes => Watched::new(watched.is_held(), pending()),
            Flaw::EveryWatchedKeyIsFree => Watched::new(false, watched.changed()),
            _ => watched,
        })
    }

    async fn queue_refresh(
        &self,
        key: &Key,
        entry: &Entry,
        locks: &[Key],
    ) -> Result<Refreshed, BackendError> {
        let known = self.entries.lock().unwrap().clone();
        let this = (key.clone(), entry.clone());
        let is_new = !known.contains(&this);
        if is_new {
            self.entries.lock().unwrap().push(this);
        }
        match self.flaw {
            Flaw::RefreshGoesToTheEnd => drop(self.node.queue_leave(key, entry, None).await?),
            Flaw::EntriesNeverExpire => {
                for (_, entry) in known.iter().filter(|(queue, _)| queue == key) {
                    self.node.queue_refresh(key, entry, locks).await?;
                }
            }
            _ => {}
        }
        let mut refreshed = self.node.queue_refresh(key, entry, locks).await?;
        let is_there = |key: &Key| self.node.get(key.as_bytes()).is_some();
        match self.flaw {
            Flaw::JoinsInFront if is_new => {
                (refreshed.predecessor, refreshed.first) = (None, entry.clone());
            }
            Flaw::PlaceIsZero => refreshed.place = 0,
            Flaw::KeysWithoutExpiryAreHeld => refreshed.held = locks.iter().rposition(is_there),
            Flaw::ReportsTheFirstHeldKey => refreshed.held = locks.iter().position(is_there),
            _ => {}
        }
        Ok(refreshed)
    }

    async fn queue_leave(
        &self,
        key: &Key,
        entry: &Entry,
        also: Option<&Entry>,
    ) -> Result<bool, BackendError> {
        let also = also.filter(|_| !self.is(Flaw::LeavesAlone));
        self.entries.lock().unwrap().retain(|(_, known)| known != entry && Some(known) != also);
        let is_left = self.node.queue_leave(key, entry, also).await?;
        if self.is(Flaw::LeaveKeepsTheKeyOfTheEntry) {
            let own = [key.as_bytes(), b":quorate:", entry.as_bytes()].concat();
            self.node.put(own, Value::String(Vec::new()));
        }
        Ok(is_left)
    }

    /// Most flaws are those of the methods. Here, the node begins the calls.
    fn begin(self: Arc<Self>, call: Call, runtime: &dyn Runtime) -> Result<(), NotSent> {
        let node = Arc::new(self.node.clone());
        match (self.flaw, call.operation()) {
            (Flaw::HintOvertakes, Operation::Hint { .. }) => {
                return Arc::new(self.node.unordered()).begin(call, runtime);
            }
            (Flaw::LosesExtensions, Operation::Extend(..)) => return Ok(()),
            (_, Operation::Watch { .. }) => {}
            (Flaw::GivesUpTheNextCall, operation) => {
                if self.is_given_up.swap(false, Ordering::Relaxed) {
                    return Ok(());
                }
                let (inner, asked) = ask(operation.clone(), runtime.now());
                node.begin(inner, runtime)?;
                runtime.spawn(Box::pin(async move {
                    let answered = match select(asked, pin!(call.given_up())).await {
                        Either::Left((result, _)) => Some(result),
                        Either::Right(_) => None,
                    };
                    match answered {
                        Some(result) => call.answer(result),
                        None => self.is_given_up.store(true, Ordering::Relaxed),
                    }
                }));
                return Ok(());
            }
            _ => {}
        }
        node.begin(call, runtime)
    }
}

#[async_trait]
impl Testbed for Wrong {
    fn backend(&self) -> Arc<dyn LockBackend> {
        Arc::new(self.clone())
    }

    fn runtime(&self) -> Arc<dyn Runtime> {
        Testbed::runtime(&self.node)
    }

    async fn value(&self, key: &[u8]) -> Option<Vec<u8>> {
        Testbed::value(&self.node, key).await
    }

    async fn time_left(&self, key: &[u8]) -> Option<Duration> {
        self.node.time_left(key)
    }

    async fn expire(&self, key: &[u8]) {
        self.node.expire(key);
    }

    async fn put_list(&self, key: &[u8]) {
        Testbed::put_list(&self.node, key).await;
    }

    async fn restart(&self) -> bool {
        Testbed::restart(&self.node).await
    }
}
