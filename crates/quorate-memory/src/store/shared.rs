//! Claims of readers: a key is an ordered set of tokens, and a score is when its member expires.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use quorate_core::BackendError;
use quorate_core::backend::{Claim, Holder, KeyState, Reader, Vote};
use quorate_core::resource::Key;

use super::entries::{Store, Value, wrong_type};

/// The tokens of readers, and when each expires, in milliseconds of the store.
type Scores = BTreeMap<Vec<u8>, u64>;

/// What is at the key of a lock.
pub(super) enum At<'a> {
    Free,
    /// The value of a lock, or of another program.
    Lock(&'a [u8]),
    Readers(Scores),
}

impl Store {
    /// What is at a key. An ordered set without an expiry, or whose first member is no token, is
    /// another program's (RW8).
    pub(super) fn at(&self, key: &Key, now: Instant) -> Result<At<'_>, BackendError> {
        match self.get(key.as_bytes(), now) {
            None => Ok(At::Free),
            Some(Value::String(held)) => Ok(At::Lock(held)),
            Some(Value::OrderedSet(scores))
                if self.end_of(key.as_bytes()).is_some() && begins_with_a_token(scores) =>
            {
                Ok(At::Readers(scores.clone()))
            }
            Some(Value::OrderedSet(_) | Value::List) => Err(wrong_type()),
        }
    }

    /// Whether the claim is one of the readers, and has not expired.
    pub(super) fn reads(&self, readers: &Scores, claim: &Claim, now: Instant) -> bool {
        readers.get(claim.token().as_bytes()).is_some_and(|end| *end > self.millis(now))
    }

    /// Adds the claim to the readers of its keys, where it is not one. No key is locked.
    pub(super) fn add_reader(&mut self, claim: &Claim, now: Instant) {
        let mut is_added = false;
        for key in claim.keys() {
            let mut readers = self.readers(key, now).unwrap_or_default();
            if !self.reads(&readers, claim, now) {
                let end = self.millis(now) + claim.ttl().as_millis();
                readers.insert(claim.token().as_bytes().to_vec(), end);
                is_added = true;
            }
            self.put_readers(key, readers, now);
        }
        if is_added {
            self.note_grant(claim);
        }
    }

    /// Lets the claim read for at least its ttl from now, if it reads all keys. Never shortens
    /// (H2).
    pub(super) fn extend_reader(
        &mut self,
        claim: &Claim,
        now: Instant,
    ) -> Result<Vote, BackendError> {
        for key in claim.keys() {
            let At::Readers(readers) = self.at(key, now)? else { return Ok(Vote::Refused) };
            if !self.reads(&readers, claim, now) {
                return Ok(Vote::Refused);
            }
        }
        let end = self.millis(now) + claim.ttl().as_millis();
        for key in claim.keys() {
            let mut readers = self.readers(key, now).unwrap_or_default();
            readers.entry(claim.token().as_bytes().to_vec()).and_modify(|at| *at = end.max(*at));
            self.put_readers(key, readers, now);
        }
        Ok(Vote::Granted)
    }

    /// Removes the claim from the readers of its keys.
    pub(super) fn remove_reader(&mut self, claim: &Claim, now: Instant) -> Vote {
        let mut ours = 0;
        for key in claim.keys() {
            let Some(mut readers) = self.readers(key, now) else { continue };
            ours += usize::from(self.reads(&readers, claim, now));
            if readers.remove(claim.token().as_bytes()).is_some() {
                self.put_readers(key, readers, now);
            }
        }
        if ours == claim.keys().len() { Vote::Granted } else { Vote::Refused }
    }

    /// What an inspection says of readers.
    pub(super) fn sighted(&self, readers: Scores, now: Instant) -> KeyState {
        let millis = self.millis(now);
        let mut readers: Vec<_> = readers.into_iter().filter(|(_, end)| *end > millis).collect();
        readers.sort_by_key(|(_, end)| *end);
        let readers = readers.into_iter().map(|(token, end)| Reader {
            holder: Holder::new(token),
            time_left: Duration::from_millis(end - millis),
        });
        KeyState::Read { readers: readers.collect() }
    }

    fn readers(&self, key: &Key, now: Instant) -> Option<Scores> {
        match self.at(key, now) {
            Ok(At::Readers(readers)) => Some(readers),
            _ => None,
        }
    }

    /// Drops readers that have expired. The key expires with the last of the others (RW7).
    fn put_readers(&mut self, key: &Key, mut readers: Scores, now: Instant) {
        let millis = self.millis(now);
        readers.retain(|_, end| *end > millis);
        match readers.values().max() {
            Some(end) => {
                let end = self.moment(*end);
                self.put(key.as_bytes(), Value::OrderedSet(readers), Some(end));
            }
            None => self.remove(key.as_bytes()),
        }
    }
}

/// Whether the member with the lowest score is the token of a reader.
fn begins_with_a_token(scores: &Scores) -> bool {
    let first = scores.iter().min_by_key(|(member, score)| (**score, *member));
    let parts = first.and_then(|(member, _)| member.split_at_checked(TOKEN));
    let is_digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    parts.is_some_and(|(digits, label)| {
        digits.iter().all(is_digit) && (label.is_empty() || label.starts_with(b" "))
    })
}

/// The digits of a token.
const TOKEN: usize = 40;
