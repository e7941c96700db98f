//! One task of a process that competes for locks.

use std::sync::Mutex;
use std::time::Duration;

use quorate_core::{Lease, LockError, LockRequest, Runtime, WithError};

use super::board::{WaitId, rule};
use super::crowd::{Crowd, Member};
use crate::history::{LockId, What};
use crate::world::{Cancel, attempt_at, lock, name};

/// For so long a patient task waits: longer than any world lasts.
const PATIENT: Duration = Duration::from_secs(120);

/// Locks, holds and releases until the world is over, as a task of the process at a place.
pub(crate) async fn run(crowd: Crowd, place: usize) {
    let (dice, plan) = (&crowd.dice, &crowd.habits);
    while !crowd.is_over() {
        crowd.sleep(dice.time(Duration::ZERO, plan.thinking)).await;
        let key = [dice.below(plan.resources)];
        let short = dice.scaled_time(Duration::from_secs(1));
        let turn = |keys: &[usize], timeout| Turn::new(&crowd, place, keys, timeout);
        match if plan.mixed { dice.below(100) } else { 100 } {
            0..10 => turn(&key, Duration::ZERO).lock(Cancel::Never).await,
            10..20 => turn(&key, PATIENT).lock(Cancel::AfterPolls(dice.below(12))).await,
            20..30 => turn(&key, PATIENT).lock(Cancel::After(short)).await,
            30..40 => turn(&key, short).lock(Cancel::Never).await,
            40..50 if plan.resources > 1 => {
                let all: Vec<usize> = (0..plan.resources).collect();
                turn(&all, short).lock(Cancel::Never).await;
            }
            50..60 => turn(&key, PATIENT).with().await,
            60 => close(&crowd, place).await,
            _ => turn(&key, PATIENT).lock(Cancel::Never).await,
        }
    }
    *lock(&crowd.working) -= 1;
}

async fn close(crowd: &Crowd, place: usize) {
    // What the manager held ends now, for all tasks.
    let Some(before) = crowd.renew(place) else { return };
    let start = crowd.sim.elapsed();
    let report = before.close(crowd.plan.ttl * 2).await;
    if !report.is_clean() && !crowd.nodes_fail() {
        crowd.wrong(format!("closing left something since {start:?}: {report}"));
    }
}

/// One wait for keys, and the hold that follows.
struct Turn<'a> {
    crowd: &'a Crowd,
    member: Member,
    wait: WaitId,
    keys: Vec<usize>,
    timeout: Duration,
    locks: Mutex<Vec<LockId>>, // The locks in the history, once they are granted.
}

impl<'a> Turn<'a> {
    fn new(crowd: &'a Crowd, place: usize, keys: &[usize], timeout: Duration) -> Self {
        let member = crowd.member(place);
        drop(member.process.take_drawn());
        let now = crowd.sim.elapsed();
        let wait = crowd.board().begins(now, member.who, keys, now + timeout);
        Self { crowd, member, wait, keys: keys.to_vec(), timeout, locks: Mutex::default() }
    }

    fn request(&self) -> LockRequest {
        let names: Vec<String> = self.keys.iter().map(|key| name(*key)).collect();
        let request = self.member.manager.lock(&names[..]);
        if self.timeout.is_zero() { request.no_wait() } else { request.timeout(self.timeout) }
    }

    async fn lock(&self, cancel: Cancel) {
        let crowd = self.crowd;
        let answer = cancel.or(self.request(), &crowd.sim).await;
        let guard = match answer {
            Some(Ok(guard)) => guard,
            failed => {
                crowd.board().gave_up(crowd.sim.elapsed(), self.wait);
                return failed
                    .into_iter()
                    .filter_map(Result::err)
                    .for_each(|why| self.failed(&why));
            }
        };
        self.granted(&guard.lease());
        self.work(&guard.lease()).await;
        self.releases();
        match crowd.dice.below(if crowd.habits.mixed { 6 } else { 1 }) {
            0..=2 => drop(guard.release().await),
            3 | 4 => drop(guard),
            _ => {
                let cancel = Cancel::AfterPolls(crowd.dice.below(6));
                drop(cancel.or(guard.release(), &crowd.sim).await);
            }
        }
    }

