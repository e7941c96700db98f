//! The background work of a manager.
//!
//! Each attempt, each entry in a wait queue and each lease that a close ends keeps an [`OpenWork`]: the nodes
//! where something is left to await or to release. `close` waits for these counts, not for tasks, until no such
//! node is left among those that answer (C8).

use std::mem;
use std::sync::Arc;
use std::sync::{Mutex, MutexGuard, PoisonError};

use event_listener::{Event, EventListener};

use crate::algorithm::node_set::NodeSet;
use crate::algorithm::quorum::NodeId;
use crate::runtime::{BoxFuture, Runtime};

/// The background work of a manager.
pub(crate) struct Tasks {
    runtime: Arc<dyn Runtime>,
    open: Mutex<Open>,
    changed: Event,
}

#[derive(Default)]
struct Open {
    /// On how much work each node has something left, by its index.
    counts: Vec<usize>,
    is_closed: bool,
}

impl Open {
    /// One work has something left on other nodes. Returns whether a node got its first work, or has none any
    /// more.
    fn change(&mut self, old: NodeSet, new: NodeSet) -> bool {
        let mut has_changed = false;
        for at in new.without(old).indexes() {
            self.counts.resize(self.counts.len().max(at + 1), 0);
            self.counts[at] += 1;
            has_changed |= self.counts[at] == 1;
        }
        for at in old.without(new).indexes() {
            self.counts[at] -= 1;
            has_changed |= self.counts[at] == 0;
        }
        has_changed
    }
}

/// The nodes on which one piece of work has something left to await or to release.
pub(crate) struct OpenWork {
    tasks: Arc<Tasks>,
    nodes: NodeSet,
}

impl Tasks {
    pub(crate) fn new(runtime: Arc<dyn Runtime>) -> Arc<Self> {
        Arc::new(Self { runtime, open: Mutex::default(), changed: Event::new() })
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let task: BoxFuture<'static, ()> = Box::pin(task);
        self.runtime.spawn(task);
    }

    /// Begins a piece of work, with nothing left on any node yet.
    pub(crate) fn begin(self: &Arc<Self>) -> OpenWork {
        OpenWork { tasks: Arc::clone(self), nodes: NodeSet::default() }
    }

    /// Whether something is left on a node.
    pub(crate) fn is_open(&self, node: NodeId) -> bool {
        self.open().counts.get(node.index()).is_some_and(|count| *count > 0)
    }

    /// Resolves at the next change of [`is_open`](Self::is_open), and at the close.
    pub(crate) fn changed(&self) -> EventListener {
        self.changed.listen()
    }

    /// Resolves when the tasks that are ready now have run, on a runtime that runs them in order.
    pub(crate) fn turn(&self) -> EventListener {
        let signal = NotifyOnDrop(Event::new());
        let turn = signal.0.listen();
        self.spawn(async move { drop(signal) });
        turn
    }

    pub(crate) fn close(&self) {
        self.open().is_closed = true;
        self.changed.notify(usize::MAX);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.open().is_closed
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Notifies when a task has ended, or its runtime has.
pub(crate) struct NotifyOnDrop(pub(crate) Event);

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        self.0.notify(usize::MAX);
    }
}

impl OpenWork {
    /// States on which nodes something is left.
    pub(crate) fn set(&mut self, nodes: NodeSet) {
        let old = mem::replace(&mut self.nodes, nodes);
        if old != nodes && self.tasks.open().change(old, nodes) {
            self.tasks.changed.notify(usize::MAX);
        }
    }
}

impl Drop for OpenWork {
    fn drop(&mut self) {
        self.set(NodeSet::default());
    }
}
