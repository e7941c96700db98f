//! The watches of a node, in the order in which they began: those of waiters, and of leases.

use std::collections::BTreeMap;

use futures_util::future::{AbortHandle, AbortRegistration};
use quorate_core::backend::Call;

use crate::rule::Operation;

#[derive(Default)]
pub(super) struct Watches {
    watches: BTreeMap<u64, Watch>,
    begun: u64,
}

/// A key of which a waiter or a lease hears when it is written, once.
pub(super) struct Watch {
    pub(super) key: Vec<u8>,
    /// The watch of a waiter, or the look of a lease.
    pub(super) operation: Operation,
    pub(super) client: Option<usize>,
    sender: usize,
    /// Ends the wait of the caller.
    pub(super) push: AbortHandle,
}

impl Watches {
    /// Adds a watch for the sender of `call`; `None` if the lease has it. Returns its number, and
    /// the caller's end of the push.
    pub(super) fn add(
        &mut self,
        key: &[u8],
        operation: Operation,
        client: Option<usize>,
        call: &Call,
    ) -> Option<(u64, AbortRegistration)> {
        let sender = call.sender();
        // The number of a sender may have been that of one in a process that was killed.
        let meant = (key, Operation::Look, sender, client);
        let is_there =
            |one: &Watch| (one.key.as_slice(), one.operation, one.sender, one.client) == meant;
        if operation == Operation::Look && self.watches.values().any(is_there) {
            return None;
        }
        let (push, pushed) = AbortHandle::new_pair();
        self.begun += 1;
        let watch = Watch { key: key.to_vec(), operation, client, sender, push };
        self.watches.insert(self.begun, watch);
        Some((self.begun, pushed))
    }

    pub(super) fn remove(&mut self, id: u64) {
        self.watches.remove(&id);
    }

    /// Ends the watches that fulfil a condition.
    pub(super) fn take(&mut self, is_meant: impl Fn(&Watch) -> bool) -> Vec<Watch> {
        let meant = self.watches.iter().filter(|(_, watch)| is_meant(watch));
        let ids: Vec<u64> = meant.map(|(id, _)| *id).collect();
        ids.iter().filter_map(|id| self.watches.remove(id)).collect()
    }
}
