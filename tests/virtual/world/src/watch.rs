//! A watch on a lease: the task that is notified of its loss, and which reason it may get when.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use quorate_core::{FencingToken, Lease, LeaseEnd, Runtime};

use crate::history::{LockId, What};
use crate::worker::Worker;
use crate::world::lock;

/// One lease as its holder and its watchers see it. Clones see the same.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    worker: Arc<Worker>,
    pub(crate) lease: Lease,
    pub(crate) lock: LockId,
    cap: Option<Instant>,
    token: Option<FencingToken>,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug)]
struct Seen {
    until: Instant,
    at: Duration,
    told: bool,
    given_up: bool,
}

impl Watch {
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

    /// Records in the history an extension that a renewal made, and an end that has moved back.
    /// Returns when it was last looked at.
    ///
    /// Renewals are not seen as they happen. A watcher looks before each end that it knows of, so
    /// they are seen in time; except after a pause of the client, and where late votes had moved the
    /// end on. Then they count from when the round that made them had begun.
    pub(crate) fn observe(&self) -> Duration {
        let (until, now) = (self.lease.valid_until(), self.worker.sim.elapsed());
        let mut seen = lock(&self.seen);
        let before = std::mem::replace(&mut seen.at, now);
        if until > seen.until {
            let is_late = self.worker.client().now() >= seen.until;
            let old = self.worker.world_time(std::mem::replace(&mut seen.until, until));
            self.wrong_if(seen.told, "was prolonged after its loss had been told");
            if !seen.given_up && !seen.told {
                let until = self.worker.world_time(until);
                let start = until.saturating_sub(self.worker.plan.validity());
                let paused = self.worker.has_paused(before, now);
                let at = match (paused, is_late) {
                    // One for longer than the plan's ttl had begun before it was last looked at.
                    (true, _) if start >= old && before < old => before,
                    (true, _) => start.min(now),
                    // A lease that was over would have been told as lost.
                    (false, true) => start.min(old.saturating_sub(Duration::from_nanos(1))),
                    (false, false) => now,
                };
                self.worker.add(at, What::Extended(self.lock, until));
            }
        }
        // A node has said that it does not keep the keys (H5).
        if until < seen.until && self.lease.is_valid() && !seen.given_up {
            self.wrong_if(self.worker.plan.keeps_keys(), "ends earlier than it did");
            seen.until = until;
            self.worker.now(What::Extended(self.lock, self.worker.world_time(until)));
        }
        self.wrong_if(self.lease.fencing_token() != self.token, "has another token than before");
        self.wrong_if(self.cap.is_some_and(|cap| until > cap), "outlasts its hold limit");
        self.wrong_if(seen.told && self.lease.is_valid(), "is valid after its loss was told");
        before
    }

    /// The holder gives it up. Only the first time counts.
    pub(crate) fn give_up(&self) {
        self.observe();
        let mut seen = lock(&self.seen);
        if !std::mem::replace(&mut seen.given_up, true) {
            self.worker.now(What::Ended(self.lock));
        }
    }

    /// The holder learns of the loss from an extension that failed.
    pub(crate) fn hear_of_loss(&self, reason: &LeaseEnd) {
        self.observe();
        self.is_told(&mut lock(&self.seen), reason);
    }

    /// The loss was reported. A lease that ended by time keeps its keys for the margin, until its guard goes.
    fn is_told(&self, seen: &mut Seen, reason: &LeaseEnd) {
        let is_by_time = matches!(reason, LeaseEnd::Expired { .. } | LeaseEnd::HoldLimit(_));
        if !std::mem::replace(&mut seen.told, true) && !seen.given_up && !is_by_time {
            self.worker.now(What::Ended(self.lock));
        }
    }

    /// Waits for the report of the loss, and judges when and how that comes.
    pub(crate) async fn lost(self) {
        let mut lost = pin!(self.lease.lost());
        let begun = self.worker.client().now();
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
        let (now, local) = (self.worker.sim.elapsed(), self.worker.client().now());
        let mut seen = lock(&self.seen);
        let ran_out = matches!(
            reason,
            LeaseEnd::Expired { .. }
                | LeaseEnd::HoldLimit(_)
                | LeaseEnd::NotHeld(_)
                | LeaseEnd::Revoked { .. }
        );
        let has_paused = self.worker.has_paused(before, now);
        // A clock that runs slowly comes to its next nanosecond late.
        let end = seen.until.max(begun) + Duration::from_nanos(2);
        self.wrong_if(ran_out && local > end && !has_paused, "was over before its loss was told");
        // The end may have moved back since it was looked at, where nodes lose keys (H5).
        let moved = self.lease.valid_until();
        let end = if self.worker.plan.keeps_keys() { seen.until } else { seen.until.min(moved) };
        let is_early = matches!(reason, LeaseEnd::Expired { .. }) && local < end;
        self.wrong_if(is_early, "has not expired, and was lost");
        // No node forgets anything there (H1).
        self.wrong_if(
            matches!(reason, LeaseEnd::NotHeld(_)) && self.worker.plan.keeps_keys(),
            "was lost though no node had lost it",
        );
        self.wrong_if(
            matches!(reason, LeaseEnd::Revoked { .. }) && !self.worker.plan.revokes(),
            "was revoked by nobody",
        );
        self.wrong_if(!ran_out && !seen.given_up, &format!("was lost to nobody: {reason}"));
        self.wrong_if(
            matches!(reason, LeaseEnd::HoldLimit(_)) && self.cap.is_none(),
            "reached a hold limit that nobody had set",
        );
        self.is_told(&mut seen, reason);
    }

    /// `body`, of which no poll may come while the lease is not valid; given up when it ends.
    pub(crate) async fn under<T>(&self, body: impl Future<Output = T>) -> T {
        let _given_up = GivenUp(self);
        let mut body = pin!(body);
        poll_fn(|context| {
            self.wrong_if(!self.lease.is_valid(), "was over, and the work under it went on");
            body.as_mut().poll(context)
        })
        .await
    }

    fn wrong_if(&self, is_wrong: bool, what: &str) {
        let (client, lock) = (self.worker.client().id(), self.lock);
        if is_wrong {
            self.worker.wrong(format!("client {client}: {lock:?} {what}"));
        }
    }
}

/// Gives up when the work ends, also when it is dropped: before the release begins.
struct GivenUp<'a>(&'a Watch);

impl Drop for GivenUp<'_> {
    fn drop(&mut self) {
        self.0.give_up();
    }
}
