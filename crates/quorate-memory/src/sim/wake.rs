//! What wakes what: sleeps, tasks, and the future of `block_on`.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake};
use std::time::Instant;

use super::World;
use crate::clock::Clock;

pub(super) struct Sleep {
    pub(super) world: Arc<World>,
    pub(super) clock: Clock,
    pub(super) deadline: Instant,
    pub(super) timer: Option<(Instant, u64)>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let world = Arc::clone(&self.world);
        let mut state = world.lock();
        if self.clock.read(state.now) >= self.deadline {
            return Poll::Ready(());
        }
        let at = self.clock.when(self.deadline);
        let timer = *self.timer.get_or_insert_with(|| (at, state.take_id()));
        let before = state.timers.insert(timer, context.waker().clone());
        drop(state);
        drop(before);
        Poll::Pending
    }
}

/// A sleep that is given up must not draw the clock to its deadline.
impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(timer) = &self.timer {
            let waker = self.world.lock().timers.remove(timer);
            drop(waker);
        }
    }
}

pub(super) struct TaskWaker {
    pub(super) id: u64,
    /// A waker may be kept anywhere, and keeps no world alive.
    pub(super) world: Weak<World>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let Some(world) = self.world.upgrade() else { return };
        let mut state = world.lock();
        if let Some(task) = state.tasks.get_mut(&self.id)
            && !task.is_queued
        {
            task.is_queued = true;
            state.ready.push_back(self.id);
        }
    }
}

/// Whether the future of `block_on` is to be polled; at first it is.
pub(super) struct Alarm(Mutex<bool>);

impl Alarm {
    fn ringing(&self) -> MutexGuard<'_, bool> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_ringing(&self) -> bool {
        *self.ringing()
    }

    pub(super) fn went_off(&self) -> bool {
        std::mem::take(&mut *self.ringing())
    }
}

impl Default for Alarm {
    fn default() -> Self {
        Self(Mutex::new(true))
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        *self.ringing() = true;
    }
}
