//! One task in the local queues: from the request to the end of its guard.

use std::future::poll_fn;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::Wait;
use super::local_queue::LocalQueues;
use super::task::{Held, Task};
use crate::algorithm::lease::Ttl;
use crate::algorithm::local_queue::{Found, Wish};
use crate::attempt::Attempt;
use crate::error::{Lost, ReleaseError};
use crate::lease::LeaseState;
use crate::resource::Key;

/// What a task does next.
#[derive(Debug)]
pub(crate) enum Next {
    /// It competes at the nodes. `others_wait`: other processes wait for the key.
    Compete { others_wait: bool },
    /// The lock was passed on to it.
    Given(Arc<Held>),
    /// The manager is closed.
    Closed,
}

/// The place of a task in the local queues. Dropping it leaves the queues, and releases what is held.
#[derive(Debug)]
pub(crate) struct Place {
    queues: Arc<LocalQueues>,
    task: Arc<Task>,
    stage: Stage,
}

/// What a task has at the nodes.
#[derive(Debug, Default)]
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
        Self { queues: Arc::clone(queues), task, stage: Stage::Waits }
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
            self.queues.handle_timeout(&self.task.keys);
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
        self.stage = Stage::Lock(Arc::clone(&held));
        Some(Next::Given(held))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.task.inbox().is_refused
    }

    /// Resolves when the manager is closed.
    pub(crate) async fn closed(&self) {
        loop {
            let changed = self.task.changed();
            if self.is_closed() {
                return;
            }
            changed.await;
        }
    }

    /// The latest attempt, if it was not won.
    pub(crate) fn attempt(&self) -> Option<Arc<Attempt>> {
        if let Stage::Attempt(attempt) = &self.stage { Some(Arc::clone(attempt)) } else { None }
    }

    /// The attempt with which this task competes.
    pub(crate) fn set_attempt(&mut self, attempt: &Arc<Attempt>) {
        self.stage = Stage::Attempt(Arc::clone(attempt));
    }

    /// The attempt has won: its lock is in the queue of each key. `None` if the manager was closed before:
    /// then the lock is released.
    pub(crate) fn won(&mut self, attempt: Arc<Attempt>) -> Option<Arc<Held>> {
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
        Some(held)
    }

    /// The wait of this task between processes: the one of the task before, if that was cancelled.
    pub(crate) fn wait(&self, begin: impl FnOnce() -> Wait) -> OwnWait {
        let handed_on = self.task.inbox().wait.take();
        let (queues, task) = (Arc::clone(&self.queues), Arc::clone(&self.task));
        OwnWait { wait: handed_on.unwrap_or_else(begin), queues, task }
    }

    /// The wait of the task before, if that was cancelled and this task did not come to compete.
    pub(crate) fn handed_on(&self) -> Option<OwnWait> {
        let wait = self.task.inbox().wait.take()?;
        Some(self.wait(|| wait))
    }

    /// A release of this manager that keeps the task from competing.
    pub(crate) fn releasing(&self) -> Option<Arc<Attempt>> {
        self.queues.releasing(&self.task)
    }

    pub(crate) const fn queues(&self) -> &Arc<LocalQueues> {
        &self.queues
    }

    /// Begins the lease of a lock that was won, passed on or adopted. The place itself if the manager is
    /// closed: dropping it releases the lock.
    pub(crate) fn hold(
        self,
        attempt: &Arc<Attempt>,
        hold_limit: Option<Duration>,
    ) -> Result<(Self, Arc<LeaseState>), Self> {
        let lease = LeaseState::new(Arc::clone(attempt), hold_limit);
        self.task.inbox().lease = Some(Arc::clone(&lease));
        // Behind the lease, so that a close either finds it or is found here.
        let is_open = !self.queues.cluster.tasks.is_closed();
        if !is_open {
            return Err(self);
        }
        if hold_limit.is_some() {
            let (on_loss, lease) = (self.on_loss(), Arc::clone(&lease));
            self.queues.cluster.tasks.spawn(async move {
                if lease.lost().await.reason().is_some() {
                    on_loss();
                }
            });
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

    /// What to call when the lease has ended before its release.
    pub(crate) fn on_loss(&self) -> impl Fn() + Send + Sync + use<> {
        let (held, apart) = match &self.stage {
            Stage::Lock(held) => (Some(Arc::clone(held)), None),
            Stage::Apart(attempt) => (None, Some(Arc::clone(attempt))),
            Stage::Waits | Stage::Attempt(_) | Stage::Over => (None, None),
        };
        let (queues, id) = (Arc::clone(&self.queues), self.task.id);
        move || {
            if let Some(held) = &held {
                queues.note_lost(held, id);
            }
            if let Some(attempt) = &apart {
                attempt.cancel();
            }
        }
    }

    /// Leaves the lock to another process.
    pub(crate) fn detach(self) -> Result<(), Lost> {
        // After an error, the drop releases.
        match &self.stage {
            Stage::Lock(held) => held.attempt.detach()?,
            Stage::Apart(attempt) => attempt.detach()?,
            Stage::Waits | Stage::Attempt(_) | Stage::Over => return Err(Lost::Released),
        }
        self.part();
        Ok(())
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
        let Self { queues, task, stage } = self;
        let id = task.id;
        let wait = task.inbox().wait.take();
        drop(wait.and_then(|wait| queues.hand_on(task, wait)));
        match mem::take(stage) {
            Stage::Waits => {
                queues.input(&task.keys, |queue, now| queue.cancel(id, now));
                // It may have been its turn, and nothing was sent.
                queues.left(&task.keys, id.lease(), None);
            }
            // The future of `release()` is dropped, or done.
            Stage::Over => {
                queues.input(&task.keys, |queue, now| queue.cancel(id, now));
                if planted!("dropped_release_counts_as_answered") {
                    queues.left(&task.keys, id.lease(), None);
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

/// The wait of a task between processes. When it is dropped, the next task that wants the same keys goes on
/// with it: the entry keeps its place in the wait queue.
pub(crate) struct OwnWait {
    pub(crate) wait: Wait,
    queues: Arc<LocalQueues>,
    task: Arc<Task>,
}

impl OwnWait {
    fn take(&mut self) -> Wait {
        mem::replace(&mut self.wait, Wait::Polling(Arc::clone(&self.queues.cluster)))
    }

    /// Ends the wait without a win. The future resolves when the gate has answered that, if nobody goes on
    /// with it, or after `limit`.
    pub(crate) fn end(mut self, limit: Duration) -> impl Future<Output = ()> + use<> {
        let (wait, cluster) = (self.take(), Arc::clone(&self.queues.cluster));
        let left = self.queues.hand_on(&self.task, wait).and_then(Wait::end);
        async move {
            if let Some(left) = left {
                cluster.within(limit, left).await;
            }
        }
    }

    /// Ends the wait after a win. `on_hint` gets the gate's reply, whether any other process waits.
    pub(crate) fn won(mut self, on_hint: impl FnOnce(bool) + Send + 'static) {
        self.take().won(on_hint);
    }
}

impl Drop for OwnWait {
    fn drop(&mut self) {
        let wait = self.take();
        drop(self.queues.hand_on(&self.task, wait));
    }
}

fn wish(ttl: Ttl, keys: usize, is_fenced: bool) -> Wish {
    Wish { ttl: ttl.as_duration(), is_single_key: keys == 1, is_fenced }
}
