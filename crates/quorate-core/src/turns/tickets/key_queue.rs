//! The queue of one key, and the memory of the key.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::cluster::attempts::Slot;
use crate::resource::Label;
use crate::turns::remote_wait::{RECENT, RemoteWait, is_recent};

/// The interval at which a manager that hears of no other process asks the gate.
const SELDOM: Duration = Duration::from_millis(100);

/// The queue of one key.
#[derive(Default)]
pub(super) struct KeyQueue {
    pub(super) tasks: VecDeque<(u64, Waker)>,
    pub(super) ticket: Whereabouts,
    /// Whether other processes wait, by the gate, and when it said so.
    pub(super) hint: Option<(bool, Instant)>,
    /// The hint was used once, and the gate has said nothing since.
    pub(super) is_hint_used: bool,
    /// The wait between processes.
    pub(super) wait: Option<Arc<RemoteWait>>,
    /// The label of the task that joined that wait last.
    pub(super) label: Option<Label>,
    /// When a wait of ours was at the gate last.
    pub(super) waited: Option<Instant>,
    /// When a lease of ours ended here last, on one of several names.
    pub(super) ended: Option<Instant>,
    /// When the gate was asked last.
    pub(super) asked: Option<Instant>,
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

    pub(super) fn hint(&self, now: Instant) -> Option<bool> {
        self.hint.filter(|(_, at)| is_recent(*at, now)).map(|(others_wait, _)| others_wait)
    }

    pub(super) fn has_waited(&self, now: Instant) -> bool {
        self.wait.is_some() || self.waited.is_some_and(|at| is_recent(at, now))
    }

    /// Whether the gate's hint is that no other process waits. It counts once, and not while a wait of ours was at
    /// the gate in the last second: that answer came when our hold began.
    pub(super) fn use_hint(&mut self, now: Instant) -> bool {
        let is_alone = self.hint(now) == Some(false) && !self.has_waited(now);
        is_alone && !mem::replace(&mut self.is_hint_used, true)
    }

    /// Whether the gate is asked for a hint behind the releases of a lease that ends. `is_wanted`: by a task here.
    /// `before`: when a lease of ours ended here before.
    pub(super) fn asks_gate(
        &mut self,
        is_wanted: bool,
        before: Option<Instant>,
        now: Instant,
    ) -> bool {
        let is_seldom = self.asked.is_none_or(|at| now.saturating_duration_since(at) >= SELDOM);
        let is_again = is_seldom && before.is_some_and(|at| is_recent(at, now));
        let is_wanted = is_wanted || !self.tasks.is_empty();
        // With an own entry in the queue the answer would always be yes.
        let asks = self.wait.is_none() && (is_wanted || self.has_waited(now) || is_again);
        self.asked = if asks { Some(now) } else { self.asked };
        asks
    }

    /// A hint, a question for one, a wait, and the end of a lease on one of several names are remembered for a second.
    pub(super) fn remembers_until(&self) -> Option<Instant> {
        let hint = self.hint.map(|(_, at)| at);
        let since = hint.max(self.asked).max(self.waited).max(self.ended)?;
        since.checked_add(RECENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A gate that is far away answers after several holds.
    #[test]
    fn the_hint_of_the_gate_counts_once_for_a_second_and_not_behind_a_wait_of_ours() {
        let now = Instant::now();
        let says = |others_wait| KeyQueue { hint: Some((others_wait, now)), ..KeyQueue::default() };
        let mut alone = says(false);
        assert_eq!([alone.use_hint(now), alone.use_hint(now)], [true, false]);
        assert!(!says(true).use_hint(now) && !KeyQueue::default().use_hint(now));
        assert!(!says(false).use_hint(now + RECENT));
        let mut has_waited = says(false);
        has_waited.waited = Some(now);
        assert!(!has_waited.use_hint(now));
    }
}
