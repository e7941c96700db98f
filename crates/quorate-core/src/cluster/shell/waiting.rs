//! A future that resolves when an actor meets a condition.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use super::late::LateState as _;
use super::{Actor, Input, Shell};
use crate::cluster::attempts::Notice;
use crate::seam::runtime::BoxFuture;

/// A caller that waits. It polls a timer of its own for the due time of the actor, and gives it the
/// input *time* when that fires: so it depends on no other task.
///
/// # Cancel safety
///
/// The future can be dropped at any time. The actor stays as it is.
struct Waiting<'a, A: Actor, F> {
    shell: &'a Arc<Shell<A>>,
    look: F,
    timer: Option<(Instant, BoxFuture<'static, ()>)>,
    is_due: bool,
    /// Its number among the wakers.
    number: u64,
}

impl<A: Actor> Shell<A> {
    /// Waits until `look` finds something.
    pub(crate) fn wait<T>(
        self: &Arc<Self>,
        look: impl FnMut(&mut A) -> Option<T> + Unpin,
    ) -> impl Future<Output = T> {
        Waiting { shell: self, look, timer: None, is_due: false, number: 0 }
    }
}

impl<T, A: Actor, F> Future for Waiting<'_, A, F>
where
    F: FnMut(&mut A) -> Option<T> + Unpin,
{
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let this = &mut *self;
        let runtime = &this.shell.cluster().runtime;
        loop {
            let mut old = None;
            let looked = this.shell.room.with(this.shell, |room, effects| {
                if std::mem::take(&mut this.is_due) {
                    room.handle(this.shell, (Input::Notice(Notice::Time), runtime.now()), effects);
                }
                match (this.look)(&mut room.actor) {
                    Some(found) => {
                        old = room.wakers.remove(std::mem::take(&mut this.number));
                        Ok(found)
                    }
                    None => {
                        old = room.wakers.keep(&mut this.number, context);
                        Err(room.actor.due())
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
            if runtime.sleep(&mut this.timer, until, context).is_pending() {
                return Poll::Pending;
            }
            this.is_due = true;
        }
    }
}

impl<A: Actor, F> Drop for Waiting<'_, A, F> {
    fn drop(&mut self) {
        if self.number != 0 {
            let gone = self.shell.room.with(self.shell, |room, _| room.wakers.remove(self.number));
            drop(gone);
        }
    }
}
