//! A client that uses locks: patiently, in a hurry, carelessly.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use quorate_core::runtime::BoxFuture;
use quorate_core::{
    AdoptError, BackendError, BackendErrorKind, DetachedLock, ExtendError, FencingToken, Lease,
    LeaseEnd, LockError, LockGuard, LockManager, LockRequest, ReleaseError, Runtime, Stopped,
    WithError,
};
use quorate_memory::{MemoryNode, Sim, SimClient, Value};

use crate::dice::Dice;
use crate::door::Door;
use crate::history::{Fenced, History, LockId};
use crate::nemesis::Nemesis;
use crate::oracle::Violation;
use crate::plan::{Class, Plan};
use crate::process::{Begun, Process};
use crate::watch::Watch;

/// What the locks protect: a counter per resource, read, held for a while, and written.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// The counter as it stands, and how many additions were acknowledged.
    pub(crate) counts: Vec<(u64, u64)>,
}

/// One client and what it can see.
#[derive(Debug)]
pub(crate) struct Worker {
    /// The world.
    pub(crate) sim: Sim,
    /// The draws.
    pub(crate) dice: Dice,
    /// What the world is like.
    pub(crate) plan: Plan,
    /// This client.
    pub(crate) client: SimClient,
    /// The runtime of its manager.
    pub(crate) process: Process,
    /// Its manager.
    pub(crate) manager: LockManager,
    /// The nodes, to look behind the manager's back.
    pub(crate) nodes: Vec<MemoryNode>,
    /// What happened.
    pub(crate) history: History,
    /// What is protected.
    pub(crate) counters: Arc<Mutex<Counters>>,
    /// What is protected by fencing tokens: one door per resource.
    pub(crate) doors: Arc<Vec<Door>>,
    /// The nemesis, which knows when clients stood still.
    pub(crate) nemesis: Nemesis,
    /// Guards that are not dropped while the world lasts. Really forgotten, they would keep it for
    /// ever.
    pub(crate) forgotten: Arc<Mutex<Vec<LockGuard>>>,
    /// What was seen to be wrong.
    pub(crate) wrong: Arc<Mutex<Vec<Violation>>>,
    /// All clients, to hand locks over to. The end of the world empties it.
    pub(crate) peers: Arc<Mutex<Vec<Arc<Self>>>>,
    /// How many clients are at work.
    pub(crate) working: Arc<Mutex<usize>>,
}

/// What a holder does with its lock.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// It extends it by hand, or not at all.
    Plain,
    /// A task renews it.
    Renewed,
    /// It works in `run`.
    Run,
}

/// A lock, until when it can be held at the most, and the attempt that its token comes from.
struct Held {
    guard: LockGuard,
    cap: Option<Instant>,
    begun: Option<Begun>,
}

impl Worker {
    /// Uses locks as often as planned.
    pub(crate) async fn run(self: Arc<Self>) {
        for _ in 0..self.plan.rounds {
            self.sleep(self.dice.scaled_time(self.plan.thinking)).await;
            let resource = self.dice.below(self.plan.resources);
            if self.dice.percent(12) {
                self.with(resource).await;
            } else if let Some(held) = self.lock(resource).await {
                self.hold(resource, held).await;
            }
        }
        *lock(&self.working) -= 1;
    }

