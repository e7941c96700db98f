//! The queues of the tasks of a manager, one for each key, with the gate's word about the key.

use std::collections::hash_map::{Entry, HashMap};
use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::mem;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::cluster::attempts::Slot;
use crate::resource::{Key, Label};
use crate::turns::remote_wait::{RECENT, RemoteWait, is_recent};

/// The queues of all keys that tasks of a manager have or want.
#[derive(Default)]
pub(super) struct Queues {
    pub(super) queues: HashMap<Key, KeyQueue>,
    /// Queues that are kept for their memory, each until a time.
    pub(super) lingering: VecDeque<(Instant, Key)>,
    /// The hash of a key that no task here wanted at a release, and when its gate was asked last,
    /// or could have been. By a part of the hash.
    asked: Vec<(u64, Option<Instant>)>,
    last_task: u64,
}

/// The queue of one key.
#[derive(Default)]
pub(super) struct KeyQueue {
    pub(super) tasks: VecDeque<(u64, Waker)>,
    /// The tasks that wait for this key as one of several, by their numbers, until its ticket comes
    /// back. None while the key is free here.
    pub(super) choosers: BTreeMap<u64, Waker>,
    pub(super) ticket: Whereabouts,
    /// Whether other processes wait, as the gate said it last, or as is assumed after a win that
    /// had waited; and when.
    pub(super) word: Option<(bool, Instant)>,
    /// When a node last said to a reader that a writer waits. Since then no gate has said that
    /// nobody does.
    pub(super) writer: Option<Instant>,
    /// The wait between processes.
    pub(super) wait: Option<Arc<RemoteWait>>,
    /// The label of the task that joined that wait last.
    pub(super) label: Option<Label>,
    /// When a lease of ours ended here last, on one of several names.
    pub(super) ended: Option<Instant>,
    /// It is among those to be forgotten.
    pub(super) is_lingering: bool,
}

/// Where the ticket of a key is.
#[derive(Default)]
pub(super) enum Whereabouts {
    /// Nobody has it.
    #[default]
    Here,
    /// The first task has been woken for it.
    Given,
    /// A request or a lease has it.
    Out,
    /// The attempt at this place has it, and its releases have begun.
    Ending(Slot),
}

impl KeyQueue {
    /// How many tasks are queued behind the one that has the ticket, or is given it.
    pub(super) fn waiters(&self) -> usize {
        let is_given = matches!(self.ticket, Whereabouts::Given);
        self.tasks.len().saturating_sub(usize::from(is_given))
    }

    /// Whether a task here wants the key, alone or as one of several.
    pub(super) fn is_wanted(&self) -> bool {
        !self.tasks.is_empty() || !self.choosers.is_empty()
    }

    /// Whether the gate has said lately that other processes wait.
    pub(super) fn others_wait(&self, now: Instant) -> bool {
        self.word.is_some_and(|(others_wait, at)| others_wait && is_recent(at, now))
    }

    /// Whether the gate has said lately that no other process waits. Such a word counts once: the
    /// release that follows it brings the next one.
    pub(super) fn use_word(&mut self, now: Instant) -> bool {
        self.word.take_if(|(others_wait, at)| !*others_wait && is_recent(*at, now)).is_some()
    }

    /// A word of the gate, and the end of a lease on one of several names, are remembered for a
    /// second.
    pub(super) fn remembers_until(&self) -> Option<Instant> {
        self.word.map(|(_, at)| at).max(self.ended)?.checked_add(RECENT)
    }
}

/// The interval at which a manager asks the gate of a key that it releases again and again, and no
/// task here wants.
const SELDOM: Duration = Duration::from_millis(100);

/// How many keys are remembered for that.
const PLACES: usize = 1024;

impl Queues {
    /// The number of a task that begins to wait.
    pub(super) const fn next_task(&mut self) -> u64 {
        self.last_task += 1;
        self.last_task
    }

    /// Whether the gate of a key is asked that no task here wants: else a tight loop hears of
    /// nobody. The first release does not ask.
    pub(super) fn asks_seldom(&mut self, key: &Key, now: Instant) -> bool {
        // The same in each run, so that a simulated world can be played again.
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let hash = hasher.finish();
        self.asked.resize(PLACES, (0, None));
        let place = &mut self.asked[hash as usize % PLACES];
        if place.1.is_some_and(|at| now.saturating_duration_since(at) < SELDOM) {
            return false;
        }
        mem::replace(place, (hash, Some(now))).0 == hash
    }

    /// Nobody has or wants the ticket of `key`: its queue is forgotten, once it has nothing to
    /// remember.
    pub(super) fn forget_in_time(&mut self, key: &Key) {
        let Entry::Occupied(mut queue) = self.queues.entry(key.clone()) else { return };
        match queue.get().remembers_until() {
            Some(until) if !mem::replace(&mut queue.get_mut().is_lingering, true) => {
                self.lingering.push_back((until, key.clone()));
            }
            Some(_) => {}
            None => drop(queue.remove()),
        }
    }

    /// Forgets queues that have nothing to remember any more.
    pub(super) fn sweep(&mut self, now: Instant) {
        while self.lingering.front().is_some_and(|(until, _)| *until <= now) {
            let Some((_, key)) = self.lingering.pop_front() else { return };
            let Some(queue) = self.queues.get_mut(&key) else { continue };
            queue.is_lingering = false;
            if !matches!(queue.ticket, Whereabouts::Here) {
                continue;
            }
            match queue.remembers_until() {
                Some(until) if now < until => self.forget_in_time(&key),
                _ => drop(self.queues.remove(&key)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::Resource;

    /// A gate that is far away answers after several holds.
    #[test]
    fn the_word_that_nobody_waits_counts_once_and_for_a_second() {
        let now = Instant::now();
        let said = |others_wait| KeyQueue { word: Some((others_wait, now)), ..KeyQueue::default() };
        let mut alone = said(false);
        assert_eq!([alone.use_word(now), alone.use_word(now)], [true, false]);
        assert!(!said(true).use_word(now) && !KeyQueue::default().use_word(now));
        assert!(!said(false).use_word(now + RECENT));
        assert!(said(true).others_wait(now) && !said(true).others_wait(now + RECENT));
        assert!(!said(false).others_wait(now));
    }

    /// Each queue is in the list of those to be forgotten at most once, and is put there again
    /// after its next use.
    #[test]
    fn a_queue_is_forgotten_a_second_after_its_last_use() {
        let start = Instant::now();
        let [first, last] = [start + RECENT, start + RECENT * 3 / 2];
        let key = Resource::new("r").map(|resource| Key::new(b"", &resource)).unwrap();
        let mut state = Queues::default();
        let word = Some((true, start + RECENT / 2));
        let queue = KeyQueue { word, is_lingering: true, ..KeyQueue::default() };
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
