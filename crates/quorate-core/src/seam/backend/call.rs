//! One call to one node, and its way back.
//!
//! A [`Call`] is answered exactly once: by [`answer`](Call::answer), from anywhere and at any time,
//! or by [`not_sent`](Call::not_sent), which gives a value to return from
//! [`LockBackend::begin`](crate::LockBackend::begin). A call that is dropped without an answer is
//! *lost*.

use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};
use std::time::Instant;

use super::claim::Claim;
use super::error::{BackendError, BackendErrorKind};
use super::operation::{CallResult, Operation};
use crate::algorithm::group::{Listed, Membership};
use crate::algorithm::quorum::NodeId;

/// What sent a call, and takes its answer: an attempt, a wait, or an [`Asked`](super::Asked).
pub(crate) trait Answered: Send + Sync {
    /// The call settled. `now`: when the reply was there, if the backend has read the clock.
    fn answered(self: Arc<Self>, tag: Tag, result: CallResult, now: Option<Instant>);
    /// Whether the answer is not awaited any more. While it is, `task` is woken when that ends.
    fn is_given_up(&self, tag: &Tag, task: Option<&Waker>) -> bool;
    /// The time on the clock of [`answered`](Self::answered).
    fn now(&self) -> Option<Instant>;
    /// Whether the call is in a queue of the backend, or has left it late.
    fn note_queued(&self, _tag: &Tag, _is_queued: bool, _is_late: bool) {}
    /// What the node has said of its group, on the connection that carries the call.
    fn note_membership(&self, _tag: &Tag, _says: &Arc<Membership>) {}
    /// The key that the call watches was written, or may have been.
    fn pushed(self: Arc<Self>, _tag: &Tag) {}
}

/// Which call of its sender it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tag {
    pub(crate) node: NodeId,
    pub(crate) number: u32,
    pub(crate) begun: Instant,
    pub(crate) kind: CallKind,
    /// Whether the answer is to say which server the node is.
    pub(crate) asks_server: bool,
}

/// What a call is for, in health and telemetry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallKind {
    Acquire,
    Extend,
    Release,
    Repair,
    Raise,
    Look,
    /// What votes on nothing and watches nothing: a refresh, a leave, the question for a
    /// server id.
    Waiting,
    /// A watch.
    Watch,
    /// What an operator or a start-up asks, and the mark of a guard.
    Question,
    /// Has a node keep the list of its group.
    List,
}

impl CallKind {
    /// Whether its reply votes on a ttl that it sets.
    pub(crate) const fn sets_ttl(self) -> bool {
        matches!(self, Self::Acquire | Self::Extend)
    }

    /// Whether its reply is a vote.
    pub(crate) const fn votes(self) -> bool {
        matches!(self, Self::Acquire | Self::Extend | Self::Raise | Self::Release)
    }

    /// Whether no vote is asked for: what a node answers to it says nothing of its votes.
    pub(crate) const fn is_extra(self) -> bool {
        matches!(self, Self::Waiting | Self::Watch | Self::Look | Self::List)
    }

    /// The name in events and metrics.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Acquire => "acquire",
            Self::Extend => "extend",
            Self::Release => "release",
            Self::Repair => "repair",
            Self::Raise => "raise",
            Self::Look => "look",
            Self::Waiting | Self::Watch => "queue",
            Self::Question => "question",
            Self::List => "list",
        }
    }
}

/// One call to one node. Dropped without an answer, it is *lost*: the node may have executed it.
#[must_use = "a call that is dropped is lost"]
pub struct Call {
    operation: Operation,
    pub(crate) tag: Tag,
    /// `None`: nothing. So the calls of nodes without a group stay small.
    pub(crate) list_task: Option<Box<ListTask>>,
    /// `None` once it is answered.
    sender: Option<Arc<dyn Answered>>,
}

/// What is to be done with the list of a node's group before a call leaves, on the same connection.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum ListTask {
    /// Nothing.
    #[default]
    Nothing,
    /// The id and the list of the node are read again: nodes of this client disagree.
    Read,
    /// The node keeps `list` from now on, in place of what it has said: only if that is
    /// [stored](Membership::stored) there still. Then the list is read.
    Keep {
        /// The nodes of the group.
        list: Arc<[Listed]>,
        /// Those that it has no more.
        gone: Vec<Listed>,
        /// What the node has said.
        before: Arc<Membership>,
    },
}

/// A call that did not leave and never will. Made by [`Call::not_sent`].
#[derive(Debug)]
#[must_use = "the sender of the call has to know"]
pub struct NotSent {
    pub(crate) error: BackendError,
}

impl NotSent {
    /// Why nothing was sent.
    #[must_use]
    pub const fn error(&self) -> &BackendError {
        &self.error
    }
}

impl Call {
    pub(crate) fn new(operation: Operation, tag: Tag, sender: Arc<dyn Answered>) -> Self {
        Self { operation, tag, list_task: None, sender: Some(sender) }
    }

    /// What the node is asked to do.
    #[must_use]
    pub const fn operation(&self) -> &Operation {
        &self.operation
    }

    /// The claim of an acquire, an extension, a raise or a release.
    #[must_use]
    pub const fn claim(&self) -> Option<&Claim> {
        self.operation.claim()
    }

    /// Whether [`Reply::server`](super::Reply::server) is wanted. A backend that has it at hand
    /// gives it always.
    #[must_use]
    pub const fn asks_server(&self) -> bool {
        self.tag.asks_server
    }

    /// What is to be done with the list of the node's group, if it is of one.
    #[must_use]
    pub fn list_task(&self) -> &ListTask {
        self.list_task.as_deref().unwrap_or(&ListTask::Nothing)
    }

