//! Processes that share in-memory nodes, a round trip of 0.4 ms away, and a count of what each sends.

use std::ops::Deref;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{Either, select};
use quorate_core::backend::{Call, NotSent, Operation as Asked};
use quorate_core::{
    BackendError, LockGuard, LockManager, LockManagerBuilder, LockRequest, Runtime,
};
use quorate_memory::{MemoryNode, Observed, Operation, Sim, SimClient};

use crate::backends::{Begins, asked, begin};
use crate::world::{MS, SECOND, World, slow};

/// From a request to its reply.
pub(crate) const ROUND_TRIP: Duration = Duration::from_micros(400);

/// The longest time to the next refresh, and the second look after it.
pub(crate) const REFRESH: Duration = Duration::from_millis(804);
pub(crate) const SECOND_LOOK: Duration = Duration::from_millis(20);

/// Nodes, and the processes that use them.
pub(crate) struct Scene {
    world: World,
    sent: Arc<Mutex<Vec<Sent>>>,
    pub(crate) quirk: Quirk,
}

/// A request that left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) node: usize,
    pub(crate) operation: Operation,
    pub(crate) process: Option<usize>,
}

/// What the nodes do otherwise than they should.
#[derive(Clone, Debug, Default)]
pub(crate) struct Quirk {
    /// No push arrives while this is set.
    pub(crate) loses_pushes: Arc<AtomicBool>,
    /// The answer to a watch comes behind its push.
    pub(crate) pushes_overtake: Arc<AtomicBool>,
    /// Each watched key is pushed at once, though nothing was written: a full tracking table.
    pub(crate) evicts_watches: bool,
    /// What the nodes reply to a watch, and to a refresh, a leave and a hint, if that is an error.
    pub(crate) watching_fails: Option<BackendError>,
    pub(crate) queueing_fails: Option<BackendError>,
}

impl Scene {
    pub(crate) fn new(nodes: usize) -> Self {
        Self::with(nodes, Sim::new(7), Quirk::default())
    }

    pub(crate) fn with(nodes: usize, sim: Sim, quirk: Quirk) -> Self {
        let world = World::of(nodes, sim);
        let sent = Arc::<Mutex<Vec<Sent>>>::default();
        for (number, node) in world.nodes.iter().enumerate() {
            node.add_rule(slow(ROUND_TRIP / 2));
            let sent = Arc::clone(&sent);
            node.observe(move |observed| {
                if let Observed::Sent { operation, client } = observed {
                    sent.lock().unwrap().push(Sent { node: number, operation, process: client });
                }
            });
        }
        Self { world, sent, quirk }
    }

    /// A process of its own, with one manager.
    pub(crate) fn process(&self) -> Process {
        self.process_on(|node| node)
    }

    /// The same, with settings.
    pub(crate) fn process_with(
        &self,
        set: impl FnOnce(LockManagerBuilder) -> LockManagerBuilder,
    ) -> Process {
        self.process_of(|node| node, set)
    }

    /// The same, with some processes.
    pub(crate) fn and_processes<const N: usize>(self) -> (Self, [Process; N]) {
        let processes = [(); N].map(|()| self.process());
        (self, processes)
    }

    /// The same, of which the first one holds the lock "r" for a minute.
    pub(crate) fn held<const N: usize>(self) -> (Self, LockGuard, [Process; N]) {
        let (scene, processes) = self.and_processes();
        let guard = scene.run(processes[0].lock("r").ttl(60 * SECOND)).unwrap();
        (scene, guard, processes)
    }

    /// A process, as its backends were built.
    pub(crate) fn process_on(&self, built: impl Fn(MemoryNode) -> MemoryNode) -> Process {
        self.process_of(built, |builder| builder)
    }

    fn process_of(
        &self,
        built: impl Fn(MemoryNode) -> MemoryNode,
        set: impl FnOnce(LockManagerBuilder) -> LockManagerBuilder,
    ) -> Process {
        let client = self.sim.client(0);
        let odd = |node: &MemoryNode| {
            let quirk = self.quirk.clone();
            let node = built(node.seen_by(&client));
            Begins::new(&node, move |node, call, runtime| quirk.begin(node, call, runtime))
        };
        let builder = LockManager::builder(self.nodes.iter().map(odd)).runtime(client.clone());
        Process { client, locks: set(builder).build().unwrap() }
    }

    /// The node that keeps the wait queue of `name`, while a process waits for it.
    pub(crate) fn gate(&self, name: &str) -> usize {
        let waiters = format!("{name}:quorate:waiters");
        let gates = self.nodes.iter().position(|node| node.get(&waiters).is_some());
        gates.expect("a process waits")
    }

    /// How many keys of wait queues the nodes keep.
    pub(crate) fn queued(&self) -> usize {
        self.keys().iter().filter(|key| key.contains(":quorate:")).count()
    }

    pub(crate) fn sent(&self) -> Vec<Sent> {
        self.sent.lock().unwrap().clone()
    }

    pub(crate) fn forget_sent(&self) {
        self.sent.lock().unwrap().clear();
    }

    /// How many requests this process has sent.
    pub(crate) fn sent_by(&self, process: &Process) -> usize {
        let of = |sent: &&Sent| sent.process == Some(process.client.id());
        self.sent.lock().unwrap().iter().filter(of).count()
    }

    pub(crate) fn count(&self, operation: Operation) -> usize {
        self.sent.lock().unwrap().iter().filter(|sent| sent.operation == operation).count()
    }

