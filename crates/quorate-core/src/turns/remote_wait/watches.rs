//! The watches of a wait, on which a push may come.

use crate::algorithm::quorum::NodeId;
use crate::algorithm::wait::WatchedKey;

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
    pub(super) fn renew(&mut self, gate: NodeId, mut keys: Vec<WatchedKey>) -> Vec<WatchedKey> {
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
    pub(super) fn forget(&mut self, key: &WatchedKey) {
        self.list.retain(|(_, watched)| watched != key);
    }

    /// The lowest number in use; zero for none.
    pub(super) fn lowest(&self) -> u32 {
        self.list.iter().map(|(number, _)| *number).min().unwrap_or(0)
    }
}
