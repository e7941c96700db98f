//! A client that uses locks: patiently, in a hurry, carelessly.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use quorate_core::runtime::BoxFuture;
use quorate_core::{
    AdoptError, DetachedLock, ExtendError, FencingToken, IntoResources, Lease, LeaseEnd, LockError,
    LockGuard, LockManager, LockRequest, Runtime, WithError,
};
use quorate_memory::SimClient;

use crate::history::{Begun, What};
use crate::plan::Class;
use crate::process::Process;
use crate::run::Scene;
use crate::watch::Watch;
use crate::world::{Cancel, fenced, lock, name};

mod checks;

#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) scene: Arc<Scene>,
    pub(crate) process: Process,
    pub(crate) manager: LockManager,
}

impl Deref for Worker {
    type Target = Scene;

    fn deref(&self) -> &Scene {
        &self.scene
    }
}

/// The shortest ttl of a lease that is renewed.
const LEAST_RENEWED: Duration = Duration::from_millis(50);

/// A lock, until when it can be held at the most, and the attempt that its token comes from.
struct Held {
    guard: LockGuard,
    cap: Option<Instant>,
    begun: Option<Begun>,
    reads: bool,
}

impl Worker {
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

    pub(crate) const fn client(&self) -> &SimClient {
        self.process.client()
    }

    /// Asks for a lock in one of several ways, and checks that the answer comes in time.
    async fn lock(&self, resource: usize) -> Option<Held> {
        let name = name(resource);
        let wait = self.dice.scaled_time(self.plan.ttl * 3);
        let start = (self.sim.elapsed(), self.client().now());
        let reads = self.reads();
        let fences = self.plan.fences(&self.dice) && !reads;
        let (way, mut limit) = (self.dice.below(10), None);
        let ask = || self.ask(name.as_str(), reads);
        let request = || fenced(ask().timeout(wait), fences);
        let locked = match way {
            0 | 1 => fenced(ask().no_wait(), fences).await,
            2 | 3 => self.at_most(12, request()).await?,
            4 if self.plan.resources > 1 => {
                let all: Vec<String> = (0..self.plan.resources).map(self::name).collect();
                let locked = fenced(self.ask(&all[..], reads).timeout(wait), fences).await;
                if let Ok(guard) = &locked {
                    // Two tenures; the other one is given up at once, which only shortens it.
                    let other = (resource + 1) % self.plan.resources;
                    let lock = self.granted(other, &guard.lease(), self.process.begun(), reads);
                    self.now(What::Ended(lock));
                }
                locked
            }
            _ => self.limited(request(), &mut limit).await,
        };
        let begun = self.process.begun();
        self.check_deadline(start, (way > 1).then_some(wait));
        match locked {
            Ok(guard) => {
                let cap = limit.map(|limit| self.client().now() + limit);
                if guard.fencing_token().is_some() != fences {
                    self.wrong("a token was given to who asked for none, or the reverse");
                }
                Some(Held { guard, cap, begun, reads })
            }
            Err(error) => {
                self.check_refusal(&error);
                None
            }
        }
    }

    /// Whether a request is that of a reader.
    fn reads(&self) -> bool {
        self.plan.class == Class::Readers && self.dice.percent(70)
    }

    fn ask(&self, resources: impl IntoResources, reads: bool) -> LockRequest {
        if reads { self.manager.read(resources) } else { self.manager.lock(resources) }
    }

    fn limited(&self, request: LockRequest, limit: &mut Option<Duration>) -> LockRequest {
        let (dice, ttl) = (&self.dice, self.plan.ttl);
        *limit = dice.percent(20).then(|| dice.time(ttl / 2, ttl * 2));
        match *limit {
            Some(limit) => request.hold_limit(limit),
            None => request,
        }
    }

