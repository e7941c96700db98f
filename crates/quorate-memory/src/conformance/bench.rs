//! What a case works with: names, claims and the backend under test.

use std::time::{Duration, Instant};

use quorate_core::backend::{AcquireOptions, Capabilities, LockBackend, ReleaseOptions};
use quorate_core::{BackendError, Claim, Key, Resource, Token, Ttl, Vote};

use super::Testbed;
use crate::keys;
use crate::rng::SplitMix64;

/// Not whole seconds: a node that cuts them off would expire keys too early.
pub(super) const TTL: Duration = Duration::from_millis(60_900);

/// How far the clocks of the node and of this process may be apart at the end of a case. Half of what
/// cutting off the last second would cost.
const GRACE: Duration = Duration::from_millis(450);

pub(super) type Checked = Result<(), String>;

/// One case: three names and any number of tokens of its own.
pub(super) struct Bench<'a> {
    pub(super) testbed: &'a dyn Testbed,
    pub(super) backend: &'a dyn LockBackend,
    pub(super) number: usize,
    /// When the case began. Every key of the case was set later.
    pub(super) begun: Instant,
}

impl Bench<'_> {
    pub(super) fn can(&self, abilities: Capabilities) -> bool {
        self.backend.capabilities().contains(abilities)
    }

    /// Whether this can be what is left of `ttl` by now, however slow the machine is.
    pub(super) fn is_left(&self, left: Option<Duration>, ttl: Duration) -> bool {
        let slack = GRACE + self.begun.elapsed();
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

    pub(super) async fn acquire(&self, claim: &Claim) -> Result<Vote, BackendError> {
        Ok(self.backend.acquire(claim, AcquireOptions::default()).await?.vote)
    }

    pub(super) async fn release(&self, claim: &Claim) -> Result<Vote, BackendError> {
        Ok(self.backend.release(claim, ReleaseOptions::default()).await?.vote)
    }

    pub(super) async fn is_there(&self, name: &str) -> Result<bool, String> {
        Ok(self.testbed.value(self.key(name)?.as_bytes()).await.is_some())
    }

    /// Runs a case on a node that keeps nothing of it, neither before nor after.
    pub(super) async fn run(&self, case: impl Future<Output = Checked>) -> Checked {
        self.clear().await?;
        case.await?;
        self.clear().await
    }

    /// Removes all keys of the case, and what outlives a lock: epoch, quarantine and fencing numbers.
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

pub(super) fn granted(what: &str, seen: Result<Vote, BackendError>) -> Checked {
    match seen {
        Ok(Vote::Granted) => Ok(()),
        seen => Err(format!("{what}: {seen:?} instead of a grant")),
    }
}
