//! The wall clock, for fencing hints and the names of periods only.

#![expect(clippy::disallowed_types, reason = "for fencing hints and names only")]

use std::time::SystemTime;

/// Microseconds since 1970 by the wall clock. Zero if the clock shows an earlier time.
///
/// **Not for validity and deadlines** (T4): a wall clock jumps, and the clocks of two machines
/// differ. It is the [fencing hint](crate::backend::FenceHint), from which a node that lost its
/// data continues to number. A wrong hint costs a round trip and never breaks the order of fencing
/// tokens. It also names the period of [`once_per`](crate::LockManager::once_per) (O4).
#[must_use]
pub fn unix_micros() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}