    /// Asks for a lock in one of several ways, and checks that the answer comes in time.
    async fn lock(&self, resource: usize) -> Option<Held> {
        let name = name(resource);
        let wait = self.dice.scaled_time(self.plan.ttl * 3);
        let start = (self.sim.elapsed(), self.client.now());
        let mut limit = None;
        let fences = self.plan.fences(&self.dice);
        let way = self.dice.below(10);
        let waits = way > 1;
        let locked = match way {
            0 | 1 => fenced(self.manager.lock(name.as_str()).no_wait(), fences).await,
            2 | 3 => {
                let polls = self.dice.below(12);
                let request = fenced(self.manager.lock(name.as_str()).timeout(wait), fences);
                self.at_most(request, polls).await?
            }
            4 if self.plan.resources > 1 => {
                let all: Vec<String> = (0..self.plan.resources).map(self::name).collect();
                let locked = fenced(self.manager.lock(&all[..]).timeout(wait), fences).await;
                if let Ok(guard) = &locked {
                    // Two tenures; the other one is given up at once, which only shortens it.
                    let other = (resource + 1) % self.plan.resources;
                    let lock = self.granted(other, &guard.lease(), self.process.begun());
                    self.history.ended(self.sim.elapsed(), self.client.id(), lock);
                }
                locked
            }
            _ => {
                let request = fenced(self.manager.lock(name.as_str()).timeout(wait), fences);
                let request = self.limited(request, &mut limit);
                request.await
            }
        };
        let begun = self.process.begun();
        self.check_deadline(start, waits.then_some(wait));
        match locked {
            Ok(guard) => {
                let cap = limit.map(|limit| self.client.now() + limit);
                if guard.fencing_token().is_some() != fences {
                    self.wrong(
                        "a token was given to who asked for none, or the reverse".to_owned(),
                    );
                }
                Some(Held { guard, cap, begun })
            }
            Err(error) => {
                self.check_refusal(&error);
                None
            }
        }
    }

    /// Sets a limit for a fifth of the requests.
    fn limited(&self, request: LockRequest, limit: &mut Option<Duration>) -> LockRequest {
        *limit =
            self.dice.percent(20).then(|| self.dice.time(self.plan.ttl / 2, self.plan.ttl * 2));
        match *limit {
            Some(limit) => request.hold_limit(limit),
            None => request,
        }
    }

    fn check_refusal(&self, error: &LockError) {
        match error {
            LockError::Held(_) | LockError::NoQuorum(_) => {}
            error => self.wrong(format!("a lock failed with {error}")),
        }
    }

    fn check_deadline(&self, start: (Duration, Instant), wait: Option<Duration>) {
        // Without a timeout: for a release in flight, for its round, and then for the answers to the
        // undo; else for these alone.
        let round = self.plan.node_timeout();
        let answers = round.max(Duration::from_millis(2));
        let bound = wait.unwrap_or(round * 2) + answers + Duration::from_micros(1);
        let took = self.client.now() - start.1;
        if took > bound && !self.has_paused(start.0, self.sim.elapsed()) {
            self.wrong(format!("client {} waited {took:?} of {bound:?}", self.client.id()));
        }
    }

    /// Holds a lock: reads, extends or renews, writes, gives it up in one of several ways.
    async fn hold(self: &Arc<Self>, resource: usize, Held { guard, cap, begun }: Held) {
        let lock = self.granted(resource, &guard.lease(), begun);
        let watch = Watch::new(self, guard.lease(), lock, cap);
        let read = self.counters(|counters| counters.counts[resource].0);
        let mut visit = self.doors[resource].enter(self, &guard.lease());
        let way = match self.dice.below(10) {
            0 | 1 => Way::Renewed,
            2 => Way::Run,
            _ => Way::Plain,
        };
        let kept_alive = way == Way::Renewed || (way == Way::Run && self.dice.percent(50));
        if kept_alive {
            guard.auto_renew();
        }
        // The extension of a lease that was passed on moves its end, or ends it early (H1).
        self.client.spawn(Box::pin(watch.clone().lost()));
        let parts = 1 + self.dice.below(4);
        if way == Way::Run {
            let work = watch.under(self.work(resource, parts, &watch));
            // In the end it gives the lock up, so it must have ended in time.
            if let Ok(false) | Err(Stopped { value: Some(_), .. }) = guard.run(work).await {
                self.wrong(format!("client {}: {lock} was over in a run", self.client.id()));
            }
            // Others may have been there, with the same token.
            visit = self.doors[resource].enter(self, watch.lease());
        } else {
            // Whether an extension may move the lease that this task does not wait for.
            let mut goes_on = kept_alive;
            for _ in 0..parts {
                self.sleep(self.dice.scaled_time(self.plan.ttl)).await;
                self.look(resource, guard.is_valid(), &watch);
                if self.dice.percent(if kept_alive { 10 } else { 40 }) {
                    goes_on |= self.extend(&guard, goes_on, &watch).await;
                }
            }
            if !kept_alive && self.dice.percent(20) {
                // To the very end: the moment in which mistakes show.
                self.client.sleep_until(guard.valid_until() - Duration::from_nanos(100)).await;
            }
            if guard.is_valid() {
                self.look(resource, true, &watch);
                self.add(resource, read);
            }
        }
        // Whether the lock is still held is the door's business.
        visit.write(self, watch.lease());
        match self.dice.below(12) {
            0 => {
                // It stays until the ttl is over, or until this client ends.
                self.sleep(self.plan.ttl * 2).await;
                visit.write(self, watch.lease());
                watch.give_up();
            }
            // One that is kept alive would be held for ever.
            1 if !kept_alive || cap.is_some() => {
                watch.give_up();
                self::lock(&self.forgotten).push(guard);
            }
            2 | 3 => {
                watch.give_up();
                drop(guard);
            }
            4 | 5 => {
                watch.give_up();
                let polls = self.dice.below(8);
                let (was_valid, start) = (guard.is_valid(), self.sim.elapsed());
                let released = self.at_most(guard.release(), polls).await;
                self.check_release(resource, was_valid, start, released);
            }
            6 | 7 => {
                watch.give_up();
                self.detach(resource, guard, begun);
            }
            _ => {
                watch.give_up();
                let (was_valid, start) = (guard.is_valid(), self.sim.elapsed());
                let released = guard.release().await;
                self.check_release(resource, was_valid, start, Some(released));
            }
        }
    }

