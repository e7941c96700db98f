//! Values with an expiry, and the commands that the operations are made of.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use quorate_core::backend::Claim;
use quorate_core::{BackendError, BackendErrorKind};

/// What is at a key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Value {
    /// A string: a token, or what another program wrote.
    String(Vec<u8>),
    /// A value of another type, which no operation of a lock can read.
    List,
    /// An ordered set: the members and their scores. Wait queues are made of two.
    OrderedSet(BTreeMap<Vec<u8>, u64>),
}

/// The data of a node.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    entries: BTreeMap<Vec<u8>, Entry>,
    /// The keys that were written since the last look.
    changes: Vec<Vec<u8>>,
    /// The claims that set free keys since the last look.
    grants: Vec<Claim>,
    /// The zero of the times that it stores.
    origin: Instant,
    /// What the node's own clock reads.
    pub(crate) now: Instant,
}

#[derive(Clone, Debug)]
struct Entry {
    value: Value,
    /// The entry is there while `now < end`.
    end: Option<Instant>,
}

impl Store {
    pub(crate) fn new(origin: Instant) -> Self {
        let (entries, changes, grants) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { entries, changes, grants, origin, now: origin }
    }

    /// `GET`: the string at a key.
    pub(crate) fn string(&self, key: &[u8]) -> Result<Option<&[u8]>, BackendError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(string)) => Ok(Some(string)),
            Some(Value::List | Value::OrderedSet(_)) => Err(wrong_type()),
        }
    }

    /// The ordered set at a key. A missing one is empty.
    pub(super) fn set(&self, key: &[u8]) -> Result<BTreeMap<Vec<u8>, u64>, BackendError> {
        match self.get(key) {
            None => Ok(BTreeMap::new()),
            Some(Value::OrderedSet(set)) => Ok(set.clone()),
            Some(Value::String(_) | Value::List) => Err(wrong_type()),
        }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&Value> {
        let is_there = |entry: &&Entry| entry.end.is_none_or(|end| self.now < end);
        Some(&self.entries.get(key).filter(is_there)?.value)
    }

    /// `PTTL`: how long the key lives; `None` if it is not there or does not expire.
    pub(crate) fn time_left(&self, key: &[u8]) -> Option<Duration> {
        let left = self.entries.get(key)?.end?.saturating_duration_since(self.now);
        (!left.is_zero()).then_some(left)
    }

    pub(crate) fn end_of(&self, key: &[u8]) -> Option<Instant> {
        self.entries.get(key)?.end
    }

    /// `PEXPIRE`.
    pub(super) fn expire_at(&mut self, key: &[u8], end: Instant) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.end = Some(end);
            self.note_change(key);
        }
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

    pub(crate) fn keys(&self) -> Vec<Vec<u8>> {
        self.entries.keys().filter(|key| self.get(key).is_some()).cloned().collect()
    }

    /// Removes everything.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.changes.clear();
    }

    /// The store's time in milliseconds.
    pub(super) fn millis(&self) -> u64 {
        let elapsed = self.now.saturating_duration_since(self.origin).as_millis();
        u64::try_from(elapsed).unwrap_or(u64::MAX)
    }

    /// The moment at which so many milliseconds of the store's time have passed.
    pub(super) fn moment(&self, millis: u64) -> Instant {
        self.origin + Duration::from_millis(millis)
    }

    pub(crate) fn note_change(&mut self, key: &[u8]) {
        self.changes.push(key.to_vec());
    }

    /// The keys that were written since the last call.
    pub(crate) fn take_changes(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.changes)
    }

    pub(super) fn note_grant(&mut self, claim: &Claim) {
        self.grants.push(claim.clone());
    }

    /// The claims that set free keys since the last call.
    pub(crate) fn take_grants(&mut self) -> Vec<Claim> {
        std::mem::take(&mut self.grants)
    }
}

pub(super) fn wrong_type() -> BackendError {
    let text = "WRONGTYPE the key is not a lock of quorate: another program has stored it";
    BackendError::new(BackendErrorKind::WrongType, text)
}
