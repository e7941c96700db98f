//! One direction of a connection, in which messages keep their order.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// One direction: no message arrives before one that was sent earlier, but for its `place`.
///
/// Timers alone do not ensure that: those of real runtimes have ticks of a millisecond, and several
/// threads race for what one tick has woken. So each timer delivers the oldest message, whichever
/// it was set for.
pub(super) struct Lane<M>(Mutex<Sent<M>>);

struct Sent<M> {
    /// The messages in flight.
    messages: VecDeque<M>,
    /// When the last message arrives.
    last: Option<Instant>,
    /// How many messages have arrived and are not delivered.
    arrived: usize,
    /// Whether a thread delivers messages. It goes on as long as some have arrived.
    is_delivering: bool,
}

/// The arrival of one message. Dropped without [`deliver`](Self::deliver), it drops the oldest
/// message, since the world has ended.
pub(super) struct Arrival<M>(Option<Arc<Lane<M>>>);

impl<M> Lane<M> {
    /// Adds a message that would take `delay` if it were the only one, at its `place` among those
    /// in flight. Returns after how long the last of them arrives.
    pub(super) fn send(
        self: &Arc<Self>,
        now: Instant,
        delay: Duration,
        message: M,
        place: impl FnOnce(&M, &VecDeque<M>) -> usize,
    ) -> (Duration, Arrival<M>) {
        let mut sent = self.sent();
        let mut arrival = now + delay;
        if let Some(last) = sent.last.filter(|last| *last > now) {
            arrival = arrival.max(last + Duration::from_nanos(1));
        }
        if arrival > now {
            sent.last = Some(arrival);
        }
        let place = place(&message, &sent.messages);
        sent.messages.insert(place, message);
        (arrival - now, Arrival(Some(Arc::clone(self))))
    }

    fn sent(&self) -> MutexGuard<'_, Sent<M>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M> Arrival<M> {
    /// Delivers the oldest message.
    ///
    /// No lock is held while `accept` runs. If it sends a message on the same lane, that message is
    /// delivered after it has returned.
    pub(super) fn deliver(mut self, accept: impl Fn(M)) {
        let Some(lane) = self.0.take() else { return };
        let mut sent = lane.sent();
        sent.arrived += 1;
        if sent.is_delivering {
            return;
        }
        sent.is_delivering = true;
        while sent.arrived > 0 {
            sent.arrived -= 1;
            let message = sent.messages.pop_front();
            drop(sent);
            message.into_iter().for_each(&accept);
            sent = lane.sent();
        }
        sent.is_delivering = false;
    }
}

impl<M> Drop for Arrival<M> {
    fn drop(&mut self) {
        let message = self.0.take().and_then(|lane| lane.sent().messages.pop_front());
        drop(message);
    }
}

impl<M> Default for Lane<M> {
    fn default() -> Self {
        let messages = VecDeque::new();
        Self(Mutex::new(Sent { messages, last: None, arrived: 0, is_delivering: false }))
    }
}
