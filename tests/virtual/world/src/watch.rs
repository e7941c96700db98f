//! A watch on a lease: the task that is notified of its loss, and which reason it may get when.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use quorate_core::{FencingToken, Lease, LeaseEnd, Runtime};

use crate::history::LockId;
use crate::plan::Class;
use crate::worker::Worker;

/// One lease as its holder and its watchers see it. Clones see the same.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    worker: Arc<Worker>,
    lease: Lease,
    lock: LockId,
    /// The cap on the time that it is held.
    cap: Option<Instant>,
    token: Option<FencingToken>,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug)]
struct Seen {
    /// The latest end that the lease was seen to have.
    until: Instant,
    /// When it was last looked at.
    at: Duration,
    /// It was reported as over.
    told: bool,
    /// Its holder gave it up.
    given_up: bool,
}

impl Watch {
    /// Begins with the lease as it is now.
    pub(crate) fn new(
        worker: &Arc<Worker>,
        lease: Lease,
        lock: LockId,
        cap: Option<Instant>,
    ) -> Self {
        let (until, at) = (lease.valid_until(), worker.sim.elapsed());
        let seen = Arc::new(Mutex::new(Seen { until, at, told: false, given_up: false }));
        let token = lease.fencing_token();
        let watch = Self { worker: Arc::clone(worker), lease, lock, cap, token, seen };
        watch.observe();
        watch
    }

    /// The lock in the history.
    pub(crate) const fn lock(&self) -> LockId {
        self.lock
    }

    /// The lease.
    pub(crate) const fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Records in the history an extension that a renewal made. Returns when it was last looked at.
    ///
    /// Renewals are not seen as they happen. A watcher looks before each end that it knows of, so
    /// they are seen in time; except after a pause of the client, and then they count from when the
    /// round that made them had begun.
    pub(crate) fn observe(&self) -> Duration {
        let (until, now) = (self.lease.valid_until(), self.worker.sim.elapsed());
        let mut seen = self.seen();
        let before = std::mem::replace(&mut seen.at, now);
        if until > seen.until {
            seen.until = until;
            if seen.told {
                self.wrong("was prolonged after its loss had been told");
            }
            if !seen.given_up && !seen.told {
                let start = self.worker.world(until).saturating_sub(self.worker.plan.validity());
                let paused = self.worker.has_paused(before, now);
                let at = if paused { start.min(now) } else { now };
                let (history, client) = (&self.worker.history, self.worker.client.id());
                history.extended(at, client, self.lock, self.worker.world(until));
            }
        }
        if self.lease.fencing_token() != self.token {
            self.wrong("has another token than before");
        }
        if self.cap.is_some_and(|cap| until > cap) {
            self.wrong("outlasts its hold limit");
        }
        if seen.told && self.lease.is_valid() {
            self.wrong("is valid after its loss was told");
        }
        before
    }

    /// The holder gives it up. Only the first time counts.
    pub(crate) fn give_up(&self) {
        self.observe();
        let mut seen = self.seen();
        if !std::mem::replace(&mut seen.given_up, true) {
            self.ended();
        }
    }

    /// The holder learns of the loss from an extension that failed.
    pub(crate) fn hear_of_loss(&self, reason: &LeaseEnd) {
        self.observe();
        self.is_told(&mut self.seen(), reason);
    }

    /// The loss was told. A lease that ended by time keeps its keys for the margin, until its guard goes.
    fn is_told(&self, seen: &mut Seen, reason: &LeaseEnd) {
        let is_by_time = matches!(reason, LeaseEnd::Expired { .. } | LeaseEnd::HoldLimit);
        if !std::mem::replace(&mut seen.told, true) && !seen.given_up && !is_by_time {
            self.ended();
        }
    }

    /// Waits for the report of the loss, and judges when and how that comes.
    pub(crate) async fn lost(self) {
        let mut lost = pin!(self.lease.lost());
        let begun = self.worker.client.now();
        let (reason, before) = poll_fn(|context| {
            let before = self.observe();
            lost.as_mut().poll(context).map(|reason| (reason, before))
        })
        .await;
        self.judge(&reason, before, begun);
        // And it stays so.
        self.observe();
        self.worker.sleep(self.worker.dice.scaled_time(self.worker.plan.ttl / 2)).await;
        self.observe();
    }

    /// It was reported now to a watcher that had `begun`, and had been looked at `before`.
    fn judge(&self, reason: &LeaseEnd, before: Duration, begun: Instant) {
        let (now, local) = (self.worker.sim.elapsed(), self.worker.client.now());
        let mut seen = self.seen();
        let ran_out =
            matches!(reason, LeaseEnd::Expired { .. } | LeaseEnd::HoldLimit | LeaseEnd::NotHeld(_));
        let has_paused = self.worker.has_paused(before, now);
        // A clock that runs slowly comes to its next nanosecond late.
        let end = seen.until.max(begun) + Duration::from_nanos(2);
        if ran_out && local > end && !has_paused {
            self.wrong("was over before its loss was told");
        }
        if matches!(reason, LeaseEnd::Expired { .. }) && local < seen.until {
            self.wrong("has not expired, and was lost");
        }
        // No node forgets anything there (H1).
        if matches!(reason, LeaseEnd::NotHeld(_)) && self.worker.plan.class == Class::Promised {
            self.wrong("was lost though no node had lost it");
        }
        if !ran_out && !seen.given_up {
            self.wrong(&format!("was lost to nobody: {reason}"));
        }
        if matches!(reason, LeaseEnd::HoldLimit) && self.cap.is_none() {
            self.wrong("reached a hold limit that nobody had set");
        }
        self.is_told(&mut seen, reason);
    }

    /// `body`, of which no poll may come while the lease is not valid; given up when it ends.
    pub(crate) async fn under<T>(&self, body: impl Future<Output = T>) -> T {
        let _given_up = GivenUp(self);
        let mut body = pin!(body);
        poll_fn(|context| {
            if !self.lease.is_valid() {
                self.wrong("was over, and the work under it went on");
            }
            body.as_mut().poll(context)
        })
        .await
    }

    fn ended(&self) {
        let (history, client) = (&self.worker.history, self.worker.client.id());
        history.ended(self.worker.sim.elapsed(), client, self.lock);
    }

    fn wrong(&self, what: &str) {
        self.worker.wrong(format!("client {}: {} {what}", self.worker.client.id(), self.lock));
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives up when the work ends, also when it is dropped: before the release begins.
struct GivenUp<'a>(&'a Watch);

impl Drop for GivenUp<'_> {
    fn drop(&mut self) {
        self.0.give_up();
    }
}
