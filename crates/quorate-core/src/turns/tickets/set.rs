//! The tickets of tasks that want one of several names.
//!
//! Such a task takes the ticket of its *set of names* first. It hands that ticket over when it has
//! won a name, or has waited here for the ticket of one. So of one set, one task of this manager
//! waits, here or at the gate. It takes only names that are *free here*: no task of this manager
//! has or wants them alone. So a task that wants a name alone goes first.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};
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

    /// Resolves with `true` once one of the keys is free here. A request that waits for no holder
    /// waits for releases in flight only, and then it is `false`.
    pub(crate) async fn is_freed_here(&self, keys: &Arc<[Key]>, waits: bool) -> bool {
        poll_fn(|context| {
            let mut state = self.lock();
            let is_free = keys.iter().any(|key| state.is_free_here(key));
            if is_free || !waits && !keys.iter().any(|key| state.is_coming(key)) {
                return Poll::Ready(is_free);
            }
            state.note_chooser(keys, context.waker());
            Poll::Pending
        })
        .await
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

    fn note_chooser(&mut self, keys: &Arc<[Key]>, waker: &Waker) {
        let is_known = |(other, known): &(Arc<[Key]>, Waker)| {
            Arc::ptr_eq(other, keys) && known.will_wake(waker)
        };
        if !self.choosers.iter().any(is_known) {
            self.choosers.push((Arc::clone(keys), waker.clone()));
        }
    }

    /// The key is free here. Returns the tasks that wait for it as one of several.
    pub(super) fn take_choosers(&mut self, key: &Key) -> Vec<Waker> {
        let wants = |(keys, _): &mut (Arc<[Key]>, Waker)| keys.binary_search(key).is_ok();
        self.choosers.extract_if(.., wants).map(|(_, waker)| waker).collect()
    }

    /// Whether a task here wants the key, alone or as one of several.
    pub(super) fn is_wanted(&self, key: &Key) -> bool {
        self.queues.get(key).is_some_and(|queue| !queue.tasks.is_empty())
            || self.choosers.iter().any(|(keys, _)| keys.binary_search(key).is_ok())
    }
}
