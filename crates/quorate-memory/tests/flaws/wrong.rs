//! Wrong backends over a right node.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{Either, select};
use quorate_core::backend::{
    AcquireOptions, Asked, Call, CallReply, CallResult, Capabilities, Choice, Claim, Entry,
    ExtendOptions, Holder, KeyState, Leaves, LockBackend, Mode, NotSent, Operation, Refreshed,
    ReleaseOptions, Reply, Revoke, Ttl, Vote, Waiters, ask,
};
use quorate_core::resource::{Key, Token};
use quorate_core::{BackendError, BackendErrorKind, FencingToken, Runtime};
use quorate_memory::conformance::Testbed as _;
use quorate_memory::{MemoryNode, Value};

use crate::list::Flaw;

mod steps;
mod testbed;

const EPOCH: &str = "quorate:guard:epoch2";
const QUARANTINE: &str = "quorate:guard:quarantine";

#[derive(Clone, Debug)]
pub(crate) struct Wrong {
    pub(crate) node: MemoryNode,
    pub(crate) flaw: Flaw,
    entries: Arc<Mutex<Vec<(Key, Entry)>>>, // The entries that were refreshed and have not left.
    is_given_up: Arc<AtomicBool>, // Whether a call was given up, and no other was begun since.
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
        match (self.flaw, claim.mode()) {
            (Flaw::ReadersExcludeReaders, Mode::Shared) => {
                return self.node.acquire(&claim.with_mode(Mode::Exclusive), options).await;
            }
            (Flaw::ReadsBesideALock, Mode::Shared) => {
                self.node.acquire(&claim, options).await?;
                return Ok(Reply::new(Vote::Granted));
            }
            (Flaw::ResentReadSetsTheTtl, Mode::Shared) => {
                let read = self.node.acquire(&claim, options).await?;
                self.node.extend(&claim, ExtendOptions::default()).await?;
                return Ok(read);
            }
            (Flaw::CountsReaders, Mode::Shared) if options.asks => {
                let mut any = ReleaseOptions::default();
                any.asks = Some(claim.keys().into());
                let asked = self.node.release(&claim, any).await?;
                let mut read = self.node.acquire(&claim, options).await?;
                read.waiters = asked.waiters;
                return Ok(read);
            }
            _ => {}
        }
        let (ours, theirs, free) = self.sorted(&claim);
        let is_several = claim.keys().len() > 1;
        let numbers = self.numbers();
        let had_epoch = self.node.get(EPOCH).is_some();
        let was_quarantined = self.node.get(QUARANTINE).is_some();
        match self.flaw {
            Flaw::GrantsHeldKeys => self.expire(&theirs),
            Flaw::SetsTheFreeKeysOfARefusedClaim if !theirs.is_empty() => {
                for key in free {
                    self.set(&only(&claim, key)).await?;
                }
            }
            Flaw::RefusesItsOwnToken if is_several && !ours.is_empty() => {
                return Ok(Reply::new(Vote::Refused));
            }
            Flaw::ResentAcquireSetsTheTtl => self.expire(&ours),
            Flaw::ResentAcquireCounts if options.fencing.is_some() => self.expire(&ours),
            Flaw::CountsTheFirstKey if is_several && options.fencing.is_some() => {
                let acquired = self.node.acquire(&only(&claim, &claim.keys()[0]), options).await?;
                self.set(&claim).await?;
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
                seen = self.set(&claim).await;
                seen.iter_mut().for_each(|acquired| acquired.number = FencingToken::new(1));
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
                seen = self.set(&claim).await;
                seen.iter_mut().for_each(|acquired| acquired.server = Some(Arc::from("server")));
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
        let is_gone = free.len() == claim.keys().len();
        if self.is(Flaw::ExtendsKeysOneByOne) {
            for key in &ours {
                self.node.extend(&only(&claim, key), options).await?;
            }
        }
        let mut extended = self.node.extend(&claim, options).await?;
        let is_granted = extended.vote == Vote::Granted;
        match self.flaw {
            Flaw::ExtendsAnyToken if free.is_empty() => extended.vote = Vote::Granted,
            Flaw::ExtensionIsAlwaysGranted if is_gone => extended.vote = Vote::Granted,
            Flaw::ExtensionSetsKeys if !is_granted => {
                extended.vote = self.set(&claim).await?.vote;
            }
            Flaw::ExtensionShortens if is_granted => {
                self.node.release(&claim, ReleaseOptions::default()).await?;
                self.set(&claim).await?;
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
                self.expire(&theirs);
                return Ok(Reply::new(Vote::Granted));
            }
            Flaw::ReleasesTheFirstKey => {
                self.node.release(&only(claim, &claim.keys()[0]), options).await?;
                return Ok(Reply::new(vote(is_all)));
            }
            Flaw::ReleasesAllOrNothing if !is_all => return Ok(Reply::new(Vote::Refused)),
            Flaw::ReaderReleasesAll if claim.mode() == Mode::Shared => {
                let released = self.node.release(claim, options).await?;
                claim.keys().iter().for_each(|key| self.node.expire(key.as_bytes()));
                return Ok(released);
            }
            Flaw::ReleaseDoesNotRaise => options.raise_to = None,
            _ => {}
        }
        let raise_to = options.raise_to;
        let mut released = self.node.release(claim, options).await?;
        match (self.flaw, raise_to) {
            (Flaw::ReleaseIsAlwaysGranted, _) => released.vote = Vote::Granted,
            (Flaw::NobodyWaits, _) if released.waiters != Waiters::Unknown => {
                released.waiters = Waiters::Nobody;
            }
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

    async fn perform(&self, call: &Call) -> CallResult {
        let operation = call.operation();
        match operation {
            Operation::Raise(claim, number) => {
                self.raise(claim, *number).await.map(CallReply::Voted)
            }
            Operation::Revoke { key, how } => self.revoke(key, how).await,
            Operation::Refresh { key, entry, locks, choice } => {
                Ok(CallReply::Refreshed(self.refresh(key, entry, locks, *choice).await?))
            }
            Operation::Leave { key, entry, also } => {
                let also = also.clone().filter(|_| !self.is(Flaw::LeavesAlone));
                self.leave(key, entry, also).await
            }
            Operation::ServerId if self.is(Flaw::ServerIdChanges) => {
                self.node.restart();
                self.ask(Operation::ServerId).await
            }
            _ => Ok(self.shown(self.ask(operation.clone()).await?)),
        }
    }

    /// Most flaws are those of the methods. Without one, and for what is watched, the node begins
    /// the calls.
    fn begin(self: Arc<Self>, call: Call, runtime: &dyn Runtime) -> Result<(), NotSent> {
        let node = Arc::new(self.node.clone());
        match (self.flaw, call.operation()) {
            (Flaw::QuestionOvertakes, Operation::Release(_, options)) if options.asks.is_some() => {
                return Arc::new(self.node.unordered()).begin(call, runtime);
            }
            (Flaw::LosesExtensions, Operation::Extend(..)) => return Ok(()),
            (Flaw::NeverPushes | Flaw::EveryWatchedKeyIsFree, Operation::Watch { .. }) => {
                runtime.spawn(Box::pin(async move { self.watch(call).await }));
                return Ok(());
            }
            (_, Operation::Watch { .. } | Operation::Look(_))
            | (Flaw::None | Flaw::QuestionOvertakes | Flaw::LosesExtensions | Flaw::Reorders, _) => {
            }
            (Flaw::GivesUpTheNextCall, operation) => {
                if self.is_given_up.swap(false, Ordering::Relaxed) {
                    return Ok(());
                }
                let asked = ask(operation.clone(), runtime.now(), |call| node.begin(call, runtime));
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
            _ => {
                runtime.spawn(Box::pin(async move {
                    let voted = match call.operation() {
                        Operation::Acquire(claim, options) => self.acquire(claim, *options).await,
                        Operation::Extend(claim, options) => self.extend(claim, *options).await,
                        Operation::Release(claim, how) => self.release(claim, how.clone()).await,
                        _ => {
                            let performed = self.perform(&call).await;
                            return call.answer(performed);
                        }
                    };
                    call.answer(voted.map(CallReply::Voted));
                }));
                return Ok(());
            }
        }
        node.begin(call, runtime)
    }
}

/// What is no method of a backend.
impl Wrong {
    /// What the right node answers.
    fn ask(&self, operation: Operation) -> Asked {
        let runtime = self.node.runtime();
        ask(operation, runtime.now(), |call| Arc::new(self.node.clone()).begin(call, &runtime))
    }

    async fn raise(&self, claim: &Claim, number: FencingToken) -> Result<Reply, BackendError> {
        let reply = self.ask(Operation::Raise(claim.clone(), number)).voted().await?;
        let (_, theirs, free) = self.sorted(claim);
        let is_ours = theirs.is_empty() && free.is_empty();
        if self.is(Flaw::RaisesWithoutTheKey) && !is_ours || self.is(Flaw::RaiseLowers) && is_ours {
            self.set_numbers(number);
            return Ok(Reply::new(Vote::Granted));
        }
        Ok(reply)
    }

    /// What a wrong node shows of an answer.
    fn shown(&self, mut answer: CallReply) -> CallReply {
        match (self.flaw, &mut answer) {
            (Flaw::InspectionHidesTheTtl, CallReply::Sighted(KeyState::Held { time_left, .. })) => {
                *time_left = None
            }
            (Flaw::HidesReaders, CallReply::Sighted(seen @ KeyState::Read { .. })) => {
                let holder = Holder::new([]);
                *seen = KeyState::Held { holder, time_left: Some(Duration::from_secs(1)) };
            }
            (Flaw::HidesTheQuarantine, CallReply::Described(told)) => told.quarantine_left = None,
            _ => {}
        }
        answer
    }

    async fn revoke(&self, key: &Key, how: &Revoke) -> CallResult {
        let token = Token::draw(|_| Ok(())).unwrap();
        let mut done = how.clone();
        match self.flaw {
            Flaw::RevokeDeletes => done.leaves = Leaves::Nothing,
            Flaw::DeleteReplaces if how.leaves == Leaves::Nothing => {
                done.leaves = Leaves::Value(token);
            }
            Flaw::RevokesAnyHolder => done.of = None,
            _ => {}
        }
        let found = self.ask(Operation::Revoke { key: key.clone(), how: done }).await?;
        let left = match &found {
            CallReply::Sighted(KeyState::Held { time_left, .. }) => Some(time_left.as_ref()),
            _ => None,
        };
        match (self.flaw, &how.leaves, left) {
            (Flaw::RevokeSetsANewTtl, Leaves::Value(token), Some(_)) => {
                let ttl = Ttl::try_from(Duration::from_secs(90)).unwrap();
                let claim = Claim::new([key.clone()], token.clone(), ttl);
                self.node.extend(&claim, ExtendOptions::default()).await?;
            }
            (Flaw::RevokesKeysWithoutExpiry, _, Some(None)) => self.node.expire(key.as_bytes()),
            _ => {}
        }
        Ok(found)
    }

    /// Never pushes, or says of each key that it is free.
    async fn watch(&self, call: Call) {
        let push = call.push();
        let mut asked = self.ask(call.operation().clone());
        let answer = (&mut asked).await;
        if self.is(Flaw::NeverPushes) {
            call.answer(answer);
            return push.given_up().await;
        }
        call.answer(answer.map(|_| CallReply::Watched(false)));
        select(pin!(asked.pushed()), pin!(push.given_up())).await;
    }

    async fn refresh(
        &self,
        key: &Key,
        entry: &Entry,
        locks: &Arc<[Key]>,
        choice: Choice,
    ) -> Result<Refreshed, BackendError> {
        let known = self.entries.lock().unwrap().clone();
        let this = (key.clone(), entry.clone());
        let is_new = !known.contains(&this);
        if is_new {
            self.entries.lock().unwrap().push(this);
        }
        let refresh = async |entry: &Entry| {
            let (key, entry, locks) = (key.clone(), entry.clone(), Arc::clone(locks));
            match self.ask(Operation::Refresh { key, entry, locks, choice }).await? {
                CallReply::Refreshed(refreshed) => Ok(refreshed),
                other => panic!("{other:?}"),
            }
        };
        match self.flaw {
            Flaw::RefreshGoesToTheEnd => {
                let (key, entry) = (key.clone(), entry.clone());
                drop(self.ask(Operation::Leave { key, entry, also: None }).await?);
            }
            Flaw::EntriesNeverExpire => {
                for (_, entry) in known.iter().filter(|(queue, _)| queue == key) {
                    refresh(entry).await?;
                }
            }
            _ => {}
        }
        let mut refreshed = refresh(entry).await?;
        let is_there = |key: &Key| self.node.get(key.as_bytes()).is_some();
        match self.flaw {
            Flaw::JoinsInFront if is_new => {
                (refreshed.predecessor, refreshed.first) = (None, entry.clone());
            }
            Flaw::PlaceIsZero => refreshed.place = 0,
            Flaw::KeysWithoutExpiryAreHeld if choice == Choice::All => {
                refreshed.held = locks.iter().rposition(is_there);
            }
            Flaw::ReportsTheFirstHeldKey if choice == Choice::All => {
                refreshed.held = locks.iter().position(is_there);
            }
            Flaw::AnyHeldKeyMeansHeld if choice == Choice::Any && locks.iter().any(is_there) => {
                (refreshed.held, refreshed.free) = (Some(0), None);
            }
            _ => {}
        }
        Ok(refreshed)
    }

    async fn leave(&self, key: &Key, entry: &Entry, also: Option<Entry>) -> CallResult {
        let is_left = |known: &Entry| known == entry || Some(known) == also.as_ref();
        self.entries.lock().unwrap().retain(|(_, known)| !is_left(known));
        let (own, also) = (entry.clone(), also.clone());
        let answer = self.ask(Operation::Leave { key: key.clone(), entry: own, also }).await?;
        if self.is(Flaw::LeaveKeepsTheKeyOfTheEntry) {
            let own = [key.as_bytes(), b":quorate:", entry.as_bytes()].concat();
            self.node.put(own, Value::String(Vec::new()));
        }
        Ok(answer)
    }
}
