//! Calls on their way: kept until they settle, whatever became of the round they were made for.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;

use super::attempt::Attempt;
use super::calling::UnderWay;
use crate::algorithm::node_set::NodeSet;
use crate::algorithm::quorum::{NodeId, Vote};
use crate::backend::BackendError;
use crate::runtime::BoxFuture;
use crate::shared_set::AtomicNodeSet;

/// Calls that have not settled, and answers that nobody has looked at.
#[derive(Default)]
pub(super) struct Calls {
    batches: Vec<Batch>,
    answers: Answers,
    /// Whether a batch has not left.
    fresh: bool,
}

/// What came of a call.
pub(crate) type Answer = Result<Vote, BackendError>;

/// A call that has settled, and counts.
pub(super) struct Settled {
    pub(super) node: NodeId,
    pub(super) answer: Answer,
}

/// The calls of one operation, which leave together.
struct Batch {
    /// Those that have to be polled for.
    calls: Option<BoxFuture<'static, ()>>,
    inbox: Arc<Inbox>,
    /// How many have not settled.
    open: usize,
    /// Whether the answers are to the operation that is decided on.
    counts: bool,
}

/// Where the answers to a batch come in.
#[derive(Default)]
pub(super) struct Inbox {
    state: Mutex<State>,
    waker: AtomicWaker,
    /// The calls that ask to be polled.
    asking: AtomicNodeSet,
}

#[derive(Default)]
struct State {
    answers: Answers,
    carried: Option<Carried>,
}

/// Calls of a batch that backends carry by themselves.
struct Carried {
    attempt: Arc<Attempt>,
    under_way: UnderWay,
    /// Those that have not settled.
    open: NodeSet,
}

/// At most one of each node.
#[derive(Default)]
struct Answers {
    granted: NodeSet,
    refused: NodeSet,
    failed: Vec<(NodeId, BackendError)>,
}

impl Calls {
    /// Adds as many calls whose answers count as `inbox` will get answers; `calls` are those that have
    /// to be polled for.
    pub(super) fn add(
        &mut self,
        count: usize,
        inbox: Arc<Inbox>,
        calls: Option<BoxFuture<'static, ()>>,
    ) {
        self.push(Batch { calls, inbox, open: count, counts: true });
    }

    /// Adds a call whose answer decides nothing.
    pub(super) fn add_aside(&mut self, inbox: Arc<Inbox>, call: BoxFuture<'static, ()>) {
        self.push(Batch { calls: Some(call), inbox, open: 1, counts: false });
    }

    /// Adds an answer that is there without a call.
    pub(super) fn add_settled(&mut self, node: NodeId, answer: Answer) {
        self.answers.put(node, answer);
    }

    fn push(&mut self, batch: Batch) {
        if batch.open > 0 {
            self.fresh = true;
            self.batches.push(batch);
        }
    }

    /// Whether nothing is on its way, and no answer waits.
    pub(super) fn have_settled(&self) -> bool {
        self.batches.is_empty()
    }

    /// How many are on their way.
    pub(super) fn unsettled(&self) -> usize {
        self.batches.iter().map(|batch| batch.open).sum()
    }

    /// Answers that are there and were not asked for.
    pub(super) fn take_settled(&mut self) -> impl Iterator<Item = Settled> + use<> {
        let mut answers = std::mem::take(&mut self.answers);
        std::iter::from_fn(move || answers.pop())
    }

    /// Another operation begins: answers to what is on its way decide nothing any more.
    pub(super) fn supersede(&mut self) {
        self.answers = Answers::default();
        for batch in &mut self.batches {
            batch.counts = false;
        }
    }

    /// Drops the calls of earlier operations.
    pub(super) fn give_up_superseded(&mut self) {
        self.batches.retain(|batch| batch.counts);
    }

    /// The next answer that counts; `None` once all calls have settled.
    ///
    /// Every call is polled before an answer is handed out, so that all requests have left before the
    /// first vote can decide.
    pub(super) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Settled>> {
        if self.answers.is_empty() || self.fresh {
            self.fresh = false;
            let answers = &mut self.answers;
            self.batches.retain_mut(|batch| batch.poll(context, answers).is_pending());
        }
        match self.answers.pop() {
            None if !self.batches.is_empty() => Poll::Pending,
            settled => Poll::Ready(settled),
        }
    }

    /// The next answer that counts; `None` once all calls have settled or `timer` has fired. Then
    /// the timer must not be used again.
    pub(super) async fn next(&mut self, timer: &mut BoxFuture<'static, ()>) -> Option<Settled> {
        poll_fn(|context| match self.poll_next(context) {
            Poll::Pending => timer.as_mut().poll(context).map(|()| None),
            settled => settled,
        })
        .await
    }
}

