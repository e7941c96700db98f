//! The local queues: the tasks of one manager that want the same key, in order.
//!
//! Each key has one [pure machine](crate::algorithm::local_queue). All machines are in one mutex, so that
//! a request for several keys enters all their queues in one step. The mutex is held for the inputs of one
//! event; their effects are performed after it is released.
//!
//! A lease has one number for all its keys, so an input about it goes to all of them: the machine of a key
//! that has another lease by now ignores it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use event_listener::EventListener;

use super::Wait;
use super::task::{Held, Inbox, Task};
use crate::algorithm::local_queue::{ExtensionId, Found, LeaseId, LocalQueue, Output, TaskId};
use crate::attempt::{Attempt, Driver};
use crate::cluster::Cluster;
use crate::config::Waiting;
use crate::error::{Lost, ReleaseError};
use crate::lease::Lease;
use crate::resource::Key;

/// For how long the queue of an unused key may be kept before it is looked through.
const SWEEP: Duration = Duration::from_secs(1);

/// The local queues of a manager.
pub(crate) struct LocalQueues {
    pub(crate) cluster: Arc<Cluster>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    queues: BTreeMap<Key, LocalQueue>,
    tasks: BTreeMap<TaskId, Arc<Task>>,
    leases: BTreeMap<LeaseId, Arc<Held>>,
    /// The leases whose release has begun: a lock of several keys is released once.
    released: BTreeSet<LeaseId>,
    last_task: u64,
    next_sweep: Option<Instant>,
    is_closed: bool,
}

/// Work that is done when the mutex is free, and its result. Until the work has ended that is a failure, in case
/// the runtime drops it.
enum Work {
    Extend(ExtensionId, Option<Instant>),
    Release(Found),
}

impl LocalQueues {
    pub(crate) fn new(cluster: Arc<Cluster>) -> Arc<Self> {
        Arc::new(Self { cluster, state: Mutex::default() })
    }

    /// Registers a task. It is in no queue yet.
    pub(super) fn register(&self, keys: &Arc<[Key]>) -> Arc<Task> {
        let mut state = self.state();
        state.last_task += 1;
        let id = TaskId(state.last_task);
        let task = Arc::new(Task::new(id, keys));
        state.tasks.insert(id, Arc::clone(&task));
        task
    }

    pub(super) fn forget(&self, task: &Task) {
        self.state().tasks.remove(&task.id);
    }

    /// Gives the machines of `keys` one input each, in one step.
    pub(super) fn input<T>(
        self: &Arc<Self>,
        keys: &[Key],
        mut input: impl FnMut(&mut LocalQueue, Instant) -> T,
    ) -> Vec<T> {
        let now = self.cluster.now();
        let mut state = self.state();
        state.sweep(now);
        let (mut results, mut work) = (Vec::new(), Vec::new());
        for key in keys {
            let (queue, held) = state.queue(key, &self.cluster);
            let before = awaits(queue);
            if let Some(held) = held {
                catch_up(queue, held, now);
            }
            results.push(input(queue, now));
            let after = awaits(queue);
            if after != before
                && let Some(first) = after.0.and_then(|id| state.tasks.get(&id))
                && !planted!("waiter_looks_once_at_what_it_waits_for")
            {
                first.tell(|_| ());
            }
            state.dispatch(key, &mut work);
            state.forget_if_idle(key, now);
        }
        drop(state);
        self.perform(work);
        results
    }

    /// Keeps a lock under its lease, so that an extension and the release find it.
    pub(super) fn keep(&self, held: &Arc<Held>) {
        self.state().leases.insert(held.id, Arc::clone(held));
    }

    /// Removes a lease that was released or detached.
    pub(super) fn drop_lease(&self, held: &Held) {
        let mut state = self.state();
        state.leases.remove(&held.id);
        state.released.remove(&held.id);
    }

    /// Hands a wait of this task on to the next task that wants the same keys. Returns it if there is none, or
    /// if the wait has no entry.
    pub(super) fn hand_on(&self, task: &Task, wait: Wait) -> Option<Wait> {
        if !wait.has_entry() || planted!("cancelled_task_takes_its_entry_along") {
            return Some(wait);
        }
        let state = self.state();
        let behind = |key| state.queues.get(key).and_then(|queue| queue.behind(task.id));
        let next = task.keys.first().and_then(behind).and_then(|next| state.tasks.get(&next));
        // It is its turn next, for each of its keys.
        let is_next = |next: &&Arc<Task>| {
            next.keys == task.keys && task.keys.iter().all(|key| behind(key) == Some(next.id))
        };
        let Some(next) = next.filter(is_next) else { return Some(wait) };
        next.inbox().wait = Some(wait);
        None
    }