    /// Notes what the node has said of its group on the connection that carries the call. To be
    /// called before the answer: votes of nodes whose lists disagree do not count together (N3).
    pub fn note_membership(&self, says: &Arc<Membership>) {
        if let Some(sender) = &self.sender {
            sender.note_membership(&self.tag, says);
        }
    }

    /// Settles the call. From anywhere, at any time, also inside `begin`.
    ///
    /// It never waits for a lock of the sender. It may begin other calls on the same stack, at this
    /// node too: so a backend answers while it has none of its own locks.
    ///
    /// A call has one answer:
    ///
    /// ```compile_fail,E0382
    /// use quorate_core::backend::{Call, CallResult};
    ///
    /// fn answer_twice(call: Call, first: CallResult, second: CallResult) {
    ///     call.answer(first);
    ///     call.answer(second);
    /// }
    /// ```
    pub fn answer(mut self, result: CallResult) {
        self.settle(result, None);
    }

    /// As [`answer`](Self::answer), with a reply that was there at `now`: a backend that answers
    /// many calls at once reads the clock once.
    pub fn answer_at(mut self, result: CallResult, now: Instant) {
        self.settle(result, Some(now));
    }

    /// The time, on the clock that [`answer_at`](Self::answer_at) wants.
    #[must_use]
    pub fn now(&self) -> Option<Instant> {
        self.sender.as_ref().and_then(|sender| sender.now())
    }

    /// Nothing was sent, and nothing will be. Only to be returned from
    /// [`LockBackend::begin`](crate::LockBackend::begin): later, [`answer`](Self::answer) with an
    /// error that is [not sent](BackendError::not_sent).
    pub fn not_sent(mut self, error: BackendError) -> NotSent {
        self.sender = None;
        NotSent { error: error.not_sent() }
    }

    /// Resolves when the answer is not awaited any more. A backend may drop the call then.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time.
    pub async fn given_up(&self) {
        until(|task| self.ask_given_up(Some(task))).await;
    }

    /// Whether the answer is not awaited any more.
    #[must_use]
    pub fn is_given_up(&self) -> bool {
        self.ask_given_up(None)
    }

    fn ask_given_up(&self, task: Option<&Waker>) -> bool {
        self.sender.as_ref().is_none_or(|sender| sender.is_given_up(&self.tag, task))
    }

    /// Notes that the call waits in a queue of this process.
    ///
    /// A release in the queue of a node that answers is not counted as unanswered when a node
    /// timeout has passed: its round goes on for another, until the cleanup bound.
    pub fn note_queued(&self) {
        if let Some(sender) = &self.sender {
            sender.note_queued(&self.tag, true, false);
        }
    }

    /// Notes that the call has left the queue. `is_late`: it had to wait there, so a release has a
    /// node timeout more.
    pub fn note_left(&self, is_late: bool) {
        if let Some(sender) = &self.sender {
            sender.note_queued(&self.tag, false, is_late);
        }
    }

    /// Which sender the call has, which needs no second [`Push`] for the same key: a number that no
    /// other sender has as long as the call or a push of it is there.
    #[must_use]
    pub fn sender(&self) -> usize {
        self.sender.as_ref().map_or(0, |sender| Arc::as_ptr(sender).addr())
    }

    /// For a watch, and for an extension and a look of an exclusive claim: notifies the sender that
    /// a key was written. To be taken before the key is read.
    pub fn push(&self) -> Push {
        Push { sender: self.sender.as_ref().map(Arc::downgrade), tag: self.tag }
    }

    fn settle(&mut self, result: CallResult, now: Option<Instant>) {
        if let Some(sender) = self.sender.take() {
            sender.answered(self.tag, result, now);
        }
    }
}

/// Resolves when the condition is true. The condition wakes the task.
fn until(is_true: impl Fn(&Waker) -> bool) -> impl Future<Output = ()> {
    poll_fn(move |context| match is_true(context.waker()) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.sender.is_some() {
            let text = "the backend dropped the call";
            let error = match self.is_given_up() {
                true => BackendError::given_up(),
                false => BackendError::new(BackendErrorKind::Connection, text),
            };
            self.settle(Err(error), None);
        }
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Call").field(&self.operation).finish()
    }
}

/// Tells the sender of a watch that the key was written, or may have been: by its drop.
///
/// It may be dropped before the watch is answered.
#[derive(Debug)]
#[must_use = "dropping it is the push"]
pub struct Push {
    sender: Option<Weak<dyn Answered>>,
    tag: Tag,
}

impl Push {
    /// Tells a wait that the connection has ended, and a lease nothing: its next renewal says what
    /// is there.
    pub fn end(mut self) {
        if matches!(self.tag.kind, CallKind::Extend | CallKind::Look) {
            self.sender = None;
        }
    }

    /// Whether no push is awaited any more. Then it can be dropped.
    #[must_use]
    pub fn is_given_up(&self) -> bool {
        self.ask_given_up(None)
    }

    /// Resolves when no push is awaited any more.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time.
    pub async fn given_up(&self) {
        until(|task| self.ask_given_up(Some(task))).await;
    }

    fn ask_given_up(&self, task: Option<&Waker>) -> bool {
        let sender = self.sender.as_ref().and_then(Weak::upgrade);
        sender.is_none_or(|sender| sender.is_given_up(&self.tag, task))
    }
}

impl Drop for Push {
    fn drop(&mut self) {
        if let Some(sender) = self.sender.as_ref().and_then(Weak::upgrade) {
            sender.pushed(&self.tag);
        }
    }
}
