//! A mutex that a reply never waits for.
//!
//! [`LateLock::put`] handles an input at once if the mutex is free. If another thread has it, or a
//! call further down the same stack, the input goes into a list of late arrivals. The thread that
//! unlocks the mutex looks at that list afterwards. Both sides have a fence between their write and
//! their look (put then try, unlock then look), so that one of them sees the other and no input is
//! left in the list.
//!
//! *What came first is handled first.* A thread that gets the mutex handles the list before its own
//! input. So an input is handled after each one whose `put` had returned before: the replies of a
//! node keep the order in which it gave them.
//!
//! Handling an input yields effects. They are performed after the mutex is free, and before the
//! list is looked at again. Another thread may have the mutex by then, and finds the list first.

use crate::seam::runtime::sync::{AtomicBool, Mutex, MutexGuard, Ordering, fence, lock, try_lock};

/// The state behind a [`LateLock`].
pub(crate) trait LateState {
    /// What happens to it.
    type Input;
    /// What is to be done after the mutex is free.
    type Effects: Default;
    /// What the state belongs to. It outlives the mutex.
    type Owner: ?Sized;

    /// Handles one input, under the mutex.
    fn handle(&mut self, owner: &Self::Owner, input: Self::Input, effects: &mut Self::Effects);

    /// Performs the effects, without the mutex.
    fn perform(owner: &Self::Owner, effects: Self::Effects);
}

/// A mutex with a list of late arrivals.
pub(crate) struct LateLock<A: LateState> {
    actor: Mutex<A>,
    late: Mutex<Vec<A::Input>>,
    has_late: AtomicBool,
}

impl<A: LateState> LateLock<A> {
    pub(crate) fn new(actor: A) -> Self {
        Self {
            actor: Mutex::new(actor),
            late: Mutex::new(Vec::new()),
            has_late: AtomicBool::new(false),
        }
    }

    /// Handles `input` now, or leaves it to the thread that has the mutex. Never waits for that
    /// thread.
    pub(crate) fn put(&self, owner: &A::Owner, input: A::Input) {
        match try_lock(&self.actor) {
            Some(actor) => self.act(actor, owner, |actor, effects| {
                actor.handle(owner, input, effects);
            }),
            None => {
                lock(&self.late).push(input);
                self.has_late.store(true, Ordering::Relaxed);
            }
        }
        self.handle_late(owner);
    }

    /// Waits for the mutex: for the caller's side, never for a backend.
    pub(crate) fn with<T>(
        &self,
        owner: &A::Owner,
        act: impl FnOnce(&mut A, &mut A::Effects) -> T,
    ) -> T {
        let result = self.act(lock(&self.actor), owner, act);
        self.handle_late(owner);
        result
    }

    /// Handles late arrivals, unless another thread has the mutex: that thread looks when it
    /// unlocks.
    fn handle_late(&self, owner: &A::Owner) {
        loop {
            fence(Ordering::SeqCst);
            if !self.has_late.load(Ordering::Relaxed) {
                return;
            }
            let Some(actor) = try_lock(&self.actor) else { return };
            self.act(actor, owner, |_, _| ());
        }
    }

    /// Handles late arrivals, then acts. Performs the effects of both.
    fn act<T>(
        &self,
        mut actor: MutexGuard<'_, A>,
        owner: &A::Owner,
        act: impl FnOnce(&mut A, &mut A::Effects) -> T,
    ) -> T {
        let mut effects = A::Effects::default();
        // Under the mutex: what another thread has taken out of the list, it has handled.
        if self.has_late.load(Ordering::Relaxed) {
            self.has_late.store(false, Ordering::Relaxed);
            let late = std::mem::take(&mut *lock(&self.late));
            for input in late {
                actor.handle(owner, input, &mut effects);
            }
        }
        let result = act(&mut actor, &mut effects);
        drop(actor);
        A::perform(owner, effects);
        result
    }
}
