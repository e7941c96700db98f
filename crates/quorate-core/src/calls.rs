//! Calls on their way: kept until they settle, whatever became of the round they were made for.

use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::task::{Context, Poll};

use futures_util::FutureExt;

use crate::algorithm::quorum::{NodeId, Vote};
use crate::backend::{BackendError, BackendErrorKind};
use crate::runtime::BoxFuture;

/// Calls that have not settled, and answers that nobody has looked at.
#[derive(Default)]
pub(crate) struct Calls {
    open: Vec<Call>,
    settled: Vec<Settled>,
}

struct Call {
    node: NodeId,
    superseded: bool,
    future: BoxFuture<'static, Result<Vote, BackendError>>,
}

pub(crate) struct Settled {
    pub(crate) node: NodeId,
    /// The answer is to an earlier operation than the one that is decided on.
    pub(crate) superseded: bool,
    pub(crate) answer: Result<Vote, BackendError>,
}

impl Calls {
    /// Adds a call whose answer counts.
    pub(crate) fn add(
        &mut self,
        node: NodeId,
        call: impl Future<Output = Result<Vote, BackendError>> + Send + 'static,
    ) {
        self.push(node, call, false);
    }

    /// Adds a call whose answer decides nothing.
    pub(crate) fn add_aside(
        &mut self,
        node: NodeId,
        call: impl Future<Output = Result<Vote, BackendError>> + Send + 'static,
    ) {
        self.push(node, call, true);
    }

    /// A backend that panics has failed, and takes nobody else's call with it.
    fn push(
        &mut self,
        node: NodeId,
        call: impl Future<Output = Result<Vote, BackendError>> + Send + 'static,
        superseded: bool,
    ) {
        let call = AssertUnwindSafe(call).catch_unwind();
        let future = Box::pin(call.map(|answer| {
            answer.unwrap_or_else(|_| {
                Err(BackendError::new(BackendErrorKind::Other, "the backend panicked"))
            })
        }));
        self.open.push(Call { node, superseded, future });
    }

    /// Whether nothing is on its way.
    pub(crate) fn have_settled(&self) -> bool {
        self.open.is_empty()
    }

    /// How many are on their way.
    pub(crate) const fn unsettled(&self) -> usize {
        self.open.len()
    }

    /// Answers that are there and were not asked for.
    pub(crate) fn take_settled(&mut self) -> Vec<Settled> {
        std::mem::take(&mut self.settled)
    }

    /// Another operation begins: answers to what is on its way decide nothing any more.
    pub(crate) fn supersede(&mut self) {
        self.settled.clear();
        for call in &mut self.open {
            call.superseded = true;
        }
    }

    /// Drops the calls of earlier operations; tells whether there were any.
    pub(crate) fn give_up_superseded(&mut self) -> bool {
        let before = self.open.len();
        self.open.retain(|call| !call.superseded);
        self.open.len() < before
    }

    /// The next answer; `None` once all calls have settled.
    ///
    /// Every open call is polled before an answer is handed out, so that all requests have left
    /// before the first vote can decide. Nodes are few: polling them all costs less than telling
    /// them apart by their wakers.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Settled>> {
        if self.settled.is_empty() {
            let mut place = 0;
            while place < self.open.len() {
                match self.open[place].future.as_mut().poll(context) {
                    Poll::Pending => place += 1,
                    Poll::Ready(answer) => {
                        let Call { node, superseded, .. } = self.open.remove(place);
                        self.settled.push(Settled { node, superseded, answer });
                    }
                }
            }
            // Handed out from the back, in the order of the nodes.
            self.settled.reverse();
        }
        match self.settled.pop() {
            None if !self.open.is_empty() => Poll::Pending,
            settled => Poll::Ready(settled),
        }
    }

    /// The next answer; `None` once all calls have settled or `timer` has fired. Then the timer must
    /// not be used again.
    pub(crate) async fn next(&mut self, timer: &mut BoxFuture<'static, ()>) -> Option<Settled> {
        poll_fn(|context| match self.poll_next(context) {
            Poll::Pending => timer.as_mut().poll(context).map(|()| None),
            settled => settled,
        })
        .await
    }
}

impl Settled {
    /// The node, if its call of the latest operation failed in a way that may pass.
    pub(crate) fn passing_failure(&self) -> Option<NodeId> {
        match &self.answer {
            Err(error) if !self.superseded && !error.kind().is_permanent() => Some(self.node),
            _ => None,
        }
    }
}
