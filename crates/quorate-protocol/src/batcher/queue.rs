//! The calls that wait for a pipeline.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use quorate_core::backend::{Call, NotSent, Operation};
use quorate_core::{BackendError, BackendErrorKind};

/// The calls that wait for a pipeline, in the order of their begins. Only the task of the batcher
/// takes any.
///
/// No call is asked, answered or dropped under the lock: each of these may lock the attempt that
/// sent the call, and an attempt begins calls under its own lock.
#[derive(Default)]
pub(super) struct Queue(Mutex<Queued>);

#[derive(Default)]
struct Queued {
    calls: VecDeque<Call>,
    acquires: usize,
    /// The task, once it has found nothing to do.
    waker: Option<Waker>,
    /// The task waits for calls.
    awaits_calls: bool,
    /// A task is there, or is being spawned.
    is_running: bool,
    is_abandoned: bool,
    /// Why the last connect failed, during the back-off.
    trouble: Option<BackendError>,
}

impl Queue {
    /// Appends a call, unless the task backs off or too many acquires are queued. Returns whether
    /// there is a task.
    pub(super) fn push(&self, call: Call) -> Result<bool, NotSent> {
        let is_acquire = is_acquire(&call);
        call.note_queued();
        let mut state = self.lock();
        let refusal = match state.trouble.clone() {
            None if is_acquire && state.acquires >= MAX_ACQUIRES => {
                let why = "too many acquires wait for this node";
                Some(BackendError::new(BackendErrorKind::Other, why))
            }
            trouble => trouble,
        };
        if let Some(refusal) = refusal {
            drop(state);
            return Err(call.not_sent(refusal));
        }
        state.acquires += usize::from(is_acquire);
        state.calls.push_back(call);
        let is_awaited = std::mem::take(&mut state.awaits_calls);
        let waker = if is_awaited { state.waker.take() } else { None };
        let is_running = std::mem::replace(&mut state.is_running, true);
        drop(state);
        waker.into_iter().for_each(Waker::wake);
        Ok(is_running)
    }

    /// Takes up to `limit` calls. A call that was given up is dropped instead.
    pub(super) fn take(&self, limit: usize) -> Vec<Call> {
        let mut state = self.lock();
        let count = state.calls.len().min(limit);
        let mut calls: Vec<Call> = state.calls.drain(..count).collect();
        state.acquires -= calls.iter().filter(|call| is_acquire(call)).count();
        drop(state);
        calls.retain(|call| !call.is_given_up());
        calls
    }

    /// Puts calls back in front.
    pub(super) fn put_back(&self, calls: impl DoubleEndedIterator<Item = Call>) {
        let mut state = self.lock();
        for call in calls.rev() {
            state.acquires += usize::from(is_acquire(&call));
            state.calls.push_front(call);
        }
    }

    /// Drops calls that were given up: a node may hang for hours.
    pub(super) fn sweep(&self) {
        let mut calls = std::mem::take(&mut self.lock().calls);
        calls.retain(|call| !call.is_given_up());
        let mut state = self.lock();
        calls.append(&mut state.calls);
        state.acquires = calls.iter().filter(|call| is_acquire(call)).count();
        state.calls = calls;
    }

    /// Registers the task, which found nothing to do. Returns whether there is something by now.
    pub(super) fn register(&self, context: &Context<'_>, awaits_calls: bool) -> bool {
        let mut state = self.lock();
        if state.is_abandoned || awaits_calls && !state.calls.is_empty() {
            return true;
        }
        state.awaits_calls = awaits_calls;
        let is_known = state.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker()));
        let old = if is_known { None } else { state.waker.replace(context.waker().clone()) };
        drop(state);
        drop(old);
        false
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().calls.is_empty()
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.lock().is_abandoned
    }

    /// The last handle was dropped.
    pub(super) fn abandon(&self) {
        let mut state = self.lock();
        state.is_abandoned = true;
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Answers all as *not sent*, and refuses calls with the same reason until
    /// [`end_back_off`](Self::end_back_off).
    pub(super) fn back_off(&self, error: &BackendError) {
        self.refuse_all(error, |state| state.trouble = Some(error.clone()));
    }

    pub(super) fn end_back_off(&self) {
        self.lock().trouble = None;
    }

    /// Answers all as *not sent*: the task is dropped. The next call spawns another one.
    pub(super) fn end_task(&self, error: &BackendError) {
        self.refuse_all(error, |state| {
            state.trouble = None;
            state.is_running = false;
        });
    }

    fn refuse_all(&self, error: &BackendError, change: impl FnOnce(&mut Queued)) {
        let mut state = self.lock();
        let calls = std::mem::take(&mut state.calls);
        state.acquires = 0;
        change(&mut state);
        drop(state);
        for call in calls {
            call.answer(Err(error.clone().not_sent()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queued> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const fn is_acquire(call: &Call) -> bool {
    matches!(call.operation(), Operation::Acquire(..))
}

/// How many acquires are queued at most.
const MAX_ACQUIRES: usize = 4096;
