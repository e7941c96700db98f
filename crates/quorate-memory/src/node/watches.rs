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
    pub(super) push: Sender<()>,
}

impl Watches {
    /// Adds a watch. Returns its number, and the push to come.
    pub(super) fn begin(&mut self, key: Vec<u8>, client: Option<usize>) -> (u64, Reply<()>) {
        let (push, pushed) = reply();
        self.begun += 1;
        self.watches.insert(self.begun, Watch { key, client, push });
        (self.begun, pushed)
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<Watch> {
        self.watches.remove(&id)
    }

    /// Ends the watches of these keys.
    pub(super) fn take(&mut self, keys: &[Vec<u8>]) -> Vec<Watch> {
        let all = std::mem::take(&mut self.watches).into_iter();
        let (meant, left): (BTreeMap<_, _>, _) =
            all.partition(|(_, watch)| keys.contains(&watch.key));
        self.watches = left;
        meant.into_values().collect()
    }

    /// Ends all watches.
    pub(super) fn take_all(&mut self) -> Vec<Watch> {
        std::mem::take(&mut self.watches).into_values().collect()
    }
}
