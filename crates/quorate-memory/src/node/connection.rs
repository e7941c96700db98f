//! A connection on which requests, and their replies, keep their order.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The two directions of a connection.
#[derive(Debug, Default)]
pub(super) struct Connection {
    pub(super) requests: Arc<Lane>,
    pub(super) replies: Arc<Lane>,
}

/// One direction: no message arrives before one that was sent earlier.
///
/// Timers alone do not ensure that: those of real runtimes have ticks of a millisecond, and several
/// threads race for what one tick has woken. So each timer delivers the oldest message, whichever it was
/// set for.
#[derive(Default)]
pub(super) struct Lane {
    /// The messages in flight.
    sent: Mutex<Sent>,
    /// Held while a message is delivered.
    delivery: Mutex<()>,
}

#[derive(Default)]
struct Sent {
    messages: VecDeque<Message>,
    /// When the last message arrives.
    last: Option<Instant>,
}

type Message = Box<dyn FnOnce() + Send>;

impl Lane {
    /// Adds a message that would take `delay` if it were the only one. Returns after how long
    /// [`deliver`](Self::deliver) is to be called.
    pub(super) fn send(
        &self,
        now: Instant,
        delay: Duration,
        message: impl FnOnce() + Send + 'static,
    ) -> Duration {
        let mut sent = self.sent();
        let mut arrival = now + delay;
        if let Some(last) = sent.last
            && arrival <= last
            && last > now
        {
            arrival = last + Duration::from_nanos(1);
        }
        if arrival > now {
            sent.last = Some(arrival);
        }
        sent.messages.push_back(Box::new(message));
        arrival - now
    }

    /// Delivers the oldest message.
    pub(super) fn deliver(&self) {
        let _delivery = self.delivery.lock().unwrap_or_else(PoisonError::into_inner);
        let message = self.sent().messages.pop_front();
        if let Some(message) = message {
            message();
        }
    }

    fn sent(&self) -> MutexGuard<'_, Sent> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane").field("in_flight", &self.sent().messages.len()).finish()
    }
}
