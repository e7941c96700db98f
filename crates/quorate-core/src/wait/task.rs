//! A task in the local queues, as the queues see it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use event_listener::{Event, EventListener};

use super::Wait;
use crate::algorithm::local_queue::{Found, LeaseId, TaskId};
use crate::attempt::Attempt;
use crate::lease::Lease;
use crate::resource::Key;

/// A task, as the local queues know it.
pub(crate) struct Task {
    pub(super) id: TaskId,
    pub(super) keys: Arc<[Key]>,
    inbox: Mutex<Inbox>,
    changed: Event,
}

/// What the queues reported to a task, and the lease that it has.
#[derive(Default)]
pub(super) struct Inbox {
    /// For how many of its keys it competes.
    pub(super) competes: usize,
    pub(super) others_wait: bool,
    pub(super) given: Option<Arc<Held>>,
    pub(super) found: Option<Found>,
    pub(super) is_refused: bool,
    pub(super) lease: Option<Lease>,
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

    /// Leaves a message, and lets the task look again at what it waits for.
    pub(super) fn tell(&self, message: impl FnOnce(&mut Inbox)) {
        message(&mut self.inbox());
        self.changed.notify(usize::MAX);
    }

    pub(crate) fn lease(&self) -> Option<Lease> {
        self.inbox().lease.clone()
    }

    pub(super) fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lock that a task of this manager holds, or that is being released, or an attempt that is being undone.
pub(crate) struct Held {
    pub(super) id: LeaseId,
    pub(crate) attempt: Arc<Attempt>,
}

impl Held {
    pub(super) fn keys(&self) -> &[Key] {
        self.attempt.claim.keys()
    }
}
