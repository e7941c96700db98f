//! Whether a call would have others to travel with.

use std::sync::atomic::{AtomicUsize, Ordering};

/// How many calls may travel alone at the same time. One task by itself has two under way to a node
/// that is slower than the others: it goes on without it.
const FEW: usize = 2;

/// After how many requests of few calls no more are expected.
const HABIT: usize = 16;

/// Who travels to a node at the same time.
///
/// For a backend that [carries](crate::Carry) calls where there are several, so that they travel
/// together: a task gathers what is there when it runs. A call that would have nobody to travel with
/// is quicker alone.
#[derive(Debug, Default)]
pub struct Company {
    /// How many calls travel alone.
    alone: AtomicUsize,
    /// How many calls the task has not looked at yet.
    waiting: AtomicUsize,
    /// How many it had on its hands when it last looked.
    carried: AtomicUsize,
    /// For how many requests to come there may be company again.
    habit: AtomicUsize,
}

impl Company {
    /// Whether a call would not be the only one: there are others, which it must not overtake, or
    /// there were just now, and they come again together.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.alone.load(Ordering::Relaxed) >= FEW
            || self.waiting.load(Ordering::Acquire) > 0
            || self.carried.load(Ordering::Relaxed) > 0
            || self.habit.load(Ordering::Relaxed) > 0
    }

    /// How many calls travel alone.
    #[must_use]
    pub fn alone(&self) -> usize {
        self.alone.load(Ordering::SeqCst)
    }

    /// Notes that a call travels alone.
    pub fn sets_out_alone(&self) {
        self.alone.fetch_add(1, Ordering::SeqCst);
    }

    /// Notes that it does not any more.
    pub fn was_alone(&self) {
        self.alone.fetch_sub(1, Ordering::Relaxed);
    }

    /// Notes that the task was given one more to look at.
    pub fn waits(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes how many calls the task has on its hands, after it has taken in some more.
    pub fn holds(&self, calls: usize, taken: usize) {
        self.carried.store(calls, Ordering::Relaxed);
        // What goes on after a first answer comes in uncounted.
        let less = |waiting: usize| Some(waiting.saturating_sub(taken));
        let _ = self.waiting.fetch_update(Ordering::Release, Ordering::Relaxed, less);
    }

    /// Notes that some calls leave together.
    pub fn leaves(&self, calls: usize) {
        let others = self.alone.load(Ordering::Relaxed);
        let habit = match calls + others {
            0..=FEW => self.habit.load(Ordering::Relaxed).saturating_sub(1),
            _ => HABIT,
        };
        self.habit.store(habit, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_for_the_task_is_not_overtaken() {
        let company = Company::default();
        assert!(!company.is_there());
        company.waits();
        assert!(company.is_there(), "it has not left");
        company.holds(1, 1);
        assert!(company.is_there(), "it is under way");
        company.waits();
        company.holds(0, 0);
        assert!(company.is_there(), "one came after the task looked");
        company.holds(0, 1);
        assert!(!company.is_there());
    }

    #[test]
    fn those_who_came_together_are_expected_again_for_a_while() {
        let company = Company::default();
        company.sets_out_alone();
        assert!(!company.is_there(), "one more may go alone");
        company.sets_out_alone();
        assert!(company.is_there());
        company.leaves(1);
        company.was_alone();
        company.was_alone();
        for _ in 0..HABIT {
            assert!(company.is_there());
            company.leaves(1);
        }
        assert!(!company.is_there());
    }
}
