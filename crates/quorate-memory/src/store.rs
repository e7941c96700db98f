//! What a node keeps: values with an end, and the protocol's operations on them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use quorate_core::protocol::fence;
use quorate_core::{
    BackendError, Claim, FenceHint, FenceVote, FencingToken, Holder, Key, Sighting, Vote,
};

mod flaw;
pub(crate) mod guarded;
mod queued;

pub use self::flaw::Flaw;

/// What is at a key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Value {
    /// A string: a token, or what another program wrote.
    String(Vec<u8>),
    /// A value of another type, on which every command of the protocol fails.
    List,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    entries: BTreeMap<Vec<u8>, Entry>,
    /// Keys that have changed since somebody asked.
    changes: Vec<Vec<u8>>,
    /// Claims that were given free keys since somebody asked; `None` if nobody ever will.
    taken: Option<Vec<Claim>>,
    /// What it gets wrong.
    pub(crate) flaw: Option<Flaw>,
}

#[derive(Clone, Debug)]
struct Entry {
    value: Value,
    /// The entry is there while `now < end`.
    end: Option<Instant>,
}

impl Entry {
    fn is_alive(&self, now: Instant) -> bool {
        self.end.is_none_or(|end| now < end)
    }
}

impl Store {
    /// One key: `SET NX PX`, and a look for our own token. Several: the script.
    pub(crate) fn acquire(&mut self, claim: &Claim, now: Instant) -> Result<Vote, BackendError> {
        for key in claim.keys() {
            match self.get(key.as_bytes(), now) {
                None => {}
                Some(Value::String(_)) if self.has(Flaw::GrantsTakenKeys) => {}
                Some(Value::String(held))
                    if held == claim.token().as_bytes() && !self.has(Flaw::RefusesItsOwnToken) => {}
                Some(Value::String(_)) if self.has(Flaw::SetsTheFreeKeysOfARefusedClaim) => {
                    self.set_free(claim, self.end(claim, now), now);
                    return Ok(Vote::Refused);
                }
                Some(Value::String(_)) => return Ok(Vote::Refused),
                Some(Value::List) if self.has(Flaw::AnotherTypeIsHeld) => return Ok(Vote::Refused),
                Some(Value::List) => return Err(wrong_type()),
            }
        }
        if self.has(Flaw::GrantsTakenKeys) || self.has(Flaw::ResentAcquireSetsTheTtl) {
            claim.keys().iter().for_each(|key| self.remove(key.as_bytes()));
        }
        let is_new = self.set_free(claim, self.end(claim, now), now);
        if let Some(taken) = self.taken.as_mut().filter(|_| is_new) {
            taken.push(claim.clone());
        }
        Ok(Vote::Granted)
    }

    /// Sets those of the keys that are free, and tells whether there was one.
    fn set_free(&mut self, claim: &Claim, end: Option<Instant>, now: Instant) -> bool {
        let mut is_new = false;
        for key in claim.keys() {
            if self.get(key.as_bytes(), now).is_none() {
                let token = Value::String(claim.token().as_bytes().to_vec());
                self.put(key.as_bytes(), token, end);
                is_new = true;
            }
        }
        is_new
    }

    /// When keys expire that are set now.
    fn end(&self, claim: &Claim, now: Instant) -> Option<Instant> {
        let ttl = claim.ttl().as_duration();
        match self.flaw {
            Some(Flaw::CutsTtls) => Some(now + Duration::from_secs(ttl.as_secs())),
            Some(Flaw::ExpiresLate) => Some(now + ttl + Duration::from_millis(30)),
            Some(Flaw::NeverExpires) => None,
            _ => Some(now + ttl),
        }
    }