    async fn with(&self) {
        let crowd = self.crowd;
        let body = async |lease: Lease| {
            let _ending = Ending(self);
            self.granted(&lease);
            self.work(&lease).await;
        };
        let cancel = match crowd.dice.below(4) {
            0 => Cancel::AfterPolls(crowd.dice.below(20)),
            _ => Cancel::Never,
        };
        let done = cancel.or(self.request().with(body), &crowd.sim).await;
        if lock(&self.locks).is_empty() {
            crowd.board().gave_up(crowd.sim.elapsed(), self.wait);
        }
        match done {
            Some(Err(WithError::Lock(error))) => self.failed(&error),
            Some(Err(error)) if !self.is_closed() && !crowd.nodes_fail() => {
                crowd.wrong(format!("work failed with {error}"));
            }
            _ => {}
        }
    }

    fn granted(&self, lease: &Lease) {
        let (crowd, client) = (self.crowd, self.member.process.client());
        let now = crowd.sim.elapsed();
        crowd.board().granted(now, self.wait);
        let left = lease.valid_until().saturating_duration_since(client.now());
        if left.is_zero() && !self.is_closed() {
            crowd.wrong(format!("client {} was given a lock that is over", client.id()));
        }
        let granted =
            |key: &usize| crowd.history.granted(now, client.id(), name(*key), now + left, false);
        lock(&self.locks).extend(self.keys.iter().map(granted));
    }

    async fn work(&self, lease: &Lease) {
        let crowd = self.crowd;
        self.relies(lease);
        let hold = crowd.habits.hold;
        crowd.sleep(crowd.dice.time(hold / 2, hold)).await;
        self.relies(lease);
    }

    fn relies(&self, lease: &Lease) {
        if lease.is_valid() {
            self.note(What::Relied);
        } else if !self.is_closed() && !self.crowd.nodes_fail() {
            let client = self.member.who.client;
            self.crowd.wrong(format!("client {client} lost a lock that nobody took"));
        }
    }

    fn releases(&self) {
        self.crowd.board().released(self.crowd.sim.elapsed(), self.wait);
        self.note(What::Ended);
    }

    fn note(&self, what: fn(LockId) -> What) {
        let (now, client) = (self.crowd.sim.elapsed(), self.member.who.client);
        let add = |id: &LockId| self.crowd.history.add(now, client, what(*id));
        lock(&self.locks).iter().for_each(add);
    }

    /// A request failed: that must have had a reason, and left nothing (C8).
    fn failed(&self, error: &LockError) {
        let (crowd, client) = (self.crowd, self.member.who.client);
        match error {
            LockError::Held(_) if self.timeout < PATIENT => {}
            LockError::NoQuorum(_) => {}
            LockError::Closed(_) if self.is_closed() => {}
            error => crowd.wrong(format!("client {client} failed with {error}")),
        }
        let begun = self.member.process.take_drawn();
        // Within the 2 ms that the error may wait for answers, each node has given them. The close waits for the nodes.
        let is_slow = crowd.plan.latency * 4 > Duration::from_millis(2);
        if is_slow || crowd.nodes_fail() || error.is_closed() {
            return;
        }
        for node in &crowd.nodes {
            let mut attempts =
                (0..crowd.plan.resources).filter_map(|key| attempt_at(node, &name(key)));
            if attempts.any(|attempt| begun.contains(&attempt)) {
                let what = format!("of client {client}, on {}: {error}", node.name());
                return crowd.board().broke(crowd.sim.elapsed(), rule::C8, what);
            }
        }
        crowd.board().failed(begun);
    }

    /// Whether another manager has taken the place of this one.
    fn is_closed(&self) -> bool {
        self.crowd.member(self.member.who.place).who.manager != self.member.who.manager
    }
}

/// Ends a lock under `with` when its body ends or is dropped: before the release begins.
struct Ending<'a>(&'a Turn<'a>);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.releases();
    }
}
