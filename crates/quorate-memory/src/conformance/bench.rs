//! What a case works with: names, claims and the backend under test.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{Either, select};
use quorate_core::Runtime;
use quorate_core::backend::{
    AcquireOptions, Asked, CallReply, CallResult, Capabilities, Claim, LockBackend, Operation,
    ReleaseOptions, Ttl, Vote, ask,
};
use quorate_core::resource::{Key, Resource, Token};

use super::{Failure, Testbed};
use crate::keys;
use crate::rng::SplitMix64;

/// Far longer than a notification takes on any machine.
const LIMIT: Duration = Duration::from_secs(30);

/// Not whole seconds: a node that cuts them off would expire keys too early.
pub(super) const TTL: Duration = Duration::from_millis(60_900);

/// How far the clocks of the node and of this process may be apart at the end of a case. Half of
/// what cutting off the last second would cost.
const GRACE: Duration = Duration::from_millis(450);

pub(super) type Checked = Result<(), String>;

/// One case: three names and any number of tokens of its own.
pub(super) struct Bench<'a> {
    pub(super) testbed: &'a dyn Testbed,
    pub(super) backend: &'a Arc<dyn LockBackend>,
    pub(super) runtime: &'a Arc<dyn Runtime>,
    pub(super) number: usize,
    /// When the case started. Every key of the case was set later.
    pub(super) started: Instant,
}

impl Bench<'_> {
    pub(super) fn can(&self, abilities: Capabilities) -> bool {
        self.backend.capabilities().contains(abilities)
    }

    /// Whether this can be what is left of `ttl` by now, however slow the machine is.
    pub(super) fn is_left(&self, left: Option<Duration>, ttl: Duration) -> bool {
        let slack = GRACE + self.started.elapsed();
        left.is_some_and(|left| left <= ttl && left + slack > ttl)
    }

    pub(super) fn key(&self, name: &str) -> Result<Key, String> {
        key(format!("quorate:conformance:{}:{name}", self.number).as_bytes())
    }

    /// The keys of names of one letter each.
    pub(super) fn keys(&self, names: &str) -> Result<Vec<Key>, String> {
        names.split("").filter(|name| !name.is_empty()).map(|name| self.key(name)).collect()
    }

    pub(super) fn claim(&self, names: &str, holder: u64) -> Result<Claim, String> {
        claim(self.keys(names)?, holder)
    }

    pub(super) async fn acquire(&self, claim: &Claim) -> CallResult {
        self.begin(&acquiring(claim)).await
    }

    pub(super) async fn release(&self, claim: &Claim) -> CallResult {
        self.begin(&releasing(claim)).await
    }

    /// Waits for the push of a watch or a look.
    pub(super) async fn notified(&self, asked: Asked) -> Checked {
        match select(pin!(asked.pushed()), self.testbed.pass(LIMIT)).await {
            Either::Left(_) => Ok(()),
            Either::Right(_) => Err(format!("no notification within {LIMIT:?}")),
        }
    }

    /// Begins a call now.
    pub(super) fn begin(&self, operation: &Operation) -> Asked {
        ask(operation.clone(), self.runtime.now(), |call| {
            Arc::clone(self.backend).begin(call, self.runtime)
        })
    }

    pub(super) async fn is_there(&self, name: &str) -> Result<bool, String> {
        Ok(self.testbed.value(self.key(name)?.as_bytes()).await.is_some())
    }

    /// Runs a case on a node that keeps nothing of it, neither before nor after.
    pub(super) async fn run(
        &self,
        case: &'static str,
        check: impl Future<Output = Checked>,
    ) -> Result<(), Failure> {
        let failure = |detail| Failure { case, detail };
        self.clear().await.map_err(failure)?;
        check.await.map_err(failure)?;
        self.clear().await.map_err(failure)
    }

    /// Removes all keys of the case, and what outlives a lock: epoch, quarantine and fencing
    /// numbers.
    async fn clear(&self) -> Checked {
        for key in self.keys("abc")? {
            for own in [keys::waiters(&key), keys::seen(&key), keys::counter(&key)] {
                self.testbed.expire(&own).await;
            }
            self.testbed.expire(key.as_bytes()).await;
        }
        for key in [keys::EPOCH, keys::QUARANTINE] {
            self.testbed.expire(key.as_bytes()).await;
        }
        Ok(())
    }
}

pub(super) fn key(name: &[u8]) -> Result<Key, String> {
    Ok(Key::new(b"", &Resource::new(name).map_err(text)?))
}

/// A claim for [`TTL`] whose token follows from `holder`.
pub(super) fn claim(keys: Vec<Key>, holder: u64) -> Result<Claim, String> {
    let token = Token::draw(|bytes| {
        SplitMix64::new(holder).fill(bytes);
        Ok(())
    });
    Ok(Claim::new(keys, token.map_err(text)?, Ttl::try_from(TTL).map_err(text)?))
}

pub(super) fn text(error: impl ToString) -> String {
    error.to_string()
}

pub(super) fn acquiring(claim: &Claim) -> Operation {
    Operation::Acquire(claim.clone(), AcquireOptions::default())
}

pub(super) fn releasing(claim: &Claim) -> Operation {
    Operation::Release(claim.clone(), ReleaseOptions::default())
}

pub(super) fn is_vote(seen: &CallResult, vote: Vote) -> bool {
    matches!(seen, Ok(CallReply::Voted(reply)) if reply.vote == vote)
}

/// Fails unless a call is granted.
pub(super) async fn granted(what: &str, call: impl Future<Output = CallResult>) -> Checked {
    let seen = call.await;
    let is_granted = is_vote(&seen, Vote::Granted);
    if is_granted { Ok(()) } else { Err(format!("{what}: {seen:?} instead of a grant")) }
}
