//! How a world goes on: one task at a time, and the next timer when no task is ready.

use std::task::{Context, Waker};
use std::time::Instant;

use super::state::World;

impl World {
    /// Runs one task that is ready; `false` if there is none.
    pub(crate) fn run_one(&self) -> bool {
        let mut state = self.lock();
        let Some(id) = state.take_ready() else { return false };
        let Some((mut future, waker)) = state.take_future(id) else { return true };
        drop(state);
        let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
        let mut state = self.lock();
        match state.tasks.get_mut(&id) {
            Some(task) if polled.is_pending() => task.future = Some(future),
            _ => {
                let task = state.tasks.remove(&id);
                // A task may spawn when it is dropped, so the world must not be locked.
                drop(state);
                drop((task, future));
            }
        }
        true
    }

    /// Goes to the next timer and wakes its task; `false` if there is no timer up to `limit`.
    ///
    /// With a random scheduler, all timers of that time wake together.
    pub(crate) fn jump(&self, limit: Option<Instant>) -> bool {
        let mut state = self.lock();
        let Some(timer) = state.timers.first_entry() else { return false };
        let (at, _) = *timer.key();
        if limit.is_some_and(|limit| at > limit) {
            return false;
        }
        let mut wakers = vec![timer.remove()];
        state.now = state.now.max(at);
        while state.scheduler.is_some()
            && let Some(timer) = state.timers.first_entry().filter(|timer| timer.key().0 == at)
        {
            wakers.push(timer.remove());
        }
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        true
    }

    /// Runs everything that happens up to `end`.
    pub(crate) fn run_until(&self, end: Instant) {
        while self.run_one() || self.jump(Some(end)) {}
        let mut state = self.lock();
        state.now = state.now.max(end);
    }
}