    /// Holds a lock: relies on it, extends or renews it, gives it up in one of several ways.
    async fn hold(self: &Arc<Self>, resource: usize, Held { guard, cap, begun, reads }: Held) {
        let lock = self.granted(resource, &guard.lease(), begun, reads);
        let watch = Watch::new(self, guard.lease(), lock, cap);
        // Else it extends it by hand, or not at all.
        let (is_renewed, is_run) = match self.dice.below(10) {
            0 | 1 => (true, false),
            draw => (false, draw == 2),
        };
        let kept_alive = is_renewed || is_run && self.dice.percent(50);
        if kept_alive {
            guard.auto_renew();
        }
        // The extension of a lease that was passed on moves its end, or ends it early (H1).
        self.client().spawn(Box::pin(watch.clone().lost()));
        let parts = 1 + self.dice.below(4);
        if is_run {
            let has_ended = &AtomicBool::new(false);
            let work = watch.under(self.work(resource, parts, &watch));
            let work = async {
                let ended = work.await;
                has_ended.store(true, Ordering::Relaxed);
                ended
            };
            // In the end it gives the lock up, so it must have ended in time.
            let ended = guard.run(work).await;
            if !ended.unwrap_or_else(|_| !has_ended.load(Ordering::Relaxed)) {
                self.wrong(format!("client {}: {lock:?} was over in a run", self.client().id()));
            }
        } else {
            for _ in 0..parts {
                self.sleep(self.dice.scaled_time(self.plan.ttl)).await;
                self.look(resource, guard.is_valid(), &watch);
                if self.plan.revokes() && guard.is_at_risk() && self.dice.percent(50) {
                    // It leaves, as it was asked to.
                    self.scene.count("left when asked");
                    break;
                }
                if self.dice.percent(if kept_alive { 10 } else { 40 }) {
                    self.extend(&guard, &watch).await;
                }
            }
            if !kept_alive && self.dice.percent(20) {
                // To the very end: the moment in which mistakes show.
                self.client().sleep_until(guard.valid_until() - Duration::from_nanos(100)).await;
            }
            self.look(resource, guard.is_valid(), &watch);
        }
        let draw = self.dice.below(12);
        if draw == 0 {
            // It stays until the ttl is over, or until this client ends.
            self.sleep(self.plan.ttl * 2).await;
        }
        watch.give_up();
        match draw {
            0 => {}
            // One that is kept alive would be held for ever.
            1 if !kept_alive || cap.is_some() => self::lock(&self.forgotten).push(guard),
            2 | 3 => drop(guard),
            6 | 7 => self.detach(resource, guard, begun, reads),
            _ => {
                let polls = matches!(draw, 4 | 5).then(|| self.dice.below(8));
                let (was_valid, start) = (guard.is_valid(), self.sim.elapsed());
                let cancel = polls.map_or(Cancel::Never, Cancel::AfterPolls);
                let released = cancel.or(guard.release(), &self.sim).await;
                self.check_release(resource, was_valid, start, released);
            }
        }
    }

    /// Works under a lock, which is taken, renewed and released around it.
    async fn with(self: &Arc<Self>, resource: usize) {
        let (wait, mut limit) = (self.dice.scaled_time(self.plan.ttl * 3), None);
        let reads = self.reads();
        let request = self.ask(name(resource), reads).timeout(wait);
        // A shorter lease is not renewed.
        let is_short = self.plan.ttl < 4 * LEAST_RENEWED;
        let request = if is_short { request.ttl(self.plan.ttl) } else { request };
        let request = fenced(request, self.plan.fences(&self.dice) && !reads);
        let request = self.limited(request, &mut limit);
        let parts = 1 + self.dice.below(6);
        let body = async |lease: Lease| {
            let lock = self.granted(resource, &lease, self.process.begun(), reads);
            let cap = limit.map(|limit| self.client().now() + limit);
            let watch = Watch::new(self, lease, lock, cap);
            self.client().spawn(Box::pin(watch.clone().lost()));
            watch.under(self.work(resource, parts, &watch)).await
        };
        let done = if self.dice.percent(20) {
            self.at_most(40, request.with(body)).await
        } else {
            Some(request.with(body).await)
        };
        match done {
            None | Some(Ok(true) | Err(WithError::Lost(_))) => {}
            Some(Ok(false)) => self.wrong("a lock was over before the work under it"),
            Some(Err(WithError::Lock(error))) => self.check_refusal(&error),
            Some(Err(error)) => self.wrong(format!("work failed with {error}")),
        }
    }

    /// What is done under a lock that ends it in time. Returns whether it was valid at the end.
    async fn work(&self, resource: usize, parts: usize, watch: &Watch) -> bool {
        for _ in 0..parts {
            self.sleep(self.dice.scaled_time(self.plan.ttl)).await;
            self.look(resource, watch.lease.is_valid(), watch);
        }
        self.look(resource, watch.lease.is_valid(), watch);
        watch.lease.is_valid()
    }

