//! The place of one waiter in the queue of one gate.

use std::time::{Duration, Instant};

use super::super::quorum::NodeId;
use super::messages::{Entry, Refreshed, WatchedKey};

/// The place of a waiter in a queue, as the gate last reported it.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) gate: NodeId,
    pub(super) predecessor: Option<Entry>,
    /// The number of entries before ours.
    ahead: usize,
    /// When `ahead` last changed.
    since: Instant,
    /// The index of the lock key that was held last.
    lock: usize,
    /// Whether readers hold that key.
    is_read: bool,
    /// The key on which a push is expected.
    pub(super) watched: Option<WatchedKey>,
    /// The first entry while the lock is free, and since when both are so.
    pub(super) first_while_free: Option<(Entry, Instant)>,
    /// Pushes in a row that did not help: they showed a held lock. At most [`NOISY`].
    pub(super) fruitless: u8,
    /// Whether the predecessor's key was absent since the last refresh that was due.
    pub(super) is_absent: bool,
    /// No look before this time while pushes are noise.
    pub(super) rest_until: Instant,
}

impl Place {
    /// The keys of the lock are others from now on.
    pub(super) fn forget_lock_watch(&mut self) {
        self.lock = 0;
        self.watched.take_if(|key| matches!(key, WatchedKey::Lock(_)));
    }

    pub(super) const fn new(gate: NodeId, now: Instant) -> Self {
        Self {
            gate,
            predecessor: None,
            ahead: usize::MAX,
            since: now,
            lock: 0,
            is_read: false,
            watched: None,
            first_while_free: None,
            fruitless: 0,
            is_absent: false,
            rest_until: now,
        }
    }

    /// Takes over what the gate replied.
    pub(super) fn update(&mut self, reply: Refreshed, now: Instant) {
        if reply.predecessor != self.predecessor {
            (self.fruitless, self.is_absent) = (0, false);
        }
        if reply.place != self.ahead {
            (self.ahead, self.since) = (reply.place, now);
        }
        self.predecessor = reply.predecessor;
        if let Some(lock) = reply.held {
            (self.lock, self.is_read, self.first_while_free) = (lock, reply.is_read, None);
            return;
        }
        self.fruitless = 0;
        // The lock is free and no push came: the node has forgotten the watch.
        self.watched.take_if(|key| matches!(key, WatchedKey::Lock(_)));
        let since = match self.first_while_free.take() {
            Some((entry, since)) if entry == reply.first => since,
            _ => now,
        };
        self.first_while_free = Some((reply.first, since));
    }

    /// The key whose change matters: the predecessor's, or the lock's if the entry is the first.
    pub(super) fn key(&self) -> WatchedKey {
        match &self.predecessor {
            Some(entry) => WatchedKey::Predecessor(entry.clone()),
            None => WatchedKey::Lock(self.lock),
        }
    }

    /// When an entry that is not the first may compete, if the lock stays free and the first entry
    /// the same.
    pub(super) fn second_look_at(&self, is_of_readers: bool) -> Option<Instant> {
        let (first, since) = self.first_while_free.as_ref()?;
        let wait = if is_of_readers && !first.is_of_readers() {
            SECOND_LOOK_OF_READERS
        } else if first.is_polling() {
            SECOND_LOOK_BEHIND_POLLING
        } else {
            SECOND_LOOK
        };
        since.checked_add(wait)
    }

    /// The least time between two looks while pushes are noise.
    pub(super) fn spacing(&self) -> Duration {
        let is_behind_readers = self.is_read && self.predecessor.is_none();
        if is_behind_readers { SPACING_BEHIND_READERS } else { SPACING }
    }

    /// The time until a process without pushes refreshes again: half of the time since its place
    /// changed.
    pub(super) fn polling_interval(&self, refresh: Duration, now: Instant) -> Duration {
        let longest = if self.predecessor.is_none() { POLLING_FIRST } else { refresh };
        (now.saturating_duration_since(self.since) / 2).max(POLLING_LEAST).min(longest)
    }
}

/// From how many fruitless pushes in a row on looks are spaced.
pub(super) const NOISY: u8 = 4;

/// How long a waiter that is not the first sees a free lock before it competes.
const SECOND_LOOK: Duration = Duration::from_millis(20);

/// The same behind a first entry whose process gets no pushes: it refreshes each 40 ms.
const SECOND_LOOK_BEHIND_POLLING: Duration = Duration::from_millis(100);

/// The same of readers behind a writer: a writer that is alive has looked again by then.
const SECOND_LOOK_OF_READERS: Duration = Duration::from_millis(150);

/// The least time between two looks while pushes are noise.
const SPACING: Duration = Duration::from_millis(200);

/// The same while readers hold the lock: each that comes or goes writes the key.
const SPACING_BEHIND_READERS: Duration = Duration::from_millis(10);

/// The shortest time between two refreshes of a process without pushes.
const POLLING_LEAST: Duration = Duration::from_millis(5);

/// The longest time between two refreshes of a process without pushes whose entry is the first.
const POLLING_FIRST: Duration = Duration::from_millis(40);
