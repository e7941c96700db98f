//! The watched keys of one connection with client tracking.
//!
//! A watch is registered **before** the key is read on that connection. So a change is pushed whenever
//! it comes after the reply, and a push that comes before the reply is not missed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use quorate_core::backend;

use crate::value::Push;

/// The watched keys of one connection, with what notifies each waiter.
#[derive(Debug, Default)]
pub(crate) struct Tracking {
    watches: Mutex<HashMap<Vec<u8>, Vec<backend::Push>>>,
    /// Something was received since the last look.
    has_received: AtomicBool,
}

impl Tracking {
    /// Registers a watch. `push` is dropped at the next message about the key.
    pub(crate) fn watch(&self, key: Vec<u8>, push: backend::Push) {
        self.lock().entry(key).or_default().push(push);
    }

    /// Takes what the server pushed.
    pub(crate) fn receive(&self, push: &Push) {
        self.has_received.store(true, Ordering::Relaxed);
        self.handle_push(push);
    }

    /// Notifies the watches that a message is about.
    pub(crate) fn handle_push(&self, push: &Push) {
        // Dropping a push notifies its sender, which must not happen under the lock.
        match push {
            Push::Key(key) => drop(self.take(key)),
            Push::AllKeys | Push::ConnectionLost => drop(std::mem::take(&mut *self.lock())),
        }
    }

    fn take(&self, key: &[u8]) -> Option<Vec<backend::Push>> {
        self.lock().remove(key)
    }

    /// Whether anything was received since the last call.
    pub(crate) fn take_has_received(&self) -> bool {
        self.has_received.swap(false, Ordering::Relaxed)
    }

    /// Forgets watches that were given up. Returns whether any is left.
    pub(crate) fn purge(&self) -> bool {
        let mut given_up = Vec::new();
        let mut watches = self.lock();
        watches.retain(|_, pushes| {
            given_up.extend(pushes.extract_if(.., |push| push.is_given_up()));
            !pushes.is_empty()
        });
        let is_any_left = !watches.is_empty();
        drop(watches);
        drop(given_up);
        is_any_left
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Vec<backend::Push>>> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
