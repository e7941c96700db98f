//! The way back of an answer: one value from a node to a caller who may be gone.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The two ends.
pub(crate) fn reply<T>() -> (Sender<T>, Reply<T>) {
    let slot = Arc::new(Slot(Mutex::new(Mail::Awaited(None))));
    (Sender { slot: Arc::clone(&slot), is_silent: false }, Reply(slot))
}

/// The node's end.
pub(crate) struct Sender<T> {
    slot: Arc<Slot<T>>,
    is_silent: bool,
}

/// The caller's end; `None` if the node dropped its own.
pub(crate) struct Reply<T>(Arc<Slot<T>>);

struct Slot<T>(Mutex<Mail<T>>);

enum Mail<T> {
    Awaited(Option<Waker>),
    Here(T),
    Never,
}

impl<T> Slot<T> {
    fn lock(&self) -> MutexGuard<'_, Mail<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, mail: Mail<T>) {
        let before = std::mem::replace(&mut *self.lock(), mail);
        if let Mail::Awaited(Some(waker)) = before {
            waker.wake();
        }
    }
}

impl<T> Sender<T> {
    pub(crate) fn send(self, value: T) {
        self.slot.put(Mail::Here(value));
    }

    /// The caller waits for ever.
    pub(crate) fn forget(mut self) {
        self.is_silent = true;
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let awaited = matches!(*self.slot.lock(), Mail::Awaited(_));
        if awaited && !self.is_silent {
            self.slot.put(Mail::Never);
        }
    }
}

impl<T> Future for Reply<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut mail = self.0.lock();
        match std::mem::replace(&mut *mail, Mail::Never) {
            Mail::Here(value) => Poll::Ready(Some(value)),
            Mail::Never => Poll::Ready(None),
            Mail::Awaited(_) => {
                *mail = Mail::Awaited(Some(context.waker().clone()));
                Poll::Pending
            }
        }
    }
}
