//! One task in the local queues: from the request to the end of its guard.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::local_queue::LocalQueues;
use super::task::{Held, Task};
use crate::algorithm::lease::Ttl;
use crate::algorithm::local_queue::{LeaseId, Outcome, Wish};
use crate::attempt::{Attempt, Driver};
use crate::error::{Lost, ReleaseError};
use crate::lease::LeaseState;
use crate::resource::Key;

/// What a task does next.
#[derive(Debug)]
pub(crate) enum Turn {
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
    /// The latest attempt of a task that competes.
    attempt: Option<Arc<Attempt>>,
    held: Option<Arc<Held>>,
}

impl Place {
    /// Enters the queues of all keys in one step.
    pub(crate) fn enter(
        queues: &Arc<LocalQueues>,
        keys: &Arc<[Key]>,
        ttl: Ttl,
        is_fenced: bool,
    ) -> Self {
        let place = Self::register(queues, keys);
        let wish = wish(ttl, keys.len(), is_fenced);
        queues.input(&**keys, |_, queue, now| queue.lock(place.task.id, wish, now));
        place
    }

    /// The place of the holder of an adopted lock.
    pub(crate) fn adopted(queues: &Arc<LocalQueues>, attempt: Arc<Attempt>) -> Self {
        let keys: Arc<[Key]> = attempt.claim.keys().into();
        let mut place = Self::register(queues, &keys);
        let ttl = attempt.claim.ttl();
        let cluster = &queues.cluster;
        let wish = wish(ttl, keys.len(), attempt.fencing_token().is_some());
        let validity = cluster.config.validity(ttl);
        let end = attempt.lease_end(cluster.now()).unwrap_or_else(|_| cluster.now());
        // A key that this manager has or wants already: the adopted lock is as one of another process.
        let entered = queues.input(&*keys, |key, queue, _| {
            queue.adopt(place.task.id, wish, validity, end).map(|id| (key.clone(), id))
        });
        let held = Arc::new(Held { attempt, leases: entered.into_iter().flatten().collect() });
        queues.keep(&held);
        place.held = Some(held);
        place
    }

    fn register(queues: &Arc<LocalQueues>, keys: &Arc<[Key]>) -> Self {
        let task = queues.register(keys);
        Self { queues: Arc::clone(queues), task, attempt: None, held: None }
    }