impl Batch {
    /// Hears what the nodes have answered. Ready once all have.
    fn poll(&mut self, context: &mut Context<'_>, answers: &mut Answers) -> Poll<()> {
        // In front of the look at what asks to be polled.
        self.inbox.waker.register(context.waker());
        if let Some(calls) = &mut self.calls
            && calls.as_mut().poll(context).is_ready()
        {
            self.calls = None;
        }
        let mut state = self.inbox.state();
        let heard = std::mem::take(&mut state.answers);
        self.open -= heard.len();
        // Who keeps a waker of a call keeps the inbox, and is not to keep the manager with it.
        let carried = state.carried.take_if(|_| self.open == 0);
        drop(state);
        drop(carried);
        if self.counts {
            answers.append(heard);
        }
        if self.open == 0 { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if self.open > 0 {
            self.inbox.give_up();
        }
    }
}

impl Inbox {
    /// For a batch of which backends may carry calls.
    pub(super) fn of(attempt: &Arc<Attempt>, under_way: UnderWay) -> Arc<Self> {
        let carried = Carried { attempt: Arc::clone(attempt), under_way, open: NodeSet::default() };
        let state = State { answers: Answers::default(), carried: Some(carried) };
        Arc::new(Self { state: Mutex::new(state), ..Self::default() })
    }

    /// None of the calls that have to be polled for has left.
    pub(super) fn all_ask(&self) {
        self.asking.insert_all();
    }

    /// One of them can go on.
    pub(super) fn asks(&self, node: NodeId) {
        if self.asking.try_insert(node) {
            self.waker.wake();
        }
    }

    /// Those that can go on since this was last asked.
    pub(super) fn take_asking(&self) -> NodeSet {
        self.asking.take_all()
    }

    /// A backend is given a call to carry.
    pub(super) fn carries(&self, node: NodeId) {
        if let Some(carried) = &mut self.state().carried {
            carried.open.insert(node);
        }
    }

    /// Whether the answer to a call that is carried is still waited for. That to an acquire which is
    /// to be undone is not: what undoes it may be in front of it by now.
    pub(super) fn awaits(&self) -> bool {
        let state = self.state();
        let carried = state.carried.as_ref();
        carried.is_some_and(|carried| !carried.under_way.is_late(&carried.attempt))
    }

    /// A call that was carried has come back.
    pub(super) fn brought(&self, node: NodeId, answer: Answer) {
        let Some((attempt, under_way)) = self.state().close(node) else { return };
        under_way.heard(&attempt, node, &answer);
        self.put(node, answer);
        self.waker.wake();
    }

    /// Nobody waits any more.
    fn give_up(&self) {
        let carried = self.state().carried.take();
        if let Some(Carried { attempt, under_way, open }) = carried {
            open.ids().for_each(|node| under_way.given_up(&attempt, node));
        }
    }

    pub(super) fn put(&self, node: NodeId, answer: Answer) {
        self.state().answers.put(node, answer);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn close(&mut self, node: NodeId) -> Option<(Arc<Attempt>, UnderWay)> {
        let carried = self.carried.as_mut()?;
        carried.open.remove(node).then(|| (Arc::clone(&carried.attempt), carried.under_way))
    }
}

impl Answers {
    fn put(&mut self, node: NodeId, answer: Answer) {
        match answer {
            Ok(Vote::Granted) => self.granted.insert(node),
            Ok(Vote::Refused) => self.refused.insert(node),
            Err(error) => self.failed.push((node, error)),
        }
    }

    fn append(&mut self, mut others: Self) {
        self.granted = self.granted.union(others.granted);
        self.refused = self.refused.union(others.refused);
        self.failed.append(&mut others.failed);
    }

    fn pop(&mut self) -> Option<Settled> {
        if let Some(node) = self.granted.pop() {
            return Some(Settled { node, answer: Ok(Vote::Granted) });
        }
        if let Some(node) = self.refused.pop() {
            return Some(Settled { node, answer: Ok(Vote::Refused) });
        }
        let (node, error) = self.failed.pop()?;
        Some(Settled { node, answer: Err(error) })
    }

    fn len(&self) -> usize {
        self.granted.len() + self.refused.len() + self.failed.len()
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Settled {
    /// The node, if its call failed in a way that may pass.
    pub(super) fn passing_failure(&self) -> Option<NodeId> {
        match &self.answer {
            Err(error) if !error.kind().is_permanent() => Some(self.node),
            _ => None,
        }
    }
}
