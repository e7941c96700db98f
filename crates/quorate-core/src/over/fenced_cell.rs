//! A value in memory that checks fencing tokens.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::FencingToken;

/// A value that only the holder with the highest [`FencingToken`] so far can write.
///
/// A lock with a timeout cannot stop a holder that was paused during its work. It continues and
/// writes, although its lease has ended and another client holds the lock. Only the resource that
/// it writes to can refuse the write. This is such a resource inside one process: a value, together
/// with the highest token that was used. The check and the write are one step.
///
/// The cell refuses a holder that is older than a holder that has written. It cannot know of a
/// newer holder that has not written yet.
///
/// # Examples
///
/// ```
/// use quorate_core::{FencedCell, FencingToken};
///
/// let account = FencedCell::new(100);
/// let (older, newer) = (FencingToken::new(7).unwrap(), FencingToken::new(9).unwrap());
/// assert_eq!(account.write(older, |balance| { *balance -= 30; *balance }), Ok(70));
/// assert_eq!(account.write(newer, |balance| { *balance -= 30; *balance }), Ok(40));
/// // The older holder continues after a pause and is refused. The newer holder can go on writing.
/// assert!(account.write(older, |balance| *balance = 0).is_err());
/// assert_eq!(account.write(newer, |balance| *balance), Ok(40));
/// ```
///
/// # In a database
///
/// Store the highest token beside the data. Make the check a condition of the write, in **one**
/// statement or transaction. A token fits a `BIGINT`. Equal tokens are accepted, since one holder
/// may write several times:
///
/// ```sql
/// UPDATE accounts SET fence = $1, balance = $2 WHERE id = $3 AND fence <= $1;
/// -- No row was changed: the token is stale (or the account does not exist). Stop working.
///
/// INSERT INTO accounts (fence, balance, id) VALUES ($1, $2, $3)
///     ON CONFLICT (id) DO UPDATE SET fence = excluded.fence, balance = excluded.balance
///     WHERE accounts.fence <= excluded.fence;
/// ```
///
/// A `SELECT` of the highest token followed by a write is two steps. Another holder can write
/// between them. In Redis, use one script. If the write depends on what is there, store the token
/// first, then read.
pub struct FencedCell<T> {
    /// Written only while the value is locked.
    highest: AtomicU64,
    value: Mutex<T>,
}

impl<T> FencedCell<T> {
    /// Creates a cell that no token has been used on.
    pub const fn new(value: T) -> Self {
        Self { highest: AtomicU64::new(0), value: Mutex::new(value) }
    }

    /// Calls `write` with the value, unless a higher token was used. Returns what `write` returns.
    ///
    /// Blocks the thread while another thread is in `write`, so `write` should be short. If it
    /// panics, `token` counts as used, and the value stays as the panic left it.
    ///
    /// # Errors
    ///
    /// [`StaleToken`]: a higher token was used, so the lock of this holder is lost. `write` was not
    /// called.
    pub fn write<R>(
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

    /// The highest token that was used, if any. Does not block.
    #[must_use]
    pub fn highest(&self) -> Option<FencingToken> {
        FencingToken::new(self.highest.load(Ordering::SeqCst))
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.value.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Prints the highest token, and not the value.
impl<T> fmt::Debug for FencedCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FencedCell").field("highest", &self.highest()).finish_non_exhaustive()
    }
}

/// Why a write was refused: a holder with a higher token has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the fencing token {token} is stale: {highest} was used")]
#[expect(clippy::exhaustive_structs, reason = "complete by definition: the two that were compared")]
pub struct StaleToken {
    /// The token of the refused write.
    pub token: FencingToken,
    /// The highest token that was used.
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
    fn equal_and_higher_tokens_write_and_lower_ones_never() {
        let cell = FencedCell::new(Vec::new());
        for number in [3, 3, 5, 4, 5, 3, 9, 8] {
            let written = cell.write(token(number), |seen| seen.push(number));
            assert_eq!(written.is_ok(), number >= cell.highest().unwrap().get());
        }
        assert_eq!(cell.into_inner(), [3, 3, 5, 5, 9]);
        let used = FencedCell::new("s3cret");
        used.write(token(7), |_| ()).unwrap();
        let stale = StaleToken { token: token(6), highest: token(7) };
        assert_eq!(used.write(token(6), |_| ()), Err(stale));
        assert_eq!(stale.to_string(), "the fencing token 6 is stale: 7 was used");
        let shown = format!("{used:?}");
        assert!(shown.contains('7') && !shown.contains("s3cret"), "{shown}");
    }

    #[test]
    fn check_and_write_are_one_step() {
        let cell = FencedCell::new(Vec::new());
        thread::scope(|scope| {
            for first in 1..=4_u64 {
                let cell = &cell;
                scope.spawn(move || {
                    for number in (first..4_000).step_by(4) {
                        let _ = cell.write(token(number), |seen| seen.push(number));
                    }
                });
            }
        });
        assert!(cell.into_inner().is_sorted(), "writes are in the order of the tokens");
    }

    #[test]
    fn a_write_that_panics_uses_its_token() {
        let cell = FencedCell::new(0);
        let write = || cell.write(token(2), |_| panic!("on purpose"));
        assert!(catch_unwind(AssertUnwindSafe(write)).is_err());
        assert_eq!(cell.write(token(1), |_| ()).map_err(|stale| stale.highest), Err(token(2)));
        assert_eq!(cell.write(token(2), |value| *value), Ok(0));
    }
}
