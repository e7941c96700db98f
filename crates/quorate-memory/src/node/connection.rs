//! A connection on which requests, and their replies, keep their order.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The two directions of a connection.
#[derive(Debug, Default)]
pub(super) struct Connection {
    pub(super) requests: Lane,
    pub(super) replies: Lane,
}

/// One direction: no message arrives before one that was sent earlier.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// When the last message arrives.
    last: Mutex<Option<Instant>>,
}

impl Lane {
    /// How long a message takes that would take `delay` if it were the only one.
    pub(super) fn delay(&self, now: Instant, delay: Duration) -> Duration {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let mut arrival = now + delay;
        if let Some(last) = *last
            && arrival <= last
            && last > now
        {
            arrival = last + Duration::from_nanos(1);
        }
        if arrival > now {
            *last = Some(arrival);
        }
        arrival - now
    }
}
