//! A future that resolves when a locked state meets a condition.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use crate::cluster::shell::late::{Actor, LateLock};
use crate::cluster::shell::wakers::Wakers;
use crate::seam::runtime::{BoxFuture, Runtime};

/// A state that tasks wait for.
pub(crate) trait Awaited: Actor {
    /// The tasks that wait.
    fn wakers(&mut self) -> &mut Wakers;

    /// When it is to be told the time.
    fn due(&self) -> Option<Instant>;

    /// The input *a due time may have come*.
    fn time(now: Instant) -> Self::Input;
}

/// A caller that waits. It polls a timer of its own for the due time of the state, and gives it the input *time*
/// when that fires: so it depends on no other task.
///
/// # Cancel safety
///
/// The future can be dropped at any time. The state stays as it is.
pub(crate) struct Waiting<'a, A: Awaited, F> {
    state: &'a LateLock<A>,
    owner: &'a A::Owner,
    runtime: &'a dyn Runtime,
    look: F,
    timer: Option<(Instant, BoxFuture<'static, ()>)>,
    is_due: bool,
    /// Its number among the wakers.
    number: u64,
}

impl<'a, A: Awaited, F> Waiting<'a, A, F> {
    /// Waits until `look` finds something.
    pub(crate) const fn new(
        state: &'a LateLock<A>,
        owner: &'a A::Owner,
        runtime: &'a dyn Runtime,
        look: F,
    ) -> Self {
        Self { state, owner, runtime, look, timer: None, is_due: false, number: 0 }
    }
}

impl<T, A: Awaited, F> Future for Waiting<'_, A, F>
where
    F: FnMut(&mut A, &mut A::Effects) -> Option<T> + Unpin,
{
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let this = &mut *self;
        loop {
            let mut old = None;
            let looked = this.state.with(this.owner, |state, effects| {
                if std::mem::take(&mut this.is_due) {
                    state.handle(this.owner, A::time(this.runtime.now()), effects);
                }
                match (this.look)(state, effects) {
                    Some(found) => {
                        old = state.wakers().remove(std::mem::take(&mut this.number));
                        Ok(found)
                    }
                    None => {
                        old = state.wakers().keep(&mut this.number, context);
                        Err(state.due())
                    }
                }
            });
            drop(old);
            let due = match looked {
                Ok(found) => return Poll::Ready(found),
                Err(None) => return Poll::Pending,
                Err(Some(due)) => due,
            };
            // A due time that moves back is found out when the timer fires.
            let until = this.timer.as_ref().map_or(due, |(at, _)| due.min(*at));
            if this.runtime.sleep(&mut this.timer, until, context).is_pending() {
                return Poll::Pending;
            }
            this.is_due = true;
        }
    }
}

impl<A: Awaited, F> Drop for Waiting<'_, A, F> {
    fn drop(&mut self) {
        if self.number != 0 {
            let gone = self.state.with(self.owner, |state, _| state.wakers().remove(self.number));
            drop(gone);
        }
    }
}
