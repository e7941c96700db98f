//! What a wait is for: a lock of all keys, or of one of them. The machine sees one lock in their place, which is free if
//! one of them is.

use std::sync::Arc;

use crate::algorithm::wait::{Refreshed, WatchedKey};
use crate::resource::Key;
use crate::seam::backend::Choice;

/// The lock that the machine sees in place of one of several keys.
const ONE: WatchedKey = WatchedKey::Lock(0);

/// The lock that is waited for. A key is its index.
pub(crate) struct Goal {
    /// In sorted order.
    keys: Arc<[Key]>,
    choice: Choice,
    /// The key that a refresh looks at first.
    first: usize,
    /// The one of several keys that the next attempt is for.
    free: Option<usize>,
}

impl Goal {
    pub(crate) const fn all(keys: Arc<[Key]>) -> Self {
        Self { keys, choice: Choice::All, first: 0, free: None }
    }

    pub(crate) const fn one_of(keys: Arc<[Key]>) -> Self {
        Self { keys, choice: Choice::Any, first: 0, free: None }
    }

    pub(super) fn key(&self, at: usize) -> Option<&Key> {
        self.keys.get(at)
    }

    fn is_choice(&self) -> bool {
        self.choice == Choice::Any
    }

    /// Of one of several keys, a refresh looks at a random one first.
    pub(super) fn begin_at(&mut self, random: u8) {
        if self.is_choice() {
            self.first = usize::from(random) % self.keys.len();
        }
    }

    /// Another task goes on. Returns whether it waits for other keys.
    pub(super) fn replace(&mut self, keys: Arc<[Key]>) -> bool {
        let is_other = keys != self.keys;
        self.keys = keys;
        is_other
    }

    /// The key that is free as far as is known. From now on it is the last one that the gate names, since the gate may not
    /// know its holder.
    pub(super) fn take_free(&mut self) -> Option<Key> {
        self.first = self.free.take()?;
        self.key(self.first).cloned()
    }

    /// The keys that a refresh looks at. Of one of several, the gate names the last that is free.
    pub(super) fn sought(&self) -> (Arc<[Key]>, Choice) {
        let (before, from) = self.keys.split_at(self.first);
        let keys = match before {
            [] => Arc::clone(&self.keys),
            before => from.iter().chain(before).cloned().collect(),
        };
        (keys, self.choice)
    }

    /// Notes the free key of a refresh, and returns it. If no push came for it, the node has forgotten the watch.
    pub(super) fn note_free(&mut self, reply: &mut Refreshed) -> Option<WatchedKey> {
        if !self.is_choice() {
            return None;
        }
        self.free = reply.free.map(|at| (at + self.first) % self.keys.len());
        reply.held = self.free.is_none().then_some(0);
        self.free.map(WatchedKey::Lock)
    }

    /// A watched key was written, or is not there. Returns what the machine watches.
    pub(super) fn note_push(&mut self, watched: WatchedKey) -> WatchedKey {
        match watched {
            WatchedKey::Lock(at) if self.is_choice() => {
                self.free = Some(at);
                ONE
            }
            watched => watched,
        }
    }

    /// What is watched in place of what the machine watches: one key, or each of several.
    pub(super) fn watched(&self, watched: WatchedKey) -> Vec<WatchedKey> {
        if !self.is_choice() || watched != ONE {
            return vec![watched];
        }
        let count = self.keys.len();
        (0..count).map(|at| WatchedKey::Lock((at + self.first) % count)).collect()
    }
}
