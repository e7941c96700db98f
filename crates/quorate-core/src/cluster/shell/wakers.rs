//! The tasks that wait for a change of one state.
//!
//! A waker is cloned into the set under the state's mutex. It is woken and dropped without any
//! mutex: to drop a waker can drop a task, and with it a guard.

use std::task::{Context, Waker};

/// A set of wakers, each under the number of the future that waits.
#[derive(Debug, Default)]
pub(crate) struct Wakers {
    last: u64,
    /// Most states have one waiter.
    first: Option<(u64, Waker)>,
    more: Vec<(u64, Waker)>,
}

impl Wakers {
    /// Keeps the waker of a future. `number` is zero before the first time. Returns a waker to
    /// drop.
    #[must_use]
    pub(crate) fn keep(&mut self, number: &mut u64, context: &Context<'_>) -> Option<Waker> {
        if *number == 0 {
            self.last += 1;
            *number = self.last;
        }
        let kept = self.first.iter_mut().chain(&mut self.more).find(|(kept, _)| kept == number);
        match kept {
            Some((_, kept)) => Some(std::mem::replace(kept, context.waker().clone())),
            None => {
                let new = (*number, context.waker().clone());
                match &self.first {
                    None => self.first = Some(new),
                    Some(_) => self.more.push(new),
                }
                None
            }
        }
    }

    /// Forgets a future. Returns its waker, to drop.
    #[must_use]
    pub(crate) fn remove(&mut self, number: u64) -> Option<Waker> {
        if let Some((_, waker)) = self.first.take_if(|(kept, _)| *kept == number) {
            return Some(waker);
        }
        let at = self.more.iter().position(|(kept, _)| *kept == number)?;
        Some(self.more.swap_remove(at).1)
    }

    /// Moves all wakers into `other`, to be woken later.
    pub(crate) fn move_into(&mut self, other: &mut Self) {
        match &other.first {
            None => other.first = self.first.take(),
            Some(_) => other.more.extend(self.first.take()),
        }
        other.more.append(&mut self.more);
    }

    /// Adds tasks of backends, which wait for no state.
    pub(crate) fn add(&mut self, tasks: Vec<(u32, Waker)>) {
        self.more.extend(tasks.into_iter().map(|(_, task)| (0, task)));
    }

    /// Wakes all. Without any mutex.
    pub(crate) fn wake(self) {
        self.first.into_iter().chain(self.more).for_each(|(_, waker)| waker.wake());
    }
}
