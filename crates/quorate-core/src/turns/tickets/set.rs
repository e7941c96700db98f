//! The tickets of tasks that want one of several names.
//!
//! Such a task takes the ticket of its *set of names* first. It gives that ticket on when it has
//! won a name, or when a task here hands it one. So of one set, one task of this manager waits at
//! the gate. A name that no task here has or wants it takes at once. For others it stands in the
//! queue of the name, as a task does that wants this name alone: the earlier one gets it.

use std::sync::Arc;
use std::time::Instant;

use super::{Inner, KeyQueue, Whereabouts};
use crate::resource::Key;

/// What the tasks that want one of the same keys have in common.
#[derive(Debug)]
pub(crate) struct NameSet {
    /// The key of their queue in this process.
    pub(crate) key: Key,
    /// The key whose wait queue the processes use: only the first one.
    pub(crate) gate_keys: Arc<[Key]>,
}

impl NameSet {
    /// The set of `keys`, in sorted order. `None` for a single key.
    pub(crate) fn new(keys: &[Key]) -> Option<Arc<Self>> {
        let [gate_key, _, ..] = keys else { return None };
        Some(Arc::new(Self { key: Key::of_set(keys), gate_keys: [gate_key.clone()].into() }))
    }
}

impl Inner {
    /// Picks a key that no task here has or wants, and that was not `tried`: the one that this
    /// manager had last, else a random one.
    pub(crate) fn pick(
        &self,
        keys: &[Key],
        tried: &[Key],
        random: u64,
        now: Instant,
    ) -> Option<Key> {
        let mut state = self.lock();
        state.sweep(now);
        let queue = |key: &Key| state.queues.get(key);
        let is_here = |key: &&Key| {
            let is_here = |queue: &KeyQueue| matches!(queue.ticket, Whereabouts::Here);
            !tried.contains(key) && queue(key).is_none_or(is_here)
        };
        let mut free: Vec<&Key> = keys.iter().filter(is_here).collect();
        let at = usize::try_from(random >> 32).ok()?.checked_rem(free.len())?;
        free.rotate_left(at);
        free.into_iter().max_by_key(|key| queue(key).and_then(|queue| queue.ended)).cloned()
    }
}
