//! One task of a process that competes for locks.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use quorate_core::{Lease, LockError, LockGuard, Runtime, WithError};

use super::board::WaitId;
use super::counts::Rule;
use super::crowd::{Crowd, Member};
use crate::history::LockId;
use crate::worker::name;

/// For so long a patient task waits: longer than any world lasts.
const PATIENT: Duration = Duration::from_secs(120);

/// One of the tasks of a process.
#[derive(Debug)]
pub(crate) struct Contender {
    crowd: Crowd,
    place: usize,
    client: usize,
}

/// How a request is given up before its end.
#[derive(Clone, Copy)]
enum Cancel {
    Never,
    AfterPolls(usize),
    After(Duration),
}

/// A lock, as the board and the history know it.
struct Held {
    guard: LockGuard,
    wait: WaitId,
    locks: Vec<LockId>,
}

impl Contender {
    /// A task of the process at this place, which has this client.
    pub(crate) fn new(crowd: &Crowd, place: usize, client: usize) -> Box<Self> {
        Box::new(Self { crowd: crowd.clone(), place, client })
    }

    /// Locks, holds and releases until the world is over.
    pub(crate) async fn run(self: Box<Self>) {
        let (crowd, plan) = (&self.crowd, &self.crowd.plan);
        while !crowd.is_over() {
            crowd.sim.sleep(crowd.dice.time(Duration::ZERO, plan.thinking)).await;
            let key = crowd.dice.below(plan.keys);
            let short = crowd.dice.scaled_time(Duration::from_secs(1));
            match if plan.mixed { crowd.dice.below(100) } else { 100 } {
                0..10 => self.no_wait(key).await,
                10..20 => {
                    self.lock(&[key], PATIENT, Cancel::AfterPolls(crowd.dice.below(12))).await
                }
                20..30 => self.lock(&[key], PATIENT, Cancel::After(short)).await,
                30..40 => self.lock(&[key], short, Cancel::Never).await,
                40..50 if plan.keys > 1 => {
                    let all: Vec<usize> = (0..plan.keys).collect();
                    self.lock(&all, short, Cancel::Never).await;
                }
                50..60 => self.with(key).await,
                60 => self.close().await,
                _ => self.lock(&[key], PATIENT, Cancel::Never).await,
            }
        }
        crowd.done(self.client);
    }

    async fn lock(&self, keys: &[usize], timeout: Duration, cancel: Cancel) {
        let (member, names) =
            (self.member(), keys.iter().map(|key| name(*key)).collect::<Vec<_>>());
        let wait = self.begins(&member, keys, timeout);
        let request = member.manager.lock(&names[..]).timeout(timeout).into_future();
        let answer = self.unless_cancelled(request, cancel).await;
        self.answered(&member, wait, keys, timeout, answer).await;
    }

    async fn no_wait(&self, key: usize) {
        let (member, keys) = (self.member(), [key]);
        let wait = self.begins(&member, &keys, Duration::ZERO);
        let answer = member.manager.lock(name(key)).no_wait().await;
        self.answered(&member, wait, &keys, Duration::ZERO, Some(answer)).await;
    }

    fn begins(&self, member: &Member, keys: &[usize], timeout: Duration) -> WaitId {
        drop(member.process.take_drawn());
        let now = self.crowd.sim.elapsed();
        self.crowd.board.begins(now, member.who, keys, now + timeout)
    }

    async fn answered(
        &self,
        member: &Member,
        wait: WaitId,
        keys: &[usize],
        timeout: Duration,
        answer: Option<Result<LockGuard, LockError>>,
    ) {
        let crowd = &self.crowd;
        let now = crowd.sim.elapsed();
        match answer {
            None => crowd.board.gave_up(now, wait),
            Some(Err(error)) => {
                crowd.board.gave_up(now, wait);
                self.failed(member, &error, timeout);
            }
            Some(Ok(guard)) => {
                let locks = self.granted(member, wait, keys, &guard.lease());
                self.hold(member, Held { guard, wait, locks }).await;
            }
        }
    }

    /// Notes a lock on the board and in the history.
    fn granted(&self, member: &Member, wait: WaitId, keys: &[usize], lease: &Lease) -> Vec<LockId> {
        let crowd = &self.crowd;
        let now = crowd.sim.elapsed();
        if crowd.board.granted(now, wait) >= crowd.plan.holds {
            crowd.end();
        }
        let left = lease.valid_until().saturating_duration_since(member.process.client().now());
        if left.is_zero() && !self.is_closed(member) {
            crowd.wrong(format!("client {} was given a lock that is over", self.client));
        }
        let granted = |key: &usize| crowd.history.granted(now, self.client, name(*key), now + left);
        keys.iter().map(granted).collect()
    }

    async fn hold(&self, member: &Member, Held { guard, wait, locks }: Held) {
        let crowd = &self.crowd;
        self.work(member, &guard.lease(), &locks).await;
        self.releases(wait, &locks);
        match crowd.dice.below(if crowd.plan.mixed { 6 } else { 1 }) {
            0..=2 => drop(guard.release().await),
            3 | 4 => drop(guard),
            _ => {
                let cancel = Cancel::AfterPolls(crowd.dice.below(6));
                drop(self.unless_cancelled(guard.release(), cancel).await);
            }
        }
    }

