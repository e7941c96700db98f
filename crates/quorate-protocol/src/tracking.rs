//! The watched keys of one connection with client tracking.
//!
//! A watch is registered **before** the key is read on that connection. So a change is pushed
//! whenever it comes after the reply, and a push that comes before the reply is not missed.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use quorate_core::backend::{self, Call};

use crate::value::Push;

/// The watched keys of one connection, with what notifies each waiter.
#[derive(Debug, Default)]
pub(crate) struct Tracking(Mutex<Watches>);

#[derive(Debug, Default)]
struct Watches {
    /// By the hash of the key and the sender. A sender whose key has the hash of another one hears
    /// of that for nothing, which changes nothing (P1). A process renews many leases, and does not
    /// keep their names once more.
    pushes: BTreeMap<(u64, usize), backend::Push>,
    hashes: RandomState,
    /// From so many pushes on, abandoned ones are forgotten.
    crowd: usize,
}

impl Tracking {
    /// Registers the sender of `call`, unless it is registered for this key: it hears of the next
    /// message about it.
    pub(crate) fn watch(&self, key: &[u8], call: &Call) {
        let mut watches = self.lock();
        let hash = watches.hashes.hash_one(key);
        watches.pushes.entry((hash, call.sender())).or_insert_with(|| call.push());
        if watches.pushes.len() > watches.crowd {
            drop(watches);
            self.purge();
        }
    }

    /// Notifies the watches that a message is about.
    pub(crate) fn handle_push(&self, push: &Push) {
        // Dropping a push notifies its sender, which must not happen under the lock.
        match push {
            Push::Key(key) => drop(self.take(key)),
            Push::AllKeys => drop(self.take_all()),
            Push::ConnectionLost => {
                self.take_all().into_values().for_each(backend::Push::end);
            }
        }
    }

    fn take(&self, key: &[u8]) -> Vec<backend::Push> {
        let mut watches = self.lock();
        let hash = watches.hashes.hash_one(key);
        let taken = watches.pushes.range((hash, 0)..=(hash, usize::MAX));
        let taken: Vec<_> = taken.map(|(at, _)| *at).collect();
        taken.iter().filter_map(|at| watches.pushes.remove(at)).collect()
    }

    fn take_all(&self) -> BTreeMap<(u64, usize), backend::Push> {
        std::mem::take(&mut self.lock().pushes)
    }

    /// Forgets watches that were given up. Returns whether any is left.
    pub(crate) fn purge(&self) -> bool {
        let mut watches = self.lock();
        let pushes = std::mem::take(&mut watches.pushes);
        let (given_up, left): (BTreeMap<_, _>, BTreeMap<_, _>) =
            pushes.into_iter().partition(|(_, push)| push.is_given_up());
        watches.crowd = LEAST_CROWD.max(2 * left.len());
        watches.pushes = left;
        let is_any_left = !watches.pushes.is_empty();
        drop(watches);
        drop(given_up);
        is_any_left
    }

    fn lock(&self) -> MutexGuard<'_, Watches> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lease that has ended stays registered until there are more keys than this, and twice as many
/// as were in use.
const LEAST_CROWD: usize = 1024;
