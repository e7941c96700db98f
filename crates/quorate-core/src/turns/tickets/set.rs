//! The tickets of tasks that want one of several names.
//!
//! Such a task takes the ticket of its *set of names* first. It gives that ticket on when it has won a name, or when a task
//! here hands it one. So of one set, one task of this manager waits at the gate. A name that no task here has or wants it takes at
//! once. For others it stands in the queue of the name, as a task does that wants this name alone: the earlier one gets it.

use std::sync::Arc;
use std::time::Instant;

use super::{Inner, KeyQueue, Queues, Ticket, Whereabouts};
use crate::cluster::attempts::Slot;
use crate::resource::Key;
use crate::turns::remote_wait::RemoteWait;

/// What the tasks that want one of the same keys have in common.
#[derive(Debug)]
pub(crate) struct NameSet {
    /// The key of their queue in this process.
    pub(crate) key: Key,
    /// The key whose wait queue the processes use, the first one.
    pub(crate) gate_key: Key,
}

impl NameSet {
    /// The set of `keys`, in sorted order. `None` for a single key.
    pub(crate) fn new(keys: &[Key]) -> Option<Arc<Self>> {
        let [gate_key, _, ..] = keys else { return None };
        Some(Arc::new(Self { key: Key::of_set(keys), gate_key: gate_key.clone() }))
    }

    /// The releases of the attempt that has the ticket of one of the keys begin. Returns whether the gate is asked.
    pub(super) fn begin_release(
        &self,
        state: &mut Queues,
        key: &Key,
        attempt: Slot,
        was_held: bool,
        now: Instant,
    ) -> bool {
        let Some(queue) = state.queues.get_mut(key) else { return false };
        queue.ticket = Whereabouts::Ending(attempt);
        if !was_held {
            return false;
        }
        queue.ended = Some(now);
        let is_wanted = !queue.tasks.is_empty();
        state.queues.get_mut(&self.key).is_some_and(|queue| {
            let before = queue.ended.replace(now);
            queue.asks_gate(is_wanted, before, now)
        })
    }
}

impl Inner {
    /// Picks a key that no task here has or wants, and that was not `tried`: the one that this manager had last, else a
    /// random one.
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

impl Ticket {
    /// For the ticket of a set: one of its keys was won. Returns the wait between processes, which ends.
    #[must_use]
    pub(crate) fn end_set(&self, now: Instant) -> Option<Arc<RemoteWait>> {
        let wait = self.end_wait(now);
        self.with(|queue| {
            queue.ended = Some(now);
            if wait.is_some() {
                // The next task competes before LEAVE has said whether other processes wait.
                queue.hint = Some((true, now));
            }
        });
        wait
    }
}
