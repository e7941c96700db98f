//! What is known of a node from its latest calls.

use std::collections::BTreeSet;
use std::iter;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cluster::attempts::Slot;
use crate::error::Answer;
use crate::seam::backend::{BackendError, BackendErrorKind, CallKind, CallResult, Capabilities};

/// How long a node must go without a failure before its next answer is reported as a recovery.
const RECOVERY: Duration = Duration::from_secs(5);

/// For how long a gate that failed is no gate.
const SKIPPED: Duration = Duration::from_secs(1);

const NO_REPLY: Answer = Answer::NoReply { is_over: true };

/// What is known of a node from its latest calls.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// How much longer than a node timeout a call may take: until the node has answered once, its
    /// connect limit.
    pub(crate) connect: Duration,
    /// How many calls are in flight.
    in_flight: usize,
    /// Since when no call has been answered, although some are in flight. A node that answers one
    /// after the other is not silent, however long the last one waits.
    silent_since: Option<Instant>,
    /// The error of the last call, if it was not sent.
    not_sent: Option<BackendError>,
    /// The error of the last release, if it failed and no call was answered since.
    failed_release: Option<BackendError>,
    /// No gate until then.
    skipped_until: Option<Instant>,
    failing: Option<Failing>,
    /// The latest call that settled was answered without an error.
    is_answering: bool,
    /// When a call was last answered without an error.
    pub(crate) answered: Option<Instant>,
    /// What the backend was built for, without what the node was found to lack.
    pub(crate) abilities: Capabilities,
    pub(super) server: Server,
    /// The attempts whose release here failed without an answer.
    await_back: BTreeSet<Slot>,
    /// Until when a key may live here whose call was given up.
    may_hold_until: Option<Instant>,
}

/// What the result of a call says of whether its node answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    /// It answered without an error.
    Answer,
    /// It answered that it cannot do this: it answers, and may carry out its other calls.
    Refusal,
    /// It answered with another error.
    Error,
    /// It did not answer.
    Silence,
    /// Nothing: the node is known to lack the operation, so nothing was sent; or nobody awaits the
    /// answer.
    Nothing,
}

impl Sign {
    fn of(kind: CallKind, result: &CallResult) -> Self {
        // Whether a node can watch keys and keep a wait queue says nothing of its votes.
        match result {
            Ok(_) => Self::Answer,
            Err(error)
                if (kind.is_extra() || kind == CallKind::Question) && error.is_given_up() =>
            {
                Self::Nothing
            }
            Err(error) if error.is_lack() && error.is_not_sent() => Self::Nothing,
            Err(error) if is_unanswered(error) => Self::Silence,
            Err(error) if kind.is_extra() || error.is_lack() => Self::Refusal,
            Err(_) => Self::Error,
        }
    }
}

/// Whether no answer came: the connection ended, the client timed out, or nothing was sent.
pub(super) fn is_unanswered(error: &BackendError) -> bool {
    let kind = error.kind();
    error.is_not_sent() || matches!(kind, BackendErrorKind::Connection | BackendErrorKind::TimedOut)
}

/// Which server a node is, as it said last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Server {
    #[default]
    Unknown,
    /// The node has no id, or does not report it.
    Nameless,
    Id(Arc<str>),
}

/// A node that fails.
#[derive(Clone, Debug)]
struct Failing {
    since: Instant,
    last: Instant,
    /// Why it failed last: it gave no reply, or an error.
    why: Answer,
}

/// What changed for an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    None,
    /// The first failure of a node that was well.
    Fails,
    /// The node has answered, 5 s or more after its last failure.
    Recovers {
        after: Duration,
    },
}

impl Health {
    /// Of a node that has answered nothing yet.
    pub(super) fn new(connect: Duration, abilities: Capabilities) -> Self {
        Self { connect, abilities, ..Self::default() }
    }

    /// A call begins. Returns since when no call has been answered.
    pub(super) fn begin(&mut self, now: Instant) -> Instant {
        self.in_flight += 1;
        *self.silent_since.get_or_insert(now)
    }

    /// A call has settled. The one place where its result is taken for a sign of life. Returns what
    /// changed for an operator, and the attempts for which the node is back.
    pub(super) fn settled(
        &mut self,
        kind: CallKind,
        result: &CallResult,
        now: Instant,
    ) -> (Change, Vec<Slot>) {
        let (sign, error) = (Sign::of(kind, result), result.as_ref().err());
        self.in_flight = self.in_flight.saturating_sub(1);
        if self.in_flight == 0 {
            self.silent_since = None;
        }
        if let (CallKind::Release, Some(error)) = (kind, error) {
            self.failed_release = Some(error.clone());
        }
        if sign != Sign::Nothing {
            // A reply to a call that another thread began may carry an earlier time.
            self.silent_since = self.silent_since.map(|since| since.max(now));
            self.not_sent = error.filter(|error| error.is_not_sent()).cloned();
        }
        match sign {
            Sign::Answer => {
                (self.is_answering, self.failed_release) = (true, None);
                self.answered = self.answered.max(Some(now));
            }
            Sign::Silence | Sign::Error => self.is_answering = false,
            Sign::Refusal | Sign::Nothing => {}
        }
        let mut await_back = Vec::new();
        if !matches!(sign, Sign::Silence | Sign::Nothing) {
            self.connect = Duration::ZERO;
            await_back.extend(iter::from_fn(|| self.await_back.pop_first()));
        }
        let says_nothing =
            kind == CallKind::Question && matches!(sign, Sign::Refusal | Sign::Nothing);
        let change = match error {
            _ if kind.is_extra() || says_nothing => Change::None,
            None => self.note_answer(now),
            Some(error) => self.note_failure(Answer::Failed(error.clone()), now),
        };
        (change, await_back)
    }

