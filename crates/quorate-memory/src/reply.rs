//! A slot for one value from a node, whose caller may have been dropped.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The two ends.
pub(crate) fn reply<T>() -> (Sender<T>, Reply<T>) {
    let slot = Arc::new(Slot(Mutex::new((None, None))));
    (Sender(Arc::clone(&slot)), Reply(slot))
}

/// The node's end.
pub(crate) struct Sender<T>(Arc<Slot<T>>);

/// The caller's end. It stays pending for ever if the node drops its own.
pub(crate) struct Reply<T>(Arc<Slot<T>>);

/// The value, and the waker of the caller.
struct Slot<T>(Mutex<(Option<T>, Option<Waker>)>);

impl<T> Slot<T> {
    fn lock(&self) -> MutexGuard<'_, (Option<T>, Option<Waker>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Sender<T> {
    pub(crate) fn send(self, value: T) {
        let mut slot = self.0.lock();
        slot.0 = Some(value);
        let waker = slot.1.take();
        drop(slot);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl<T> Future for Reply<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut slot = self.0.lock();
        match slot.0.take() {
            Some(value) => Poll::Ready(value),
            None => {
                slot.1 = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