    /// Works under a lock, which is taken, renewed and released around it.
    async fn with(self: &Arc<Self>, resource: usize) {
        let name = name(resource);
        let mut limit = None;
        let wait = self.dice.scaled_time(self.plan.ttl * 3);
        let request = self.manager.lock(name.as_str()).timeout(wait);
        let request = fenced(request, self.plan.fences(&self.dice));
        let request = self.limited(request, &mut limit);
        let parts = 1 + self.dice.below(6);
        let body = async |lease: Lease| {
            let lock = self.granted(resource, &lease, self.process.begun());
            let cap = limit.map(|limit| self.client.now() + limit);
            let watch = Watch::new(self, lease, lock, cap);
            self.client.spawn(Box::pin(watch.clone().lost()));
            watch.under(self.work(resource, parts, &watch)).await
        };
        let done = if self.dice.percent(20) {
            self.at_most(request.with(body), self.dice.below(40)).await
        } else {
            Some(request.with(body).await)
        };
        match done {
            None | Some(Ok(true)) => {}
            Some(Ok(false)) => self.wrong("a lock was over before the work under it".to_owned()),
            Some(Err(WithError::Lock(error))) => self.check_refusal(&error),
            Some(Err(WithError::Lost(_))) => {}
            Some(Err(error)) => self.wrong(format!("work failed with {error}")),
        }
    }

    /// What is done under a lock that ends it in time. Returns whether it was valid at the end.
    async fn work(&self, resource: usize, parts: usize, watch: &Watch) -> bool {
        let read = self.counters(|counters| counters.counts[resource].0);
        let mut visit = self.doors[resource].enter(self, watch.lease());
        for _ in 0..parts {
            self.sleep(self.dice.scaled_time(self.plan.ttl)).await;
            self.look(resource, watch.lease().is_valid(), watch);
        }
        self.look(resource, watch.lease().is_valid(), watch);
        self.add(resource, read);
        visit.write(self, watch.lease());
        watch.lease().is_valid()
    }

    /// A valid lock that no other client took is not reported as lost.
    fn check_release(
        &self,
        resource: usize,
        was_valid: bool,
        start: Duration,
        released: Option<Result<(), ReleaseError>>,
    ) {
        let has_paused = self.has_paused(start, self.sim.elapsed());
        if let Some(Err(ReleaseError::Lost(lost))) = released
            && (was_valid && !has_paused && self.plan.class == Class::Promised)
        {
            let (client, name) = (self.client.id(), name(resource));
            self.wrong(format!("client {client} released {name}, which was valid: {lost}"));
        }
    }

