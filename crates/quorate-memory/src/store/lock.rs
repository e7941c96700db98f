//! The operations on a plain lock.

use std::time::Instant;

use quorate_core::BackendError;
use quorate_core::backend::{Claim, Holder, KeyState, Leaves, Mode, Reply, Revoke, Vote};
use quorate_core::resource::Key;

use super::entries::{Store, Value};
use super::shared::At;

/// What an acquire finds at its keys.
pub(super) enum Found {
    /// So many keys are ours, and the others are free.
    Ours(usize),
    /// A key of another holder, or of readers, which have no name: the refusal.
    Taken(Reply),
}

impl Store {
    /// One key: `SET NX PX GET`, which refuses what is there, and names a token. Several keys: the
    /// script.
    pub(crate) fn acquire(&mut self, claim: &Claim, now: Instant) -> Result<Reply, BackendError> {
        match claim.keys() {
            // Of another type.
            [key]
                if claim.mode() == Mode::Exclusive && self.string(key.as_bytes(), now).is_err() =>
            {
                Ok(Reply::new(Vote::Refused))
            }
            _ => self.acquire_all(claim, now),
        }
    }

    /// The script, which grants what is ours already and leaves its ttl.
    pub(super) fn acquire_all(
        &mut self,
        claim: &Claim,
        now: Instant,
    ) -> Result<Reply, BackendError> {
        Ok(match self.found(claim, now)? {
            Found::Taken(refused) => refused,
            Found::Ours(_) => {
                self.set_free(claim, now);
                Reply::new(Vote::Granted)
            }
        })
    }

    /// What an acquire of the claim finds.
    pub(super) fn found(&self, claim: &Claim, now: Instant) -> Result<Found, BackendError> {
        let mut ours = 0;
        for key in claim.keys() {
            match (self.at(key, now)?, claim.mode()) {
                (At::Free, _) => {}
                (At::Lock(held), Mode::Exclusive) if held == claim.token().as_bytes() => ours += 1,
                (At::Lock(held), _) => return Ok(Found::Taken(Reply::held_by(Holder::new(held)))),
                (At::Readers(_), Mode::Exclusive) => {
                    return Ok(Found::Taken(Reply::new(Vote::Refused)));
                }
                (At::Readers(readers), Mode::Shared) => {
                    ours += usize::from(self.reads(&readers, claim, now));
                }
            }
        }
        Ok(Found::Ours(ours))
    }

    /// Whether all keys are ours, and the value of the first one that is not. Keys behind it are
    /// not read.
    pub(crate) fn look(&self, claim: &Claim, now: Instant) -> Result<Reply, BackendError> {
        for key in claim.keys() {
            match self.at(key, now)? {
                At::Lock(held) if held == claim.token().as_bytes() => {}
                At::Lock(held) if is_mark_of(claim, held) => {
                    return Ok(Reply::marked(Holder::new(held)));
                }
                At::Lock(held) => return Ok(Reply::held_by(Holder::new(held))),
                At::Free | At::Readers(_) => return Ok(Reply::new(Vote::Refused)),
            }
        }
        Ok(Reply::new(Vote::Granted))
    }

    /// Sets the free keys of the claim.
    fn set_free(&mut self, claim: &Claim, now: Instant) {
        if claim.mode() == Mode::Shared {
            return self.add_reader(claim, now);
        }
        let is_free = |key: &&Key| self.get(key.as_bytes(), now).is_none();
        let free: Vec<&Key> = claim.keys().iter().filter(is_free).collect();
        for key in &free {
            let token = Value::String(claim.token().as_bytes().to_vec());
            self.put(key.as_bytes(), token, Some(now + claim.ttl().as_duration()));
        }
        if !free.is_empty() {
            self.note_grant(claim);
        }
    }

    /// Makes all keys live for the ttl from now, if all are ours. Never shortens (H2).
    pub(crate) fn extend(&mut self, claim: &Claim, now: Instant) -> Result<Reply, BackendError> {
        if claim.mode() == Mode::Shared {
            return self.extend_reader(claim, now).map(Reply::new);
        }
        let seen = self.look(claim, now)?;
        if seen.vote == Vote::Refused {
            return Ok(seen);
        }
        for key in claim.keys().iter().map(Key::as_bytes) {
            if self.time_left(key, now).is_none_or(|left| left < claim.ttl().as_duration()) {
                self.expire_at(key, now + claim.ttl().as_duration());
            }
        }
        Ok(seen)
    }

    /// Deletes the keys that are ours, or have the mark for our token. A key of another type is
    /// not.
    pub(crate) fn release(&mut self, claim: &Claim, now: Instant) -> Vote {
        if claim.mode() == Mode::Shared {
            return self.remove_reader(claim, now);
        }
        let is_ours = |key: &&Key| self.is_ours(key, claim, now);
        let ours: Vec<&Key> = claim.keys().iter().filter(is_ours).collect();
        ours.iter().for_each(|key| self.remove(key.as_bytes()));
        if ours.len() == claim.keys().len() { Vote::Granted } else { Vote::Refused }
    }

    pub(super) fn is_ours(&self, key: &Key, claim: &Claim, now: Instant) -> bool {
        let held = self.string(key.as_bytes(), now).ok().flatten();
        held.is_some_and(|held| held == claim.token().as_bytes() || is_mark_of(claim, held))
    }

    pub(crate) fn inspect(&self, key: &Key, now: Instant) -> Result<KeyState, BackendError> {
        let time_left = self.time_left(key.as_bytes(), now);
        Ok(match self.at(key, now)? {
            At::Free => KeyState::Free,
            At::Lock(held) => KeyState::Held { holder: Holder::new(held), time_left },
            At::Readers(readers) => self.sighted(readers, now),
        })
    }

    /// Takes a key away from its holder, and returns what was there. A key without an expiry is
    /// left alone, and that of any other holder than `how` names.
    pub(crate) fn revoke(
        &mut self,
        key: &Key,
        how: &Revoke,
        now: Instant,
    ) -> Result<KeyState, BackendError> {
        let found = self.inspect(key, now)?;
        let key = key.as_bytes();
        if !how.takes(&found) {
            return Ok(found);
        }
        let held: &[u8] = match &found {
            KeyState::Held { holder, .. } => holder.value(),
            _ => &[],
        };
        let value = match &how.leaves {
            Leaves::Nothing => {
                self.remove(key);
                return Ok(found);
            }
            // It stays.
            Leaves::Mark(_) if Holder::new(held).is_revoked() => return Ok(found),
            Leaves::Mark(label) => format!("{} {}", mark_for(held), label.as_str()).into_bytes(),
            Leaves::Value(token) => token.as_bytes().to_vec(),
        };
        let end = self.end_of(key);
        self.put(key, Value::String(value), end);
        Ok(found)
    }
}

/// The mark for a value, without a label.
fn mark_for(value: &[u8]) -> String {
    format!("revoked:{}", sha1_smol::Sha1::from(value).digest())
}

fn is_mark_of(claim: &Claim, held: &[u8]) -> bool {
    held.starts_with(b"revoked:") && held.starts_with(mark_for(claim.token().as_bytes()).as_bytes())
}
