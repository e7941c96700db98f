//! Calls that a backend carries by itself: nobody polls for their answers.

use std::fmt;
use std::sync::Arc;

use super::calls::Inbox;
use crate::algorithm::quorum::{NodeId, Vote};
use crate::backend::{BackendError, BackendErrorKind, Claim};

/// A call to a node that a backend carries by itself. See [`Carry`](crate::Carry).
///
/// One that is dropped without an answer is a call that failed.
pub struct Call {
    ask: Ask,
    claim: Claim,
    node: NodeId,
    inbox: Option<Arc<Inbox>>,
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
        Self { ask, claim, node, inbox: Some(inbox) }
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
        self.inbox.as_ref().is_some_and(|inbox| inbox.awaits(self.node))
    }

    /// Gives the answer, as the method of [`LockBackend`](crate::LockBackend) would.
    pub fn answer(mut self, answer: Result<Vote, BackendError>) {
        self.settle(answer);
    }

    fn settle(&mut self, answer: Result<Vote, BackendError>) {
        if let Some(inbox) = self.inbox.take() {
            inbox.brought(self.node, answer);
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.inbox.is_some() {
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
