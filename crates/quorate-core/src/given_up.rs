//! Tasks of backends that wait until the answer to a call is not awaited any more.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use crate::runtime::lock;

/// The tasks, each with the number of its call. A watch has two: its call, and its push.
#[derive(Debug, Default)]
pub(crate) struct Givers {
    /// So that most replies take no mutex for it.
    is_used: AtomicBool,
    tasks: Mutex<Vec<(u32, Waker)>>,
}

impl Givers {
    /// Ready if the call is given up. Else the task is woken when [`take`](Self::take) was called.
    pub(crate) fn poll(
        &self,
        number: u32,
        context: &Context<'_>,
        is_given_up: impl Fn() -> bool,
    ) -> Poll<()> {
        let new = context.waker();
        if !is_given_up() && !new.will_wake(Waker::noop()) {
            self.is_used.store(true, Ordering::SeqCst);
            let mut tasks = lock(&self.tasks);
            if !tasks.iter().any(|(kept, task)| *kept == number && task.will_wake(new)) {
                tasks.push((number, new.clone()));
            }
        }
        // It may have been given up meanwhile.
        if is_given_up() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// A call has settled: no task waits for it any more.
    pub(crate) fn settled(&self, number: u32) {
        if self.is_used.load(Ordering::SeqCst) {
            let settled: Vec<_> =
                lock(&self.tasks).extract_if(.., |(kept, _)| *kept == number).collect();
            drop(settled);
        }
    }

    /// A call was given up. Returns all tasks, to be woken without any mutex.
    #[must_use]
    pub(crate) fn take(&self) -> Vec<(u32, Waker)> {
        std::mem::take(&mut *lock(&self.tasks))
    }
}
