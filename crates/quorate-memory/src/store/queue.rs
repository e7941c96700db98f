//! The wait queue of a lock.

use std::time::{Duration, Instant};

use quorate_core::BackendError;
use quorate_core::backend::{Choice, Entry, Refreshed};
use quorate_core::resource::Key;

use super::entries::{Store, Value};
use crate::keys;

/// How long an entry lives after a refresh, in milliseconds.
const ENTRY_MILLIS: u64 = 2_000;

/// How long the keys of a queue live after a refresh.
const KEY_TTL: Duration = Duration::from_secs(10);

impl Store {
    /// Drops expired entries, appends `entry` if it is missing, and keeps it alive.
    pub(crate) fn queue_refresh(
        &mut self,
        key: &Key,
        entry: &Entry,
        locks: &[Key],
        choice: Choice,
        now: Instant,
    ) -> Result<Refreshed, BackendError> {
        let (waiters_key, seen_key) = (keys::waiters(key), keys::seen(key));
        let (mut waiters, mut seen) = (self.set(&waiters_key, now)?, self.set(&seen_key, now)?);
        let (millis, name) = (self.millis(now), entry.as_bytes());
        seen.retain(|expired, end| {
            if *end <= millis {
                waiters.remove(expired);
            }
            *end > millis
        });
        let last = waiters.values().max().copied().unwrap_or_default();
        waiters.entry(name.to_vec()).or_insert(last + 1);
        seen.insert(name.to_vec(), millis + ENTRY_MILLIS);
        let mut order: Vec<(u64, &[u8])> =
            waiters.iter().map(|(name, arrival)| (*arrival, name.as_slice())).collect();
        order.sort_unstable();
        let place = order.iter().position(|(_, waiter)| *waiter == name).unwrap_or_default();
        let entry_at = |rank: usize| order.get(rank).map(|(_, name)| Entry::new(*name));
        let predecessor = place.checked_sub(1).and_then(entry_at);
        let first = entry_at(0).unwrap_or_else(|| entry.clone());
        let end = Some(now + KEY_TTL);
        self.put(&waiters_key, Value::OrderedSet(waiters), end);
        self.put(&seen_key, Value::OrderedSet(seen), end);
        let own = keys::watched(key, Some(entry));
        // Every write to a watched key is a push, so it is not written each time.
        if self.time_left(&own, now).is_none_or(|left| left < KEY_TTL / 2) {
            self.put(&own, Value::String(Vec::new()), end);
        }
        // A key without an expiry counts as free: no Redlock client writes one.
        let is_held = |lock: &Key| self.time_left(lock.as_bytes(), now).is_some();
        let (held, free) = match choice {
            Choice::All => (locks.iter().rposition(is_held), None),
            // Such a key would hide others that are free.
            Choice::Any => {
                let is_free = |lock: &Key| self.get(lock.as_bytes(), now).is_none();
                let free = locks.iter().rposition(is_free);
                (free.is_none().then_some(0), free)
            }
        };
        Ok(Refreshed { predecessor, first, held, free, place })
    }

    /// Removes entries. Returns whether any entry is left.
    pub(crate) fn queue_leave(
        &mut self,
        key: &Key,
        entry: &Entry,
        also: Option<&Entry>,
        now: Instant,
    ) -> Result<bool, BackendError> {
        for entry in [Some(entry), also].into_iter().flatten() {
            for set_key in [keys::waiters(key), keys::seen(key)] {
                let mut set = self.set(&set_key, now)?;
                if set.remove(entry.as_bytes()).is_none() {
                    continue;
                }
                match (set.is_empty(), self.end_of(&set_key)) {
                    (true, _) => self.remove(&set_key),
                    (false, end) => self.put(&set_key, Value::OrderedSet(set), end),
                }
            }
            self.remove(&keys::watched(key, Some(entry)));
        }
        Ok(self.has_waiters(key, now))
    }

    /// Whether any entry is in the wait queue of `key`.
    pub(crate) fn has_waiters(&self, key: &Key, now: Instant) -> bool {
        self.get(&keys::waiters(key), now).is_some()
    }
}
