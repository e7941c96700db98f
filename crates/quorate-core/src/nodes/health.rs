//! What is known of a node from its latest calls.

use std::time::{Duration, Instant};

use crate::algorithm::lease::saturating_add;
use crate::backend::{BackendError, Capabilities};

/// A node recovers with the first answer that comes so long after its last failure, or later.
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
    not_sent: Option<BackendError>,
    /// The error of the last release, if it failed and no call was answered since.
    failed_release: Option<BackendError>,
    /// No gate for new waits until then.
    skipped_until: Option<Instant>,
    failing: Option<Failing>,
    /// What the node was found to lack, although its backend was built for it.
    lacks: Capabilities,
}

/// Why a node does not answer.
#[derive(Clone, Debug)]
pub(crate) enum Silence {
    NoReply,
    Failed(BackendError),
}

/// A node that fails.
#[derive(Clone, Copy, Debug)]
struct Failing {
    since: Instant,
    last: Instant,
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
    pub(super) fn begin(&mut self, now: Instant) {
        self.in_flight += 1;
        self.silent_since.get_or_insert(now);
    }

    pub(super) fn end(&mut self) {
        self.in_flight -= 1;
        if self.in_flight == 0 {
            self.silent_since = None;
        }
    }

    /// Notes that a call was answered, or ended with its connection.
    pub(crate) fn note_settled(&mut self, now: Instant) {
        if !planted!("busy_node_is_silent") {
            self.silent_since = self.silent_since.map(|_| now);
        }
    }

    pub(super) fn settled(&mut self, is_release: bool, error: Option<&BackendError>) {
        self.not_sent = error.filter(|error| error.is_not_sent()).cloned();
        if is_release || error.is_none() {
            self.failed_release = error.cloned();
        }
    }

    /// For how long no call has been answered, if any is in flight.
    pub(crate) fn silent_for(&self, now: Instant) -> Option<Duration> {
        self.silent_since.map(|since| now.saturating_duration_since(since))
    }

    /// Why a node does not answer: it has answered none of its calls for a node timeout, its last call was
    /// not sent, or its last release failed (C8). `None` for a node that answers.
    pub(crate) fn silence(&self, node_timeout: Duration, now: Instant) -> Option<Silence> {
        let is_late = self.silent_for(now).is_some_and(|silent| silent >= node_timeout);
        let error = self.not_sent.as_ref().or(self.failed_release.as_ref());
        match error {
            Some(error) => Some(Silence::Failed(error.clone())),
            None => is_late.then_some(Silence::NoReply),
        }
    }

    pub(super) fn next_silence(&self, node_timeout: Duration, now: Instant) -> Option<Instant> {
        self.silent_since.map(|since| saturating_add(since, node_timeout)).filter(|end| *end > now)
    }

    pub(super) fn is_skipped(&self, now: Instant) -> bool {
        self.skipped_until.is_some_and(|until| now < until)
    }

    pub(super) fn skip_until(&mut self, until: Instant) {
        self.skipped_until = self.skipped_until.max(Some(until));
    }

    /// Notes what the node lacks. Returns whether that is new.
    pub(super) fn note_lack(&mut self, lack: Capabilities) -> bool {
        let is_new = !self.lacks.contains(lack);
        self.lacks = self.lacks | lack;
        is_new
    }

    /// Notes a failure, or a node timeout without a reply.
    pub(crate) fn note_failure(&mut self, now: Instant) -> Change {
        match &mut self.failing {
            Some(failing) => {
                failing.last = now;
                Change::None
            }
            None => {
                self.failing = Some(Failing { since: now, last: now });
                Change::Fails
            }
        }
    }

    /// Notes a vote.
    pub(crate) fn note_answer(&mut self, now: Instant) -> Change {
        match self.failing {
            Some(Failing { since, last }) if now.saturating_duration_since(last) >= RECOVERY => {
                self.failing = None;
                Change::Recovers { after: now.saturating_duration_since(since) }
            }
            _ => Change::None,
        }
    }
}
