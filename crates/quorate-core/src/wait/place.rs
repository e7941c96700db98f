//! One task in the local queues: from the request to the end of its guard.

use std::future::poll_fn;
use std::mem;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{Either, OptionFuture, join, select};

use super::local_queue::LocalQueues;
use super::task::{Held, Task};
use super::{LostRound, Wait};
use crate::algorithm::lease::Ttl;
use crate::algorithm::local_queue::{Found, LocalQueue, Wish};
use crate::attempt::Attempt;
use crate::error::{Lost, ReleaseError};
use crate::lease::{Lease, Release};
use crate::resource::Key;

/// What a task does next.
pub(crate) enum Next {
    /// It competes at the nodes. `others_wait`: other processes wait for the key.
    Compete { others_wait: bool },
    /// The lock was passed on to it.
    Given,
    /// The manager is closed.
    Closed,
}

/// The place of a task in the local queues. Dropping it leaves the queues, and releases what is held.
pub(crate) struct Place {
    queues: Arc<LocalQueues>,
    task: Arc<Task>,
    stage: Stage,
    /// The wait between processes of a task that competes. If it is cancelled, the next task that wants the same
    /// keys goes on with it: the entry keeps its place in the wait queue. In a mutex, since a guard is `Sync`.
    wait: Mutex<Option<Wait>>,
}

/// What a task has at the nodes.
#[derive(Default)]
enum Stage {
    /// Nothing: it waits for its turn.
    Waits,
    /// The latest attempt of a task that competes.
    Attempt(Arc<Attempt>),
    Lock(Arc<Held>),
    /// An adopted lock of keys that this manager has or wants: in their queues, it is one of another process.
    Apart(Arc<Attempt>),
    /// Nothing any more: the release goes on by itself, or the lock was detached.
    #[default]
    Over,
}

impl Place {
    /// Enters the queues of all keys in one step. Also returns whether a guard or a waiter of this manager
    /// is in front; a release that goes on is not.
    pub(crate) fn enter(
        queues: &Arc<LocalQueues>,
        keys: &Arc<[Key]>,
        ttl: Ttl,
        is_fenced: bool,
    ) -> (Self, bool) {
        let place = Self::register(queues, keys);
        let wish = wish(ttl, keys.len(), is_fenced);
        let are_in_use = queues.input(keys, |queue, now| {
            let is_in_use = queue.is_in_use();
            queue.lock(place.task.id, wish, now);
            is_in_use
        });
        (place, are_in_use.contains(&true))
    }

    /// The place of the holder of an adopted lock.
    pub(crate) fn adopted(queues: &Arc<LocalQueues>, attempt: Arc<Attempt>) -> Self {
        let keys: Arc<[Key]> = attempt.claim.keys().into();
        let mut place = Self::register(queues, &keys);
        let (id, ttl, cluster) = (place.task.id, attempt.claim.ttl(), &queues.cluster);
        let wish = wish(ttl, keys.len(), attempt.fencing_token().is_some());
        let validity = cluster.config.validity(ttl);
        let end = attempt.last_end();
        let held = Arc::new(Held { id: id.lease(), attempt });
        queues.keep(&held);
        let entered = queues.input(&keys, |queue, _| queue.adopt(id, wish, validity, end));
        place.stage = if entered.contains(&false) {
            queues.input(&keys, |queue, now| queue.detach(id, now));
            queues.drop_lease(&held);
            Stage::Apart(Arc::clone(&held.attempt))
        } else {
            Stage::Lock(held)
        };
        place
    }

    fn register(queues: &Arc<LocalQueues>, keys: &Arc<[Key]>) -> Self {
        let task = queues.register(keys);
        Self { queues: Arc::clone(queues), task, stage: Stage::Waits, wait: Mutex::default() }
    }