    /// Sends the lock to another client, as text.
    fn detach(&self, resource: usize, guard: LockGuard, begun: Option<Begun>) {
        let token = guard.fencing_token();
        let (was_valid, detached) = (guard.is_valid(), guard.detach());
        let text = match detached {
            Ok(record) => record.encode(),
            Err(LeaseEnd::Released | LeaseEnd::Detached | LeaseEnd::Closed) => {
                return self.wrong("a guard was not its own".to_owned());
            }
            Err(lost) if was_valid => {
                return self.wrong(format!("a valid lock was not detached: {lost}"));
            }
            Err(_) => return,
        };
        let peer = Arc::clone(self.dice.pick(&lock(&self.peers)));
        let transit = self.dice.scaled_time(self.plan.ttl);
        *lock(&peer.working) += 1;
        let client = peer.client.clone();
        client.spawn(peer.adopt(resource, text, (token, begun), transit));
    }

    /// Boxed, since what is adopted may be handed over again.
    fn adopt(
        self: Arc<Self>,
        resource: usize,
        text: String,
        (token, begun): (Option<FencingToken>, Option<Begun>),
        transit: Duration,
    ) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            self.sleep(transit).await;
            let adopted = match DetachedLock::decode(&text) {
                Ok(record) if self.dice.percent(20) => {
                    self.at_most(self.manager.adopt(&record), self.dice.below(8)).await
                }
                Ok(record) => Some(self.manager.adopt(&record).await),
                Err(error) => {
                    self.wrong(format!("a record cannot be read: {error}"));
                    None
                }
            };
            match adopted {
                Some(Ok(guard)) => {
                    if guard.fencing_token() != token {
                        self.wrong("a lock was adopted with another token".to_owned());
                    }
                    self.hold(resource, Held { guard, cap: None, begun }).await;
                }
                None | Some(Err(AdoptError::Lost(_) | AdoptError::NoQuorum(_))) => {}
                Some(Err(error)) => self.wrong(format!("a lock was not adopted: {error}")),
            }
            *lock(&self.working) -= 1;
        })
    }

    /// Returns whether the round goes on without it.
    async fn extend(&self, guard: &LockGuard, goes_on: bool, watch: &Watch) -> bool {
        let before = guard.valid_until();
        let longer = self.plan.ttl * u32::try_from(1 + self.dice.below(2)).unwrap_or(1);
        let done = match self.dice.below(4) {
            0 => {
                // The round goes on, and a watcher has to see what comes of it.
                self.client.spawn(Box::pin(watch.clone().lost()));
                self.at_most(guard.extend(), self.dice.below(8)).await
            }
            1 => Some(guard.extend_to(longer.max(Duration::from_millis(3))).await),
            2 => Some(guard.extend_to((self.plan.ttl / 4).max(Duration::from_millis(3))).await),
            _ => Some(guard.extend().await),
        };
        let after = guard.valid_until();
        let (client, lock) = (self.client.id(), watch.lock());
        match done {
            Some(Ok(())) => {
                if after < before {
                    self.wrong(format!("client {client}: an extension shortened {lock}"));
                }
                watch.observe();
                self.history.extended(self.sim.elapsed(), client, lock, self.world(after));
            }
            // A renewal may have moved it, the round of a future that was dropped, or, where tasks share a
            // manager, the extension that follows a pass. It may also have ended after the round that did.
            Some(Err(_))
                if after > before && !goes_on && self.plan.tasks == 1 && guard.is_valid() =>
            {
                self.wrong(format!("client {client}: a failed extension moved {lock}"));
            }
            Some(Err(ExtendError::Lost(ref reason))) => watch.hear_of_loss(reason),
            _ => {
                watch.observe();
            }
        }
        done.is_none()
    }

    fn add(&self, resource: usize, read: u64) {
        self.counters(|counters| {
            let (count, added) = &mut counters.counts[resource];
            *count = read + 1;
            *added += 1;
        });
    }

    /// Relies on the lock if it says that it is valid, and checks what that is worth.
    fn look(&self, resource: usize, is_valid: bool, watch: &Watch) {
        watch.observe();
        if !is_valid {
            return;
        }
        let (client, lock) = (self.client.id(), watch.lock());
        self.history.relied(self.sim.elapsed(), client, lock);
        if self.plan.class == Class::Promised && !self.is_backed(resource) {
            self.wrong(format!("client {client} relies on {lock}, which no quorum backs,"));
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

    fn granted(&self, resource: usize, lease: &Lease, begun: Option<Begun>) -> LockId {
        let until = self.world(lease.valid_until());
        let now = self.sim.elapsed();
        if !lease.is_valid() {
            self.wrong(format!("client {} was given a lock that is over", self.client.id()));
        }
        if lease.remaining() > self.plan.validity_of(self.plan.max_ttl()) {
            self.wrong(format!("client {} was given a lock for too long", self.client.id()));
        }
        let lock = self.history.granted(now, self.client.id(), name(resource), until);
        if lease.fencing_token().is_some() && begun.is_none() {
            self.wrong("a lock has a token, and no attempt asked for one".to_owned());
        }
        if let (Some(token), Some(Begun { attempt, at, hint })) = (lease.fencing_token(), begun) {
            let with = Fenced { token, attempt, asked: at, hint };
            self.history.fenced(now, self.client.id(), lock, with);
        }
        lock
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

    /// A moment of this client's clock, by that of the world.
    pub(crate) fn world(&self, local: Instant) -> Duration {
        let now = self.sim.now();
        let world = self.client.world_time(local);
        let elapsed = self.sim.elapsed() + world.saturating_duration_since(now);
        elapsed.saturating_sub(now.saturating_duration_since(world))
    }

    /// Whether this client stood still at any time in between.
    pub(crate) fn has_paused(&self, from: Duration, to: Duration) -> bool {
        self.nemesis.has_paused(self.client.id(), from, to)
    }

    fn counters<T>(&self, act: impl FnOnce(&mut Counters) -> T) -> T {
        act(&mut lock(&self.counters))
    }

    /// Something must not be as it is.
    pub(crate) fn wrong(&self, what: String) {
        lock(&self.wrong).push(Violation::other(&self.sim, what));
    }

    /// Sleeps by this client's clock.
    pub(crate) async fn sleep(&self, time: Duration) {
        self.client.sleep_until(self.client.now() + time).await;
    }
}

/// The request, for a lock with a fencing token or without.
pub(crate) fn fenced(request: LockRequest, fences: bool) -> LockRequest {
    if fences { request.fenced() } else { request }
}

/// The keys that a node keeps for locks: all but the fencing numbers, the wait queues, which end by
/// themselves where messages are lost, and the restart guard's.
pub(crate) fn lock_keys(node: &MemoryNode) -> Vec<Vec<u8>> {
    let mut keys = node.keys();
    keys.retain(|key| !key.windows(8).any(|part| part == b"quorate:"));
    keys
}

/// The key of a lock's fencing number.
pub(crate) fn counter(name: &str) -> String {
    let mix = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let hash = name.bytes().fold(0x811c_9dc5, mix);
    format!("quorate:fence:{}", (hash ^ (hash >> 16)) % 1024)
}

/// The error of a node that cannot answer yet.
pub(crate) fn loading() -> BackendError {
    BackendError::new(BackendErrorKind::Loading, "LOADING")
}

/// What a resource is called. The third shares the number of fencing tokens with the first.
pub(crate) fn name(resource: usize) -> String {
    match resource {
        2 => "resource-397".to_owned(),
        resource => format!("resource-{resource}"),
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use quorate_memory::Sim;

    use super::*;

    #[test]
    fn the_third_resource_shares_its_number_with_the_first() {
        let counter = |place| counter(&name(place));
        assert_eq!(counter(2), counter(0));
        assert_ne!(counter(1), counter(0));
    }

    #[test]
    fn a_fenced_lock_leaves_its_number_under_that_key() {
        let sim = Sim::new(1);
        let node = MemoryNode::new("node", sim.clone());
        let manager = LockManager::builder([node.clone()]).runtime(sim.clone()).build().unwrap();
        drop(sim.block_on(manager.lock(name(0)).fenced()).unwrap());
        sim.settle();
        assert_eq!(node.keys(), [counter(&name(0)).into_bytes()]);
    }
}
