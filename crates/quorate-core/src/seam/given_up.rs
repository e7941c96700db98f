//! Tasks of backends that wait until the answer to a call is not awaited any more.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use crate::seam::runtime::lock;

/// The tasks, each with the number of its call. A watch has two: its call, and its push.
#[derive(Debug, Default)]
pub(crate) struct GiveUpWakers {
    /// So that most replies take no mutex for it.
    is_used: AtomicBool,
    tasks: Mutex<Vec<(u32, Waker)>>,
}

impl GiveUpWakers {
    /// Whether the call is given up. Else the task is woken when [`take`](Self::take) was called.
    pub(crate) fn ask(
        &self,
        number: u32,
        task: Option<&Waker>,
        is_given_up: impl Fn() -> bool,
    ) -> bool {
        let Some(new) = task else { return is_given_up() };
        if !is_given_up() {
            self.is_used.store(true, Ordering::SeqCst);
            let mut tasks = lock(&self.tasks);
            if !tasks.iter().any(|(kept, task)| *kept == number && task.will_wake(new)) {
                tasks.push((number, new.clone()));
            }
        }
        // It may have been given up meanwhile.
        is_given_up()
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::Wake;

    use super::*;

    struct Task;

    impl Wake for Task {
        fn wake(self: Arc<Self>) {}
    }

    /// Two tasks wait for the call 1, and one of them for another call as well. A look is no task.
    #[test]
    fn each_task_is_kept_once_for_each_call_until_that_settles() {
        let (give_up_wakers, tasks) =
            (GiveUpWakers::default(), [Task, Task].map(|task| Waker::from(Arc::new(task))));
        let wait = |number, task: &Waker, is_given_up| {
            give_up_wakers.ask(number, Some(task), || is_given_up)
        };
        for _ in 0..2 {
            for (number, task) in [(1, &tasks[0]), (1, &tasks[1]), (2, &tasks[0])] {
                assert!(!wait(number, task, false));
            }
            assert!(!give_up_wakers.ask(1, None, || false));
            assert!(wait(3, &tasks[1], true), "it need not be woken");
        }
        assert_eq!(give_up_wakers.take().len(), 3);
        assert!(!wait(1, &tasks[0], false) && !wait(2, &tasks[1], false));
        give_up_wakers.settled(1);
        let left = give_up_wakers.take();
        assert!(left.len() == 1 && left[0].1.will_wake(&tasks[1]));
    }
}
