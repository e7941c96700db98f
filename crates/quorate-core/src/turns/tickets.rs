//! Turns inside a manager: a FIFO queue of tasks for each key, and one ticket.
//!
//! The task that has the [`Ticket`] of a key competes for it at the nodes. A ticket that is dropped
//! is handed over to the first task of the queue. A request for several keys takes their tickets in
//! sorted order, one after the other, as nested locks do: so no circle of tasks can wait for each
//! other.
//!
//! Beside the queue stands the gate's latest word whether other processes wait, which comes with
//! the reply to a release, and the wait between processes while a task of this manager competes for
//! the key or is queued for it.
//!
//! An attempt carries the tickets of its request as a [`Turn`], which says when it hands them over.
//! The turn of a task that wants one of several names has a home ([`NameSet`]): its release
//! concerns the queue of the set, and the gate of that.

mod set;
mod taking;
mod turn;

use std::mem;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

pub(crate) use self::set::NameSet;
pub(crate) use self::turn::Turn;
use crate::cluster::attempts::Slot;
use crate::resource::{Key, Label};
use crate::turns::ManagerState;
use crate::turns::queues::{KeyQueue, Whereabouts};
use crate::turns::remote_wait::{Goal, RemoteWait, WaitInput, is_recent};

/// The right to compete for one key. Dropped, it is handed over.
pub(crate) struct Ticket {
    manager: Arc<ManagerState>,
    pub(crate) key: Key,
}

impl ManagerState {
    /// A gate has said whether other processes wait for `key`.
    pub(crate) fn note_word(&self, key: &Key, others_wait: bool, now: Instant) {
        let mut state = self.lock();
        state.sweep(now);
        if others_wait {
            state.queues.entry(key.clone()).or_default();
        }
        if let Some(queue) = state.queues.get_mut(key) {
            queue.word = Some((others_wait, now));
            queue.writer = queue.writer.filter(|_| others_wait);
            if matches!(queue.ticket, Whereabouts::Here) {
                state.forget_in_time(key);
            }
        }
    }

    /// A node has said to a reader that a writer waits for `key`.
    pub(crate) fn note_writer(&self, key: &Key, now: Instant) {
        self.note_word(key, true, now);
        if let Some(queue) = self.lock().queues.get_mut(key) {
            queue.writer = Some(now);
        }
    }

    /// The word that others wait for `key` is not true any more.
    pub(crate) fn forget_word(&self, key: &Key) {
        if let Some(queue) = self.lock().queues.get_mut(key) {
            (queue.word, queue.writer) = (None, None);
        }
    }

    /// The first of `keys` for which a writer waits, as its gate has said lately.
    pub(crate) fn waited_for<'a>(&self, keys: &'a [Key], now: Instant) -> Option<&'a Key> {
        let state = self.lock();
        let writer = |key| state.queues.get(key).and_then(|queue| queue.writer);
        keys.iter().find(|key| writer(*key).is_some_and(|at| is_recent(at, now)))
    }

    /// The releases of the attempt that has the ticket of `key` begin. Returns whether the gate of
    /// `queue` is asked whether others wait, which is another key for one of several names.
    fn begin_release(
        &self,
        key: &Key,
        queue: &Key,
        attempt: Slot,
        was_held: bool,
        now: Instant,
    ) -> bool {
        let mut state = self.lock();
        let Some(own) = state.queues.get_mut(key) else { return false };
        own.ticket = Whereabouts::Ending(attempt);
        own.ended = Some(now).filter(|_| was_held && key != queue);
        let is_wanted = |queue: &KeyQueue| queue.is_wanted() || queue.others_wait(now);
        let is_wanted =
            is_wanted(own) || key != queue && state.queues.get(queue).is_some_and(is_wanted);
        was_held && (is_wanted || state.asks_seldom(queue, now))
    }

    /// The attempt of this manager that is in the way of `key` with its release.
    pub(crate) fn releasing(&self, key: &Key) -> Option<Slot> {
        match self.lock().queues.get(key)?.ticket {
            Whereabouts::Ending(slot) => Some(slot),
            _ => None,
        }
    }

    /// The label of a task of this manager that waits between processes for one of `keys`.
    pub(crate) fn waiting_label(&self, keys: &[Key]) -> Option<Label> {
        let state = self.lock();
        let queues = keys.iter().filter_map(|key| state.queues.get(key));
        queues.filter(|queue| queue.wait.is_some()).find_map(|queue| queue.label.clone())
    }

    /// A lock for which a wait was in the queue of `key` is won: the wait ends. As long as no
    /// release says otherwise, other processes wait too.
    pub(crate) fn note_won(&self, key: &Key, now: Instant) {
        let wait = {
            let mut state = self.lock();
            let Some(queue) = state.queues.get_mut(key) else { return };
            queue.wait.take().inspect(|_| queue.word = Some((true, now)))
        };
        if let Some(wait) = wait {
            wait.input(WaitInput::Won);
        }
    }

    /// The ticket comes back: to the first task, if any, or the queue is left to be forgotten.
    fn hand_over(&self, key: &Key) {
        let mut state = self.lock();
        let Some(queue) = state.queues.get_mut(key) else { return };
        let choosers = mem::take(&mut queue.choosers);
        let next = queue.tasks.front().map(|(_, waker)| waker.clone());
        let unused = queue.wait.take_if(|_| next.is_none());
        if next.is_some() {
            queue.ticket = Whereabouts::Given;
        } else {
            queue.ticket = Whereabouts::Here;
            state.forget_in_time(key);
        }
        drop(state);
        if let Some(wait) = unused {
            wait.input(WaitInput::Cancel);
        }
        next.into_iter().chain(choosers.into_values()).for_each(Waker::wake);
    }
}

