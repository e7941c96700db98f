//! What a node keeps: values with an end, and the protocol's operations on them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use quorate_core::protocol::fence;
use quorate_core::{
    BackendError, Claim, FenceHint, FenceVote, FencingToken, Holder, Key, Sighting, Vote,
};

pub(crate) mod guarded;
mod queued;

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
                Some(Value::String(held)) if held == claim.token().as_bytes() => {}
                Some(Value::String(_)) => return Ok(Vote::Refused),
                Some(Value::List) => return Err(wrong_type()),
            }
        }
        let end = now + claim.ttl().as_duration();
        let mut is_new = false;
        for key in claim.keys() {
            if self.get(key.as_bytes(), now).is_none() {
                let token = Value::String(claim.token().as_bytes().to_vec());
                self.put(key.as_bytes(), token, Some(end));
                is_new = true;
            }
        }
        if let Some(taken) = self.taken.as_mut().filter(|_| is_new) {
            taken.push(claim.clone());
        }
        Ok(Vote::Granted)
    }

    pub(crate) fn extend(&mut self, claim: &Claim, now: Instant) -> Result<Vote, BackendError> {
        for key in claim.keys() {
            match self.get(key.as_bytes(), now) {
                Some(Value::String(held)) if held == claim.token().as_bytes() => {}
                Some(Value::List) => return Err(wrong_type()),
                _ => return Ok(Vote::Refused),
            }
        }
        let end = now + claim.ttl().as_duration();
        for key in claim.keys() {
            if let Some(entry) = self.entries.get_mut(key.as_bytes())
                && entry.end.is_none_or(|before| before < end)
            {
                entry.end = Some(end);
                self.note_change(key.as_bytes());
            }
        }
        Ok(Vote::Granted)
    }

    pub(crate) fn release(&mut self, claim: &Claim, now: Instant) -> Vote {
        let mut ours = 0;
        for key in claim.keys() {
            let held = self.get(key.as_bytes(), now);
            if matches!(held, Some(Value::String(held)) if held == claim.token().as_bytes()) {
                self.remove(key.as_bytes());
                ours += 1;
            }
        }
        if ours == claim.keys().len() { Vote::Granted } else { Vote::Refused }
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
        }
        let number = match FencingToken::new(highest).filter(|_| ours == claim.keys().len()) {
            Some(number) => number,
            None => {
                let next = hint.grant_after(highest);
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
                _ => return Ok(Vote::Refused),
            }
        }
        for key in claim.keys() {
            if self.number(key, now)? > number.get() {
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
            if ours && self.number(key, now).is_ok_and(|before| before < number.get()) {
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
        self.put(fence::counter(key).as_bytes(), digits, None);
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
