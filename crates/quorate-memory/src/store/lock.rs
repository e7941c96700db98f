//! The operations on a plain lock.

use std::time::{Duration, Instant};

use quorate_core::backend::{Holder, Sighting};
use quorate_core::{BackendError, Claim, Key, Vote};

use super::entries::{Store, Value};
use super::flaw::Flaw;

impl Store {
    /// One key: `SET NX PX`, which refuses whatever is there. Several keys: the script.
    pub(crate) fn acquire(&mut self, claim: &Claim, now: Instant) -> Result<Vote, BackendError> {
        let [key] = claim.keys() else { return self.acquire_all(claim, now) };
        if self.has(Flaw::GrantsHeldKeys) {
            self.remove(key.as_bytes());
        }
        Ok(if self.set_free(claim, now) { Vote::Granted } else { Vote::Refused })
    }

    /// The script, which grants what is ours already and leaves its ttl.
    pub(super) fn acquire_all(
        &mut self,
        claim: &Claim,
        now: Instant,
    ) -> Result<Vote, BackendError> {
        if self.ours(claim, now)?.is_none() {
            if self.has(Flaw::SetsTheFreeKeysOfARefusedClaim) {
                self.set_free(claim, now);
            }
            return Ok(Vote::Refused);
        }
        if self.has(Flaw::ResentAcquireSetsTheTtl) {
            claim.keys().iter().for_each(|key| self.remove(key.as_bytes()));
        }
        self.set_free(claim, now);
        Ok(Vote::Granted)
    }

    /// How many keys of the claim are ours; `None` if another token holds one.
    pub(super) fn ours(&self, claim: &Claim, now: Instant) -> Result<Option<usize>, BackendError> {
        let mut ours = 0;
        for key in claim.keys() {
            match self.string(key.as_bytes(), now) {
                Ok(None) => {}
                Ok(Some(held)) if held == claim.token().as_bytes() => {
                    if self.has(Flaw::RefusesItsOwnToken) {
                        return Ok(None);
                    }
                    ours += 1;
                }
                Err(error) if !self.has(Flaw::AnotherTypeIsHeld) => return Err(error),
                Ok(Some(_)) | Err(_) => return Ok(None),
            }
        }
        Ok(Some(ours))
    }

    /// Sets the free keys of the claim. Returns whether there was one.
    fn set_free(&mut self, claim: &Claim, now: Instant) -> bool {
        let end = self.end(claim, now);
        let is_free = |key: &&Key| self.get(key.as_bytes(), now).is_none();
        let free: Vec<&Key> = claim.keys().iter().filter(is_free).collect();
        for key in &free {
            let token = Value::String(claim.token().as_bytes().to_vec());
            self.put(key.as_bytes(), token, end);
        }
        if !free.is_empty() {
            self.note_grant(claim);
        }
        !free.is_empty()
    }

    /// When a key that is set now expires.
    fn end(&self, claim: &Claim, now: Instant) -> Option<Instant> {
        let ttl = claim.ttl().as_duration();
        match self.flaw {
            Some(Flaw::CutsTtls) => Some(now + Duration::from_secs(ttl.as_secs())),
            Some(Flaw::ExpiresLate) => Some(now + ttl + Duration::from_millis(30)),
            Some(Flaw::NeverExpires) => None,
            _ => Some(now + ttl),
        }
    }

    pub(crate) fn extend(&mut self, claim: &Claim, now: Instant) -> Result<Vote, BackendError> {
        let end = self.end(claim, now);
        for key in claim.keys() {
            match self.string(key.as_bytes(), now)? {
                Some(held) if held == claim.token().as_bytes() => {}
                Some(_) if self.has(Flaw::ExtendsAnyToken) => {}
                None if self.has(Flaw::ExtensionSetsKeys) => drop(self.set_free(claim, now)),
                None if self.has(Flaw::ExtensionIsAlwaysGranted) => {}
                _ => return Ok(Vote::Refused),
            }
            if self.has(Flaw::ExtendsKeysOneByOne) {
                self.prolong(key, end);
            }
        }
        claim.keys().iter().for_each(|key| self.prolong(key, end));
        Ok(Vote::Granted)
    }

    /// Lets a key expire at `end`, unless it expires later than that.
    fn prolong(&mut self, key: &Key, end: Option<Instant>) {
        let before = self.end_of(key.as_bytes());
        let is_later = end.is_none_or(|end| before.is_none_or(|before| before < end));
        if is_later || self.has(Flaw::ExtensionShortens) {
            self.expire_at(key.as_bytes(), end);
        }
    }

    /// Deletes the keys that are ours. A key of another type is not.
    pub(crate) fn release(&mut self, claim: &Claim, now: Instant) -> Vote {
        let ours: Vec<&Key> =
            claim.keys().iter().filter(|key| self.is_ours(key, claim, now)).collect();
        let is_all = ours.len() == claim.keys().len();
        let deleted = match self.flaw {
            Some(Flaw::ReleasesTheFirstKey) => &ours[..ours.len().min(1)],
            Some(Flaw::ReleasesAllOrNothing) if !is_all => &[],
            _ => &ours[..],
        };
        deleted.iter().for_each(|key| self.remove(key.as_bytes()));
        if is_all || self.has(Flaw::ReleaseIsAlwaysGranted) { Vote::Granted } else { Vote::Refused }
    }

    pub(super) fn is_ours(&self, key: &Key, claim: &Claim, now: Instant) -> bool {
        let held = self.string(key.as_bytes(), now).ok().flatten();
        held.is_some_and(|held| {
            held == claim.token().as_bytes() || self.has(Flaw::ReleasesAnyToken)
        })
    }

    pub(crate) fn inspect(
        &self,
        key: &Key,
        now: Instant,
    ) -> Result<Option<Sighting>, BackendError> {
        let held = self.string(key.as_bytes(), now)?;
        let time_left = self.time_left(key.as_bytes(), now);
        Ok(held.map(|held| Sighting::new(Holder::new(held), time_left)))
    }
}
