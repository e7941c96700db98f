//! The background work of a manager, which `close` waits for.
//!
//! Each attempt keeps an [`OpenWork`]: the nodes where a call is in flight or a release is owed. `close`
//! waits until no such node is left among those that answer (C8).

use std::fmt;
use std::sync::Arc;
use std::sync::{Mutex, MutexGuard, PoisonError};

use event_listener::{Event, EventListener};
use slab::Slab;

use crate::algorithm::node_set::NodeSet;
use crate::runtime::{BoxFuture, Runtime};

/// The background work of a manager.
pub(crate) struct Tasks {
    runtime: Arc<dyn Runtime>,
    open: Mutex<Open>,
    changed: Event,
}

#[derive(Default)]
struct Open {
    works: Slab<NodeSet>,
    is_closed: bool,
}

/// The nodes on which one attempt has something left to await or to release.
#[derive(Debug)]
pub(crate) struct OpenWork {
    tasks: Arc<Tasks>,
    key: usize,
}

impl Tasks {
    pub(crate) fn new(runtime: Arc<dyn Runtime>) -> Arc<Self> {
        Arc::new(Self { runtime, open: Mutex::default(), changed: Event::new() })
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let task: BoxFuture<'static, ()> = Box::pin(task);
        self.runtime.spawn(task);
    }

    /// Begins an attempt, with work on no node yet.
    pub(crate) fn begin(self: &Arc<Self>) -> OpenWork {
        OpenWork { tasks: Arc::clone(self), key: self.open().works.insert(NodeSet::default()) }
    }

    /// The nodes on which something is left.
    pub(crate) fn open_nodes(&self) -> NodeSet {
        self.open().works.iter().fold(NodeSet::default(), |all, (_, nodes)| all.union(*nodes))
    }

    /// Resolves at the next change of [`open_nodes`](Self::open_nodes), and at the close.
    pub(crate) fn changed(&self) -> EventListener {
        self.changed.listen()
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

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks").field("open", &self.open().works.len()).finish_non_exhaustive()
    }
}

impl OpenWork {
    /// States on which nodes something is left.
    pub(crate) fn set(&self, nodes: NodeSet) {
        let mut open = self.tasks.open();
        if let Some(work) = open.works.get_mut(self.key)
            && *work != nodes
        {
            *work = nodes;
            drop(open);
            self.tasks.changed.notify(usize::MAX);
        }
    }
}

impl Drop for OpenWork {
    fn drop(&mut self) {
        self.tasks.open().works.try_remove(self.key);
        self.tasks.changed.notify(usize::MAX);
    }
}
