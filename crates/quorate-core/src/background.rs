//! What goes on in the background after a decision, counted, so that somebody can wait for it.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use futures_util::future::{Either, select};

use crate::algorithm::lease::saturating_add;
use crate::runtime::Runtime;

#[derive(Debug, Default)]
pub(crate) struct Background {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    running: usize,
    waiting: Vec<Waker>,
}

impl Background {
    /// Counts a task until what this returns is dropped, even if the task never runs.
    pub(crate) fn enter(self: &Arc<Self>) -> Running {
        self.lock().running += 1;
        Running(Arc::clone(self))
    }

    /// Waits until nothing runs, or for `bound`; tells how much still runs.
    pub(crate) async fn settle(&self, runtime: &dyn Runtime, bound: Duration) -> usize {
        let settled = poll_fn(|context| {
            let mut state = self.lock();
            if state.running == 0 {
                return Poll::Ready(());
            }
            if !state.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                state.waiting.push(context.waker().clone());
            }
            Poll::Pending
        });
        let deadline = saturating_add(runtime.now(), bound);
        match select(settled, runtime.sleep_until(deadline)).await {
            Either::Left(_) => 0,
            Either::Right(_) => self.lock().running,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct Running(Arc<Background>);

impl Drop for Running {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.running -= 1;
        let waiting = if state.running == 0 { std::mem::take(&mut state.waiting) } else { vec![] };
        drop(state);
        for waker in waiting {
            waker.wake();
        }
    }
}
