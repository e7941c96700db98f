//! Sleeps by the clock of a client.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use quorate_core::runtime::BoxFuture;

use super::state::World;
use crate::clock::Clock;

/// What a clock reads `time` later; 30 years later if that is beyond all clocks.
pub(crate) fn after(now: Instant, time: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(30 * 365 * 86_400);
    now.checked_add(time).or_else(|| now.checked_add(FAR)).unwrap_or(now)
}

impl World {
    /// Waits until `clock` reads `deadline`.
    pub(crate) fn sleep(
        self: &Arc<Self>,
        clock: Clock,
        deadline: Instant,
    ) -> BoxFuture<'static, ()> {
        Box::pin(Sleep { world: Arc::clone(self), clock, deadline, timer: None })
    }
}

struct Sleep {
    world: Arc<World>,
    clock: Clock,
    deadline: Instant,
    timer: Option<(Instant, u64)>,
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

/// The timer of a sleep that was dropped must not move the clock.
impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(timer) = &self.timer {
            let waker = self.world.lock().timers.remove(timer);
            drop(waker);
        }
    }
}
