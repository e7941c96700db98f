//! What is known of a node from its latest calls.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cluster::attempts::Slot;
use crate::seam::backend::{BackendError, BackendErrorKind, CallKind, CallResult, Capabilities};

/// How long a node must go without a failure before its next answer is reported as a recovery.
const RECOVERY: Duration = Duration::from_secs(5);

/// What is known of a node from its latest calls.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// How long a connect may take, beside a call; zero once the node has answered.
    pub(super) connect: Duration,
    /// How many calls are in flight.
    in_flight: usize,
    /// Since when no call has been answered, although some are in flight. A node that answers one
    /// after the other is not silent, however long the last one waits.
    silent_since: Option<Instant>,
    /// The error of the last call, if it was not sent.
    pub(super) not_sent: Option<BackendError>,
    /// The error of the last release, if it failed and no call was answered since.
    failed_release: Option<BackendError>,
    /// No gate until then.
    pub(super) skipped_until: Option<Instant>,
    failing: Option<Failing>,
    /// The latest call that settled was answered without an error.
    is_answering: bool,
    /// When a call was last answered without an error.
    answered: Option<Instant>,
    /// What the node was found to lack, although its backend was built for it.
    pub(super) lacks: Capabilities,
    pub(super) server: Server,
    /// Another node that is the same server, by its place in the configuration.
    pub(super) twin: Option<usize>,
    /// The attempts whose release here failed without an answer.
    pub(super) await_back: Vec<Slot>,
    /// Until when a key may live here whose call was given up.
    pub(super) may_hold_until: Option<Instant>,
}

/// What the result of a call says of whether its node answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
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
    pub(super) fn of<T>(kind: CallKind, result: &Result<T, BackendError>) -> Self {
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

/// Why a node does not answer.
#[derive(Clone, Debug)]
pub(crate) enum Silence {
    NoReply,
    Failed(BackendError),
}

impl Silence {
    /// Whether the node answers, and cannot now.
    pub(crate) fn is_not_now(&self) -> bool {
        matches!(self, Self::Failed(error) if error.kind().is_not_now())
    }
}

/// A node that fails.
#[derive(Clone, Debug)]
struct Failing {
    since: Instant,
    last: Instant,
    /// Why it failed last.
    why: Silence,
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
    pub(super) fn new(connect: Duration) -> Self {
        Self { connect, ..Self::default() }
    }

    /// A call begins. Returns since when no call has been answered.
    pub(super) fn begin(&mut self, now: Instant) -> Instant {
        self.in_flight += 1;
        *self.silent_since.get_or_insert(now)
    }

    /// A call has settled. The one place where its result is taken for a sign of life.
    pub(super) fn settled(&mut self, kind: CallKind, result: &CallResult, now: Instant) {
        let (sign, error) = (Sign::of(kind, result), result.as_ref().err());
        self.in_flight = self.in_flight.saturating_sub(1);
        if self.in_flight == 0 {
            self.silent_since = None;
        }
        if let (CallKind::Release, Some(error)) = (kind, error) {
            self.failed_release = Some(error.clone());
        }
        if sign == Sign::Nothing {
            return;
        }
        // A reply to a call that another thread began may carry an earlier time.
        self.silent_since = self.silent_since.map(|since| since.max(now));
        self.not_sent = error.filter(|error| error.is_not_sent()).cloned();
        if sign == Sign::Answer {
            self.failed_release = None;
        }
        match sign {
            Sign::Answer => {
                self.is_answering = true;
                self.answered = self.answered.max(Some(now));
            }
            Sign::Silence | Sign::Error => self.is_answering = false,
            Sign::Refusal | Sign::Nothing => {}
        }
        if sign != Sign::Silence {
            self.connect = Duration::ZERO;
        }
    }

    /// Why a node does not answer: it has answered none of its calls for a node timeout, and none
    /// since a connect may have taken; or its last call was not sent. `None` for a node that
    /// answers.
    pub(crate) fn silence(&self, node_timeout: Duration, now: Instant) -> Option<Silence> {
        match &self.not_sent {
            Some(error) => Some(Silence::Failed(error.clone())),
            None => self.is_silent(node_timeout, now).then_some(Silence::NoReply),
        }
    }

    fn is_silent(&self, node_timeout: Duration, now: Instant) -> bool {
        let silent = self.silent_since.map(|since| now.saturating_duration_since(since));
        silent.is_some_and(|silent| silent >= node_timeout.saturating_add(self.connect))
    }

    /// Why the last release failed, if no call was answered since (C8).
    pub(super) fn failed_release(&self) -> Option<&BackendError> {
        self.failed_release.as_ref()
    }

    /// Whether the node answers, and when it did last.
    pub(super) fn answers(&self, node_timeout: Duration, now: Instant) -> (bool, Option<Instant>) {
        (self.is_answering && !self.is_silent(node_timeout, now), self.answered)
    }

    pub(super) fn is_skipped(&self, now: Instant) -> bool {
        self.skipped_until.is_some_and(|until| now < until)
    }

    pub(super) fn lacks(&self, capabilities: Capabilities) -> bool {
        self.lacks.contains(capabilities)
    }

    /// Notes what the node lacks. Returns whether that is new.
    pub(super) fn note_lack(&mut self, lack: Capabilities) -> bool {
        let is_new = !self.lacks.contains(lack);
        self.lacks = self.lacks | lack;
        is_new
    }

    /// Notes a node timeout without a reply.
    pub(super) fn note_silent(&mut self, now: Instant) -> Change {
        self.is_answering = false;
        self.note_failure(Silence::NoReply, now)
    }

    /// Notes a failure.
    pub(super) fn note_failure(&mut self, why: Silence, now: Instant) -> Change {
        let before = self.failing.as_ref().map(|failing| failing.since);
        self.failing = Some(Failing { since: before.unwrap_or(now), last: now, why });
        if before.is_some() { Change::None } else { Change::Fails }
    }

    /// Why the node failed last, if it has not recovered.
    pub(super) fn last_failure(&self) -> Option<Silence> {
        self.failing.as_ref().map(|failing| failing.why.clone())
    }

    /// Notes a vote.
    pub(super) fn note_answer(&mut self, now: Instant) -> Change {
        let since = |at: Instant| now.saturating_duration_since(at);
        match self.failing.take_if(|failing| since(failing.last) >= RECOVERY) {
            Some(failing) => Change::Recovers { after: since(failing.since) },
            None => Change::None,
        }
    }
}