    /// Sends the lock to another client, as text.
    fn detach(&self, resource: usize, guard: LockGuard, begun: Option<Begun>, reads: bool) {
        let token = guard.fencing_token();
        let (was_valid, detached) = (guard.is_valid(), guard.detach());
        let text = match detached {
            Ok(record) => record.encode(),
            Err(LeaseEnd::Released(_) | LeaseEnd::Detached(_) | LeaseEnd::Closed(_)) => {
                return self.wrong("a guard was not its own");
            }
            // What the owner was asked to give back is given back (`LockGuard::detach`).
            Err(LeaseEnd::Revoked { .. }) => return,
            Err(lost) if was_valid => {
                return self.wrong(format!("a valid lock was not detached: {lost}"));
            }
            Err(_) => return,
        };
        let peer = Arc::clone(self.dice.pick(&lock(&self.peers)));
        let transit = self.dice.scaled_time(self.plan.ttl);
        *lock(&self.working) += 1;
        let client = peer.client().clone();
        client.spawn(peer.adopt(resource, text, (token, begun, reads), transit));
    }

    /// Boxed, since what is adopted may be handed over again.
    fn adopt(
        self: Arc<Self>,
        resource: usize,
        text: String,
        (token, begun, reads): (Option<FencingToken>, Option<Begun>, bool),
        transit: Duration,
    ) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            self.sleep(transit).await;
            let adopted = match text.parse::<DetachedLock>() {
                Ok(record) if self.dice.percent(20) => {
                    self.at_most(8, self.manager.adopt(&record)).await
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
                        self.wrong("a lock was adopted with another token");
                    }
                    self.hold(resource, Held { guard, cap: None, begun, reads }).await;
                }
                None
                | Some(Err(AdoptError::Lost(_) | AdoptError::Lock(LockError::NoQuorum(_)))) => {}
                Some(Err(error)) => self.wrong(format!("a lock was not adopted: {error}")),
            }
            *lock(&self.working) -= 1;
        })
    }

    async fn extend(&self, guard: &LockGuard, watch: &Watch) {
        let (before, ttl) = (guard.valid_until(), self.plan.ttl);
        let (shortest, draw) = (Duration::from_millis(3), self.dice.below(2));
        let longer = ttl * u32::try_from(1 + draw).unwrap_or(1);
        let done = match self.dice.below(4) {
            0 => {
                // The round goes on, and a watcher has to see what comes of it.
                self.client().spawn(Box::pin(watch.clone().lost()));
                self.at_most(8, guard.extend()).await
            }
            1 => Some(guard.extend_to(longer.max(shortest)).await),
            2 => Some(guard.extend_to((ttl / 4).max(shortest)).await),
            _ => Some(guard.extend().await),
        };
        let (after, client, lock) = (guard.valid_until(), self.client().id(), watch.lock);
        match done {
            Some(Ok(())) => {
                // A node that lost the keys may have moved the end back (H5).
                if after < before && self.plan.keeps_keys() {
                    self.wrong(format!("client {client}: an extension shortened {lock:?}"));
                }
                watch.observe();
                self.now(What::Extended(lock, self.world_time(after)));
            }
            // Asked to leave, it has the rest of the lease.
            Some(Err(ExtendError::Lost(LeaseEnd::Revoked { .. }))) if guard.is_valid() => {
                watch.observe();
            }
            Some(Err(ExtendError::Lost(ref reason))) => watch.hear_of_loss(reason),
            _ => drop(watch.observe()),
        }
    }

    /// Polls a future for fewer than so many times, then drops it.
    async fn at_most<F: IntoFuture>(&self, polls: usize, future: F) -> Option<F::Output> {
        Cancel::AfterPolls(self.dice.below(polls)).or(future, &self.sim).await
    }

    /// A moment of this client's clock, by that of the world.
    pub(crate) fn world_time(&self, local: Instant) -> Duration {
        let now = self.sim.now();
        let world = self.client().world_time(local);
        let elapsed = self.sim.elapsed() + world.saturating_duration_since(now);
        elapsed.saturating_sub(now.saturating_duration_since(world))
    }

    /// Whether this client stood still at any time in between.
    pub(crate) fn has_paused(&self, from: Duration, to: Duration) -> bool {
        let client = self.client().id();
        let meets = |(who, start, end): &(usize, Duration, Duration)| {
            *who == client && *start <= to && *end >= from
        };
        lock(&self.pauses).iter().any(meets)
    }

    /// Records something about this client at a moment of the world.
    pub(crate) fn add(&self, at: Duration, what: What) {
        self.history.add(at, self.client().id(), what);
    }

    pub(crate) fn now(&self, what: What) {
        self.add(self.sim.elapsed(), what);
    }

    pub(crate) async fn sleep(&self, time: Duration) {
        self.client().sleep_until(self.client().now() + time).await;
    }
}
