//! A resource that is guarded by fencing tokens, and a count that loses no addition.

use std::sync::atomic::{AtomicU64, Ordering};

use quorate_core::{FencedCell, FencingToken, Lease};

use crate::worker::Worker;

/// A number behind a [`FencedCell`]: read, kept for a while, and written, however late.
#[derive(Debug)]
pub(crate) struct Door {
    cell: FencedCell<u64>,
    added: AtomicU64,
}

/// What a client that has been at a [`Door`] knows: the token, and the number read with it. `None` without a token, or
/// if it was refused.
#[derive(Debug)]
pub(crate) struct Visit<'a>(&'a Door, Option<(FencingToken, u64)>);

impl Door {
    pub(crate) const fn new() -> Self {
        Self { cell: FencedCell::new(0), added: AtomicU64::new(0) }
    }

    /// Reads with the token of `lease`, if it has one.
    pub(crate) fn enter(&self, worker: &Worker, lease: &Lease) -> Visit<'_> {
        let token = lease.fencing_token();
        Visit(self, token.and_then(|token| Some((token, self.pass(worker, lease, token, |n| *n)?))))
    }

    /// The count, and how many additions were acknowledged.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let count = self.cell.write(FencingToken::MAX, |number| *number).unwrap_or_default();
        (count, self.added.load(Ordering::Relaxed))
    }

    fn pass<R>(
        &self,
        worker: &Worker,
        lease: &Lease,
        token: FencingToken,
        act: impl FnOnce(&mut u64) -> R,
    ) -> Option<R> {
        let passed = self.cell.write(token, act);
        if let Err(stale) = &passed
            && worker.plan.orders()
            && lease.is_valid()
        {
            worker.wrong(format!("client {}: a holder: {stale}", worker.client().id()));
        }
        passed.ok()
    }
}

impl Visit<'_> {
    /// Writes one more than was read last, valid or not: a holder that was paused knows nothing.
    pub(crate) fn write(&mut self, worker: &Worker, lease: &Lease) {
        let Self(door, Some((token, read))) = self else { return };
        if door.pass(worker, lease, *token, |number| *number = *read + 1).is_some() {
            door.added.fetch_add(1, Ordering::Relaxed);
            *read += 1;
        }
    }
}
