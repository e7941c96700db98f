//! The open attempts and waits of a manager, and its timekeeper.
//!
//! An attempt is registered before its first call leaves, and is removed when it is quiescent. A
//! wait between processes is registered until its entry has left or has expired. `close` asks here
//! what is left: there is no second account of open work.
//!
//! The *timekeeper* is the one task of a manager. It sleeps until the earliest due time, and is
//! woken only when an earlier one comes. A due time that moves back is found out when it fires, so
//! most locks cost one insertion and one removal. It ends after a second without work.
//!
//! The mutex here is the last in the lock order. Only the clock is read under it.

mod timekeeper;

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;
use std::time::{Duration, Instant};
use std::{iter, mem};

use event_listener::{Event, EventListener};

use crate::algorithm::node_set::NodeSet;
use crate::algorithm::quorum::NodeId;
use crate::seam::runtime::{Runtime, lock, unless};

/// How many entries of each kind the timekeeper serves before it lets other tasks run.
const BATCH: usize = 64;

/// What is registered: an attempt, or a wait between processes.
pub(crate) trait Timed: Any + Send + Sync {
    /// Handles an input that is no reply.
    fn handle_notice(self: Arc<Self>, notice: Notice, now: Instant);
    /// The nodes where something is in flight or to be removed.
    fn open_nodes(self: Arc<Self>) -> NodeSet;
}

/// An input from the timekeeper, or from `close`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The due time has come.
    Time,
    /// This node answers again.
    Back(NodeId),
    /// A node has lost its vote in its group.
    Judge,
    /// The manager is drained: what holds no lease ends.
    Drain,
    /// The manager is closed. A lease that is held ends, and is released after this time at the
    /// latest.
    Close(Duration),
}

/// The number of an attempt or a wait, which no other one of its manager has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slot(u64);

/// All that is not over in a manager.
pub(crate) struct Attempts {
    runtime: Arc<dyn Runtime>,
    /// From when steps of renewals are counted.
    pub(crate) origin: Instant,
    /// A timer of the timekeeper that is later than that is reported.
    node_timeout: Duration,
    all: Mutex<All>,
    /// Notified when nothing is left.
    over: Event,
    /// Notified when the manager is drained or closed.
    closed: Event,
}

#[derive(Default)]
struct All {
    entries: BTreeMap<Slot, Registered>,
    last: Slot,
    due: BTreeSet<(Instant, Slot)>,
    /// Entries that have yet to hear that a node answers again.
    back: Vec<(NodeId, Slot)>,
    keeper: Keeper,
    is_closed: bool,
}

struct Registered {
    entry: Arc<dyn Timed>,
    /// When it is served next.
    due: Option<Instant>,
}

/// What is known of the timekeeper.
#[derive(Default)]
enum Keeper {
    #[default]
    Absent,
    /// It looks at all that is due before it sleeps.
    Runs,
    Sleeps {
        until: Instant,
        waker: Waker,
    },
}

/// What the timekeeper needs when no mutex is held, if anything.
pub(crate) enum Wake {
    Start,
    Task(Waker),
}

impl Attempts {
    pub(crate) fn new(runtime: Arc<dyn Runtime>, node_timeout: Duration) -> Arc<Self> {
        let (all, over, closed) = Default::default();
        let origin = runtime.now();
        Arc::new(Self { runtime, origin, node_timeout, all, over, closed })
    }

