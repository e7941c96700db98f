//! The protected resource's side of a fencing token.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::algorithm::fence::FencingToken;

/// Lets nobody pass who holds a lower [`FencingToken`] than somebody who passed before.
///
/// A lock with a timeout cannot stop a holder that was paused in the middle of its work: it wakes
/// and writes, though its lease is over and another holds the lock. What can stop it is the place
/// that it writes to. This is such a place within a process: a value, and the highest token that
/// came to it. Check and write are one step.
///
/// It holds against every holder that is *older than one that has passed*. It cannot know of a
/// holder that has not come yet.
///
/// ```
/// use quorate_core::{FenceGate, FencingToken};
///
/// let account = FenceGate::new(100);
/// let (older, newer) = (FencingToken::new(7).unwrap(), FencingToken::new(9).unwrap());
/// assert_eq!(account.pass(older, |balance| { *balance -= 30; *balance }), Ok(70));
/// assert_eq!(account.pass(newer, |balance| { *balance -= 30; *balance }), Ok(40));
/// // The older holder wakes up, and finds the door shut. The newer one comes and goes.
/// assert!(account.pass(older, |balance| *balance = 0).is_err());
/// assert_eq!(account.pass(newer, |balance| *balance), Ok(40));
/// ```
///
/// # In a store
///
/// Keep the highest token beside the data, and make the check a condition of the write, in **one**
/// statement or transaction. A token is a `BIGINT`; equal ones pass, since one holder writes often:
///
/// ```sql
/// UPDATE accounts SET balance = $1, fence = $2 WHERE id = $3 AND fence <= $2;
/// -- No row was changed: the token is stale (or there is no such account). Stop working.
///
/// INSERT INTO accounts (id, balance, fence) VALUES ($3, $1, $2)
///     ON CONFLICT (id) DO UPDATE SET balance = excluded.balance, fence = excluded.fence
///     WHERE accounts.fence <= excluded.fence;
/// ```
///
/// A `SELECT` of the highest token and a write after it are two steps, between which another holder
/// can pass; so are they in Redis, unless they are one script.
pub struct FenceGate<T> {
    /// Written under the lock of the value only.
    highest: AtomicU64,
    value: Mutex<T>,
}

impl<T> FenceGate<T> {
    /// A gate through which nobody has passed yet.
    pub const fn new(value: T) -> Self {
        Self { highest: AtomicU64::new(0), value: Mutex::new(value) }
    }

    /// A gate through which `token` has passed, as was written down before the process ended.
    pub const fn passed_by(token: FencingToken, value: T) -> Self {
        Self { highest: AtomicU64::new(token.get()), value: Mutex::new(value) }
    }

    /// Does `write` if no greater token has passed, and gives back what it returns.
    ///
    /// Others wait meanwhile, blocking their thread, so it should be short. If it panics, the token
    /// has passed all the same, and the value is as the panic left it.
    ///
    /// # Errors
    ///
    /// [`StaleToken`] if a greater token has passed: there is a later holder, and the lock is lost.
    /// `write` was not called.
    pub fn pass<R>(
        &self,
        token: FencingToken,
        write: impl FnOnce(&mut T) -> R,
    ) -> Result<R, StaleToken> {
        let mut value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        match self.highest() {
            Some(highest) if token < highest => Err(StaleToken { token, highest }),
            _ => {
                self.highest.store(token.get(), Ordering::SeqCst);
                Ok(write(&mut value))
            }
        }
    }

    /// The greatest token that has passed, if any has. Does not wait for a write.
    #[must_use]
    pub fn highest(&self) -> Option<FencingToken> {
        FencingToken::new(self.highest.load(Ordering::SeqCst))
    }

    /// The value, once nobody can pass any more.
    pub fn into_inner(self) -> T {
        self.value.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Default> Default for FenceGate<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// Shows the highest token, and not the value.
impl<T> fmt::Debug for FenceGate<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FenceGate").field("highest", &self.highest()).finish_non_exhaustive()
    }
}

/// A later holder has been here: the lock under which this token was given is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the fencing token {token} is stale: {highest} has passed")]
#[expect(clippy::exhaustive_structs, reason = "complete by definition: the one and the other")]
pub struct StaleToken {
    /// The token that came.
    pub token: FencingToken,
    /// The greatest that has passed.
    pub highest: FencingToken,
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::thread;

    use super::*;

    fn token(number: u64) -> FencingToken {
        FencingToken::new(number).unwrap()
    }

    #[test]
    fn equal_and_greater_tokens_pass_and_lower_ones_never() {
        let gate = FenceGate::new(Vec::new());
        for number in [3, 3, 5, 4, 5, 3, 9, 8] {
            let passed = gate.pass(token(number), |seen| seen.push(number));
            assert_eq!(passed.is_ok(), number >= gate.highest().unwrap().get());
        }
        assert_eq!(gate.into_inner(), [3, 3, 5, 5, 9]);
        let known = FenceGate::passed_by(token(7), ());
        let stale = StaleToken { token: token(6), highest: token(7) };
        assert_eq!(known.pass(token(6), |()| ()), Err(stale));
        assert_eq!(stale.to_string(), "the fencing token 6 is stale: 7 has passed");
    }

    #[test]
    fn check_and_write_are_one_step() {
        let gate = FenceGate::new(Vec::new());
        thread::scope(|scope| {
            for first in 1..=4_u64 {
                let gate = &gate;
                scope.spawn(move || {
                    for number in (first..4_000).step_by(4) {
                        let _ = gate.pass(token(number), |seen| seen.push(number));
                    }
                });
            }
        });
        assert!(gate.into_inner().is_sorted(), "what was written is in the order of the tokens");
    }

    #[test]
    fn a_write_that_panics_leaves_the_door_as_it_was() {
        let gate = FenceGate::new(0);
        let write = || gate.pass(token(2), |_| panic!("in the middle"));
        assert!(catch_unwind(AssertUnwindSafe(write)).is_err());
        assert_eq!(gate.pass(token(1), |_| ()).map_err(|stale| stale.highest), Err(token(2)));
        assert_eq!(gate.pass(token(2), |value| *value), Ok(0));
    }
}
