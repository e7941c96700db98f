//! Calls on their way: kept until they settle, whatever became of the round they were made for.

use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::task::{Context, Poll};

use futures_util::FutureExt;

use crate::algorithm::quorum::{NodeCount, NodeId, Vote};
use crate::backend::{BackendError, BackendErrorKind};
use crate::runtime::BoxFuture;

/// Calls that have not settled, and answers that nobody has looked at.
#[derive(Default)]
pub(crate) struct Calls {
    calls: Vec<Call>,
    /// How many of them have settled.
    settled: usize,
    /// Whether one of them has not left.
    fresh: bool,
}

struct Call {
    node: NodeId,
    superseded: bool,
    state: State,
}

type Answer = Result<Vote, BackendError>;

enum State {
    Open(BoxFuture<'static, Answer>),
    Settled(Answer),
}

pub(crate) struct Settled {
    pub(crate) node: NodeId,
    /// The answer is to an earlier operation than the one that is decided on.
    pub(crate) superseded: bool,
    pub(crate) answer: Answer,
}

impl Calls {
    /// None, with room for one to each of `nodes`.
    pub(crate) fn to(nodes: NodeCount) -> Self {
        Self { calls: Vec::with_capacity(nodes.get()), settled: 0, fresh: false }
    }

    /// Adds a call whose answer counts.
    pub(crate) fn add(
        &mut self,
        node: NodeId,
        call: impl Future<Output = Answer> + Send + 'static,
    ) {
        self.fresh = true;
        self.push(node, false, open(call));
    }

    /// Adds a call whose answer decides nothing.
    pub(crate) fn add_aside(
        &mut self,
        node: NodeId,
        call: impl Future<Output = Answer> + Send + 'static,
    ) {
        self.fresh = true;
        self.push(node, true, open(call));
    }

    /// Adds an answer that is there without a call.
    pub(crate) fn add_settled(&mut self, node: NodeId, answer: Answer) {
        self.settled += 1;
        self.push(node, false, State::Settled(answer));
    }

    fn push(&mut self, node: NodeId, superseded: bool, state: State) {
        self.calls.push(Call { node, superseded, state });
    }

    /// Whether nothing is on its way.
    pub(crate) fn have_settled(&self) -> bool {
        self.unsettled() == 0
    }

    /// How many are on their way.
    pub(crate) const fn unsettled(&self) -> usize {
        self.calls.len() - self.settled
    }

    /// Answers that are there and were not asked for.
    pub(crate) fn take_settled(&mut self) -> Vec<Settled> {
        std::iter::from_fn(|| self.pop()).collect()
    }

    /// Another operation begins: answers to what is on its way decide nothing any more.
    pub(crate) fn supersede(&mut self) {
        while self.pop().is_some() {}
        for call in &mut self.calls {
            call.superseded = true;
        }
    }

    /// Drops the calls of earlier operations.
    pub(crate) fn give_up_superseded(&mut self) {
        self.calls.retain(|call| match call.state {
            State::Open(_) => !call.superseded,
            State::Settled(_) => true,
        });
    }

    /// The next answer; `None` once all calls have settled.
    ///
    /// Every open call is polled before an answer is handed out, so that all requests have left
    /// before the first vote can decide. Nodes are few: polling them all costs less than telling
    /// them apart by their wakers.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Settled>> {
        if self.settled == 0 || self.fresh {
            self.fresh = false;
            for call in &mut self.calls {
                if let State::Open(future) = &mut call.state
                    && let Poll::Ready(answer) = future.as_mut().poll(context)
                {
                    call.state = State::Settled(answer);
                    self.settled += 1;
                }
            }
        }
        match self.pop() {
            None if !self.calls.is_empty() => Poll::Pending,
            settled => Poll::Ready(settled),
        }
    }

    /// An answer that is there, in the order in which the calls were made.
    fn pop(&mut self) -> Option<Settled> {
        if self.settled == 0 {
            return None;
        }
        let place = self.calls.iter().position(|call| matches!(call.state, State::Settled(_)))?;
        let Call { node, superseded, state } = self.calls.remove(place);
        match state {
            State::Settled(answer) => {
                self.settled -= 1;
                Some(Settled { node, superseded, answer })
            }
            State::Open(_) => None,
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

/// A backend that panics has failed, and takes nobody else's call with it.
fn open(call: impl Future<Output = Answer> + Send + 'static) -> State {
    let call = AssertUnwindSafe(call).catch_unwind();
    State::Open(Box::pin(call.map(|answer| {
        answer.unwrap_or_else(|_| {
            Err(BackendError::new(BackendErrorKind::Other, "the backend panicked"))
        })
    })))
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
