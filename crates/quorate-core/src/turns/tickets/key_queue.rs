//! The queue of one key, and the gate's word about the key.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use crate::cluster::attempts::Slot;
use crate::resource::Label;
use crate::turns::remote_wait::{RECENT, RemoteWait, is_recent};

/// The queue of one key.
#[derive(Default)]
pub(super) struct KeyQueue {
    pub(super) tasks: VecDeque<(u64, Waker)>,
    pub(super) ticket: Whereabouts,
    /// Whether other processes wait, as the gate said it last, and when.
    pub(super) word: Option<(bool, Instant)>,
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
