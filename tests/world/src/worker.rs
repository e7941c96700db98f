//! A client that uses locks: patiently, in a hurry, carelessly.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use quorate_core::{LockError, LockGuard, LockManager, Runtime};
use quorate_memory::{History, LockId, MemoryNode, Sim, SimClient, Value, Violation};

use crate::dice::Dice;
use crate::nemesis::Nemesis;
use crate::plan::{Class, Plan};

/// What the locks protect: a counter per resource, read, held for a while, and written.
#[derive(Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "a part of the tests")]
pub struct Counters {
    /// The counter as it stands, and how many additions were acknowledged.
    pub counts: Vec<(u64, u64)>,
}

/// One client and what it can see.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "a part of the tests")]
pub struct Worker {
    /// The world.
    pub sim: Sim,
    /// The draws.
    pub dice: Dice,
    /// What the world is like.
    pub plan: Plan,
    /// This client.
    pub client: SimClient,
    /// Its manager.
    pub manager: LockManager,
    /// The nodes, to look behind the manager's back.
    pub nodes: Vec<MemoryNode>,
    /// What happened.
    pub history: History,
    /// What is protected.
    pub counters: Arc<Mutex<Counters>>,
    /// Who knows when clients stood still.
    pub nemesis: Nemesis,
    /// Guards that nobody drops while the world lasts; really forgotten, they would keep it for ever.
    pub forgotten: Arc<Mutex<Vec<LockGuard>>>,
    /// What was seen to be wrong.
    pub wrong: Arc<Mutex<Vec<Violation>>>,
}

impl Worker {
    /// Uses locks as often as planned.
    pub async fn run(self) {
        for _ in 0..self.plan.rounds {
            self.sleep(self.dice.scaled_time(self.plan.thinking)).await;
            let resource = self.dice.below(self.plan.resources);
            let Some(guard) = self.lock(resource).await else { continue };
            self.hold(resource, guard).await;
        }
    }

    /// Asks for a lock in one of several ways, and checks that the answer comes in time.
    async fn lock(&self, resource: usize) -> Option<LockGuard> {
        let name = name(resource);
        let wait = self.dice.scaled_time(self.plan.ttl * 3);
        let start = (self.sim.elapsed(), self.client.now());
        let locked = match self.dice.below(10) {
            0 | 1 => self.manager.try_lock(name.as_str()).await,
            2 | 3 => {
                let polls = self.dice.below(12);
                let request = self.manager.lock(name.as_str()).wait(wait);
                self.at_most(request, polls).await?
            }
            4 if self.plan.resources > 1 => {
                let all: Vec<String> = (0..self.plan.resources).map(self::name).collect();
                let locked = self.manager.lock(&all[..]).wait(wait).await;
                if let Ok(guard) = &locked {
                    // Two tenures; the other one is given up at once, which only shortens it.
                    let other = (resource + 1) % self.plan.resources;
                    let lock = self.granted(other, guard);
                    self.history.ended(self.sim.elapsed(), self.client.id(), lock);
                }
                locked
            }
            _ => self.manager.lock(name.as_str()).wait(wait).await,
        };
        self.check_deadline(start, wait);
        match locked {
            Ok(guard) => Some(guard),
            Err(
                LockError::Held { .. } | LockError::NoQuorum { .. } | LockError::Expired { .. },
            ) => None,
            Err(error) => {
                self.wrong(format!("a lock failed with {error}"));
                None
            }
        }
    }

    fn check_deadline(&self, start: (Duration, std::time::Instant), wait: Duration) {
        // The first round may take one node timeout, which is half of the validity at the most.
        let bound = wait.max(self.plan.ttl / 2) + Duration::from_micros(1);
        let took = self.client.now() - start.1;
        if took > bound && !self.nemesis.has_paused(self.client.id(), start.0, self.sim.elapsed()) {
            self.wrong(format!("client {} waited {took:?} of {bound:?}", self.client.id()));
        }
    }