    /// Registers what `make` makes. `None` once the manager is drained or closed.
    pub(crate) fn register<T: Timed + 'static>(
        &self,
        make: impl FnOnce(Slot) -> Arc<T>,
    ) -> Option<Arc<T>> {
        let mut all = self.lock();
        if all.is_closed {
            return None;
        }
        all.last.0 += 1;
        let slot = all.last;
        let made = make(slot);
        all.entries.insert(slot, Registered { entry: Arc::<T>::clone(&made), due: None });
        Some(made)
    }

    /// Removes an entry. Without any mutex.
    pub(crate) fn remove(&self, slot: Slot) {
        let mut all = self.lock();
        let entry = all.entries.remove(&slot);
        if let Some(due) = entry.as_ref().and_then(|entry| entry.due) {
            all.due.remove(&(due, slot));
        }
        let is_last = all.entries.is_empty();
        drop(all);
        drop(entry);
        if is_last {
            self.over.notify(usize::MAX);
        }
    }

    /// The entry has to be served at `due`.
    pub(crate) fn serve(&self, slot: Slot, due: Instant) -> Option<Wake> {
        let mut all = self.lock();
        if let Some(before) = all.entries.get_mut(&slot)?.due.replace(due) {
            all.due.remove(&(before, slot));
        }
        all.due.insert((due, slot));
        all.wake_before(due)
    }

    /// Notifies these entries that the node answers again.
    pub(crate) fn tell_back(&self, node: NodeId, slots: Vec<Slot>) -> Option<Wake> {
        if slots.is_empty() {
            return None;
        }
        let mut all = self.lock();
        all.back.extend(slots.into_iter().map(|slot| (node, slot)));
        all.wake_before(self.runtime.now())
    }

    /// What is registered at `slot`.
    pub(crate) fn get(&self, slot: Slot) -> Option<Arc<dyn Timed>> {
        self.lock().entries.get(&slot).map(|at| Arc::clone(&at.entry))
    }

    /// Does what the timekeeper needs. Without any mutex.
    pub(crate) fn wake(self: &Arc<Self>, wake: Option<Wake>) {
        match wake {
            None => {}
            Some(Wake::Start) => self.start(),
            Some(Wake::Task(waker)) => waker.wake(),
        }
    }

    /// Refuses what would be registered from now on, and returns all that is there.
    pub(crate) fn close(&self) -> Vec<Arc<dyn Timed>> {
        self.lock().is_closed = true;
        self.closed.notify(usize::MAX);
        self.open()
    }

    /// The output of `future`; `None` once the manager is drained or closed.
    pub(crate) async fn unless_closed<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        // Before the look, so that no change is missed.
        let closed = self.closed.listen();
        if self.lock().is_closed {
            return None;
        }
        unless(pin!(future), closed).await
    }

    /// Resolves once the manager is drained or closed.
    pub(crate) async fn until_closed(self: Arc<Self>) {
        self.unless_closed(pending::<()>()).await;
    }

    /// All that is not over.
    pub(crate) fn open(&self) -> Vec<Arc<dyn Timed>> {
        self.lock().entries.values().map(|at| Arc::clone(&at.entry)).collect()
    }

    /// Resolves when nothing is left.
    pub(crate) fn over(&self) -> EventListener {
        self.over.listen()
    }

    fn lock(&self) -> MutexGuard<'_, All> {
        lock(&self.all)
    }
}

impl All {
    fn wake_before(&mut self, due: Instant) -> Option<Wake> {
        match mem::replace(&mut self.keeper, Keeper::Runs) {
            Keeper::Absent => Some(Wake::Start),
            Keeper::Sleeps { until, waker } if due < until => Some(Wake::Task(waker)),
            keeper => {
                self.keeper = keeper;
                None
            }
        }
    }

    /// Takes what is due, not more than a share of each kind. Some entries that wait are over by
    /// now.
    fn take_due(&mut self, now: Instant) -> Vec<(Arc<dyn Timed>, Notice)> {
        let Self { entries, due, back, .. } = self;
        let times = iter::from_fn(|| {
            due.first().filter(|(at, _)| *at <= now)?;
            due.pop_first()
        });
        let times = times.filter_map(|(_, slot)| {
            let at = entries.get_mut(&slot)?;
            at.due = None;
            Some((Arc::clone(&at.entry), Notice::Time))
        });
        let mut taken: Vec<_> = times.take(BATCH).collect();
        let are_back = iter::from_fn(|| back.pop());
        let are_back = are_back.filter_map(|(node, slot)| {
            Some((Arc::clone(&entries.get(&slot)?.entry), Notice::Back(node)))
        });
        taken.extend(are_back.take(BATCH));
        taken
    }
}
