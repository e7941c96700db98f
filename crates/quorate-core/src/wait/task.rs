//! A task in the local queues, as the queues see it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use event_listener::{Event, EventListener};

use super::Wait;
use crate::algorithm::local_queue::{Found, LeaseId, TaskId};
use crate::attempt::Attempt;
use crate::lease::LeaseState;
use crate::resource::Key;

/// A task, as the local queues know it.
#[derive(Debug)]
pub(crate) struct Task {
    pub(super) id: TaskId,
    pub(super) keys: Arc<[Key]>,
    inbox: Mutex<Inbox>,
    changed: Event,
}

/// What the queues reported to a task, and the lease that it has.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    /// For how many of its keys it competes.
    pub(super) competes: usize,
    pub(super) others_wait: bool,
    pub(super) given: Option<Arc<Held>>,
    pub(super) found: Option<Found>,
    pub(super) is_refused: bool,
    pub(super) lease: Option<Arc<LeaseState>>,
    /// The wait between processes of the task before, which was cancelled.
    pub(super) wait: Option<Wait>,
}

impl Task {
    pub(super) fn new(id: TaskId, keys: &Arc<[Key]>) -> Self {
        Self { id, keys: Arc::clone(keys), inbox: Mutex::default(), changed: Event::new() }
    }

    /// Resolves at the next message of the queues.
    pub(super) fn changed(&self) -> EventListener {
        self.changed.listen()
    }

    /// Lets the task look again at what it waits for.
    pub(super) fn notify(&self) {
        self.changed.notify(usize::MAX);
    }

    pub(super) fn compete(&self, others_wait: bool) {
        let mut inbox = self.inbox();
        inbox.competes += 1;
        inbox.others_wait |= others_wait;
        drop(inbox);
        self.notify();
    }

    pub(super) fn give(&self, held: Arc<Held>) {
        self.inbox().given = Some(held);
        self.notify();
    }

    pub(super) fn resolve(&self, found: Found) {
        self.inbox().found.get_or_insert(found);
        self.notify();
    }

    pub(super) fn refuse(&self) {
        self.inbox().is_refused = true;
        self.notify();
    }

    pub(crate) fn lease(&self) -> Option<Arc<LeaseState>> {
        self.inbox().lease.clone()
    }

    pub(super) fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lock that a task of this manager holds, or that is being released, or an attempt that is being undone.
#[derive(Debug)]
pub(crate) struct Held {
    pub(super) id: LeaseId,
    pub(crate) attempt: Arc<Attempt>,
}

impl Held {
    pub(super) fn keys(&self) -> &[Key] {
        self.attempt.claim.keys()
    }
}