    /// Resolves when it is this task's turn: it competes, or the lock was passed on to it.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped and called again.
    pub(crate) async fn turn(&mut self) -> Turn {
        loop {
            if let Some(turn) = self.check() {
                return turn;
            }
            // Before the next check, so that no change is missed.
            let mut changed = self.task.changed();
            let (next, mut leases) = self.queues.next_change(&self.task.keys);
            if let Some(turn) = self.check() {
                return turn;
            }
            let runtime = &self.queues.cluster.runtime;
            let mut timer = next.map(|next| runtime.sleep_until(next));
            poll_fn(|context| {
                let has_changed = Pin::new(&mut changed).poll(context).is_ready()
                    || leases.iter_mut().any(|lease| Pin::new(lease).poll(context).is_ready())
                    || timer.as_mut().is_some_and(|timer| timer.as_mut().poll(context).is_ready());
                if has_changed { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            self.queues.handle_timeout(&self.task.keys);
        }
    }

    fn check(&mut self) -> Option<Turn> {
        let mut inbox = self.task.inbox();
        if inbox.is_refused {
            return Some(Turn::Closed);
        }
        if inbox.competes.len() == self.task.keys.len() {
            return Some(Turn::Compete { others_wait: inbox.others_wait });
        }
        let held = inbox.given.take()?;
        drop(inbox);
        let id = self.task.id;
        let is_ours =
            self.queues.input(&*self.task.keys, |_, queue, now| queue.handle_polled(id, now));
        if is_ours != [true] {
            // The lease has ended before this poll, and the task is first in its queue again.
            return None;
        }
        self.held = Some(Arc::clone(&held));
        Some(Turn::Given(held))
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

    /// The attempt with which this task competes.
    pub(crate) fn set_attempt(&mut self, attempt: &Arc<Attempt>) {
        self.attempt = Some(Arc::clone(attempt));
    }

    /// The attempt has won.
    pub(crate) fn won(&mut self, attempt: Arc<Attempt>) -> Arc<Held> {
        let now = self.queues.cluster.now();
        let end = attempt.lease_end(now).unwrap_or(now);
        let leases = std::mem::take(&mut self.task.inbox().competes);
        let held = self.queues.won(attempt, leases, end);
        (self.attempt, self.held) = (None, Some(Arc::clone(&held)));
        held
    }

    /// A release of this manager that keeps the task from competing.
    pub(crate) fn releasing(&self) -> Option<Arc<Attempt>> {
        self.queues.releasing(&self.task)
    }

    pub(crate) const fn queues(&self) -> &Arc<LocalQueues> {
        &self.queues
    }

    /// Begins the lease of what was won, passed on or adopted. `None` if the manager is closed: then the
    /// lock is released.
    pub(crate) fn hold(
        self,
        attempt: &Arc<Attempt>,
        hold_limit: Option<Duration>,
    ) -> Option<(Self, Arc<LeaseState>)> {
        let lease = LeaseState::new(Arc::clone(attempt), hold_limit);
        self.task.inbox().lease = Some(Arc::clone(&lease));
        // Behind the lease, so that a close either finds it or is found here.
        let is_open = !self.queues.cluster.tasks.is_closed();
        is_open.then_some((self, lease))
    }

    /// Releases the lock, or passes it on, and returns what that found.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing: the release goes on.
    pub(crate) async fn release(mut self) -> Result<(), ReleaseError> {
        let Some(held) = self.held.take() else { return Ok(()) };
        if held.leases.is_empty() {
            return Attempt::released(&mut held.attempt.begin_release()).await;
        }
        let id = self.task.id;
        // An adopted lock is not in the queue of a key that was in use.
        let keys = held.leases.iter().map(|(key, _)| key);
        self.queues.input(keys, |_, queue, now| queue.release(id, true, now));
        let outcome = loop {
            let changed = self.task.changed();
            if let Some(outcome) = self.task.inbox().outcome {
                break outcome;
            }
            changed.await;
        };
        let found = held.attempt.release_result();
        match (outcome, found) {
            (Outcome::Held, _) => Ok(()),
            (Outcome::Lost, Some(Err(error @ ReleaseError::Lost(_)))) => Err(error),
            (Outcome::Lost, _) => Err(ReleaseError::Lost(Lost::Released)),
            (Outcome::Unconfirmed, Some(Err(error @ ReleaseError::Unconfirmed(_)))) => Err(error),
            (Outcome::Unconfirmed, _) => Err(ReleaseError::Unconfirmed(held.attempt.failure())),
        }
    }

    /// What to call when the lease has ended before its release.
    pub(crate) fn on_loss(&self) -> impl Fn() + Send + Sync + use<> {
        let (queues, held, id) = (Arc::clone(&self.queues), self.held.clone(), self.task.id);
        move || {
            if let Some(held) = &held {
                queues.note_lost(held, id);
            }
        }
    }

    /// Leaves the lock to another process.
    pub(crate) fn detach(mut self) -> Result<(), Lost> {
        let Some(held) = self.held.clone() else { return Err(Lost::Released) };
        let id = self.task.id;
        // After an error, the drop releases.
        held.attempt.detach()?;
        self.held = None;
        self.queues.input(&*self.task.keys, |_, queue, now| queue.detach(id, now));
        self.queues.drop_leases(&held);
        Ok(())
    }

    /// Releases in the background a lock whose holder did not do so after the close.
    pub(crate) fn release_abandoned(queues: &Arc<LocalQueues>, task: &Task) {
        let id = task.id;
        queues.input(&*task.keys, |_, queue, now| queue.release(id, false, now));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let id = self.task.id;
        match (self.held.take(), self.attempt.take()) {
            (Some(held), _) if held.leases.is_empty() => held.attempt.cancel(),
            (Some(_), _) => {
                self.queues.input(&*self.task.keys, |_, queue, now| queue.release(id, false, now));
            }
            (None, attempt) => {
                let leases = std::mem::take(&mut self.task.inbox().competes);
                self.queues.input(&*self.task.keys, |_, queue, now| queue.cancel(id, now));
                leave(&self.queues, leases, attempt);
            }
        }
        self.queues.forget(&self.task);
    }
}

/// A task that competed is gone: the next one competes when the gate has answered the undo.
fn leave(queues: &Arc<LocalQueues>, leases: Vec<(Key, LeaseId)>, attempt: Option<Arc<Attempt>>) {
    let Some(attempt) = attempt.filter(|_| !leases.is_empty()) else {
        return queues.left(&leases, None);
    };
    // The error of the next task shows whose answers it waits for.
    let held = Arc::new(Held { attempt, leases });
    queues.keep(&held);
    let queues = Arc::clone(queues);
    let tasks = Arc::clone(&queues.cluster.tasks);
    tasks.spawn(async move {
        let mut driver = Driver::new(&held.attempt);
        driver.left(held.attempt.gate()).await;
        queues.left(&held.leases, held.attempt.waiters());
        queues.drop_leases(&held);
        driver.finish().await;
    });
}

fn wish(ttl: Ttl, keys: usize, is_fenced: bool) -> Wish {
    Wish { ttl: ttl.as_duration(), is_single_key: keys == 1, is_fenced }
}
