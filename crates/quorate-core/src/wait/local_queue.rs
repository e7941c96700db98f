//! The local queue: the tasks of one manager that want the same key, in order.
//!
//! Each key has one [pure machine](crate::algorithm::local_queue). All machines are in one mutex, so that
//! a request for several keys enters all their queues in one step. The mutex is held for the inputs of one
//! event; what they ask for is done after it is released.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use event_listener::EventListener;

use super::task::{Held, Task};
use crate::algorithm::local_queue::{ExtensionId, LeaseId, LocalQueue, Outcome, Output, TaskId};
use crate::attempt::{Attempt, Driver};
use crate::cluster::Cluster;
use crate::config::Waiting;
use crate::error::{Lost, ReleaseError};
use crate::lease::LeaseState;
use crate::resource::Key;

/// For how long the state of an unused key may be kept before it is looked through.
const SWEEP: Duration = Duration::from_secs(1);

/// The local queues of a manager.
pub(crate) struct LocalQueues {
    pub(crate) cluster: Arc<Cluster>,
    state: Mutex<State>,
}

pub(super) struct State {
    keys: BTreeMap<Key, KeyState>,
    tasks: BTreeMap<TaskId, Arc<Task>>,
    last_task: u64,
    next_sweep: Option<Instant>,
    is_closed: bool,
}

struct KeyState {
    queue: LocalQueue,
    leases: BTreeMap<LeaseId, Arc<Held>>,
}

/// What is done after the mutex is released.
enum Effect {
    Extend(Arc<Held>, ExtensionId),
    Release(Arc<Held>),
}

impl LocalQueues {
    pub(crate) fn new(cluster: Arc<Cluster>) -> Arc<Self> {
        let state = State {
            keys: BTreeMap::new(),
            tasks: BTreeMap::new(),
            last_task: 0,
            next_sweep: None,
            is_closed: false,
        };
        Arc::new(Self { cluster, state: Mutex::new(state) })
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
    pub(super) fn input<'a, T>(
        self: &Arc<Self>,
        keys: impl IntoIterator<Item = &'a Key>,
        mut input: impl FnMut(&Key, &mut LocalQueue, Instant) -> T,
    ) -> Vec<T> {
        let now = self.cluster.now();
        let mut state = self.state();
        state.sweep(now);
        let (mut results, mut effects) = (Vec::new(), Vec::new());
        for key in keys {
            let KeyState { queue, leases } = state.key(key, &self.cluster);
            for (id, held) in leases {
                // An extension may have moved the end, whoever waited for its result.
                if let Ok(end) = held.attempt.lease_end(now) {
                    queue.handle_renewed(*id, end);
                }
                if let Some((others_wait, at)) = held.attempt.waiters() {
                    queue.handle_hint(others_wait, at);
                }
            }
            results.push(input(key, queue, now));
            state.dispatch(key, now, &mut effects);
        }
        drop(state);
        self.perform(effects);
        results
    }

    /// Whether a guard or a waiter of this manager is in the way of a request that does not wait.
    pub(crate) fn is_in_use(self: &Arc<Self>, keys: &[Key]) -> bool {
        // A lease that has ended is not.
        self.handle_timeout(keys);
        let state = self.state();
        keys.iter().any(|key| state.keys.get(key).is_some_and(|state| state.queue.is_in_use()))
    }

    /// A task has won: its lock is in the queue of each of its keys.
    pub(super) fn won(
        self: &Arc<Self>,
        attempt: Arc<Attempt>,
        leases: Vec<(Key, LeaseId)>,
        valid_until: Instant,
    ) -> Arc<Held> {
        let config = &self.cluster.config;
        let validity = config.validity(attempt.claim.ttl());
        let waiters = attempt.waiters().map(|(others_wait, _)| others_wait);
        let held = Arc::new(Held { attempt, leases });
        self.keep(&held);
        let id_of = |key: &Key| held.leases.iter().find(|(other, _)| other == key);
        self.input(held.keys(), |key, queue, now| {
            if let Some((_, id)) = id_of(key) {
                queue.handle_won(*id, validity, valid_until, waiters, now);
            }
        });
        held
    }

    /// Keeps a lock under its leases, so that an extension and the release find it.
    pub(super) fn keep(&self, held: &Arc<Held>) {
        let mut state = self.state();
        for (key, id) in &held.leases {
            if let Some(key) = state.keys.get_mut(key) {
                key.leases.insert(*id, Arc::clone(held));
            }
        }
    }

    /// The gate said whether other processes wait.
    pub(crate) fn note_waiters(self: &Arc<Self>, held: &Held, others_wait: bool) {
        self.input(held.keys(), |_, queue, now| queue.handle_hint(others_wait, now));
    }

