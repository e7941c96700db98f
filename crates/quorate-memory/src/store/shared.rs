//! Claims of readers: a key is an ordered set of tokens, and a score is when its member expires.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_core::BackendError;
use quorate_core::backend::{Holder, KeyState, Reader};
use quorate_core::resource::Key;

use super::entries::{Store, Value, wrong_type};

/// The tokens of readers that have not expired, and when each does, in milliseconds of the store.
pub(super) type Readers = BTreeMap<Vec<u8>, u64>;

/// What is at the key of a lock.
pub(super) enum At<'a> {
    Free,
    /// The value of a lock, or of another program.
    Lock(&'a [u8]),
    Readers(Readers),
}

impl At<'_> {
    /// None where a key is free or a lock.
    pub(super) fn readers(self) -> Readers {
        match self {
            Self::Readers(readers) => readers,
            Self::Free | Self::Lock(_) => Readers::new(),
        }
    }
}

impl Store {
    /// What is at a key. An ordered set without an expiry, or whose first member is no token, is
    /// another program's (RW8).
    pub(super) fn at(&self, key: &Key) -> Result<At<'_>, BackendError> {
        match self.get(key.as_bytes()) {
            None => Ok(At::Free),
            Some(Value::String(held)) => Ok(At::Lock(held)),
            Some(Value::OrderedSet(scores))
                if self.end_of(key.as_bytes()).is_some() && begins_with_a_token(scores) =>
            {
                let (mut readers, millis) = (scores.clone(), self.millis());
                readers.retain(|_, end| *end > millis);
                Ok(At::Readers(readers))
            }
            Some(Value::OrderedSet(_) | Value::List) => Err(wrong_type()),
        }
    }

    /// What an inspection says of readers.
    pub(super) fn sighted(&self, readers: Readers) -> KeyState {
        let mut readers: Vec<_> = readers.into_iter().collect();
        readers.sort_by_key(|(_, end)| *end);
        let readers = readers.into_iter().map(|(token, end)| Reader {
            holder: Holder::new(token),
            time_left: Duration::from_millis(end - self.millis()),
        });
        KeyState::Read { readers: readers.collect() }
    }

    /// The key expires with the last of its readers (RW7).
    pub(super) fn put_readers(&mut self, key: &Key, readers: Readers) {
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
fn begins_with_a_token(scores: &Readers) -> bool {
    let first = scores.iter().min_by_key(|(member, score)| (**score, *member));
    let parts = first.and_then(|(member, _)| member.split_at_checked(TOKEN));
    let is_digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    parts.is_some_and(|(digits, label)| {
        digits.iter().all(is_digit) && (label.is_empty() || label.starts_with(b" "))
    })
}

/// The digits of a token.
const TOKEN: usize = 40;