    pub(crate) fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    pub(crate) fn extend(&mut self, claim: &Claim, now: Instant) -> Result<Vote, BackendError> {
        let end = self.end(claim, now);
        for key in claim.keys() {
            match self.get(key.as_bytes(), now) {
                Some(Value::String(held)) if held == claim.token().as_bytes() => {}
                Some(Value::String(_)) if self.has(Flaw::ExtendsAnyToken) => {}
                Some(Value::List) => return Err(wrong_type()),
                None if self.has(Flaw::ExtensionSetsKeys) => {
                    self.set_free(claim, end, now);
                }
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

    /// Puts the end of a key off, if it would be sooner.
    fn prolong(&mut self, key: &Key, end: Option<Instant>) {
        let shortens = self.has(Flaw::ExtensionShortens);
        if let Some(entry) = self.entries.get_mut(key.as_bytes())
            && (shortens || entry.end.is_none_or(|before| end.is_none_or(|end| before < end)))
        {
            entry.end = end;
            self.note_change(key.as_bytes());
        }
    }

    pub(crate) fn release(&mut self, claim: &Claim, now: Instant) -> Vote {
        let any = self.has(Flaw::ReleasesAnyToken);
        let is_ours = |key: &&Key| match self.get(key.as_bytes(), now) {
            Some(Value::String(held)) => any || held == claim.token().as_bytes(),
            _ => false,
        };
        let ours: Vec<&Key> = claim.keys().iter().filter(is_ours).collect();
        let is_all = ours.len() == claim.keys().len();
        let deleted = match self.flaw {
            Some(Flaw::ReleasesTheFirstKey) => &ours[..ours.len().min(1)],
            Some(Flaw::ReleasesAllOrNothing) if !is_all => &[],
            _ => &ours[..],
        };
        deleted.iter().for_each(|key| self.remove(key.as_bytes()));
        if is_all || self.has(Flaw::ReleaseIsAlwaysGranted) { Vote::Granted } else { Vote::Refused }
    }

    pub(crate) fn fence_acquire(
        &mut self,
        claim: &Claim,
        hint: FenceHint,
        now: Instant,
    ) -> Result<FenceVote, BackendError> {
        let mut ours = 0;
        for key in claim.keys() {
            match self.get(key.as_bytes(), now) {
                None => {}
                Some(Value::String(held)) if held == claim.token().as_bytes() => ours += 1,
                Some(Value::String(_)) => return Ok(FenceVote::Refused),
                Some(Value::List) => return Err(wrong_type()),
            }
        }
        let mut highest = 0;
        for key in claim.keys() {
            highest = highest.max(self.number(key, now)?);
            if self.has(Flaw::CountsTheFirstKey) {
                break;
            }
        }
        let is_resent = ours == claim.keys().len() && !self.has(Flaw::ResentAcquireCounts);
        let number = match FencingToken::new(highest).filter(|_| is_resent) {
            Some(number) => number,
            None => {
                let next = match self.flaw {
                    Some(Flaw::GrantKeepsTheNumber) if highest > 0 => hint.grant_after(highest - 1),
                    Some(Flaw::IgnoresTheHint) => FencingToken::new(highest + 1),
                    Some(Flaw::HintForNewNumbersOnly) if highest > 0 => {
                        FencingToken::new(highest + 1)
                    }
                    Some(Flaw::NumbersWrap) => {
                        hint.grant_after(highest).or_else(|| FencingToken::new(1))
                    }
                    _ => hint.grant_after(highest),
                };
                let next = next.ok_or_else(|| fence::error("no number is left"))?;
                self.acquire(claim, now)?;
                next
            }
        };
        self.put_numbers(claim, number);
        Ok(FenceVote::Granted(number))
    }

    pub(crate) fn raise(
        &mut self,
        claim: &Claim,
        number: FencingToken,
        now: Instant,
    ) -> Result<Vote, BackendError> {
        for key in claim.keys() {
            match self.get(key.as_bytes(), now) {
                Some(Value::String(held)) if held == claim.token().as_bytes() => {}
                Some(Value::List) => return Err(wrong_type()),
                _ if self.has(Flaw::RaisesWithoutTheKey) => {}
                _ => return Ok(Vote::Refused),
            }
        }
        for key in claim.keys() {
            if self.number(key, now)? > number.get() && !self.has(Flaw::RaiseLowers) {
                return Ok(Vote::Refused);
            }
        }
        self.put_numbers(claim, number);
        Ok(Vote::Granted)
    }

    pub(crate) fn fence_release(
        &mut self,
        claim: &Claim,
        number: FencingToken,
        now: Instant,
    ) -> Vote {
        for key in claim.keys() {
            let held = self.get(key.as_bytes(), now);
            let ours =
                matches!(held, Some(Value::String(held)) if held == claim.token().as_bytes());
            let raises = match self.flaw {
                Some(Flaw::ReleaseDoesNotRaise) => false,
                Some(Flaw::ReleaseLowers) => true,
                _ => self.number(key, now).is_ok_and(|before| before < number.get()),
            };
            if ours && raises {
                self.put_number(key, number);
            }
        }
        self.release(claim, now)
    }

    /// The number of a key; zero if there is none yet.
    fn number(&self, key: &Key, now: Instant) -> Result<u64, BackendError> {
        match self.get(fence::counter(key).as_bytes(), now) {
            None => Ok(0),
            Some(Value::List) => Err(wrong_type()),
            Some(Value::String(digits)) => {
                let parsed = std::str::from_utf8(digits).ok().filter(|digits| {
                    digits.len() <= 16 && digits.bytes().all(|byte| byte.is_ascii_digit())
                });
                let number = parsed.and_then(|digits| digits.parse().ok());
                number
                    .filter(|number| *number <= FencingToken::MAX.get())
                    .ok_or_else(|| fence::error("not a number"))
            }
        }
    }

    fn put_numbers(&mut self, claim: &Claim, number: FencingToken) {
        for key in claim.keys() {
            self.put_number(key, number);
        }
    }

    fn put_number(&mut self, key: &Key, number: FencingToken) {
        let digits = Value::String(number.to_string().into_bytes());
        let end = self.end_of(key.as_bytes()).filter(|_| self.has(Flaw::NumbersExpire));
        self.put(fence::counter(key).as_bytes(), digits, end);
    }

    pub(crate) fn inspect(
        &self,
        key: &Key,
        now: Instant,
    ) -> Result<Option<Sighting>, BackendError> {
        let key = key.as_bytes();
        match self.get(key, now) {
            None => Ok(None),
            Some(Value::String(held)) => {
                let holder = Holder::new(held.as_slice());
                Ok(Some(Sighting::new(holder, self.time_left(key, now))))
            }
            Some(Value::List) => Err(wrong_type()),
        }
    }

    pub(crate) fn get(&self, key: &[u8], now: Instant) -> Option<&Value> {
        let entry = self.entries.get(key).filter(|entry| entry.is_alive(now))?;
        Some(&entry.value)
    }

    pub(crate) fn time_left(&self, key: &[u8], now: Instant) -> Option<Duration> {
        let left = self.entries.get(key)?.end?.saturating_duration_since(now);
        (!left.is_zero()).then_some(left)
    }

    pub(crate) fn keys(&self, now: Instant) -> Vec<Vec<u8>> {
        let alive = self.entries.iter().filter(|(_, entry)| entry.is_alive(now));
        alive.map(|(key, _)| key.clone()).collect()
    }

    pub(crate) fn put(&mut self, key: &[u8], value: Value, end: Option<Instant>) {
        self.entries.insert(key.to_vec(), Entry { value, end });
        self.note_change(key);
    }

    pub(crate) fn remove(&mut self, key: &[u8]) {
        if self.entries.remove(key).is_some() {
            self.note_change(key);
        }
    }

    pub(crate) fn end_of(&self, key: &[u8]) -> Option<Instant> {
        self.entries.get(key)?.end
    }

    pub(crate) fn note_change(&mut self, key: &[u8]) {
        self.changes.push(key.to_vec());
    }

    pub(crate) fn take_changes(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.changes)
    }

    /// Keeps in mind from now on who was given free keys.
    pub(crate) fn note_taken(&mut self) {
        self.taken.get_or_insert_default();
    }

    /// Who was given free keys, once.
    pub(crate) fn take_taken(&mut self) -> Vec<Claim> {
        self.taken.as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub(crate) fn flush(&mut self) {
        for key in std::mem::take(&mut self.entries).into_keys() {
            self.note_change(&key);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }
}

pub(crate) fn wrong_type() -> BackendError {
    BackendError::from_reply("WRONGTYPE Operation against a key holding the wrong kind of value")
}