    /// The lease of this task has ended before its release. If it was passed on, that is the receiver's.
    pub(super) fn note_lost(self: &Arc<Self>, held: &Arc<Held>, task: TaskId) {
        self.each_lease(held, |queue, id, now| {
            if queue.holder() == Some(task) {
                queue.handle_lost(id, now);
            }
        });
    }

    /// The gate has answered the release or the undo, or nothing was sent.
    pub(super) fn left(
        self: &Arc<Self>,
        leases: &[(Key, LeaseId)],
        waiters: Option<(bool, Instant)>,
    ) {
        self.input(leases.iter().map(|(key, _)| key), |key, queue, now| {
            if let Some((others_wait, at)) = waiters {
                queue.handle_hint(others_wait, at);
            }
            if let Some((_, id)) = leases.iter().find(|(other, _)| other == key) {
                queue.handle_left(*id, now);
            }
        });
    }

    /// Checks the clock, and whether leases of this manager have ended.
    pub(super) fn handle_timeout(self: &Arc<Self>, keys: &[Key]) {
        let now = self.cluster.now();
        let ended = self.state().ended_leases(keys, now);
        for (key, id) in ended {
            self.input([&key], |_, queue, now| queue.handle_lost(id, now));
        }
        self.input(keys, |_, queue, now| queue.handle_timeout(now));
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), and listeners to the leases in the way.
    pub(super) fn next_change(&self, keys: &[Key]) -> (Option<Instant>, Vec<EventListener>) {
        let state = self.state();
        let queues = || keys.iter().filter_map(|key| state.keys.get(key));
        let next = queues().filter_map(|key| key.queue.next_timeout()).min();
        let leases = queues().flat_map(|key| key.leases.values());
        (next, leases.map(|held| held.attempt.changed()).collect())
    }

    /// The release of this manager that is in the way of the first task of a queue.
    pub(super) fn releasing(&self, task: &Task) -> Option<Arc<Attempt>> {
        let state = self.state();
        task.keys.iter().find_map(|key| {
            let key = state.keys.get(key)?;
            let is_first = key.queue.first() == Some(task.id) && key.queue.is_releasing();
            is_first.then(|| key.leases.values().next().map(|held| Arc::clone(&held.attempt)))?
        })
    }

    /// Refuses all who wait, and returns the leases that are held.
    pub(crate) fn close(self: &Arc<Self>) -> Vec<(Arc<Task>, Arc<LeaseState>)> {
        let mut state = self.state();
        state.is_closed = true;
        let keys: Vec<Key> = state.keys.keys().cloned().collect();
        let tasks: Vec<Arc<Task>> = state.tasks.values().cloned().collect();
        drop(state);
        self.input(&keys, |_, queue, now| queue.close(now));
        let lease = |task: Arc<Task>| task.lease().map(|lease| (task, lease));
        tasks.into_iter().filter_map(lease).collect()
    }

    fn each_lease(
        self: &Arc<Self>,
        held: &Arc<Held>,
        mut input: impl FnMut(&mut LocalQueue, LeaseId, Instant),
    ) {
        // A key that was forgotten and is in use again may have a lease of the same number.
        let leases: BTreeMap<Key, LeaseId> = self.state().leases_of(held).cloned().collect();
        self.input(leases.keys(), |key, queue, now| {
            if let Some(id) = leases.get(key) {
                input(queue, *id, now);
            }
        });
    }

    fn perform(self: &Arc<Self>, effects: Vec<Effect>) {
        for effect in effects {
            let queues = Arc::clone(self);
            match effect {
                Effect::Extend(held, id) => self.cluster.tasks.spawn(queues.extend(held, id)),
                Effect::Release(held) => {
                    // At once, so that `close` knows of it.
                    let driver = held.attempt.begin_release();
                    self.cluster.tasks.spawn(queues.release(held, driver));
                }
            }
        }
    }

    async fn extend(self: Arc<Self>, held: Arc<Held>, id: ExtensionId) {
        let end = held.attempt.extend(held.attempt.claim.ttl(), true).await.ok();
        self.each_lease(&held, |queue, _, _| queue.handle_extended(id, end));
    }

    async fn release(self: Arc<Self>, held: Arc<Held>, mut driver: Driver) {
        driver.left(held.attempt.gate()).await;
        self.left(&held.leases, held.attempt.waiters());
        let outcome = match Attempt::released(&mut driver).await {
            Ok(()) => Outcome::Held,
            Err(ReleaseError::Lost(_)) => Outcome::Lost,
            Err(ReleaseError::Unconfirmed(_)) => Outcome::Unconfirmed,
        };
        self.each_lease(&held, |queue, id, now| queue.handle_released(id, outcome, now));
        self.drop_leases(&held);
        driver.finish().await;
    }

