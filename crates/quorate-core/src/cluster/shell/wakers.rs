//! The tasks that wait for a change of one state.
//!
//! A waker is cloned into the set under the state's mutex. It is woken and dropped without any
//! mutex: to drop a waker can drop a task, and with it a guard.

use std::mem;
use std::task::{Context, Waker};

/// A set of wakers, each under the number of the future that waits.
#[derive(Debug, Default)]
pub(crate) struct Wakers {
    last: u64,
    list: Vec<(u64, Waker)>,
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
        let old = self.remove(*number);
        self.list.push((*number, context.waker().clone()));
        old
    }

    /// Forgets a future. Returns its waker, to drop.
    #[must_use]
    pub(crate) fn remove(&mut self, number: u64) -> Option<Waker> {
        let at = self.list.iter().position(|(kept, _)| *kept == number)?;
        Some(self.list.swap_remove(at).1)
    }

    /// Takes all wakers, to be woken later.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = Waker> + use<> {
        mem::take(&mut self.list).into_iter().map(|(_, waker)| waker)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_future_is_in_the_set_once_however_often_it_is_polled() {
        let counts: [Arc<Count>; 3] = Default::default();
        let mut wakers = Wakers::default();
        let mut numbers = [0; 3];
        for _ in 0..3 {
            for (number, count) in numbers.iter_mut().zip(&counts) {
                let waker = Waker::from(Arc::clone(count));
                drop(wakers.keep(number, &Context::from_waker(&waker)));
            }
        }
        assert!(wakers.remove(numbers[1]).is_some() && wakers.remove(numbers[1]).is_none());
        wakers.take().for_each(Waker::wake);
        assert_eq!(wakers.take().count(), 0);
        assert_eq!(counts.map(|count| count.0.load(Ordering::Relaxed)), [1, 0, 1]);
    }
}