    /// Everything that the nodes keep, as text.
    pub(crate) fn keys(&self) -> Vec<String> {
        let keys = self.nodes.iter().flat_map(MemoryNode::keys);
        keys.map(|key| String::from_utf8_lossy(&key).into_owned()).collect()
    }
}

impl Deref for Scene {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.sim.end();
    }
}

/// A process with a lock manager.
#[derive(Clone)]
pub(crate) struct Process {
    pub(crate) client: SimClient,
    pub(crate) locks: LockManager,
}

impl Process {
    /// A request that waits for as long as a test takes.
    pub(crate) fn lock(&self, name: &str) -> LockRequest {
        self.locks.lock(name).timeout(600 * SECOND)
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.client.spawn(Box::pin(task));
    }

    /// Waits for the lock in the background, holds it for `hold` and releases it.
    pub(crate) fn hold_once(&self, name: &str, hold: Duration) -> Holds {
        self.hold_within(name, hold, 600 * SECOND)
    }

    /// The same, unless the timeout comes first.
    pub(crate) fn hold_within(&self, name: &str, hold: Duration, timeout: Duration) -> Holds {
        let held = Holds::default();
        let (client, request) = (self.client.clone(), self.locks.lock(name).timeout(timeout));
        let seen = Arc::clone(&held);
        self.spawn(async move {
            let Ok(guard) = request.await else { return };
            let from = client.now();
            client.sleep(hold).await;
            let until = client.now();
            guard.release().await.unwrap();
            *seen.lock().unwrap() = Some(Held { from, until });
        });
        held
    }
}

/// A process that holds the lock "r", and others that came one after the other and wait for it.
pub(crate) struct Queue {
    pub(crate) scene: Scene,
    pub(crate) holder: Process,
    pub(crate) guard: LockGuard,
    pub(crate) waiters: Vec<Process>,
    held: Vec<Holds>,
}

impl Queue {
    pub(crate) fn new(
        scene: Scene,
        waiters: usize,
        hold: Duration,
        timeout: impl Fn(usize) -> Duration,
    ) -> Self {
        let holder = scene.process();
        let guard = scene.run(holder.lock("r").ttl(60 * SECOND)).unwrap();
        let waiters: Vec<Process> = (0..waiters).map(|_| scene.process()).collect();
        let waits = |(number, waiter): (usize, &Process)| {
            let held = waiter.hold_within("r", hold, timeout(number));
            scene.advance(5 * MS);
            held
        };
        let held = waiters.iter().enumerate().map(waits).collect();
        Self { scene, holder, guard, waiters, held }
    }

    /// Releases. Returns in which order the waiters had the lock, and for how long it was free before each.
    pub(crate) fn release(self) -> (Vec<usize>, Vec<Duration>, Scene) {
        let Self { scene, holder, guard, held, .. } = self;
        let mut free = holder.client.now();
        holder.spawn(async move { guard.release().await.unwrap() });
        scene.advance(10 * SECOND);
        let had = held.iter().enumerate();
        let had = had.filter_map(|(number, held)| Some((number, (*held.lock().unwrap())?)));
        let mut had: Vec<(usize, Held)> = had.collect();
        had.sort_by_key(|(_, held)| held.from);
        let gaps = had.iter().map(|(_, held)| {
            let gap = held.from.saturating_duration_since(free);
            free = held.until;
            gap
        });
        let gaps = gaps.collect();
        (had.into_iter().map(|(number, _)| number).collect(), gaps, scene)
    }
}

/// What a process has of the lock, once it has released it.
pub(crate) type Holds = Arc<Mutex<Option<Held>>>;

/// From when to when a process held the lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) from: std::time::Instant,
    pub(crate) until: std::time::Instant,
}

/// When it got the lock.
pub(crate) fn from(held: &Mutex<Option<Held>>) -> std::time::Instant {
    held.lock().unwrap().expect("it got the lock").from
}

impl Quirk {
    /// Begins a call at a node with this quirk.
    fn begin(&self, node: &MemoryNode, call: Call, runtime: &dyn Runtime) -> Result<(), NotSent> {
        let fails = match call.operation() {
            Asked::Watch { .. } => &self.watching_fails,
            Asked::Refresh { .. } | Asked::Leave { .. } => &self.queueing_fails,
            _ => &None,
        };
        if let Some(error) = fails {
            call.answer(Err(error.clone()));
        } else if matches!(call.operation(), Asked::Watch { .. }) {
            runtime.spawn(Box::pin(self.clone().watch(node.clone(), call)));
        } else {
            return begin(node, call, runtime);
        }
        Ok(())
    }

    /// Carries a watch out. Its push may come at once, or be lost.
    async fn watch(self, node: MemoryNode, call: Call) {
        let push = call.push();
        let mut asked = asked(&node, call.operation().clone());
        let answer = match select(&mut asked, pin!(call.given_up())).await {
            Either::Left((answer, _)) => answer,
            Either::Right(_) => return,
        };
        if answer.is_ok() && self.pushes_overtake.load(Ordering::Relaxed) {
            select(pin!(asked.pushed()), pin!(call.given_up())).await;
            drop(push);
            return call.answer(answer);
        }
        call.answer(answer);
        if self.evicts_watches {
            return;
        }
        select(pin!(asked.pushed()), pin!(push.given_up())).await;
        if self.loses_pushes.load(Ordering::Relaxed) {
            push.given_up().await;
        }
    }
}
