//! Turns inside a manager: a FIFO queue of tasks for each key, and one ticket.
//!
//! The task that has the [`Ticket`] of a key competes for it at the nodes. A ticket that is dropped is given on to
//! the first task of the queue. A request for several keys takes their tickets in sorted order, one after the
//! other, as nested locks do: so no circle of tasks can wait for each other.
//!
//! Beside the queue stands the gate's latest hint whether other processes wait, and the wait between processes
//! while a task of this manager competes for the key or is queued for it.
//!
//! An attempt carries the tickets of its request as a [`Turn`]. `giving` is when it gives them on. The turn of a task that
//! wants one of several names has a home ([`NameSet`]): its release concerns the queue of the set, and the gate of that.

mod giving;
mod key_queue;
mod set;
mod taking;
mod turn;

use std::collections::VecDeque;
use std::collections::hash_map::{Entry, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;
use std::time::{Duration, Instant};
use std::{fmt, mem};

pub(crate) use self::giving::Asking;
use self::key_queue::{KeyQueue, Whereabouts};
pub(crate) use self::set::NameSet;
pub(crate) use self::taking::Taking;
pub(crate) use self::turn::{Progress, Turn};
use crate::cluster::Cluster;
use crate::cluster::attempts::Slot;
use crate::error::QuorumFailure;
use crate::resource::{Key, Label};
use crate::seam::runtime::lock;
use crate::turns::readers::Readers;
use crate::turns::remote_wait::{Goal, RemoteWait, WaitInput};

/// The root of a manager, which its requests and attempts share.
pub(crate) struct Inner {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) turns: Turns,
}

/// The turns of this process.
#[derive(Default)]
pub(crate) struct Turns {
    /// Readers take no ticket.
    pub(crate) readers: Readers,
    /// The queues of all keys that tasks of this manager have or want.
    queues: Mutex<Queues>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        let is_used = |queue: &&KeyQueue| !matches!(queue.ticket, Whereabouts::Here);
        let keys = state.queues.values().filter(is_used).count();
        let tasks: usize = state.queues.values().map(|queue| queue.tasks.len()).sum();
        drop(state);
        let open = self.cluster.attempts.open().len();
        f.debug_struct("Inner")
            .field("keys", &keys)
            .field("tasks", &tasks)
            .field("open", &open)
            .finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Queues {
    queues: HashMap<Key, KeyQueue>,
    /// Queues that are kept for their memory, each until a time.
    lingering: VecDeque<(Instant, Key)>,
    /// When names were released last: of [`RELEASES`] names at most.
    releases: HashMap<Key, Instant>,
    last_task: u64,
    is_closed: bool,
}

/// The right to compete for one key. Dropped, it is given on.
pub(crate) struct Ticket {
    manager: Arc<Inner>,
    pub(crate) key: Key,
    /// Of the gate of its key, or of its home, since the releases of its attempt have begun.
    asking: Asking,
}

/// Why there is no ticket.
pub(crate) enum NoTicket {
    /// A guard or an earlier task is in the way of a request that does not wait.
    Held,
    /// As many tasks as may are queued already.
    TooMany,
    Closed,
}

impl Inner {
    pub(crate) fn new(cluster: Cluster) -> Arc<Self> {
        Arc::new(Self { cluster: Arc::new(cluster), turns: Turns::default() })
    }

    /// The gate said whether other processes wait.
    pub(crate) fn note_hint(&self, key: &Key, others_wait: bool, at: Instant) {
        if let Some(queue) = self.lock().queues.get_mut(key) {
            (queue.hint, queue.is_hint_used) = (Some((others_wait, at)), false);
        }
    }

    /// What the nodes have answered to a release of this manager that is in the way of `key`.
    pub(crate) fn releasing(&self, key: &Key) -> Option<QuorumFailure> {
        let Whereabouts::Ending(slot) = self.lock().queues.get(key)?.ticket else { return None };
        self.cluster.attempts.get(slot)?.release_failure(key)
    }

    /// The label of a task of this manager that waits between processes for one of `keys`.
    pub(crate) fn waiting_label(&self, keys: &[Key]) -> Option<Label> {
        let state = self.lock();
        let queues = keys.iter().filter_map(|key| state.queues.get(key));
        queues.filter(|queue| queue.wait.is_some()).find_map(|queue| queue.label.clone())
    }

    /// Takes the wait between processes out of the queue of `key`: it ends.
    #[must_use]
    pub(crate) fn end_wait(&self, key: &Key, now: Instant) -> Option<Arc<RemoteWait>> {
        let mut state = self.lock();
        let queue = state.queues.get_mut(key)?;
        queue.wait.take().inspect(|_| queue.waited = Some(now))
    }

