//! What goes on after a decision, counted, so that somebody can wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use event_listener::Event;
use futures_util::future::{Either, select};

use crate::runtime::Runtime;

#[derive(Debug, Default)]
pub(crate) struct Background {
    running: AtomicUsize,
    idle: Event,
}

impl Background {
    /// Counts something until what this returns is dropped, even if it never runs.
    pub(crate) fn enter(self: &Arc<Self>) -> Running {
        self.running.fetch_add(1, Ordering::SeqCst);
        Running(Arc::clone(self))
    }

    /// Waits until nothing runs, or until `deadline`; tells how much still runs.
    pub(crate) async fn settle(&self, runtime: &dyn Runtime, deadline: Instant) -> usize {
        let mut timer = runtime.sleep_until(deadline);
        loop {
            let idle = self.idle.listen();
            if self.running() == 0 {
                return 0;
            }
            match select(idle, timer).await {
                Either::Left(((), unfinished)) => timer = unfinished,
                Either::Right(_) => return self.running(),
            }
        }
    }

    fn running(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }
}

pub(crate) struct Running(Arc<Background>);

impl Drop for Running {
    fn drop(&mut self) {
        if self.0.running.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.idle.notify(usize::MAX);
        }
    }
}