    /// The gate has answered the release or the undo, if only after a node timeout.
    fn left(self: &Arc<Self>, held: &Held) {
        self.input(held.keys(), |queue, now| {
            if let Some((others_wait, at)) = held.attempt.waiters() {
                queue.handle_hint(others_wait, at);
            }
            queue.handle_left(held.id, now);
        });
    }

    /// When to call [`handle_timeout`](LocalQueue::handle_timeout), and listeners to the leases in the way.
    pub(super) fn next_change(&self, keys: &[Key]) -> (Option<Instant>, Vec<EventListener>) {
        let state = self.state();
        let queues = || keys.iter().filter_map(|key| state.queues.get(key));
        let leases = queues().filter_map(|queue| state.leases.get(&queue.lease()?));
        let listeners = leases.map(|held| held.attempt.changed()).collect();
        (queues().filter_map(LocalQueue::next_timeout).min(), listeners)
    }

    /// The release of this manager that is in the way of the first task of a queue.
    pub(super) fn releasing(&self, task: &Task) -> Option<Arc<Attempt>> {
        let state = self.state();
        let queues = task.keys.iter().filter_map(|key| state.queues.get(key));
        let mut waits_for = queues.filter(|queue| queue.first() == Some(task.id));
        let release = waits_for.find(|queue| queue.is_releasing())?.lease()?;
        state.leases.get(&release).map(|held| Arc::clone(&held.attempt))
    }

    /// Refuses all tasks that wait, and returns the leases that are held.
    pub(crate) fn close(self: &Arc<Self>) -> Vec<(Arc<Task>, Lease)> {
        let mut state = self.state();
        state.is_closed = true;
        let keys: Vec<Key> = state.queues.keys().cloned().collect();
        let tasks: Vec<Arc<Task>> = state.tasks.values().cloned().collect();
        drop(state);
        self.input(&keys, LocalQueue::close);
        let lease = |task: Arc<Task>| task.lease().map(|lease| (task, lease));
        tasks.into_iter().filter_map(lease).collect()
    }

    fn perform(self: &Arc<Self>, work: Vec<(Arc<Held>, Work)>) {
        for (held, work) in work {
            let report = ReportOnDrop { queues: Arc::clone(self), held: Arc::clone(&held), work };
            match report.work {
                Work::Extend(..) => self.cluster.tasks.spawn(extend(report)),
                Work::Release(_) => {
                    // Its end may have been seen in the queue of one of its keys only.
                    if held.keys().len() > 1 {
                        self.input(held.keys(), |queue, now| queue.handle_lost(held.id, now));
                    }
                    // At once, so that `close` knows of it.
                    self.cluster.tasks.spawn(release(report, held.attempt.begin_release()));
                }
            }
        }
    }

