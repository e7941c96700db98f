//! A call whose answer is a future.

use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use super::call::{Answered, Call, CallKind, NotSent, Tag};
use super::error::BackendError;
use super::operation::{CallReply, CallResult, Operation};
use super::options::Reply;
use crate::algorithm::quorum::NodeId;
use crate::seam::given_up::GiveUpWakers;
use crate::seam::runtime::lock;

/// The answer to a call that was made with [`ask`]. Dropping it gives the call up.
///
/// # Cancel safety
///
/// The future can be dropped at any time. The call may or may not be executed.
#[must_use = "futures do nothing unless polled"]
pub struct Asked {
    ask: Arc<Ask>,
    /// Kept, since a push finds its sender only while that lives.
    sender: Arc<dyn Answered>,
}

#[derive(Debug, Default)]
struct Ask {
    state: Mutex<AskState>,
    is_given_up: AtomicBool,
    give_up_wakers: GiveUpWakers,
}

#[derive(Debug, Default)]
struct AskState {
    result: Option<CallResult>,
    is_pushed: bool,
    /// The task that awaits the answer or the push.
    waker: Option<Waker>,
}

/// Begins a call, and gives its answer as a future: for a backend over another one, and for tests
/// of backends.
///
/// A call that is [not sent](Call::not_sent) answers with that error.
///
/// ```
/// use quorate_core::backend::{CallReply, Operation, ask};
///
/// let asked = ask(Operation::ServerId, std::time::Instant::now(), |call| {
///     call.answer(Ok(CallReply::ServerId(None))); // or `node.begin(call, runtime)`
///     Ok(())
/// });
/// # futures_util::FutureExt::now_or_never(asked).unwrap().unwrap();
/// ```
pub fn ask(
    operation: Operation,
    now: Instant,
    begin: impl FnOnce(Call) -> Result<(), NotSent>,
) -> Asked {
    let asked = Asked::new(|slot| slot);
    let (node, kind) = (NodeId::FIRST, CallKind::Waiting);
    let tag = Tag { node, number: 0, begun: now, kind, asks_server: false };
    if let Err(not_sent) = begin(Call::new(operation, tag, asked.sender())) {
        asked.answer(Err(not_sent.error));
    }
    asked
}

impl Asked {
    /// An answer to come. `sender` makes the sender of its call from what takes the answer.
    pub(crate) fn new(sender: impl FnOnce(Arc<dyn Answered>) -> Arc<dyn Answered>) -> Self {
        let ask = Arc::<Ask>::default();
        Self { sender: sender(Arc::clone(&ask) as _), ask }
    }

    /// The sender of the call that is answered.
    pub(crate) fn sender(&self) -> Arc<dyn Answered> {
        Arc::clone(&self.sender)
    }

    /// The call was not sent: its result is known at once.
    pub(crate) fn answer(&self, result: CallResult) {
        self.ask.change(|state| state.result = Some(result));
    }

    /// The vote: of an acquire, an extension, a raise or a release.
    ///
    /// # Errors
    ///
    /// The vote is unknown, or the call was no such call.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the call up.
    pub async fn voted(self) -> Result<Reply, BackendError> {
        match self.await? {
            CallReply::Voted(reply) => Ok(reply),
            _ => Err(BackendError::mixed_up()),
        }
    }

    /// Resolves when the key of a watch was written, or may have been.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the watch.
    pub async fn pushed(self) {
        poll_fn(|context| self.ask.poll(context, |state| state.is_pushed.then_some(()))).await;
    }
}

impl Future for Asked {
    type Output = CallResult;

    fn poll(self: std::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<CallResult> {
        self.ask.poll(context, |state| state.result.take())
    }
}

impl fmt::Debug for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Asked").field(&self.ask).finish()
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.ask.is_given_up.store(true, Ordering::SeqCst);
        let waker = lock(&self.ask.state).waker.take();
        drop(waker);
        self.ask.give_up_wakers.take().into_iter().for_each(|(_, task)| task.wake());
    }
}

impl Ask {
    /// Ready with what `look` finds. Else a change wakes the task.
    fn poll<T>(
        &self,
        context: &Context<'_>,
        look: impl FnOnce(&mut AskState) -> Option<T>,
    ) -> Poll<T> {
        let mut state = lock(&self.state);
        if let Some(found) = look(&mut state) {
            return Poll::Ready(found);
        }
        let old = state.waker.replace(context.waker().clone());
        drop(state);
        drop(old);
        Poll::Pending
    }

    fn change(&self, change: impl FnOnce(&mut AskState)) {
        let mut state = lock(&self.state);
        change(&mut state);
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl Answered for Ask {
    fn answered(self: Arc<Self>, _: Tag, result: CallResult, _: Option<Instant>) {
        self.change(|state| state.result = Some(result));
    }

    fn is_given_up(&self, tag: &Tag, task: Option<&Waker>) -> bool {
        self.give_up_wakers.ask(tag.number, task, || self.is_given_up.load(Ordering::SeqCst))
    }

    fn now(&self) -> Option<Instant> {
        None
    }

    fn pushed(self: Arc<Self>, _: &Tag) {
        self.change(|state| state.is_pushed = true);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Wake;

    use super::*;

    /// A call, as a backend has it.
    fn call() -> (Call, Asked) {
        let mut made = None;
        let asked = ask(Operation::ServerId, Instant::now(), |call| {
            made = Some(call);
            Ok(())
        });
        (made.unwrap(), asked)
    }

    #[test]
    fn a_call_shows_what_is_asked() {
        let (call, _asked) = call();
        assert_eq!(format!("{call:?}"), "Call(ServerId)");
    }

    #[derive(Default)]
    struct Task(AtomicBool);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_call_whose_answer_is_not_awaited_any_more_is_given_up() {
        let (call, asked) = call();
        let task = Arc::<Task>::default();
        let waker = Waker::from(Arc::clone(&task));
        let mut context = Context::from_waker(&waker);
        let mut given_up = pin!(call.given_up());
        assert!(!call.is_given_up() && given_up.as_mut().poll(&mut context).is_pending());
        drop(asked);
        assert!(task.0.load(Ordering::SeqCst), "woken");
        assert!(call.is_given_up() && given_up.as_mut().poll(&mut context).is_ready());
    }

    /// A task that is polled while it is woken, as by some executors.
    struct Inline(Call, AtomicBool);

    impl Wake for Inline {
        fn wake(self: Arc<Self>) {
            let again = pin!(self.0.given_up()).poll(&mut Context::from_waker(Waker::noop()));
            self.1.store(again.is_ready(), Ordering::SeqCst);
        }
    }

    #[test]
    fn a_task_that_waits_for_the_end_of_a_call_is_woken_without_a_mutex() {
        let (call, asked) = call();
        let task = Arc::new(Inline(call, AtomicBool::new(false)));
        let waker = Waker::from(Arc::clone(&task));
        assert!(pin!(task.0.given_up()).poll(&mut Context::from_waker(&waker)).is_pending());
        drop(asked);
        assert!(task.1.load(Ordering::SeqCst));
    }
}
