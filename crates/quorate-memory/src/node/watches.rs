//! The watches of a node, in the order in which they began.

use std::collections::BTreeMap;

use futures_util::future::{AbortHandle, AbortRegistration};
use quorate_core::backend::{Call, Push};

use crate::client::SimClient;

#[derive(Default)]
pub(super) struct Watches {
    watches: BTreeMap<u64, Watch>,
    begun: u64,
    leases: Vec<Tracked>,
}

/// A key of a lease that is held, as client tracking keeps it.
pub(super) struct Tracked {
    key: Vec<u8>,
    sender: usize,
    pub(super) client: Option<SimClient>,
    pub(super) push: Push,
}

/// A watch at the node.
pub(super) struct Watch {
    key: Vec<u8>,
    pub(super) client: Option<usize>,
    /// Ends the wait of the caller.
    pub(super) push: AbortHandle,
}

impl Watches {
    /// Adds a watch. Returns its number, and the caller's end of the push.
    pub(super) fn add(&mut self, key: Vec<u8>, client: Option<usize>) -> (u64, AbortRegistration) {
        let (push, pushed) = AbortHandle::new_pair();
        self.begun += 1;
        self.watches.insert(self.begun, Watch { key, client, push });
        (self.begun, pushed)
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<Watch> {
        self.watches.remove(&id)
    }

    /// Ends the watches of these keys.
    pub(super) fn take(&mut self, keys: &[Vec<u8>]) -> Vec<Watch> {
        let meant = self.watches.iter().filter(|(_, watch)| keys.contains(&watch.key));
        let ids: Vec<u64> = meant.map(|(id, _)| *id).collect();
        ids.iter().filter_map(|id| self.watches.remove(id)).collect()
    }

    /// Registers the sender of `call` for the key, once.
    pub(super) fn track(&mut self, key: &[u8], client: Option<&SimClient>, call: &Call) {
        self.leases.retain(|one| !one.push.is_given_up());
        let sender = call.sender();
        if !self.leases.iter().any(|one| one.key == key && one.sender == sender) {
            let (key, client) = (key.to_vec(), client.cloned());
            self.leases.push(Tracked { key, sender, client, push: call.push() });
        }
    }

    /// Ends the tracking of keys that fulfil a condition, for their clients.
    pub(super) fn take_leases(
        &mut self,
        is_meant: impl Fn(&[u8], Option<usize>) -> bool,
    ) -> Vec<Tracked> {
        let client = |one: &Tracked| one.client.as_ref().map(SimClient::id);
        self.leases.extract_if(.., |one| is_meant(&one.key, client(one))).collect()
    }

    /// Ends all watches.
    pub(super) fn take_all(&mut self) -> Vec<Watch> {
        std::mem::take(&mut self.watches).into_values().collect()
    }
}
