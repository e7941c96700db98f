//! The operations on a plain lock.

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
    pub(crate) fn acquire(&mut self, claim: &Claim) -> Result<Reply, BackendError> {
        match claim.keys() {
            // Of another type.
            [key] if claim.mode() == Mode::Exclusive && self.string(key.as_bytes()).is_err() => {
                Ok(Reply::new(Vote::Refused))
            }
            _ => self.acquire_all(claim),
        }
    }

    /// The script, which grants what is ours already and leaves its ttl.
    pub(super) fn acquire_all(&mut self, claim: &Claim) -> Result<Reply, BackendError> {
        Ok(match self.found(claim)? {
            Found::Taken(refused) => refused,
            Found::Ours(_) => {
                self.set_free(claim);
                Reply::new(Vote::Granted)
            }
        })
    }

    /// What an acquire of the claim finds.
    pub(super) fn found(&self, claim: &Claim) -> Result<Found, BackendError> {
        let (token, mut ours) = (claim.token().as_bytes(), 0);
        for key in claim.keys() {
            match (self.at(key)?, claim.mode()) {
                (At::Free, _) => {}
                (At::Lock(held), Mode::Exclusive) if held == token => ours += 1,
                (At::Lock(held), _) => return Ok(Found::Taken(Reply::held_by(Holder::new(held)))),
                (At::Readers(_), Mode::Exclusive) => {
                    return Ok(Found::Taken(Reply::new(Vote::Refused)));
                }
                (At::Readers(readers), Mode::Shared) => {
                    ours += usize::from(readers.contains_key(token));
                }
            }
        }
        Ok(Found::Ours(ours))
    }

    /// Whether all keys are ours in this mode, and the value of the first one that is not. Keys
    /// behind it are not read.
    pub(crate) fn look(&self, claim: &Claim, mode: Mode) -> Result<Reply, BackendError> {
        let token = claim.token().as_bytes();
        for key in claim.keys() {
            match (self.at(key)?, mode) {
                (At::Readers(readers), Mode::Shared) if readers.contains_key(token) => {}
                (At::Lock(held), Mode::Exclusive) if held == token => {}
                (At::Lock(held), Mode::Exclusive) if is_mark_of(claim, held) => {
                    return Ok(Reply::marked(Holder::new(held)));
                }
                (At::Lock(held), Mode::Exclusive) => return Ok(Reply::held_by(Holder::new(held))),
                _ => return Ok(Reply::new(Vote::Refused)),
            }
        }
        Ok(Reply::new(Vote::Granted))
    }

    /// Sets the free keys of the claim, or adds it to the readers where it is not one.
    fn set_free(&mut self, claim: &Claim) {
        let (token, ttl, mut is_set) = (claim.token().as_bytes(), claim.ttl(), false);
        for key in claim.keys() {
            match (self.at(key), claim.mode()) {
                (Ok(At::Free), Mode::Exclusive) => {
                    let end = Some(self.now + ttl.as_duration());
                    self.put(key.as_bytes(), Value::String(token.to_vec()), end);
                    is_set = true;
                }
                (_, Mode::Exclusive) => {}
                (at, Mode::Shared) => {
                    let mut readers = at.map(At::readers).unwrap_or_default();
                    is_set |= !readers.contains_key(token);
                    let end = self.millis() + ttl.as_millis();
                    readers.entry(token.to_vec()).or_insert(end);
                    self.put_readers(key, readers);
                }
            }
        }
        if is_set {
            self.note_grant(claim);
        }
    }

    /// Makes all keys live for the ttl from now, or the claim in each, if all are ours. Never
    /// shortens (H2).
    pub(crate) fn extend(&mut self, claim: &Claim) -> Result<Reply, BackendError> {
        let (seen, token, ttl) =
            (self.look(claim, claim.mode())?, claim.token().as_bytes(), claim.ttl());
        if seen.vote == Vote::Refused {
            return Ok(seen);
        }
        for key in claim.keys() {
            if claim.mode() == Mode::Shared {
                let (mut readers, end) = (self.at(key)?.readers(), self.millis() + ttl.as_millis());
                readers.entry(token.to_vec()).and_modify(|at| *at = end.max(*at));
                self.put_readers(key, readers);
            } else if self.time_left(key.as_bytes()).is_none_or(|left| left < ttl.as_duration()) {
                self.expire_at(key.as_bytes(), self.now + ttl.as_duration());
            }
        }
        Ok(seen)
    }

    /// Deletes the keys that are ours, or have the mark for our token, or removes the claim from
    /// their readers. A key of another type is not ours.
    pub(crate) fn release(&mut self, claim: &Claim) -> Vote {
        let (token, mut ours) = (claim.token().as_bytes(), 0);
        for key in claim.keys() {
            match (self.at(key), claim.mode()) {
                (Ok(At::Readers(mut readers)), Mode::Shared) if readers.contains_key(token) => {
                    readers.remove(token);
                    self.put_readers(key, readers);
                }
                (_, Mode::Exclusive) if self.is_ours(key, claim) => self.remove(key.as_bytes()),
                _ => continue,
            }
            ours += 1;
        }
        if ours == claim.keys().len() { Vote::Granted } else { Vote::Refused }
    }

    pub(super) fn is_ours(&self, key: &Key, claim: &Claim) -> bool {
        let held = self.string(key.as_bytes()).ok().flatten();
        held.is_some_and(|held| held == claim.token().as_bytes() || is_mark_of(claim, held))
    }

    pub(crate) fn inspect(&self, key: &Key) -> Result<KeyState, BackendError> {
        let time_left = self.time_left(key.as_bytes());
        Ok(match self.at(key)? {
            At::Free => KeyState::Free,
            At::Lock(held) => KeyState::Held { holder: Holder::new(held), time_left },
            At::Readers(readers) => self.sighted(readers),
        })
    }

    /// Takes a key away from its holder, and returns what was there. A key without an expiry is
    /// left alone, and that of any other holder than `how` names.
    pub(crate) fn revoke(&mut self, key: &Key, how: &Revoke) -> Result<KeyState, BackendError> {
        let found = self.inspect(key)?;
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