    /// A task that competed is gone: the next one competes when the gate has answered the undo.
    pub(super) fn undo(self: &Arc<Self>, held: Held) {
        let (queues, held) = (Arc::clone(self), Arc::new(held));
        // The error of the next task shows whose answers it waits for.
        queues.keep(&held);
        self.cluster.tasks.spawn(async move {
            let mut driver = Driver::new(&held.attempt);
            driver.left(held.attempt.gate()).await;
            queues.left(&held);
            queues.drop_lease(&held);
            driver.finish().await;
        });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn extend(mut report: ReportOnDrop) {
    let attempt = &report.held.attempt;
    let end = attempt.extend(attempt.claim.ttl(), true).await.ok();
    if let Work::Extend(_, valid_until) = &mut report.work {
        *valid_until = end;
    }
}

async fn release(mut report: ReportOnDrop, mut driver: Driver) {
    let ReportOnDrop { queues, held, .. } = &report;
    driver.left(held.attempt.gate()).await;
    queues.left(held);
    report.work = Work::Release(match Attempt::released(&mut driver).await {
        Ok(()) => Found::Held,
        Err(ReleaseError::Lost(_)) => Found::Lost,
        Err(ReleaseError::Unconfirmed(_)) => Found::Unconfirmed,
    });
    drop(report);
    driver.finish().await;
}

/// Reports to the queues how an extension or a release ended, also if the runtime drops it (A1).
struct ReportOnDrop {
    queues: Arc<LocalQueues>,
    held: Arc<Held>,
    work: Work,
}

impl Drop for ReportOnDrop {
    fn drop(&mut self) {
        let Self { queues, held, work } = self;
        match *work {
            Work::Extend(id, valid_until) => {
                queues.input(held.keys(), |queue, _| queue.handle_extended(id, valid_until));
            }
            Work::Release(found) => {
                let id = held.id;
                queues.input(held.keys(), |queue, now| queue.handle_released(id, found, now));
                queues.drop_lease(held);
            }
        }
    }
}

/// Which task is the first, and what it waits for.
fn awaits(queue: &LocalQueue) -> (Option<TaskId>, Option<LeaseId>, Option<Instant>) {
    (queue.first(), queue.lease(), queue.next_timeout())
}

/// Reports to a queue what has become of its lease since the last input.
fn catch_up(queue: &mut LocalQueue, held: &Held, now: Instant) {
    match held.attempt.lease_end(now) {
        // An extension may have moved the end, whichever caller waited for its result.
        Ok(end) => queue.handle_renewed(held.id, end),
        Err(Lost::Expired { .. } | Lost::NotHeld(_)) => queue.handle_lost(held.id, now),
        Err(_) => {}
    }
    if let Some((others_wait, at)) = held.attempt.waiters() {
        queue.handle_hint(others_wait, at);
    }
}

impl State {
    /// The queue of a key, and its lease.
    fn queue(&mut self, key: &Key, cluster: &Cluster) -> (&mut LocalQueue, Option<&Arc<Held>>) {
        let is_closed = self.is_closed;
        let new = || {
            let is_ordered =
                cluster.config.waiting == Waiting::Ordered && cluster.nodes.has_gates();
            let mut queue = LocalQueue::new(is_ordered, cluster.config.default_node_timeout());
            if is_closed {
                queue.close(cluster.now());
            }
            queue
        };
        let queue = self.queues.entry(key.clone()).or_insert_with(new);
        let held = queue.lease().and_then(|id| self.leases.get(&id));
        (queue, held)
    }

    /// Delivers what the machine of `key` asks for.
    fn dispatch(&mut self, key: &Key, work: &mut Vec<(Arc<Held>, Work)>) {
        let Self { queues, tasks, leases, released, .. } = self;
        let tell = |task: TaskId, message: &dyn Fn(&mut Inbox)| {
            if let Some(task) = tasks.get(&task) {
                task.tell(message);
            }
        };
        let held = |id: LeaseId| leases.get(&id).cloned();
        let Some(queue) = queues.get_mut(key) else { return };
        while let Some(output) = queue.poll_output() {
            match output {
                Output::Compete(task, others_wait) => tell(task, &|inbox| {
                    inbox.competes += 1;
                    inbox.others_wait |= others_wait;
                }),
                Output::Give(task, lease) => tell(task, &|inbox| inbox.given = held(lease)),
                Output::Extend(id) => {
                    work.extend(held(id.lease).map(|held| (held, Work::Extend(id, None))));
                }
                Output::Release(lease) => {
                    let held = held(lease).filter(|_| released.insert(lease));
                    work.extend(held.map(|held| (held, Work::Release(Found::Unconfirmed))));
                }
                Output::Resolve(task, found) => tell(task, &|inbox| {
                    inbox.found.get_or_insert(found);
                }),
                Output::Refuse(task) => tell(task, &|inbox| inbox.is_refused = true),
                // The futures of the tasks see these by themselves.
                Output::Cancel(_) | Output::Lose(_) => {}
            }
        }
    }

    /// Drops the queue of a key that is not in use.
    fn forget_if_idle(&mut self, key: &Key, now: Instant) {
        if self.queues.get(key).is_some_and(|queue| queue.is_idle(now)) {
            self.queues.remove(key);
        } else if self.next_sweep.is_none() {
            self.next_sweep = now.checked_add(SWEEP);
        }
    }

    fn sweep(&mut self, now: Instant) {
        if self.next_sweep.is_some_and(|due| due <= now) {
            self.next_sweep = now.checked_add(SWEEP);
            self.queues.retain(|_, queue| !queue.is_idle(now));
        }
    }
}

impl fmt::Debug for LocalQueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let State { queues, tasks, leases, .. } = &*self.state();
        f.debug_struct("LocalQueues")
            .field("keys", &queues.len())
            .field("tasks", &tasks.len())
            .field("leases", &leases.len())
            .finish_non_exhaustive()
    }
}
