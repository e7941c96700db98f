//! The wall clock: the one place that reads it, and what it is good for.

#![expect(clippy::disallowed_types, reason = "the one wall clock, which decides no time")]

use std::time::SystemTime;

/// Microseconds since 1970 by the wall clock; zero before that.
///
/// **Never for anything that has to do with time**: such clocks jump, and two of them disagree. It
/// is the [hint](crate::FenceHint) from which the numbers of a node that lost its data go on, where
/// a wrong one costs a round trip and no order. So it is what [`Runtime`](super::Runtime) gives by
/// default, and nothing else in this crate reads such a clock.
#[must_use]
pub fn unix_micros() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}
