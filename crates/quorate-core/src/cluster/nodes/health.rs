//! What is known of a node from its latest calls.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cluster::attempts::Slot;
use crate::seam::backend::{BackendError, Capabilities};

/// How long a node must go without a failure before its next answer is reported as a recovery.
const RECOVERY: Duration = Duration::from_secs(5);

/// What is known of a node from its latest calls.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// How many calls are in flight.
    in_flight: usize,
    /// Since when no call has been answered, although some are in flight. A node that answers one after the
    /// other is not silent, however long the last one waits.
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
    /// A call begins. Returns since when no call has been answered.
    pub(super) fn begin(&mut self, now: Instant) -> Instant {
        self.in_flight += 1;
        *self.silent_since.get_or_insert(now)
    }

    /// A call has settled.
    pub(super) fn settled(&mut self, is_release: bool, error: Option<&BackendError>, now: Instant) {
        self.in_flight = self.in_flight.saturating_sub(1);
        // A reply to a call that another thread began may carry an earlier time.
        self.silent_since = match self.in_flight {
            0 => None,
            _ => self.silent_since.max(Some(now)),
        };
        match error {
            None => (self.not_sent, self.failed_release) = (None, None),
            Some(error) => {
                self.not_sent = error.is_not_sent().then(|| error.clone());
                // Of a call that the backend did not take, this is the only result.
                self.is_answering &= !error.is_not_sent();
                if is_release {
                    self.failed_release = Some(error.clone());
                }
            }
        }
    }

    /// Why a node does not answer: it has answered none of its calls for a node timeout, its last call was
    /// not sent, or its last release failed (C8). `None` for a node that answers.
    pub(crate) fn silence(&self, node_timeout: Duration, now: Instant) -> Option<Silence> {
        let silent = self.silent_since.map(|since| now.saturating_duration_since(since));
        match self.not_sent.as_ref().or(self.failed_release.as_ref()) {
            Some(error) => Some(Silence::Failed(error.clone())),
            None => silent.is_some_and(|silent| silent >= node_timeout).then_some(Silence::NoReply),
        }
    }

    /// Whether the node answered its latest call without an error.
    pub(super) fn note_result(&mut self, is_answer: bool, now: Instant) {
        self.is_answering = is_answer;
        if is_answer {
            self.answered = self.answered.max(Some(now));
        }
    }

    /// Whether the node answers, and when it did last.
    pub(super) fn answers(&self, node_timeout: Duration, now: Instant) -> (bool, Option<Instant>) {
        let silent = self.silent_since.map(|since| now.saturating_duration_since(since));
        let is_silent = silent.is_some_and(|silent| silent >= node_timeout);
        (self.is_answering && !is_silent, self.answered)
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

    /// Notes a failure, or a node timeout without a reply.
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
