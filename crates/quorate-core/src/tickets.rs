//! Turns inside a manager: a FIFO queue of tasks for each key, and one ticket.
//!
//! The task that has the [`Ticket`] of a key competes for it at the nodes. A ticket that is dropped is given on to
//! the first task of the queue. A request for several keys takes their tickets in sorted order, one after the
//! other, as nested locks do: so no circle of tasks can wait for each other.
//!
//! Beside the queue stands the gate's latest word whether other processes wait, and the wait between processes
//! while a task of this manager competes for the key or is queued for it.
//!
//! When an attempt gives a ticket on is the pure function [`is_given_on`]. The ticket of a task that wants one of several
//! names has a *turn* ([`Turn`]): its release concerns that queue, and the wait between processes there.

mod taking;
mod turn;

use std::collections::VecDeque;
use std::collections::hash_map::{Entry, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;
use std::time::{Duration, Instant};
use std::{fmt, mem};

pub(crate) use self::taking::Taking;
pub(crate) use self::turn::Turn;
use crate::attempts::Slot;
use crate::cluster::Cluster;
use crate::error::QuorumFailure;
use crate::readers::Readers;
use crate::remote_wait::{RemoteWait, WaitInput};
use crate::resource::Key;
use crate::runtime::lock;

/// How long a hint is trusted, and a wait or a lease of this manager is remembered.
const RECENT: Duration = Duration::from_secs(1);

/// How often a manager that hears of nobody asks the gate.
const SELDOM: Duration = Duration::from_millis(100);

/// The queues of all keys that tasks of this manager have or want.
pub(crate) struct LocalQueues {
    pub(crate) cluster: Arc<Cluster>,
    /// Readers take no ticket.
    pub(crate) readers: Readers,
    state: Mutex<Queues>,
}

impl fmt::Debug for LocalQueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        let is_used = |queue: &&KeyQueue| !matches!(queue.ticket, Whereabouts::Here);
        let keys = state.queues.values().filter(is_used).count();
        let tasks: usize = state.queues.values().map(|queue| queue.tasks.len()).sum();
        drop(state);
        let open = self.cluster.attempts.open().len();
        f.debug_struct("LocalQueues")
            .field("keys", &keys)
            .field("tasks", &tasks)
            .field("open", &open)
            .finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Queues {
    queues: HashMap<Key, KeyQueue>,
    /// Queues that are kept for what they remember, and until when.
    lingering: VecDeque<(Instant, Key)>,
    last_task: u64,
    is_closed: bool,
}

/// The queue of one key.
struct KeyQueue {
    tasks: VecDeque<(u64, Waker)>,
    ticket: Whereabouts,
    /// Whether other processes wait, by the gate, and when it said so.
    word: Option<(bool, Instant)>,
    /// The word was used once, and the gate has said nothing since.
    is_word_used: bool,
    /// The wait between processes.
    wait: Option<Arc<RemoteWait>>,
    /// When a wait of ours was at the gate last.
    waited: Option<Instant>,
    /// When a lease of ours ended here last.
    ended: Option<Instant>,
    /// When the gate was asked last.
    asked: Option<Instant>,
    /// It is among those to be forgotten.
    is_lingering: bool,
}

/// Where the ticket of a key is.
enum Whereabouts {
    /// Nobody has it.
    Here,
    /// The first task has been woken for it.
    Given,
    /// A request or a lease has it.
    Out,
    /// The attempt at this place has it, and its releases have begun.
    Ending(Slot),
}

/// The right to compete for one key. Dropped, it is given on.
pub(crate) struct Ticket {
    queues: Arc<LocalQueues>,
    key: Key,
    turn: Option<Arc<Turn>>,
    /// Of the gate of its key, since the releases of its attempt have begun.
    hint: Hint,
}

/// Why there is no ticket.
pub(crate) enum NoTicket {
    /// A guard or an earlier task is in the way of a request that does not wait.
    Held,
    /// As many tasks as may are queued already.
    TooMany,
    Closed,
}

/// Whether the gate was asked behind the releases, and has answered. An error is an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hint {
    NotAsked,
    /// No gate could be asked: then nobody waits there.
    NoGate,
    Asked,
    Answered,
}

/// Whether a ticket is given on before a node timeout has passed. The releases have been handed to all nodes.
///
/// `is_quick`: the lock was not held, or no task here wants the key, or the gate's word is that no other process waits, or
/// there is no gate.
/// `is_decided`: the release is, or after a lost round the undo, or a quorum of nodes owes nothing.
///
/// | nodes | condition, first match | given on |
/// |---|---|---|
/// | pool | the release is not decided, or the hint was asked and is not answered | no |
/// | pool | else | yes |
/// | ordered | quick | yes: the next acquire leaves right behind the release |
/// | ordered | the hint was asked | when it is answered |
/// | ordered | else | when the release is decided |
const fn is_given_on(is_ordered: bool, is_quick: bool, hint: Hint, is_decided: bool) -> bool {
    match hint {
        Hint::Asked => is_ordered && is_quick,
        Hint::Answered => is_ordered || is_decided,
        Hint::NotAsked | Hint::NoGate => is_ordered && is_quick || is_decided,
    }
}

