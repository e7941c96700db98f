//! Calls that a backend carries by itself: nobody polls for their answers.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;

use super::calls::{Answer, Inbox};
use crate::algorithm::quorum::{NodeId, Vote};
use crate::backend::{BackendError, BackendErrorKind, Claim};

/// A call to a node that a backend carries by itself. See [`Carry`](crate::Carry).
///
/// One that is dropped without an answer is a call that failed.
pub struct Call {
    ask: Ask,
    claim: Claim,
    asker: Option<Asker>,
}

/// Who is told the answer.
enum Asker {
    Attempt(NodeId, Arc<Inbox>),
    Apart(Arc<Desk>),
}

/// What a node is asked with a [`Call`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ask {
    /// [`LockBackend::acquire`](crate::LockBackend::acquire).
    Acquire,
    /// [`LockBackend::release`](crate::LockBackend::release).
    Release,
}

impl Call {
    pub(super) const fn new(ask: Ask, claim: Claim, node: NodeId, inbox: Arc<Inbox>) -> Self {
        Self { ask, claim, asker: Some(Asker::Attempt(node, inbox)) }
    }

    /// A call that belongs to no manager, and the answer to it: for tests of a backend that
    /// [carries](crate::Carry).
    pub fn apart(ask: Ask, claim: Claim) -> (Self, Answered) {
        let desk = Arc::<Desk>::default();
        let answered = Answered(Arc::clone(&desk));
        (Self { ask, claim, asker: Some(Asker::Apart(desk)) }, answered)
    }

    /// What the node is asked.
    #[must_use]
    pub const fn ask(&self) -> Ask {
        self.ask
    }

    /// What it is about.
    #[must_use]
    pub const fn claim(&self) -> &Claim {
        &self.claim
    }

    /// Whether anybody still waits for the answer. If nobody does, a call that has not left must not
    /// leave.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        match &self.asker {
            Some(Asker::Attempt(_, inbox)) => inbox.awaits(),
            Some(Asker::Apart(desk)) => !desk.is_left.load(Ordering::SeqCst),
            None => false,
        }
    }

    /// Gives the answer, as the method of [`LockBackend`](crate::LockBackend) would.
    pub fn answer(mut self, answer: Result<Vote, BackendError>) {
        self.settle(answer);
    }

    fn settle(&mut self, answer: Answer) {
        match self.asker.take() {
            Some(Asker::Attempt(node, inbox)) => inbox.brought(node, answer),
            Some(Asker::Apart(desk)) => desk.put(answer),
            None => {}
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.asker.is_some() {
            let text = "the backend has let go of the call";
            self.settle(Err(BackendError::new(BackendErrorKind::Other, text)));
        }
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("ask", &self.ask).finish_non_exhaustive()
    }
}

/// The answer to a call that was made [apart](Call::apart).
///
/// # Cancel safety
///
/// Dropped, the call is not [wanted](Call::is_wanted) any more: it does not leave if it has not yet.
/// If it has, it may or may not be carried out.
#[must_use = "dropped, it makes the call unwanted"]
pub struct Answered(Arc<Desk>);

/// Where the answer comes in.
#[derive(Default)]
struct Desk {
    answer: Mutex<Option<Answer>>,
    waker: AtomicWaker,
    is_left: AtomicBool,
}

impl Desk {
    fn put(&self, answer: Answer) {
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
        self.waker.wake();
    }
}

impl Future for Answered {
    type Output = Result<Vote, BackendError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.waker.register(context.waker());
        let answer = self.0.answer.lock().unwrap_or_else(PoisonError::into_inner).take();
        answer.map_or(Poll::Pending, Poll::Ready)
    }
}

impl Answered {
    /// The call is not [wanted](Call::is_wanted) any more. There is an answer all the same, once the
    /// backend has let go of it.
    pub fn forgo(&self) {
        self.0.is_left.store(true, Ordering::SeqCst);
    }
}

impl Drop for Answered {
    fn drop(&mut self) {
        self.forgo();
    }
}

impl fmt::Debug for Answered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answered").finish_non_exhaustive()
    }
}
