//! A task that waits for the ticket of a key.

use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use super::Ticket;
use crate::error::{LockError, QuorumFailure};
use crate::resource::Key;
use crate::turns::ManagerState;
use crate::turns::queues::Whereabouts;

impl ManagerState {
    /// Waits for the ticket of `key`.
    pub(crate) fn take(self: &Arc<Self>, key: Key, waits: bool, now: Instant) -> Taking {
        let manager = Arc::clone(self);
        Taking {
            manager,
            key,
            waits,
            is_again: false,
            asked_at: now,
            task: None,
            is_behind_others: false,
        }
    }
}

/// A task that waits for a ticket.
///
/// # Cancel safety
///
/// Dropped, it leaves the queue, and hands over a ticket that it was given.
pub(crate) struct Taking {
    manager: Arc<ManagerState>,
    key: Key,
    waits: bool,
    /// The request has lost a round.
    is_again: bool,
    asked_at: Instant,
    /// Its number in the queue.
    task: Option<u64>,
    /// When it entered the queue, a guard or an earlier task was in the way, and not only a
    /// release.
    pub(crate) is_behind_others: bool,
}

impl Taking {
    /// The same for a request that has lost a round, if `is_again`: it is never one too many.
    pub(crate) const fn again(mut self, is_again: bool) -> Self {
        self.is_again = is_again;
        self
    }

    fn ticket(&self) -> Ticket {
        let (manager, key) = (Arc::clone(&self.manager), self.key.clone());
        Ticket { manager, key }
    }

    /// The first poll: takes the ticket, or its place in the queue.
    fn enter(&mut self, context: &Context<'_>) -> Poll<Result<Ticket, LockError>> {
        let most = self.manager.cluster.config.max_waiters.filter(|_| !self.is_again);
        let mut state = self.manager.lock();
        if !state.lingering.is_empty() {
            state.sweep(self.asked_at);
        }
        let task = state.next_task();
        let queue = state.queues.entry(self.key.clone()).or_default();
        match queue.ticket {
            Whereabouts::Here => {
                queue.ticket = Whereabouts::Out;
                drop(state);
                return Poll::Ready(Ok(self.ticket()));
            }
            Whereabouts::Ending(_) if queue.tasks.is_empty() => {}
            _ if !self.waits => {
                return Poll::Ready(Err(LockError::Held(QuorumFailure::default())));
            }
            _ if most.is_some_and(|most| queue.waiters() >= most) => {
                let (key, most) = (self.key.clone(), most.unwrap_or_default());
                return Poll::Ready(Err(LockError::TooManyWaiters { key, most }));
            }
            _ => self.is_behind_others = true,
        }
        queue.tasks.push_back((task, context.waker().clone()));
        self.task = Some(task);
        Poll::Pending
    }
}

impl Future for Taking {
    type Output = Result<Ticket, LockError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(task) = self.task else { return self.enter(context) };
        let mut state = self.manager.lock();
        let Some(queue) = state.queues.get_mut(&self.key) else { return Poll::Pending };
        let is_first = queue.tasks.front().is_some_and(|(first, _)| *first == task);
        if is_first && matches!(queue.ticket, Whereabouts::Given) {
            queue.ticket = Whereabouts::Out;
            let taken = queue.tasks.pop_front();
            drop(state);
            drop(taken);
            self.task = None;
            return Poll::Ready(Ok(self.ticket()));
        }
        let kept = queue.tasks.iter_mut().find(|(kept, _)| *kept == task);
        let old = match kept {
            Some((_, kept)) if !kept.will_wake(context.waker()) => {
                Some(mem::replace(kept, context.waker().clone()))
            }
            _ => None,
        };
        drop(state);
        drop(old);
        Poll::Pending
    }
}

impl Drop for Taking {
    fn drop(&mut self) {
        let Some(task) = self.task else { return };
        let mut state = self.manager.lock();
        let Some(queue) = state.queues.get_mut(&self.key) else { return };
        let Some(at) = queue.tasks.iter().position(|(kept, _)| *kept == task) else { return };
        let gone = queue.tasks.remove(at);
        let is_given = at == 0 && matches!(queue.ticket, Whereabouts::Given);
        drop(state);
        drop(gone);
        if is_given {
            self.manager.hand_over(&self.key);
        }
    }
}