impl LocalQueues {
    pub(crate) fn new(cluster: Arc<Cluster>) -> Arc<Self> {
        Arc::new(Self { cluster, readers: Readers::default(), state: Mutex::default() })
    }

    /// The gate said whether other processes wait.
    pub(crate) fn note_word(&self, key: &Key, others_wait: bool, at: Instant) {
        if let Some(queue) = self.lock().queues.get_mut(key) {
            (queue.word, queue.is_word_used) = (Some((others_wait, at)), false);
        }
    }

    /// What the nodes have answered to a release of this manager that is in the way of `key`.
    pub(crate) fn releasing(&self, key: &Key) -> Option<QuorumFailure> {
        let Whereabouts::Ending(slot) = self.lock().queues.get(key)?.ticket else { return None };
        self.cluster.attempts.get(slot)?.release_failure(key)
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
            let Some(queue) = state.queues.get_mut(key) else { return };
            if let Some((_, waker)) = queue.tasks.front() {
                next = Some(waker.clone());
                queue.ticket = Whereabouts::Given;
            } else {
                queue.ticket = Whereabouts::Here;
                unused = queue.wait.take();
                if unused.is_some() {
                    queue.waited = Some(self.cluster.now());
                }
                match queue.remembers_until() {
                    Some(until) if !mem::replace(&mut queue.is_lingering, true) => {
                        state.lingering.push_back((until, key.clone()));
                    }
                    Some(_) => {}
                    None => drop(state.queues.remove(key)),
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
        lock(&self.state)
    }
}

impl Queues {
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

impl KeyQueue {
    const fn new() -> Self {
        Self {
            tasks: VecDeque::new(),
            ticket: Whereabouts::Here,
            word: None,
            is_word_used: false,
            wait: None,
            waited: None,
            ended: None,
            asked: None,
            is_lingering: false,
        }
    }

    /// How many tasks are queued behind the one that has the ticket, or is given it.
    fn waiters(&self) -> usize {
        let is_given = matches!(self.ticket, Whereabouts::Given);
        self.tasks.len().saturating_sub(usize::from(is_given))
    }

    fn is_recent(at: Option<Instant>, now: Instant) -> bool {
        at.is_some_and(|at| now.saturating_duration_since(at) < RECENT)
    }

    fn word(&self, now: Instant) -> Option<bool> {
        self.word
            .filter(|(_, at)| Self::is_recent(Some(*at), now))
            .map(|(others_wait, _)| others_wait)
    }

    fn has_waited(&self, now: Instant) -> bool {
        Self::is_recent(self.waited, now) || self.wait.is_some()
    }

    /// Whether the gate's word is that no other process waits. It counts once, and not while a wait of ours was at
    /// the gate in the last second: that word is as old as our hold.
    fn use_word(&mut self, now: Instant) -> bool {
        let is_alone = self.word(now) == Some(false) && !self.has_waited(now);
        is_alone && !mem::replace(&mut self.is_word_used, true)
    }

    /// Whether the gate is asked for a hint behind the releases of a lease that ends. `is_wanted`: by a task here.
    fn asks_gate(&mut self, is_wanted: bool, now: Instant) -> bool {
        let is_seldom = self.asked.is_none_or(|at| now.saturating_duration_since(at) >= SELDOM);
        let is_again = Self::is_recent(self.ended, now) && is_seldom;
        let is_wanted = is_wanted || !self.tasks.is_empty();
        self.ended = Some(now);
        // With an own entry in the queue the answer would always be yes.
        let asks = self.wait.is_none() && (is_wanted || self.has_waited(now) || is_again);
        self.asked = if asks { Some(now) } else { self.asked };
        asks
    }

    /// A word, a wait and the end of a lease are remembered for a second.
    fn remembers_until(&self) -> Option<Instant> {
        let word = self.word.map(|(_, at)| at);
        let since = word.max(self.waited).max(self.ended)?;
        since.checked_add(RECENT)
    }
}

impl Ticket {
    pub(crate) const fn key(&self) -> &Key {
        &self.key
    }

    pub(crate) const fn turn(&self) -> Option<&Arc<Turn>> {
        self.turn.as_ref()
    }

    /// Whether a wait between processes goes on here, or other processes wait by the gate's latest word.
    pub(crate) fn others_are_first(&self, now: Instant) -> bool {
        self.with(|queue| queue.wait.is_some() || queue.word(now) == Some(true)).unwrap_or(false)
    }

    /// The wait between processes, if there is one.
    pub(crate) fn wait(&self) -> Option<Arc<RemoteWait>> {
        self.with(|queue| queue.wait.clone()).flatten()
    }

    /// Keeps the wait between processes for this task, and for the next ones.
    pub(crate) fn keep_wait(&self, wait: Arc<RemoteWait>) {
        let old = self.with(|queue| queue.wait.replace(wait));
        drop(old);
    }

    /// Takes the wait between processes, which ends.
    #[must_use]
    pub(crate) fn end_wait(&self, now: Instant) -> Option<Arc<RemoteWait>> {
        let wait = self.with(|queue| {
            let wait = queue.wait.take()?;
            queue.waited = Some(now);
            Some(wait)
        });
        wait.flatten()
    }

    /// The releases of the attempt begin. Asks the gate for a hint if a task here wants the key, or has waited at the
    /// gate, or locks it again and again: `ask` begins the call.
    pub(crate) fn begin_ending(
        &mut self,
        attempt: Slot,
        was_held: bool,
        now: Instant,
        ask: impl FnOnce(&Key) -> Hint,
    ) {
        let mut state = self.queues.lock();
        let Some(queue) = state.queues.get_mut(&self.key) else { return };
        queue.ticket = Whereabouts::Ending(attempt);
        let is_wanted = !queue.tasks.is_empty();
        let is_asked = match &self.turn {
            None => queue.asks_gate(is_wanted, now),
            // The request goes on with another key.
            Some(_) if !was_held => return,
            Some(turn) => {
                queue.ended = Some(now);
                let queue = state.queues.get_mut(&turn.key);
                queue.is_some_and(|queue| queue.asks_gate(is_wanted, now))
            }
        };
        drop(state);
        if is_asked {
            self.hint = ask(self.turn.as_ref().map_or(&self.key, |turn| &turn.gate_key));
        }
    }

    /// Whether a task of this manager is queued for the key.
    pub(crate) fn has_local(&self) -> bool {
        self.with(|queue| !queue.tasks.is_empty()).unwrap_or(false)
    }

    /// The gate has answered the hint, or failed.
    pub(crate) const fn note_hint_answered(&mut self) {
        self.hint = Hint::Answered;
    }

    /// Whether the attempt gives it on now. The releases have been handed to all nodes.
    pub(crate) fn is_given_on(
        &self,
        is_ordered: bool,
        was_held: bool,
        is_decided: bool,
        now: Instant,
    ) -> bool {
        let is_quick = is_ordered
            && (!was_held
                || self
                    .with(|queue| {
                        queue.tasks.is_empty()
                            || self.hint == Hint::NoGate
                            || self.turn.is_none() && queue.use_word(now)
                    })
                    .unwrap_or(true));
        is_given_on(is_ordered, is_quick, self.hint, is_decided)
    }

    fn with<T>(&self, act: impl FnOnce(&mut KeyQueue) -> T) -> Option<T> {
        self.queues.lock().queues.get_mut(&self.key).map(act)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.queues.give_on(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows of the table, each with what may still vary.
    #[test]
    fn a_ticket_is_given_on_as_the_table_says() {
        use Hint::{Answered, Asked, NoGate, NotAsked};
        let bits = [false, true];
        for (is_quick, is_decided) in bits.into_iter().flat_map(|a| bits.map(|b| (a, b))) {
            let on_pools = |hint| is_given_on(false, is_quick, hint, is_decided);
            assert!(!on_pools(Asked));
            assert_eq!([NotAsked, NoGate, Answered].map(on_pools), [is_decided; 3]);
        }
        for hint in [NotAsked, NoGate, Asked, Answered] {
            assert!(bits.map(|is_decided| is_given_on(true, true, hint, is_decided)) == [true; 2]);
        }
        assert_eq!(
            bits.map(|is_decided| is_given_on(true, false, Answered, is_decided)),
            [true; 2]
        );
        assert_eq!(bits.map(|is_decided| is_given_on(true, false, Asked, is_decided)), [false; 2]);
        assert_eq!(bits.map(|is_decided| is_given_on(true, false, NotAsked, is_decided)), bits);
    }
    /// A gate that is far away answers after several holds.
    #[test]
    fn the_word_of_the_gate_counts_once_for_a_second_and_not_behind_a_wait_of_ours() {
        let now = Instant::now();
        let says = |others_wait| {
            let mut queue = KeyQueue::new();
            queue.word = Some((others_wait, now));
            queue
        };
        let mut alone = says(false);
        assert_eq!([alone.use_word(now), alone.use_word(now)], [true, false]);
        assert!(!says(true).use_word(now) && !KeyQueue::new().use_word(now));
        assert!(!says(false).use_word(now + RECENT));
        let mut has_waited = says(false);
        has_waited.waited = Some(now);
        assert!(!has_waited.use_word(now));
    }
}