    /// Removes leases that were released or detached.
    pub(super) fn drop_leases(&self, held: &Held) {
        let (now, mut state) = (self.cluster.now(), self.state());
        for (key, id) in &held.leases {
            state.forget_lease(key, *id, now);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn key(&mut self, key: &Key, cluster: &Cluster) -> &mut KeyState {
        let is_closed = self.is_closed;
        let new = || {
            let is_ordered =
                cluster.config.waiting == Waiting::Ordered && cluster.nodes.has_gates();
            let mut queue = LocalQueue::new(is_ordered, cluster.config.default_node_timeout());
            if is_closed {
                queue.close(cluster.now());
            }
            KeyState { queue, leases: BTreeMap::new() }
        };
        self.keys.entry(key.clone()).or_insert_with(new)
    }

    /// Delivers what the machine of `key` asks for.
    fn dispatch(&mut self, key: &Key, now: Instant, effects: &mut Vec<Effect>) {
        let Self { keys, tasks, .. } = self;
        let Some(KeyState { queue, leases }) = keys.get_mut(key) else { return };
        let tell = |task: &TaskId, tell: &dyn Fn(&Task)| {
            if let Some(task) = tasks.get(task) {
                tell(task);
            }
        };
        while let Some(output) = queue.poll_output() {
            match output {
                Output::Compete(task, lease, others_wait) => {
                    tell(&task, &|task| task.compete(key.clone(), lease, others_wait));
                }
                Output::Give(task, lease) => {
                    if let Some(held) = leases.get(&lease) {
                        tell(&task, &|task| task.give(Arc::clone(held)));
                    }
                }
                Output::Extend(id) => {
                    effects.extend(
                        leases.get(&id.lease).map(|held| Effect::Extend(Arc::clone(held), id)),
                    );
                }
                Output::Release(lease) => {
                    // A lock of several keys is released once.
                    let held = leases.get(&lease).filter(|held| held.keys().next() == Some(key));
                    effects.extend(held.map(|held| Effect::Release(Arc::clone(held))));
                }
                Output::Resolve(task, outcome) => tell(&task, &|task| task.resolve(outcome)),
                Output::Refuse(task) => tell(&task, &Task::refuse),
                // The futures of the tasks see these by themselves.
                Output::Cancel(_) | Output::Lose(_) => {}
            }
        }
        self.forget_if_idle(key, now);
    }

    fn leases_of<'a>(&'a self, held: &'a Arc<Held>) -> impl Iterator<Item = &'a (Key, LeaseId)> {
        held.leases.iter().filter(move |(key, id)| {
            let current = self.keys.get(key).and_then(|state| state.leases.get(id));
            current.is_some_and(|current| Arc::ptr_eq(current, held))
        })
    }

    fn ended_leases(&self, keys: &[Key], now: Instant) -> Vec<(Key, LeaseId)> {
        let leases = keys.iter().filter_map(|key| Some((key, &self.keys.get(key)?.leases)));
        let each = leases.flat_map(|(key, leases)| leases.iter().map(move |lease| (key, lease)));
        let has_ended = |held: &Held| {
            let end = held.attempt.lease_end(now);
            matches!(end, Err(Lost::Expired { .. } | Lost::NotHeld(_)))
        };
        each.filter(|(_, (_, held))| has_ended(held))
            .map(|(key, (id, _))| (key.clone(), *id))
            .collect()
    }

    fn forget_lease(&mut self, key: &Key, id: LeaseId, now: Instant) {
        if let Some(state) = self.keys.get_mut(key) {
            state.leases.remove(&id);
        }
        self.forget_if_idle(key, now);
    }

    /// Drops the state of a key that is not in use. That other processes wait is remembered for 1 s.
    fn forget_if_idle(&mut self, key: &Key, now: Instant) {
        if self.keys.get(key).is_some_and(|state| state.is_idle(now)) {
            self.keys.remove(key);
        } else if self.next_sweep.is_none() {
            self.next_sweep = now.checked_add(SWEEP);
        }
    }

    fn sweep(&mut self, now: Instant) {
        if self.next_sweep.is_some_and(|due| due <= now) {
            self.next_sweep = now.checked_add(SWEEP);
            self.keys.retain(|_, state| !state.is_idle(now));
        }
    }
}

impl KeyState {
    fn is_idle(&self, now: Instant) -> bool {
        let is_remembered = self.queue.others_wait_until().is_some_and(|until| now < until);
        self.queue.is_idle() && self.leases.is_empty() && !is_remembered
    }
}

impl fmt::Debug for LocalQueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalQueues")
            .field("keys", &self.state().keys.len())
            .finish_non_exhaustive()
    }
}
