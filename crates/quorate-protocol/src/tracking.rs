//! The watched keys of one connection with client tracking.
//!
//! A watch is registered **before** the key is read on that connection. So a change is pushed whenever
//! it comes after the reply, and a push that comes before the reply is not missed.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use quorate_core::backend::{self, Call};

use crate::value::Push;

/// The watched keys of one connection, with what notifies each waiter.
#[derive(Debug, Default)]
pub(crate) struct Tracking {
    watches: Mutex<Watches>,
    /// Something was received since the last look.
    has_received: AtomicBool,
}

#[derive(Debug, Default)]
struct Watches {
    of_keys: HashMap<Vec<u8>, Vec<backend::Push>>,
    /// From so many keys on, abandoned ones are forgotten.
    crowd: usize,
}

impl Tracking {
    /// Registers the sender of `call`, unless it is registered for this key: it hears of the next message about it.
    pub(crate) fn watch(&self, key: Cow<'_, [u8]>, call: &Call) {
        let mut watches = self.lock();
        match watches.of_keys.get_mut(&*key) {
            Some(pushes) if pushes.iter().any(|push| push.is_for(call)) => return,
            Some(pushes) => pushes.push(call.push()),
            None => drop(watches.of_keys.insert(key.into_owned(), vec![call.push()])),
        }
        if watches.of_keys.len() > watches.crowd {
            drop(watches);
            self.purge();
        }
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
            Push::AllKeys => drop(self.take_all()),
            Push::ConnectionLost => {
                self.take_all().into_values().flatten().for_each(backend::Push::end);
            }
        }
    }

    fn take(&self, key: &[u8]) -> Option<Vec<backend::Push>> {
        self.lock().of_keys.remove(key)
    }

    fn take_all(&self) -> HashMap<Vec<u8>, Vec<backend::Push>> {
        std::mem::take(&mut self.lock().of_keys)
    }

    /// Whether anything was received since the last call.
    pub(crate) fn take_has_received(&self) -> bool {
        self.has_received.swap(false, Ordering::Relaxed)
    }

    /// Forgets watches that were given up. Returns whether any is left.
    pub(crate) fn purge(&self) -> bool {
        let mut given_up = Vec::new();
        let mut watches = self.lock();
        watches.of_keys.retain(|_, pushes| {
            given_up.extend(pushes.extract_if(.., |push| push.is_given_up()));
            !pushes.is_empty()
        });
        let is_any_left = !watches.of_keys.is_empty();
        watches.crowd = LEAST_CROWD.max(2 * watches.of_keys.len());
        drop(watches);
        drop(given_up);
        is_any_left
    }

    fn lock(&self) -> MutexGuard<'_, Watches> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lease that has ended stays registered until there are more keys than this, and twice as many as were in use.
const LEAST_CROWD: usize = 1024;
