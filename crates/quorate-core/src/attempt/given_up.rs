//! The calls of an attempt whose answers are not awaited any more.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use crate::runtime::lock;

/// Which calls were given up, and the tasks of backends that wait for that.
#[derive(Debug, Default)]
pub(super) struct GivenUp {
    /// Something is in the list, so that most replies take no mutex for it.
    is_used: AtomicBool,
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct List {
    is_over: bool,
    calls: Vec<u64>,
    wakers: Vec<(u64, Waker)>,
}

impl GivenUp {
    /// Ready when the call was given up.
    pub(super) fn poll(&self, number: u64, context: &Context<'_>) -> Poll<()> {
        let is_look = context.waker().will_wake(Waker::noop());
        if is_look && !self.is_used.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        let mut list = lock(&self.list);
        if list.is_over || list.calls.contains(&number) {
            return Poll::Ready(());
        }
        let mut old = None;
        if !is_look {
            self.is_used.store(true, Ordering::Release);
            let new = (number, context.waker().clone());
            match list.wakers.iter_mut().find(|(kept, _)| *kept == number) {
                Some(kept) => old = Some(std::mem::replace(kept, new)),
                None => list.wakers.push(new),
            }
        }
        drop(list);
        drop(old);
        Poll::Pending
    }

    /// A call has settled: no task waits for it any more.
    pub(super) fn settled(&self, number: u64) {
        if self.is_used.load(Ordering::Acquire) {
            let mut list = lock(&self.list);
            let at = list.wakers.iter().position(|(kept, _)| *kept == number);
            let gone = at.map(|at| list.wakers.swap_remove(at));
            drop(list);
            drop(gone);
        }
    }

    /// A call is given up. Returns its task, to be woken without any mutex.
    #[must_use]
    pub(super) fn add(&self, number: u64) -> Option<Waker> {
        self.is_used.store(true, Ordering::Release);
        let mut list = lock(&self.list);
        list.calls.push(number);
        let at = list.wakers.iter().position(|(kept, _)| *kept == number)?;
        Some(list.wakers.swap_remove(at).1)
    }

    /// All calls are given up. Returns their tasks, to be woken without any mutex.
    #[must_use]
    pub(super) fn add_all(&self) -> Vec<Waker> {
        self.is_used.store(true, Ordering::Release);
        let mut list = lock(&self.list);
        list.is_over = true;
        std::mem::take(&mut list.wakers).into_iter().map(|(_, waker)| waker).collect()
    }
}