    /// Resolves when it is this task's turn: it competes, or the lock was passed on to it.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped and called again.
    pub(crate) async fn turn(&mut self) -> Next {
        loop {
            // Before the check, so that no change is missed.
            let mut changed = self.task.changed();
            if let Some(turn) = self.check() {
                return turn;
            }
            let (next, mut leases) = self.queues.next_change(&self.task.keys);
            // What became of a lease before it was listened to.
            self.queues.input(&self.task.keys, LocalQueue::handle_timeout);
            let runtime = &self.queues.cluster.runtime;
            let mut timer = next.map(|next| runtime.sleep_until(next));
            poll_fn(|context| {
                let has_changed = Pin::new(&mut changed).poll(context).is_ready()
                    || leases.iter_mut().any(|lease| Pin::new(lease).poll(context).is_ready())
                    || timer.as_mut().is_some_and(|timer| timer.as_mut().poll(context).is_ready());
                if has_changed { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
    }

    fn check(&mut self) -> Option<Next> {
        let mut inbox = self.task.inbox();
        if inbox.is_refused {
            return Some(Next::Closed);
        }
        if inbox.competes == self.task.keys.len() {
            return Some(Next::Compete { others_wait: inbox.others_wait });
        }
        let held = inbox.given.take()?;
        drop(inbox);
        let id = self.task.id;
        let is_ours = self.queues.input(&self.task.keys, |queue, now| queue.handle_polled(id, now));
        if is_ours != [true] {
            // The lease has ended before this poll, and the task is first in its queue again.
            return None;
        }
        self.stage = Stage::Lock(held);
        Some(Next::Given)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.task.inbox().is_refused
    }

    /// The output of `future`; `None` once the manager is closed.
    pub(crate) async fn unless_closed<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        unless_closed(&self.task, future).await
    }

    /// Begins the wait between processes, or goes on with that of the task before, if that was cancelled.
    pub(crate) fn begin_wait(&mut self, node_timeout: Duration, others_wait: bool) {
        let handed_on = self.task.inbox().wait.take();
        let (cluster, keys) = (&self.queues.cluster, &self.task.keys);
        let begin = || Wait::begin(cluster, keys, node_timeout, others_wait);
        let wait = handed_on.unwrap_or_else(begin);
        *self.wait() = Some(wait);
    }

    /// The wait between processes.
    pub(crate) fn wait(&mut self) -> &mut Option<Wait> {
        self.wait.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves when the next attempt is worth making, see [`Wait::next`]; to `None` once the manager is
    /// closed.
    pub(crate) async fn next(&mut self, lost: Option<LostRound>) -> Option<()> {
        let task = Arc::clone(&self.task);
        let next = OptionFuture::from(self.wait().as_mut().map(|wait| wait.next(lost)));
        unless_closed(&task, next).await.map(drop)
    }

    /// The attempt with which this task competes.
    pub(crate) fn set_attempt(&mut self, attempt: &Arc<Attempt>) {
        self.stage = Stage::Attempt(Arc::clone(attempt));
    }

    /// Leaves the queues, and waits for the answers to the undo of the last round, for `limit` at most (C8).
    ///
    /// The next waiter needs the answer of the gate only, so the queues are left first (W3).
    pub(crate) async fn leave(mut self, limit: Duration) {
        let cluster = Arc::clone(&self.queues.cluster);
        let left = self.hand_on_wait().and_then(Wait::end);
        let attempt = self.attempt().cloned();
        drop(self);
        let left = left.map(|left| cluster.within(limit, left));
        let undone = attempt.as_ref().map(|attempt| attempt.undone(limit));
        join(OptionFuture::from(undone), OptionFuture::from(left)).await;
    }

    /// Returns the wait, if there is one and no next task goes on with it.
    fn hand_on_wait(&mut self) -> Option<Wait> {
        // That of the task before, if this one did not come to compete.
        let wait = self.wait().take().or_else(|| self.task.inbox().wait.take())?;
        self.queues.hand_on(&self.task, wait)
    }

    /// The attempt has won: its lock is in the queue of each key, and the wait ends. `None` if the manager was
    /// closed before: then the lock is released.
    pub(crate) fn won(&mut self, attempt: Arc<Attempt>) -> Option<()> {
        let validity = self.queues.cluster.config.validity(attempt.claim.ttl());
        let (end, waiters) = (attempt.last_end(), attempt.waiters());
        let others_wait = waiters.map(|(others_wait, _)| others_wait);
        let held = Arc::new(Held { id: self.task.id.lease(), attempt });
        self.queues.keep(&held);
        let have_it = self.queues.input(held.keys(), |queue, now| {
            queue.handle_won(held.id, validity, end, others_wait, now)
        });
        if have_it.contains(&false) && !planted!("win_after_a_close_is_kept") {
            held.attempt.cancel();
            return None;
        }
        self.stage = Stage::Lock(Arc::clone(&held));
        let queues = Arc::clone(&self.queues);
        if let Some(wait) = self.wait().take() {
            wait.won(move |others_wait| {
                queues.input(held.keys(), |queue, now| queue.handle_hint(others_wait, now));
            });
        }
        Some(())
    }

    /// A release of this manager that keeps the task from competing.
    pub(crate) fn releasing(&self) -> Option<Arc<Attempt>> {
        self.queues.releasing(&self.task)
    }

    /// Begins the lease of a lock that was won, passed on or adopted. The place itself if the manager is
    /// closed: dropping it releases the lock.
    pub(crate) fn hold(self, hold_limit: Option<Duration>) -> Result<(Self, Lease), Self> {
        let Some(attempt) = self.attempt().cloned() else { return Err(self) };
        let lease = Lease::new(attempt, hold_limit, self.release_of_an_ended_lease());
        self.task.inbox().lease = Some(lease.clone());
        let tasks = &self.queues.cluster.tasks;
        // Behind the lease, so that a close either finds it or is found here.
        if tasks.is_closed() {
            return Err(self);
        }
        if hold_limit.is_some() {
            tasks.spawn(lease.clone().release_at_its_end());
        }
        Ok((self, lease))
    }

    /// Releases the lock, or passes it on, and returns what that found.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing: the release goes on.
    pub(crate) async fn release(mut self) -> Result<(), ReleaseError> {
        let held = match mem::take(&mut self.stage) {
            Stage::Lock(held) => held,
            Stage::Apart(attempt) => return Attempt::released(&mut attempt.begin_release()).await,
            Stage::Waits | Stage::Attempt(_) | Stage::Over => return Ok(()),
        };
        let id = self.task.id;
        self.queues.input(held.keys(), |queue, now| queue.release(id, true, now));
        let found = loop {
            let changed = self.task.changed();
            if let Some(found) = self.task.inbox().found {
                break found;
            }
            changed.await;
        };
        match (found, held.attempt.release_result()) {
            (Found::Held, _) => Ok(()),
            (Found::Lost, Some(Err(error @ ReleaseError::Lost(_)))) => Err(error),
            (Found::Lost, _) => {
                let lost = held.attempt.lease_end(self.queues.cluster.now()).err();
                Err(ReleaseError::Lost(lost.unwrap_or(Lost::Released)))
            }
            (Found::Unconfirmed, Some(Err(error @ ReleaseError::Unconfirmed(_)))) => Err(error),
            (Found::Unconfirmed, _) => Err(ReleaseError::Unconfirmed(held.attempt.failure())),
        }
    }

    fn release_of_an_ended_lease(&self) -> Release {
        let (queues, id) = (Arc::clone(&self.queues), self.task.id);
        match &self.stage {
            Stage::Lock(held) => {
                let held = Arc::clone(held);
                Box::new(move || {
                    queues.input(held.keys(), |queue, now| {
                        // If the lock was passed on, the lease is the receiver's.
                        if queue.holder() == Some(id) {
                            queue.handle_lost(held.id, now);
                        }
                    });
                })
            }
            Stage::Apart(attempt) => {
                let attempt = Arc::clone(attempt);
                Box::new(move || attempt.cancel())
            }
            Stage::Waits | Stage::Attempt(_) | Stage::Over => Box::new(|| ()),
        }
    }

    /// Leaves the lock to another process.
    pub(crate) fn detach(self) -> Result<(), Lost> {
        // After an error, the drop releases.
        self.attempt().ok_or(Lost::Released)?.detach()?;
        self.part();
        Ok(())
    }

    fn attempt(&self) -> Option<&Arc<Attempt>> {
        match &self.stage {
            Stage::Attempt(attempt) | Stage::Apart(attempt) => Some(attempt),
            Stage::Lock(held) => Some(&held.attempt),
            Stage::Waits | Stage::Over => None,
        }
    }

    /// Leaves the lock as it is. Its attempt sends nothing any more.
    pub(crate) fn part(mut self) {
        if let Stage::Lock(held) = mem::take(&mut self.stage) {
            let id = self.task.id;
            self.queues.input(held.keys(), |queue, now| queue.detach(id, now));
            self.queues.drop_lease(&held);
        }
    }

    /// Releases in the background a lock whose holder did not do so after the close.
    pub(crate) fn release_abandoned(queues: &Arc<LocalQueues>, task: &Task) {
        let id = task.id;
        queues.input(&task.keys, |queue, now| queue.release(id, false, now));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(self.hand_on_wait());
        let Self { queues, task, stage, .. } = self;
        let id = task.id;
        match mem::take(stage) {
            Stage::Waits => {
                queues.input(&task.keys, |queue, now| queue.cancel(id, now));
                // It may have been its turn, and nothing was sent.
                queues.input(&task.keys, |queue, now| queue.handle_left(id.lease(), now));
            }
            // The future of `release()` is dropped, or done.
            Stage::Over => {
                queues.input(&task.keys, |queue, now| queue.cancel(id, now));
                if planted!("dropped_release_counts_as_answered") {
                    queues.input(&task.keys, |queue, now| queue.handle_left(id.lease(), now));
                }
            }
            Stage::Attempt(attempt) => {
                queues.input(&task.keys, |queue, now| queue.cancel(id, now));
                queues.undo(Held { id: id.lease(), attempt });
            }
            Stage::Lock(_) => {
                queues.input(&task.keys, |queue, now| queue.release(id, false, now));
            }
            Stage::Apart(attempt) => attempt.cancel(),
        }
        queues.forget(task);
    }
}

async fn unless_closed<T>(task: &Task, future: impl Future<Output = T>) -> Option<T> {
    let closed = async {
        loop {
            let changed = task.changed();
            if task.inbox().is_refused {
                return;
            }
            changed.await;
        }
    };
    match select(pin!(future), pin!(closed)).await {
        Either::Left((output, _)) => Some(output),
        Either::Right(_) => None,
    }
}

fn wish(ttl: Ttl, keys: usize, is_fenced: bool) -> Wish {
    (keys == 1 && !is_fenced).then(|| ttl.as_duration())
}