    /// Fails all tasks that are queued, now and from now on.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        let tasks = state.queues.values().flat_map(|queue| &queue.tasks);
        let wakers: Vec<Waker> = tasks.map(|(_, waker)| waker.clone()).collect();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// The ticket comes back: to the first task, if any, or the queue is left to be forgotten.
    fn give_on(&self, key: &Key) {
        let (mut next, mut unused) = (None, None);
        {
            let mut state = self.lock();
            let Queues { queues, lingering, .. } = &mut *state;
            let Entry::Occupied(mut entry) = queues.entry(key.clone()) else { return };
            let queue = entry.get_mut();
            if let Some((_, waker)) = queue.tasks.front() {
                next = Some(waker.clone());
                queue.ticket = Whereabouts::Given;
            } else {
                queue.ticket = Whereabouts::Here;
                unused = queue.wait.take().inspect(|_| queue.waited = Some(self.cluster.now()));
                match queue.remembers_until() {
                    Some(until) if !mem::replace(&mut queue.is_lingering, true) => {
                        lingering.push_back((until, key.clone()));
                    }
                    Some(_) => {}
                    None => drop(entry.remove()),
                }
            }
        }
        if let Some(wait) = unused {
            wait.input(WaitInput::Cancel);
        }
        if let Some(waker) = next {
            waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        lock(&self.turns.queues)
    }
}

/// For how many names it is remembered when they were released last. Of a name that is forgotten the gate is asked once
/// less.
const RELEASES: usize = 1024;

impl Queues {
    /// The releases of the attempt that has the ticket of `key` begin. Returns whether the gate is asked whether others wait.
    fn begin_release(&mut self, key: &Key, attempt: Slot, was_held: bool, now: Instant) -> bool {
        let before = was_held.then(|| self.note_release(key, now)).flatten();
        let Some(queue) = self.queues.get_mut(key) else { return false };
        queue.ticket = Whereabouts::Ending(attempt);
        was_held && queue.asks_gate(false, before, now)
    }

    /// Notes a release. Returns when the one before was, if that is remembered.
    fn note_release(&mut self, key: &Key, now: Instant) -> Option<Instant> {
        if self.releases.len() == RELEASES {
            self.releases.clear();
        }
        self.releases.insert(key.clone(), now)
    }

    /// Forgets queues that have nothing to remember any more.
    fn sweep(&mut self, now: Instant) {
        while self.lingering.front().is_some_and(|(until, _)| *until <= now) {
            let Some((_, key)) = self.lingering.pop_front() else { return };
            let Entry::Occupied(mut queue) = self.queues.entry(key) else { continue };
            queue.get_mut().is_lingering = false;
            if !matches!(queue.get().ticket, Whereabouts::Here) {
                continue;
            }
            match queue.get().remembers_until() {
                Some(until) if now < until => {
                    queue.get_mut().is_lingering = true;
                    self.lingering.push_back((until, queue.key().clone()));
                }
                _ => drop(queue.remove()),
            }
        }
    }
}

impl Ticket {
    /// Whether a wait between processes goes on here, or other processes wait by the gate's latest hint.
    pub(crate) fn others_are_first(&self, now: Instant) -> bool {
        self.with(|queue| queue.wait.is_some() || queue.hint(now) == Some(true)).unwrap_or(false)
    }

    /// The wait between processes, if there is one.
    pub(crate) fn wait(&self) -> Option<Arc<RemoteWait>> {
        self.with(|queue| queue.wait.clone()).flatten()
    }

    /// Joins the wait queue at the gate, or goes on with the wait of an earlier task. `is_refused`: the request has lost a
    /// round. Returns the wait with the number of calls to attempt that the task has seen. `None` where no node keeps a
    /// queue, without randomness, and once the manager is closed.
    pub(crate) fn join_queue(
        &self,
        keys: &Arc<[Key]>,
        goal: fn(Arc<[Key]>, u8) -> Goal,
        node_timeout: Duration,
        is_refused: bool,
    ) -> Option<(Arc<RemoteWait>, u32)> {
        let cluster = &self.manager.cluster;
        let has_gates = cluster.nodes.has_gates();
        if let Some(wait) = self.wait().filter(|wait| has_gates && !wait.is_outdated()) {
            let seen = wait.calls_to_attempt();
            wait.input(match is_refused {
                true => WaitInput::Refused,
                false => WaitInput::TakeOver(Arc::clone(keys)),
            });
            return Some((wait, seen));
        }
        self.cancel_wait(cluster.now());
        if !has_gates {
            return None;
        }
        let first = keys[0].clone();
        let goal = |random| goal(Arc::clone(keys), random);
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

    /// Takes the wait between processes, which ends.
    #[must_use]
    pub(crate) fn end_wait(&self, now: Instant) -> Option<Arc<RemoteWait>> {
        self.manager.end_wait(&self.key, now)
    }

    /// Ends the wait between processes, if there is one: it is not wanted any more.
    pub(crate) fn cancel_wait(&self, now: Instant) {
        if let Some(wait) = self.end_wait(now) {
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
        self.manager.give_on(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::Resource;
    use crate::turns::remote_wait::RECENT;

    /// Each queue is in the list of those to be forgotten at most once, and is put there again after its next use.
    #[test]
    fn a_queue_is_forgotten_a_second_after_its_last_use() {
        let start = Instant::now();
        let [first, last] = [start + RECENT, start + RECENT * 3 / 2];
        let key = Resource::new("r").map(|resource| Key::new(b"", &resource)).unwrap();
        let mut state = Queues::default();
        let asked = Some(start + RECENT / 2);
        let queue = KeyQueue { asked, is_lingering: true, ..KeyQueue::default() };
        state.queues.insert(key.clone(), queue);
        state.lingering.push_back((first, key.clone()));
        state.sweep(first);
        assert_eq!(state.lingering, [(last, key.clone())], "it was used in between");
        assert!(state.queues[&key].is_lingering);

        // A task has the ticket when the time is over.
        state.queues.get_mut(&key).unwrap().ticket = Whereabouts::Out;
        state.sweep(last);
        assert!(state.lingering.is_empty() && !state.queues[&key].is_lingering);

        state.queues.get_mut(&key).unwrap().ticket = Whereabouts::Here;
        state.lingering.push_back((last, key));
        state.sweep(last);
        assert!(state.lingering.is_empty() && state.queues.is_empty());
    }
}
