//! The watches of a node, in the order in which they began.

use std::collections::BTreeMap;

use crate::reply::{Reply, Sender, reply};

#[derive(Default)]
pub(super) struct Watches {
    watches: BTreeMap<u64, Watch>,
    begun: u64,
}

/// A watch whose caller still waits.
pub(super) struct Watch {
    key: Vec<u8>,
    pub(super) client: Option<usize>,
    /// Whether the request has arrived.
    is_heard: bool,
    pub(super) push: Sender<()>,
}

impl Watches {
    /// Adds a watch. Returns its number, and the push to come.
    pub(super) fn begin(&mut self, key: Vec<u8>, client: Option<usize>) -> (u64, Reply<()>) {
        let (push, pushed) = reply();
        self.begun += 1;
        self.watches.insert(self.begun, Watch { key, client, is_heard: false, push });
        (self.begun, pushed)
    }

    /// From now on, the watch is pushed to when its key is written.
    pub(super) fn hear(&mut self, id: u64) {
        if let Some(watch) = self.watches.get_mut(&id) {
            watch.is_heard = true;
        }
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<Watch> {
        self.watches.remove(&id)
    }

    /// Ends the watches of these keys.
    pub(super) fn take(&mut self, keys: &[Vec<u8>]) -> Vec<Watch> {
        let is_meant = |watch: &Watch| watch.is_heard && keys.contains(&watch.key);
        let ids = self.watches.iter().filter(|(_, watch)| is_meant(watch)).map(|(id, _)| *id);
        let ids: Vec<u64> = ids.collect();
        ids.iter().filter_map(|id| self.watches.remove(id)).collect()
    }

    /// Ends all watches.
    pub(super) fn take_all(&mut self) -> Vec<Watch> {
        std::mem::take(&mut self.watches).into_values().collect()
    }
}
