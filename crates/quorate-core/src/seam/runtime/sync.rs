//! The mutexes of this crate, in one place: counted for measurements, and replaced under loom.

pub(crate) use std::sync::atomic::{AtomicBool, Ordering, fence};
pub(crate) use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// Locks a mutex. A panic of another thread under it changes nothing that is kept there.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    count_lock();
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks a mutex, unless it is locked.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    let guard = match mutex.try_lock() {
        Ok(guard) => guard,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return None,
    };
    count_lock();
    Some(guard)
}

/// Counts a mutex that is locked.
#[inline]
fn count_lock() {
    #[cfg(quorate_count)]
    LOCKS.fetch_add(1, Ordering::Relaxed);
}

#[cfg(quorate_count)]
static LOCKS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

/// What this crate did since the process began. Only with `--cfg quorate_count`.
#[cfg(quorate_count)]
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Counters {
    /// How often a mutex was locked. A try that failed does not count.
    pub mutex_locks: u64,
}

/// Reads the counters.
#[cfg(quorate_count)]
#[must_use]
pub fn counters() -> Counters {
    Counters { mutex_locks: LOCKS.load(Ordering::Relaxed) }
}