    /// What is done under a lock.
    async fn work(&self, member: &Member, lease: &Lease, locks: &[LockId]) {
        let crowd = &self.crowd;
        self.relies(member, lease, locks);
        crowd.sim.sleep(crowd.dice.time(crowd.plan.hold / 2, crowd.plan.hold)).await;
        self.relies(member, lease, locks);
    }

    fn relies(&self, member: &Member, lease: &Lease, locks: &[LockId]) {
        if lease.is_valid() {
            let now = self.crowd.sim.elapsed();
            locks.iter().for_each(|lock| self.crowd.history.relied(now, self.client, *lock));
        } else if !self.is_closed(member) && !self.crowd.nodes_fail() {
            self.crowd.wrong(format!("client {} lost a lock that nobody took", self.client));
        }
    }

    fn releases(&self, wait: WaitId, locks: &[LockId]) {
        let now = self.crowd.sim.elapsed();
        self.crowd.board.released(now, wait);
        locks.iter().for_each(|lock| self.crowd.history.ended(now, self.client, *lock));
    }

    async fn with(&self, key: usize) {
        let (member, keys, crowd) = (self.member(), [key], &self.crowd);
        let wait = self.begins(&member, &keys, PATIENT);
        let held = Arc::new(Mutex::new(None));
        let body = async |lease: Lease| {
            let locks = self.granted(&member, wait, &keys, &lease);
            let ending = Ending { contender: self, wait, locks };
            *held.lock().unwrap_or_else(PoisonError::into_inner) = Some(());
            self.work(&member, &lease, &ending.locks).await;
        };
        let cancel = match crowd.dice.below(4) {
            0 => Cancel::AfterPolls(crowd.dice.below(20)),
            _ => Cancel::Never,
        };
        let request = member.manager.lock(name(key)).timeout(PATIENT);
        let done = self.unless_cancelled(request.with(body), cancel).await;
        if held.lock().unwrap_or_else(PoisonError::into_inner).is_none() {
            crowd.board.gave_up(crowd.sim.elapsed(), wait);
        }
        match done {
            Some(Err(WithError::Lock(error))) => self.failed(&member, &error, PATIENT),
            Some(Err(error)) if !self.is_closed(&member) && !crowd.nodes_fail() => {
                crowd.wrong(format!("work failed with {error}"));
            }
            _ => {}
        }
    }

    /// A request failed: that must have had a reason, and left nothing (C8).
    fn failed(&self, member: &Member, error: &LockError, timeout: Duration) {
        let crowd = &self.crowd;
        match error {
            LockError::Held(_) if timeout < PATIENT => {}
            LockError::NoQuorum(_) => {}
            LockError::Closed if self.is_closed(member) => {}
            error => crowd.wrong(format!("client {} failed with {error}", self.client)),
        }
        let begun = member.process.take_drawn();
        // The close waits for the nodes.
        if error.is_closed() {
            return;
        }
        // Within the 2 ms that the error may wait for answers, each node has given them.
        if crowd.plan.latency * 4 > Duration::from_millis(2) || crowd.nodes_fail() {
            return;
        }
        for node in &crowd.nodes {
            let has = |key: &usize| {
                let value = node.get(name(*key));
                super::nemesis::attempt_of(value).is_some_and(|attempt| begun.contains(&attempt))
            };
            if (0..crowd.plan.keys).any(|key| has(&key)) {
                let what = format!("of client {}, on {}: {error}", self.client, node.name());
                crowd.board.broke(crowd.sim.elapsed(), Rule::C8, what);
                return;
            }
        }
        crowd.board.failed(begun);
    }

    async fn close(&self) {
        let crowd = &self.crowd;
        let Some(before) = crowd.renew(self.place) else { return };
        // What the manager held ends now, for all tasks.
        let bound = crowd.plan.ttl * 2;
        let start = crowd.sim.elapsed();
        let report = before.close(bound).await;
        if !report.is_clean() && !crowd.nodes_fail() {
            crowd.wrong(format!("closing left something since {start:?}: {report}"));
        }
    }

    fn member(&self) -> Member {
        self.crowd.member(self.place)
    }

    /// Whether another manager has taken the place of this one.
    fn is_closed(&self, member: &Member) -> bool {
        self.member().who.manager != member.who.manager
    }

    /// Polls a future until it is to be cancelled, and drops it then.
    async fn unless_cancelled<F: Future>(&self, future: F, cancel: Cancel) -> Option<F::Output> {
        let mut future = pin!(Some(future));
        let (mut polls, mut timer) = match cancel {
            Cancel::Never => (usize::MAX, None),
            Cancel::AfterPolls(polls) => (polls, None),
            Cancel::After(time) => (usize::MAX, Some(self.crowd.sim.sleep(time))),
        };
        poll_fn(|context| {
            let is_over =
                timer.as_mut().is_some_and(|timer| timer.as_mut().poll(context).is_ready());
            if let (Some(inner), true) = (future.as_mut().as_pin_mut(), polls > 0 && !is_over) {
                polls -= 1;
                if let Poll::Ready(output) = inner.poll(context) {
                    return Poll::Ready(Some(output));
                }
            }
            if polls > 0 && !is_over {
                return Poll::Pending;
            }
            future.set(None);
            Poll::Ready(None)
        })
        .await
    }
}

/// Ends a lock under `with` when its body ends or is dropped: before the release begins.
struct Ending<'a> {
    contender: &'a Contender,
    wait: WaitId,
    locks: Vec<LockId>,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.contender.releases(self.wait, &self.locks);
    }
}
