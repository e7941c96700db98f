//! The commands that wait for a pipeline.

use std::collections::VecDeque;

use quorate_core::{BackendError, BackendErrorKind, planted};
use tokio::sync::oneshot;

use crate::command::Command;
use crate::reply::{Failure, Reply};
use crate::transport::Admission;

/// How many acquires are queued at most.
pub(super) const MAX_ACQUIRES: usize = 4096;

/// Commands of one pipeline.
const MAX_COMMANDS: usize = 64;

/// The least number of pushes between two looks for abandoned commands.
const SELDOM: usize = 16;

/// Bytes of one pipeline. A larger command goes alone.
const MAX_BYTES: usize = 64 << 10;

/// What came back for one command.
pub(super) type Answer = Result<Reply, Failure>;

/// Where the answer to one command goes. A slot that is dropped reads *lost*.
pub(super) type Slot = oneshot::Sender<Answer>;

/// The commands that wait for a pipeline, in the order of the first polls of their calls.
#[derive(Default)]
pub(super) struct Queue {
    items: VecDeque<Item>,
    acquires: usize,
    /// Pushes until it is looked through for commands that no caller awaits any more.
    rest: usize,
}

struct Item {
    command: Command,
    admission: Admission,
    slot: Slot,
}

impl Queue {
    /// Appends a command, unless too many acquires are queued.
    pub(super) fn push(
        &mut self,
        command: Command,
        admission: Admission,
    ) -> Result<oneshot::Receiver<Answer>, Failure> {
        let is_acquire = admission == Admission::Acquire;
        match self.rest.checked_sub(1) {
            Some(rest) => self.rest = rest,
            None => self.forget_abandoned(),
        }
        if is_acquire {
            if self.is_full() {
                let why = "too many acquires wait for this node";
                return Err(Failure::NotSent(BackendError::new(BackendErrorKind::Other, why)));
            }
            self.acquires += 1;
        }
        let (slot, answer) = oneshot::channel();
        let item = Item { command, admission, slot };
        if admission == Admission::Release && planted!("release_goes_first") {
            self.items.push_front(item);
        } else {
            self.items.push_back(item);
        }
        Ok(answer)
    }

    /// Takes the commands of the next pipeline. Commands that no caller awaits now are not sent.
    pub(super) fn take(&mut self) -> (Vec<Command>, Vec<Slot>) {
        let (mut commands, mut slots, mut bytes) = (Vec::new(), Vec::new(), 0);
        while let Some(next) = self.items.front() {
            let size = next.command.size();
            let is_awaited = !next.slot.is_closed() || planted!("abandoned_command_is_sent");
            let fits = commands.len() < MAX_COMMANDS && bytes + size <= MAX_BYTES
                || planted!("pipelines_have_any_size");
            if is_awaited && !fits && !commands.is_empty() {
                break;
            }
            let Some(item) = self.pop() else { break };
            if is_awaited {
                bytes += size;
                commands.push(item.command);
                slots.push(item.slot);
            }
        }
        (commands, slots)
    }

    const fn is_full(&self) -> bool {
        self.acquires >= MAX_ACQUIRES
    }

    /// Drops commands that no caller awaits any more: a node may hang for hours, and callers give
    /// up. The next time is after more pushes than commands are left, so that a push costs the same
    /// however long the queue is.
    fn forget_abandoned(&mut self) {
        self.items.retain(|item| !item.slot.is_closed());
        let acquires = self.items.iter().filter(|item| item.admission == Admission::Acquire);
        self.acquires = acquires.count();
        self.rest = self.items.len() + SELDOM;
    }

    /// Answers all as *not sent*.
    pub(super) fn refuse_all(&mut self, why: &BackendError) {
        while let Some(item) = self.pop() {
            // A caller that has gone has no use for it.
            drop(item.slot.send(Err(Failure::NotSent(why.clone()))));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    fn pop(&mut self) -> Option<Item> {
        let item = self.items.pop_front()?;
        self.acquires -= usize::from(item.admission == Admission::Acquire);
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_nothing_is_taken_from_keeps_no_abandoned_commands() {
        let mut queue = Queue::default();
        let kept = queue.push(Command::new("KEPT", 0), Admission::Acquire).unwrap();
        for _ in 0..10 * MAX_ACQUIRES {
            drop(queue.push(Command::new("GONE", 0), Admission::Acquire).unwrap());
            drop(queue.push(Command::new("GONE", 0), Admission::Other).unwrap());
            assert!(queue.items.len() < 64, "{}", queue.items.len());
        }
        let (commands, slots) = queue.take();
        assert_eq!((commands, slots.len()), (vec![Command::new("KEPT", 0)], 1));
        assert!(queue.is_empty() && queue.acquires == 0);
        drop(kept);
    }
}
