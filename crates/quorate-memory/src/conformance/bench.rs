//! What a case works with: names, claims and the backend under test.

use std::time::{Duration, Instant};

use quorate_core::backend::{
    AcquireOptions, Capabilities, ExtendOptions, LockBackend, ReleaseOptions,
};
use quorate_core::{BackendError, BackendErrorKind, Claim, Key, Resource, Token, Ttl, Vote};

use super::{Testbed, ensure};
use crate::keys;
use crate::rng::SplitMix64;

/// Not whole seconds: a node that cuts them off would expire keys too early.
pub(super) const TTL: Duration = Duration::from_millis(60_900);

/// How far the clocks of the node and of this process may be apart at the end of a case. Half of what
/// cutting off the last second would cost.
pub(super) const GRACE: Duration = Duration::from_millis(450);

pub(super) type Checked = Result<(), String>;

/// One case: three names and any number of tokens of its own.
pub(super) struct Bench<'a> {
    pub(super) testbed: &'a dyn Testbed,
    pub(super) backend: &'a dyn LockBackend,
    number: usize,
    /// When the case began. Every key of the case was set later.
    begun: Instant,
}

impl<'a> Bench<'a> {
    pub(super) fn new(
        testbed: &'a dyn Testbed,
        backend: &'a dyn LockBackend,
        number: usize,
    ) -> Self {
        Self { testbed, backend, number, begun: Instant::now() }
    }

    pub(super) fn can(&self, abilities: Capabilities) -> bool {
        self.backend.capabilities().contains(abilities)
    }

    /// Whether this can be what is left of `ttl` by now, however slow the machine is.
    pub(super) fn is_left(&self, left: Duration, ttl: Duration) -> bool {
        left <= ttl && left + GRACE + self.begun.elapsed() > ttl
    }

    pub(super) fn key(&self, name: u8) -> Result<Key, String> {
        let name = format!("quorate:conformance:{}:{}", self.number, char::from(name));
        key(name.as_bytes())
    }

    pub(super) fn claim(&self, names: &[u8], holder: u64) -> Result<Claim, String> {
        let keys: Result<Vec<Key>, String> = names.iter().map(|name| self.key(*name)).collect();
        claim(keys?, holder)
    }

    pub(super) async fn acquire(&self, claim: &Claim) -> Result<Vote, BackendError> {
        Ok(self.backend.acquire(claim, AcquireOptions::default()).await?.vote)
    }

    pub(super) async fn extend(&self, claim: &Claim) -> Result<Vote, BackendError> {
        Ok(self.backend.extend(claim, ExtendOptions::default()).await?.vote)
    }

    pub(super) async fn release(&self, claim: &Claim) -> Result<Vote, BackendError> {
        Ok(self.backend.release(claim, ReleaseOptions::default()).await?.vote)
    }

    pub(super) async fn must_acquire(&self, claim: &Claim) -> Checked {
        voted("acquire", self.acquire(claim).await, Vote::Granted)
    }

    pub(super) async fn must_release(&self, claim: &Claim) -> Checked {
        voted("release", self.release(claim).await, Vote::Granted)
    }

    async fn value(&self, name: u8) -> Result<Option<Vec<u8>>, String> {
        Ok(self.testbed.value(self.key(name)?.as_bytes()).await)
    }

    pub(super) async fn is_there(&self, name: u8) -> Result<bool, String> {
        Ok(self.value(name).await?.is_some())
    }

    pub(super) async fn time_left(&self, name: u8) -> Result<Duration, String> {
        let left = self.testbed.time_left(self.key(name)?.as_bytes()).await;
        left.ok_or_else(|| "the key is not there, or does not expire".to_owned())
    }

    /// Checks that a key holds the token of `claim`.
    pub(super) async fn must_hold(&self, name: u8, claim: &Claim) -> Checked {
        let value = self.value(name).await?;
        let is_ours = value.as_deref() == Some(claim.token().as_bytes());
        ensure!(is_ours, "{} does not hold the token of its holder", self.key(name)?);
        Ok(())
    }

    /// Checks that keys were set in this case, for [`TTL`].
    pub(super) async fn must_live(&self, names: &[u8]) -> Checked {
        for name in names {
            let left = self.time_left(*name).await?;
            ensure!(self.is_left(left, TTL), "of {TTL:?}, {left:?} are left");
        }
        Ok(())
    }

    pub(super) async fn expire(&self, name: u8) -> Checked {
        self.testbed.expire(self.key(name)?.as_bytes()).await;
        Ok(())
    }

    /// Puts a value that is no lock in place of what is there; `false` if the store has no such values.
    pub(super) async fn put_list(&self, key: &[u8]) -> bool {
        let has = self.testbed.has_other_values();
        if has {
            self.testbed.expire(key).await;
            self.testbed.put_list(key).await;
        }
        has
    }

    /// Removes the keys of the case.
    pub(super) async fn clear(&self) {
        for key in b"abc".iter().filter_map(|name| self.key(*name).ok()) {
            for own in [key.as_bytes(), &keys::waiters(&key), &keys::seen(&key)] {
                self.testbed.expire(own).await;
            }
        }
    }

    /// Removes what outlives a lock: epoch, quarantine and fencing numbers.
    pub(super) async fn clear_all(&self) {
        self.clear().await;
        for key in b"abc".iter().filter_map(|name| self.key(*name).ok()) {
            self.testbed.expire(&keys::counter(&key)).await;
        }
        for key in [keys::EPOCH, keys::QUARANTINE] {
            self.testbed.expire(key.as_bytes()).await;
        }
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
    Ok(Claim::new(keys, token.map_err(text)?, ttl(TTL)?))
}

pub(super) fn ttl(time: Duration) -> Result<Ttl, String> {
    Ttl::try_from(time).map_err(text)
}

pub(super) fn text(error: impl ToString) -> String {
    error.to_string()
}

pub(super) fn voted(what: &str, seen: Result<Vote, BackendError>, expected: Vote) -> Checked {
    match seen {
        Ok(vote) if vote == expected => Ok(()),
        seen => Err(format!("{what}: {seen:?} instead of {expected:?}")),
    }
}

pub(super) fn failed<T: std::fmt::Debug>(
    what: &str,
    seen: Result<T, BackendError>,
    expected: BackendErrorKind,
) -> Checked {
    match seen {
        Err(error) if error.kind() == expected => Ok(()),
        seen => Err(format!("{what}: {seen:?} instead of an error of kind {expected:?}")),
    }
}
