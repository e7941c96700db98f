//! The tickets of tasks that want one of several names.
//!
//! Such a task takes the ticket of its *set of names* first. It hands that ticket over when it has
//! won a name, or had to wait until one was free here. So of one set, one task of this manager
//! waits, here or at the gate. It takes only names that are *free here*: no task of this manager
//! has or wants them alone. So a task that wants a name alone goes first.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use super::Ticket;
use crate::resource::Key;
use crate::turns::ManagerState;
use crate::turns::queues::{KeyQueue, Queues, Whereabouts};

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

impl ManagerState {
    /// Takes the ticket of a key that is free here and was not `tried`: of the one that this
    /// manager had last, else of a random one.
    pub(crate) fn take_free_here(
        self: &Arc<Self>,
        keys: &[Key],
        tried: &[Key],
        now: Instant,
    ) -> Option<Ticket> {
        let random = self.cluster.random();
        let mut state = self.lock();
        state.sweep(now);
        let is_free = |key: &&Key| !tried.contains(key) && state.is_free_here(key);
        let mut free: Vec<&Key> = keys.iter().filter(is_free).collect();
        let at = usize::try_from(random >> 32).ok()?.checked_rem(free.len())?;
        free.rotate_left(at);
        let ended = |key: &Key| state.queues.get(key).and_then(|queue| queue.ended);
        let key = free.into_iter().max_by_key(|key| ended(key))?.clone();
        state.queues.entry(key.clone()).or_default().ticket = Whereabouts::Out;
        Some(Ticket { manager: Arc::clone(self), key })
    }

    /// Whether one of the keys is free here.
    pub(crate) fn has_free_here(&self, keys: &[Key]) -> bool {
        let state = self.lock();
        keys.iter().any(|key| state.is_free_here(key))
    }

    /// Whether none of the keys is free here, and not only because of releases in flight.
    pub(crate) fn are_others_here(&self, keys: &[Key]) -> bool {
        let state = self.lock();
        !keys.iter().any(|key| state.is_free_here(key))
            && !keys.iter().all(|key| state.is_coming(key))
    }

    /// Waits until one of `keys` is free here. A request that waits for no holder waits for
    /// releases in flight only.
    pub(crate) fn freed_here<'a>(&'a self, keys: &'a [Key], waits: bool) -> Freed<'a> {
        Freed { manager: self, keys, waits, task: None }
    }
}

/// Resolves with `true` once one of the keys is free here, or with `false` if the request waits
/// for no holder, and none of them is being released any more.
///
/// # Cancel safety
///
/// Dropped, it leaves nothing behind.
pub(crate) struct Freed<'a> {
    manager: &'a ManagerState,
    keys: &'a [Key],
    waits: bool,
    /// Its number among the tasks that wait.
    task: Option<u64>,
}

impl Future for Freed<'_> {
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<bool> {
        let mut state = self.manager.lock();
        let is_free = self.keys.iter().any(|key| state.is_free_here(key));
        if is_free || !self.waits && !self.keys.iter().any(|key| state.is_coming(key)) {
            return Poll::Ready(is_free);
        }
        let task = self.task.unwrap_or_else(|| state.next_task());
        let old = state.note_chooser(self.keys, task, context.waker());
        drop(state);
        drop(old);
        self.task = Some(task);
        Poll::Pending
    }
}

impl Drop for Freed<'_> {
    fn drop(&mut self) {
        if let Some(task) = self.task {
            let gone = self.manager.lock().forget_chooser(self.keys, task);
            drop(gone);
        }
    }
}

impl Queues {
    /// Whether no task here has or wants the key alone.
    fn is_free_here(&self, key: &Key) -> bool {
        self.queues.get(key).is_none_or(|queue| matches!(queue.ticket, Whereabouts::Here))
    }

    /// Whether the key is being released, and no task here wants it alone.
    fn is_coming(&self, key: &Key) -> bool {
        let is_coming = |queue: &KeyQueue| matches!(queue.ticket, Whereabouts::Ending(_));
        self.queues.get(key).is_some_and(|queue| is_coming(queue) && queue.tasks.is_empty())
    }

    /// Keeps the waker of a task at each of the keys. None of them is free here, so that each has a
    /// queue. Returns wakers to drop.
    fn note_chooser(&mut self, keys: &[Key], task: u64, waker: &Waker) -> Vec<Waker> {
        let note = |key| self.queues.get_mut(key)?.choosers.insert(task, waker.clone());
        keys.iter().filter_map(note).collect()
    }

    /// Returns wakers to drop.
    fn forget_chooser(&mut self, keys: &[Key], task: u64) -> Vec<Waker> {
        let forget = |key| self.queues.get_mut(key)?.choosers.remove(&task);
        keys.iter().filter_map(forget).collect()
    }
}
