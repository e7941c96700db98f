//! Calls on their way: kept until they settle, whatever became of the round they were made for.

use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::task::{Context, Poll};
use std::time::Instant;

use futures_util::FutureExt;
use futures_util::future::{Either, select};

use crate::algorithm::quorum::{NodeId, Vote};
use crate::backend::{BackendError, BackendErrorKind};
use crate::runtime::{BoxFuture, Runtime};

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
    /// A backend that panics has failed, and takes nobody else's call with it.
    pub(crate) fn add(
        &mut self,
        node: NodeId,
        call: impl Future<Output = Result<Vote, BackendError>> + Send + 'static,
    ) {
        let call = AssertUnwindSafe(call).catch_unwind();
        let future = Box::pin(call.map(|answer| {
            answer.unwrap_or_else(|_| {
                Err(BackendError::new(BackendErrorKind::Other, "the backend panicked"))
            })
        }));
        self.open.push(Call { node, superseded: false, future });
    }

    /// Whether nothing is on its way.
    pub(crate) fn have_settled(&self) -> bool {
        self.open.is_empty()
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

    /// Waits until all calls have settled, or until `deadline`. Returns the nodes whose calls, of
    /// the latest operation, failed in a way that may pass.
    pub(crate) async fn drain(&mut self, runtime: &dyn Runtime, deadline: Instant) -> Vec<NodeId> {
        let mut failed = Vec::new();
        if self.open.is_empty() {
            return failed;
        }
        let all = poll_fn(|context| {
            loop {
                match self.poll_next(context) {
                    Poll::Ready(Some(settled)) => failed.extend(settled.passing_failure()),
                    Poll::Ready(None) => return Poll::Ready(()),
                    Poll::Pending => return Poll::Pending,
                }
            }
        });
        match select(all, runtime.sleep_until(deadline)).await {
            Either::Left(_) | Either::Right(_) => failed,
        }
    }
}

impl Settled {
    fn passing_failure(&self) -> Option<NodeId> {
        match &self.answer {
            Err(error) if !self.superseded && !error.kind().is_permanent() => Some(self.node),
            _ => None,
        }
    }
}
