//! A resource that is guarded by fencing tokens, and a count that loses no addition.

use std::sync::atomic::{AtomicU64, Ordering};

use quorate_core::{FencedCell, FencingToken, Lease};

use crate::worker::Worker;

/// A number behind a [`FencedCell`]: read, kept for a while, and written, however late.
#[derive(Debug)]
pub(crate) struct Door {
    cell: FencedCell<u64>,
    /// How many additions were acknowledged.
    added: AtomicU64,
    /// How many visitors were refused.
    refused: AtomicU64,
}

/// What a client that has been at a [`Door`] knows.
#[derive(Debug)]
pub(crate) struct Visit<'a> {
    door: &'a Door,
    /// The token, and the number read with it. `None` without a token, or if it was refused.
    read: Option<(FencingToken, u64)>,
}

impl Door {
    /// No client has been here.
    pub(crate) const fn new() -> Self {
        let (added, refused) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { cell: FencedCell::new(0), added, refused }
    }

    /// Reads with the token of `lease`, if it has one.
    pub(crate) fn enter(&self, worker: &Worker, lease: &Lease) -> Visit<'_> {
        let token = lease.fencing_token();
        let read = token.and_then(|token| Some((token, self.pass(worker, lease, token, |n| *n)?)));
        Visit { door: self, read }
    }

    /// The count, how many additions were acknowledged, and how many visitors were refused.
    pub(crate) fn counts(&self, token: FencingToken) -> (u64, u64, u64) {
        let count = self.cell.write(token, |number| *number).unwrap_or_default();
        (count, self.added.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed))
    }

    fn pass<R>(
        &self,
        worker: &Worker,
        lease: &Lease,
        token: FencingToken,
        act: impl FnOnce(&mut u64) -> R,
    ) -> Option<R> {
        match self.cell.write(token, act) {
            Ok(value) => Some(value),
            Err(stale) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                if worker.plan.orders() && lease.is_valid() {
                    worker.wrong(format!("client {}: a holder: {stale}", worker.client.id()));
                }
                None
            }
        }
    }
}

impl Default for Door {
    fn default() -> Self {
        Self::new()
    }
}

impl Visit<'_> {
    /// Writes one more than was read last, valid or not: a holder that was paused knows nothing.
    pub(crate) fn write(&mut self, worker: &Worker, lease: &Lease) {
        let Some((token, read)) = self.read else { return };
        let write = |number: &mut u64| *number = read + 1;
        if self.door.pass(worker, lease, token, write).is_some() {
            self.door.added.fetch_add(1, Ordering::Relaxed);
            self.read = Some((token, read + 1));
        }
    }
}