impl Ticket {
    /// Whether a wait between processes goes on here, or other processes wait by the gate's latest
    /// word.
    pub(crate) fn others_are_first(&self, now: Instant) -> bool {
        self.with(|queue| queue.wait.is_some() || queue.others_wait(now)).unwrap_or(false)
    }

    /// The wait between processes, if there is one.
    pub(crate) fn wait(&self) -> Option<Arc<RemoteWait>> {
        self.with(|queue| queue.wait.clone()).flatten()
    }

    /// Joins the wait queue at the gate, or goes on with the wait of an earlier task. `is_refused`:
    /// the request has lost a round. Returns the wait with the number of calls to attempt that the
    /// task has seen. `None` where no node keeps a queue, without randomness, and once the manager
    /// is closed.
    pub(crate) fn join_queue(
        &self,
        goal: Goal,
        node_timeout: Duration,
        is_refused: bool,
    ) -> Option<(Arc<RemoteWait>, u32)> {
        let cluster = &self.manager.cluster;
        let has_gates = cluster.nodes.has_gates();
        if let Some(wait) = self.wait().filter(|wait| has_gates && !wait.is_outdated()) {
            let seen = wait.calls_to_attempt();
            wait.input(match is_refused {
                true => WaitInput::Refused,
                false => WaitInput::TakeOver(goal.keys),
            });
            return Some((wait, seen));
        }
        self.cancel_wait();
        if !has_gates {
            return None;
        }
        let first = goal.keys[0].clone();
        let wait = RemoteWait::begin(cluster, first, goal, node_timeout, !is_refused)?;
        let seen = if is_refused { wait.calls_to_attempt() } else { 0 };
        if is_refused {
            // Its first attempt is the one that was just lost.
            wait.input(WaitInput::Refused);
        }
        let old = self.with(|queue| queue.wait.replace(Arc::clone(&wait)));
        drop(old);
        Some((wait, seen))
    }

    /// Keeps the label of a task that waits.
    pub(crate) fn note_label(&self, label: Option<Label>) {
        self.with(|queue| queue.label = label);
    }

    /// Ends the wait between processes, if there is one: it is not wanted any more.
    pub(crate) fn cancel_wait(&self) {
        if let Some(wait) = self.with(|queue| queue.wait.take()).flatten() {
            wait.input(WaitInput::Cancel);
        }
    }

    /// Whether a task of this manager is queued for the key.
    pub(crate) fn has_local(&self) -> bool {
        self.with(|queue| !queue.tasks.is_empty()).unwrap_or(false)
    }

    fn with<T>(&self, act: impl FnOnce(&mut KeyQueue) -> T) -> Option<T> {
        self.manager.lock().queues.get_mut(&self.key).map(act)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.manager.hand_over(&self.key);
    }
}
