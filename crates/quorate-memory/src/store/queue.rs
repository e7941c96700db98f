//! The wait queue of a lock.

use std::time::Duration;

use quorate_core::BackendError;
use quorate_core::backend::{Choice, Entry, Mode, Refreshed};
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
    ) -> Result<Refreshed, BackendError> {
        let (waiters_key, seen_key) = (keys::waiters(key), keys::seen(key));
        let (mut waiters, mut seen) = (self.set(&waiters_key)?, self.set(&seen_key)?);
        let (millis, name) = (self.millis(), entry.as_bytes());
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
        let mut place = order.iter().position(|(_, waiter)| *waiter == name).unwrap_or_default();
        if entry.is_of_readers() {
            // Readers do not wait for readers.
            let is_writer = |(_, name): &(u64, &[u8])| !Entry::new(*name).is_of_readers();
            place = order[..place].iter().rposition(is_writer).map_or(0, |writer| writer + 1);
        }
        let entry_at = |rank: usize| order.get(rank).map(|(_, name)| Entry::new(*name));
        let predecessor = place.checked_sub(1).and_then(entry_at);
        let first = entry_at(0).unwrap_or_else(|| entry.clone());
        let end = Some(self.now + KEY_TTL);
        self.put(&waiters_key, Value::OrderedSet(waiters), end);
        self.put(&seen_key, Value::OrderedSet(seen), end);
        let own = keys::watched(key, Some(entry));
        // Every write to a watched key is a push, so it is not written each time.
        if self.time_left(&own).is_none_or(|left| left < KEY_TTL / 2) {
            self.put(&own, Value::String(Vec::new()), end);
        }
        // A key without an expiry counts as free: no Redlock client writes one.
        let shares = entry.is_of_readers() && place == 0;
        let is_shared = |lock: &[u8]| matches!(self.get(lock), Some(Value::OrderedSet(_)));
        let is_held = |lock: &Key| {
            let lock = lock.as_bytes();
            self.time_left(lock).is_some() && !(shares && is_shared(lock))
        };
        let (held, free) = match choice {
            Choice::All => (locks.iter().rposition(is_held), None),
            // Such a key would hide others that are free.
            Choice::Any => {
                let is_free = |lock: &Key| self.get(lock.as_bytes()).is_none();
                let free = locks.iter().rposition(is_free);
                (free.is_none().then_some(0), free)
            }
        };
        let is_read =
            choice == Choice::All && held.is_some_and(|at| is_shared(locks[at].as_bytes()));
        Ok(Refreshed { predecessor, first, held, free, is_read, place })
    }

    /// Removes entries. Returns whether any entry is left.
    pub(crate) fn queue_leave(
        &mut self,
        key: &Key,
        entry: &Entry,
        also: Option<&Entry>,
    ) -> Result<bool, BackendError> {
        for entry in [Some(entry), also].into_iter().flatten() {
            for set_key in [keys::waiters(key), keys::seen(key)] {
                let mut set = self.set(&set_key)?;
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
        self.has_waiters(key, Mode::Exclusive)
    }

    /// Whether any entry is in the wait queue of `key`; for a reader, whether any is that of a
    /// writer and has not expired.
    pub(crate) fn has_waiters(&self, key: &Key, mode: Mode) -> Result<bool, BackendError> {
        let waiters = keys::waiters(key);
        if mode == Mode::Exclusive {
            return Ok(self.get(&waiters).is_some());
        }
        let (entries, millis) = (self.set(&keys::seen(key))?, self.millis());
        let is_writer = |name: &[u8]| !Entry::new(name).is_of_readers();
        Ok(entries.iter().any(|(name, end)| *end > millis && is_writer(name)))
    }
}