    /// Holds a lock: reads, extends now and then, writes, gives it up in one of several ways.
    async fn hold(&self, resource: usize, guard: LockGuard) {
        let lock = self.granted(resource, &guard);
        let read = self.counters(|counters| counters.counts[resource].0);
        let parts = 1 + self.dice.below(4);
        for _ in 0..parts {
            self.sleep(self.dice.scaled_time(self.plan.ttl)).await;
            self.look(resource, &guard, lock);
            if self.dice.percent(40) {
                self.extend(&guard, lock).await;
            }
        }
        if self.dice.percent(20) {
            // To the very end: the moment in which mistakes show.
            self.client.sleep_until(guard.valid_until() - Duration::from_nanos(100)).await;
            self.look(resource, &guard, lock);
        }
        if guard.is_valid() {
            self.look(resource, &guard, lock);
            self.counters(|counters| {
                let (count, added) = &mut counters.counts[resource];
                *count = read + 1;
                *added += 1;
            });
        }
        let ended = || self.history.ended(self.sim.elapsed(), self.client.id(), lock);
        match self.dice.below(10) {
            0 => {
                // It stays until the ttl is over, or until this client ends.
                self.sleep(self.plan.ttl * 2).await;
                ended();
            }
            1 => {
                ended();
                self.forgotten.lock().unwrap_or_else(PoisonError::into_inner).push(guard);
            }
            2 | 3 => {
                ended();
                drop(guard);
            }
            4 | 5 => {
                ended();
                let polls = self.dice.below(8);
                drop(self.at_most(guard.release(), polls).await);
            }
            _ => {
                ended();
                drop(guard.release().await);
            }
        }
    }

    async fn extend(&self, guard: &LockGuard, lock: LockId) {
        let before = guard.valid_until();
        let longer = self.plan.ttl * u32::try_from(1 + self.dice.below(2)).unwrap_or(1);
        let done = match self.dice.below(4) {
            0 => self.at_most(guard.extend(), self.dice.below(8)).await,
            1 => Some(guard.extend_to(longer.max(Duration::from_millis(3))).await),
            2 => Some(guard.extend_to((self.plan.ttl / 4).max(Duration::from_millis(3))).await),
            _ => Some(guard.extend().await),
        };
        let after = guard.valid_until();
        if after < before {
            self.wrong(format!("client {}: an extension shortened {lock}", self.client.id()));
        }
        match done {
            Some(Ok(())) => {
                let until = self.world(after);
                self.history.extended(self.sim.elapsed(), self.client.id(), lock, until);
            }
            // A future that was dropped may have got as far as to know its success.
            _ if after != before => {
                self.wrong(format!("client {}: a failed extension moved {lock}", self.client.id()));
            }
            _ => {}
        }
    }

    /// Relies on the lock if it says that it is valid, and checks what that is worth.
    fn look(&self, resource: usize, guard: &LockGuard, lock: LockId) {
        if !guard.is_valid() {
            return;
        }
        self.history.relied(self.sim.elapsed(), self.client.id(), lock);
        if self.plan.class == Class::Promised && !self.is_backed(resource) {
            self.wrong(format!(
                "client {} relies on {lock}, which no quorum backs,",
                self.client.id()
            ));
        }
    }

    /// Whether a quorum of nodes keeps one and the same token.
    fn is_backed(&self, resource: usize) -> bool {
        let mut tokens: Vec<Value> =
            self.nodes.iter().filter_map(|node| node.get(name(resource))).collect();
        tokens.sort_by_key(|token| format!("{token:?}"));
        let longest = tokens.chunk_by(PartialEq::eq).map(<[Value]>::len).max();
        longest.unwrap_or(0) > self.nodes.len() / 2
    }

    fn granted(&self, resource: usize, guard: &LockGuard) -> LockId {
        let until = self.world(guard.valid_until());
        let now = self.sim.elapsed();
        if !guard.is_valid() {
            self.wrong(format!("client {} was given a lock that is over", self.client.id()));
        }
        self.history.granted(now, self.client.id(), name(resource), until)
    }

    /// Polls a future for so many times, then drops it.
    async fn at_most<F: IntoFuture>(&self, future: F, polls: usize) -> Option<F::Output> {
        let mut future = pin!(Some(future.into_future()));
        let mut polled = 0;
        std::future::poll_fn(|context| {
            if polled < polls {
                polled += 1;
                match future.as_mut().as_pin_mut().map(|future| future.poll(context)) {
                    Some(Poll::Ready(output)) => return Poll::Ready(Some(output)),
                    _ if polled < polls => return Poll::Pending,
                    _ => {}
                }
            }
            future.set(None);
            Poll::Ready(None)
        })
        .await
    }

    fn world(&self, local: std::time::Instant) -> Duration {
        let now = self.sim.now();
        let world = self.client.world_time(local);
        let elapsed = self.sim.elapsed() + world.saturating_duration_since(now);
        elapsed.saturating_sub(now.saturating_duration_since(world))
    }

    fn counters<T>(&self, act: impl FnOnce(&mut Counters) -> T) -> T {
        act(&mut self.counters.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn wrong(&self, what: String) {
        let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        wrong.push(Violation::Other { at: self.sim.elapsed(), what });
    }

    async fn sleep(&self, time: Duration) {
        self.client.sleep_until(self.client.now() + time).await;
    }
}

/// What a resource is called.
#[must_use]
pub fn name(resource: usize) -> String {
    format!("resource-{resource}")
}
