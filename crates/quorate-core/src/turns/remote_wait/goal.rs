//! The goal of a wait: a lock of all keys, or of one of them, and the keys watched for it. The
//! machine sees one lock in place of several of which one is wanted. It is free if one of them is.

use std::sync::Arc;

use super::RemoteWait;
use crate::algorithm::quorum::NodeId;
use crate::algorithm::wait::{Entry, Refreshed, WatchedKey};
use crate::resource::Key;
use crate::seam::backend::{Choice, Mode};

/// The lock that the machine sees in place of one of several keys.
const ONE: WatchedKey = WatchedKey::Lock(0);

/// The lock that is waited for. A key is its index.
pub(crate) struct Goal {
    /// In sorted order.
    pub(crate) keys: Arc<[Key]>,
    choice: Choice,
    mode: Mode,
    /// The key that a refresh looks at first.
    first: usize,
    /// The one of several keys that the next attempt is for.
    free: Option<usize>,
    pub(super) watches: Watches,
}

impl Goal {
    pub(crate) fn all(keys: Arc<[Key]>) -> Self {
        let (choice, mode, first) = (Choice::All, Mode::Exclusive, 0);
        Self { keys, choice, mode, first, free: None, watches: Watches::default() }
    }

    /// The same for readers.
    pub(crate) fn of_readers(keys: Arc<[Key]>) -> Self {
        Self { mode: Mode::Shared, ..Self::all(keys) }
    }

    /// One of the keys.
    pub(crate) fn one_of(keys: Arc<[Key]>) -> Self {
        Self { choice: Choice::Any, ..Self::all(keys) }
    }

    /// The entry of the wait, with a random name. Of one of several keys, a refresh looks at a
    /// random one first.
    pub(super) fn entry(&mut self, random: [u8; 16], is_pushed: bool) -> Entry {
        if self.is_choice() {
            self.first = usize::from(random[0]) % self.keys.len();
        }
        let entry = Entry::draw(random, is_pushed);
        if self.mode == Mode::Shared { entry.of_readers() } else { entry }
    }

    fn is_choice(&self) -> bool {
        self.choice == Choice::Any
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

    /// Notes the free one of several keys. If no push came for it, the node has forgotten the
    /// watch.
    pub(super) fn note_refreshed(&mut self, reply: &mut Refreshed) {
        if self.is_choice() {
            self.free = reply.free.map(|at| (at + self.first) % self.keys.len());
            reply.held = self.free.is_none().then_some(0);
            self.free.into_iter().for_each(|free| self.watches.forget(&WatchedKey::Lock(free)));
        }
    }

    /// The key of a watch was written, or is not there. Returns what the machine watches.
    pub(super) fn note_push(&mut self, number: u32) -> Option<WatchedKey> {
        match self.watches.take(number)? {
            WatchedKey::Lock(at) if self.is_choice() => {
                self.free = Some(at);
                Some(ONE)
            }
            watched => Some(watched),
        }
    }

    /// What is to be watched anew in place of what the machine watches: one key, or each of
    /// several. All others end.
    pub(super) fn watch(&mut self, gate: NodeId, watched: WatchedKey) -> Vec<WatchedKey> {
        let count = self.keys.len();
        let keys = match self.is_choice() && watched == ONE {
            true => (0..count).map(|at| WatchedKey::Lock((at + self.first) % count)).collect(),
            false => vec![watched],
        };
        self.watches.renew(gate, keys)
    }
}

/// How many keys are watched. The others are looked at by each refresh.
const MOST_WATCHES: usize = 16;

/// One watch, or one for each of several keys, at one gate.
#[derive(Default)]
pub(super) struct Watches {
    gate: Option<NodeId>,
    list: Vec<(u32, WatchedKey)>,
}

impl Watches {
    /// Returns which of the keys to watch anew: a single key always, of several those that are not
    /// watched yet. All other watches end.
    fn renew(&mut self, gate: NodeId, mut keys: Vec<WatchedKey>) -> Vec<WatchedKey> {
        let is_kept = self.gate.replace(gate) == Some(gate) && keys.len() > 1;
        self.list.retain(|(_, watched)| is_kept && keys.contains(watched));
        keys.retain(|key| self.list.iter().all(|(_, watched)| watched != key));
        keys.truncate(MOST_WATCHES.saturating_sub(self.list.len()));
        keys
    }

    pub(super) fn add(&mut self, number: u32, key: WatchedKey) {
        self.list.push((number, key));
    }

    /// Ends a watch. Returns its key.
    pub(super) fn take(&mut self, number: u32) -> Option<WatchedKey> {
        let at = self.list.iter().position(|(watch, _)| *watch == number)?;
        Some(self.list.swap_remove(at).1)
    }

    /// Ends the watch of a key.
    fn forget(&mut self, key: &WatchedKey) {
        self.list.retain(|(_, watched)| watched != key);
    }

    /// The lowest number in use; zero for none.
    pub(super) fn lowest(&self) -> u32 {
        self.list.iter().map(|(number, _)| *number).min().unwrap_or(0)
    }
}

/// For a wait for one of several keys.
impl RemoteWait {
    /// The key that is free as far as is known. From now on it is the last one that the gate names,
    /// since the gate may not know its holder.
    pub(crate) fn take_free(self: &Arc<Self>) -> Option<Key> {
        self.look(|state| {
            let goal = &mut state.goal;
            goal.first = goal.free.take()?;
            goal.keys.get(goal.first).cloned()
        })
    }

    /// Resolves when a gate has answered, or no gate answers.
    pub(crate) async fn gate_answered(self: &Arc<Self>, seen: u32) {
        self.wait(|state| {
            let is_called = state.calls_to_attempt != seen;
            (is_called || state.machine.has_answer() || state.machine.is_over()).then_some(())
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::Resource;

    /// Its push is lost. If another process takes it, the next push comes from a new watch.
    #[test]
    fn a_name_that_a_refresh_finds_free_is_watched_anew() {
        let key = |name| Resource::new(name).map(|resource| Key::new(b"", &resource)).unwrap();
        let mut goal = Goal::one_of(["a", "b", "c"].map(key).into());
        goal.first = 1;
        let gate = NodeId::FIRST;
        let watched = goal.watch(gate, ONE);
        assert_eq!(watched, [1, 2, 0].map(WatchedKey::Lock));
        (1..).zip(watched).for_each(|(number, key)| goal.watches.add(number, key));
        let first = Entry::draw([7; 16], true);
        // The second of those that the refresh looked at.
        let mut reply = Refreshed {
            predecessor: None,
            first,
            held: None,
            free: Some(1),
            is_read: false,
            place: 0,
        };
        goal.note_refreshed(&mut reply);
        assert_eq!(goal.free, Some(2));
        assert_eq!(goal.watch(gate, ONE), [WatchedKey::Lock(2)]);
    }
}
