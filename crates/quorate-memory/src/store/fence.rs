//! Fencing: a number beside each lock that every grant raises.

use quorate_core::backend::{Claim, FenceHint, Mode, Reply, Vote};
use quorate_core::resource::Key;
use quorate_core::{BackendError, BackendErrorKind, FencingToken};

use super::entries::{Store, Value};
use super::lock::Found;
use crate::keys;

impl Store {
    /// Acquires the keys and raises their number.
    pub(crate) fn fence_acquire(
        &mut self,
        claim: &Claim,
        hint: FenceHint,
    ) -> Result<Reply, BackendError> {
        let ours = match self.found(claim)? {
            Found::Taken(refused) => return Ok(refused),
            Found::Ours(ours) => ours,
        };
        let mut highest = 0;
        for key in claim.keys() {
            highest = highest.max(self.number(key)?);
        }
        let is_resent = ours == claim.keys().len();
        let number = match FencingToken::new(highest).filter(|_| is_resent) {
            Some(number) => number,
            None => hint.grant_after(highest).ok_or_else(|| bad("no number is left"))?,
        };
        self.acquire_all(claim)?;
        self.put_numbers(claim, number);
        let mut reply = Reply::new(Vote::Granted);
        reply.number = Some(number);
        Ok(reply)
    }

    /// Raises the number, if all keys are ours and none has a higher one.
    pub(crate) fn raise(
        &mut self,
        claim: &Claim,
        number: FencingToken,
    ) -> Result<Vote, BackendError> {
        if self.look(claim, Mode::Exclusive)?.vote == Vote::Refused {
            return Ok(Vote::Refused);
        }
        for key in claim.keys() {
            if self.number(key)? > number.get() {
                return Ok(Vote::Refused);
            }
        }
        self.put_numbers(claim, number);
        Ok(Vote::Granted)
    }

    /// Deletes the keys that are ours and raises their numbers. A bad number does not keep the
    /// lock.
    pub(crate) fn fence_release(&mut self, claim: &Claim, number: FencingToken) -> Vote {
        for key in claim.keys() {
            let is_lower = self.number(key).is_ok_and(|before| before < number.get());
            if is_lower && self.is_ours(key, claim) {
                self.put_number(key, number);
            }
        }
        self.release(claim)
    }

    /// The number of a key; zero if there is none yet.
    fn number(&self, key: &Key) -> Result<u64, BackendError> {
        let Some(digits) = self.string(&keys::counter(key))? else { return Ok(0) };
        let is_number = digits.len() <= 16 && digits.iter().all(u8::is_ascii_digit);
        let digits = std::str::from_utf8(digits).ok().filter(|_| is_number);
        let number = digits.and_then(|digits| digits.parse().ok());
        let number = number.filter(|number| *number <= FencingToken::MAX.get());
        number.ok_or_else(|| bad("not a number"))
    }

    fn put_numbers(&mut self, claim: &Claim, number: FencingToken) {
        claim.keys().iter().for_each(|key| self.put_number(key, number));
    }

    fn put_number(&mut self, key: &Key, number: FencingToken) {
        self.put(&keys::counter(key), Value::String(number.to_string().into_bytes()), None);
    }
}

fn bad(why: &str) -> BackendError {
    BackendError::new(BackendErrorKind::Fence, format!("QUORATEFENCE {why}"))
}