    /// Why a node does not answer: it has answered none of its calls for a node timeout, and none
    /// since a connect may have taken; or its last call was not sent. `None` for a node that
    /// answers.
    pub(crate) fn silence(&self, node_timeout: Duration, now: Instant) -> Option<Answer> {
        match &self.not_sent {
            Some(error) => Some(Answer::Failed(error.clone())),
            None => self.is_silent(node_timeout, now).then_some(NO_REPLY),
        }
    }

    /// Why nothing can be released at the node now: it does not answer, or its last release failed,
    /// and no call was answered since (C8).
    pub(crate) fn cannot_release(&self, node_timeout: Duration, now: Instant) -> Option<Answer> {
        let failed = || self.failed_release.clone().map(Answer::Failed);
        self.silence(node_timeout, now).or_else(failed)
    }

    /// Why the node does not answer; else why it failed last, if it has not gone for 5 s without a
    /// failure since.
    pub(crate) fn failure(&self, node_timeout: Duration, now: Instant) -> Option<Answer> {
        let last = || self.failing.as_ref().map(|failing| failing.why.clone());
        self.silence(node_timeout, now).or_else(last)
    }

    /// Whether the node answers, by its latest call.
    pub(crate) fn is_answering(&self, node_timeout: Duration, now: Instant) -> bool {
        self.is_answering && !self.is_silent(node_timeout, now)
    }

    fn is_silent(&self, node_timeout: Duration, now: Instant) -> bool {
        let silent = self.silent_since.map(|since| now.saturating_duration_since(since));
        silent.is_some_and(|silent| silent >= node_timeout.saturating_add(self.connect))
    }

    /// Whether the node can keep wait queues, and is not skipped.
    pub(super) fn is_gate(&self, now: Instant) -> bool {
        self.abilities.contains(Capabilities::QUEUE)
            && self.skipped_until.is_none_or(|until| now >= until)
    }

    /// Makes the node no gate for a second.
    pub(crate) fn skip_gate(&mut self, now: Instant) {
        self.skipped_until = self.skipped_until.max(now.checked_add(SKIPPED));
    }

    /// Notes what the node lacks. Returns whether that is new.
    pub(super) fn note_lack(&mut self, lack: Capabilities) -> bool {
        let is_new = self.abilities.contains(lack);
        self.abilities = self.abilities.without(lack);
        is_new
    }

    /// Notifies the attempt at `slot` when this node answers again.
    pub(crate) fn await_back(&mut self, slot: Slot) {
        self.await_back.insert(slot);
    }

    /// How many attempts wait for this node.
    #[cfg(test)]
    pub(crate) fn awaiting(&self) -> usize {
        self.await_back.len()
    }

    /// The attempt at `slot` is over.
    pub(crate) fn forget_back(&mut self, slot: Slot) {
        self.await_back.remove(&slot);
    }

    /// A call was given up, after which a key may live here until then.
    pub(crate) fn note_may_hold(&mut self, until: Instant) {
        self.may_hold_until = self.may_hold_until.max(Some(until));
    }

    /// Whether a call that was given up may have left a key here.
    pub(crate) fn may_hold(&self, now: Instant) -> bool {
        self.may_hold_until.is_some_and(|until| now < until)
    }

    /// Notes a node timeout without a reply.
    pub(crate) fn note_silent(&mut self, now: Instant) -> Change {
        self.is_answering = false;
        self.note_failure(NO_REPLY, now)
    }

    fn note_failure(&mut self, why: Answer, now: Instant) -> Change {
        let since = self.failing.as_ref().map(|failing| failing.since);
        self.failing = Some(Failing { since: since.unwrap_or(now), last: now, why });
        if since.is_some() { Change::None } else { Change::Fails }
    }

    fn note_answer(&mut self, now: Instant) -> Change {
        let since = |at: Instant| now.saturating_duration_since(at);
        match self.failing.take_if(|failing| since(failing.last) >= RECOVERY) {
            Some(failing) => Change::Recovers { after: since(failing.since) },
            None => Change::None,
        }
    }
}
