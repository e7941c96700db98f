//! Events and spans.

use std::fmt;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing::field::display;
use tracing::{debug, info, info_span, trace, warn};

use super::health::{Answered, Health};
use super::on::{Asked, not_acquired_because};
use super::span::QuietSpan;
use crate::algorithm::quorum::Vote;
use crate::backend::{BackendError, BackendErrorKind};
use crate::driver::Attempt;
use crate::error::{AdoptError, LockError, Lost, Votes};
use crate::guard::LockGuard;
use crate::lease::Tenure;
use crate::resource::Key;

const TARGET: &str = "quorate";

pub(super) fn lock_span(keys: &[Key]) -> QuietSpan {
    QuietSpan::new(|| info_span!(target: TARGET, "lock", keys = %Keys(keys)))
}

pub(super) fn acquisition(keys: &[Key], waited: Duration, result: &Result<LockGuard, LockError>) {
    let (keys, waited) = (Keys(keys), Short(waited));
    match result {
        Ok(guard) => {
            let left = Short(guard.remaining());
            debug!(target: TARGET, %keys, %waited, %left, "acquired");
        }
        Err(error) => {
            let reason = not_acquired_because(error);
            debug!(target: TARGET, %keys, %waited, reason, %error, "not acquired");
        }
    }
}

pub(super) fn adoption(keys: &[Key], waited: Duration, result: &Result<LockGuard, AdoptError>) {
    let (keys, waited) = (Keys(keys), Short(waited));
    match result {
        Ok(guard) => {
            let left = Short(guard.remaining());
            debug!(target: TARGET, %keys, %waited, %left, "adopted");
        }
        Err(error) => debug!(target: TARGET, %keys, %waited, %error, "not adopted"),
    }
}

pub(super) fn refused(keys: &[Key], took: Duration, reason: &'static str, error: &LockError) {
    let (keys, took) = (Keys(keys), Short(took));
    let votes = match error {
        LockError::Held { votes }
        | LockError::NoQuorum { votes }
        | LockError::NoToken { votes }
        | LockError::Expired { votes } => Some(display(votes)),
        _ => None,
    };
    debug!(target: TARGET, %keys, reason, %took, votes, "refused");
}

pub(super) fn extended(tenure: &Tenure, took: Duration) {
    let (keys, took, left) = (Keys(tenure.keys()), Short(took), Short(tenure.remaining()));
    debug!(target: TARGET, %keys, %took, %left, "extended");
}

pub(super) fn not_extended(tenure: &Tenure, took: Duration, votes: &Votes) {
    let (keys, took, left) = (Keys(tenure.keys()), Short(took), Short(tenure.remaining()));
    debug!(target: TARGET, %keys, %took, %left, %votes, "not extended");
}

pub(super) fn ended(tenure: &Tenure, lost: &Lost, reason: Option<&'static str>, held: Duration) {
    let (keys, held) = (Keys(tenure.keys()), Short(held));
    match (lost, reason) {
        (Lost::Closed, _) => debug!(target: TARGET, %keys, %held, "closed"),
        (Lost::HandedOver, _) => debug!(target: TARGET, %keys, %held, "handed over"),
        (error, Some(reason)) => warn!(target: TARGET, %keys, reason, %held, %error, "lost"),
        // Told when the release is decided.
        (_, None) => {}
    }
}

/// The release of a lease found that the nodes no longer had it.
pub(super) fn gone(tenure: &Tenure, reason: &'static str, held: Duration) {
    let (keys, held) = (Keys(tenure.keys()), Short(held));
    let error = "at its release a majority of the nodes no longer had it";
    warn!(target: TARGET, %keys, reason, %held, error, "lost");
}

pub(super) fn released(
    tenure: &Tenure,
    took: Option<Duration>,
    outcome: &'static str,
    votes: Option<&Votes>,
) {
    let keys = Keys(tenure.keys());
    let (took, votes) = (took.map(Short).map(display), votes.map(display));
    debug!(target: TARGET, %keys, outcome, took, votes, "released");
}

pub(super) fn cleaned_up(attempt: &Attempt, took: Duration, unanswered: usize) {
    let (keys, took) = (Keys(attempt.claim.keys()), Short(took));
    debug!(target: TARGET, %keys, %took, unanswered, "cleaned up");
}

pub(super) fn sent(asked: &Asked<'_>, now: Instant) {
    let silent = health(asked).sent(now, asked.patience());
    if let Some(silent) = silent {
        fails(asked, Told::First, &Failure::Silent(silent));
    }
}

pub(super) fn settled(
    asked: &Asked<'_>,
    now: Instant,
    latency: Duration,
    vote: Option<&'static str>,
    answer: Option<&Result<Vote, BackendError>>,
) {
    let (node, operation) = (&**asked.name(), asked.operation);
    if answer.is_some() {
        let latency = Short(latency);
        trace!(target: TARGET, node, operation, vote, %latency, "answered");
    }
    let mut health = health(asked);
    health.settled(now, if answer.is_some() { Answered::Yes } else { Answered::No });
    match (answer, vote) {
        (Some(Err(error)), _) => {
            let told = Told::of(health.fails(Some(operation), now));
            drop(health);
            fails(asked, told, &Failure::Error(error));
        }
        (_, Some("silent")) => {
            let told = Told::of(health.fails(None, now));
            drop(health);
            fails(asked, told, &Failure::Silent(latency));
        }
        (Some(Ok(_)), _) => {
            let recovered = health.works(operation, now);
            drop(health);
            if let Some(after) = recovered.map(Short) {
                info!(target: TARGET, node, operation, %after, "node recovered");
            }
        }
        (None, _) => {}
    }
}

pub(super) fn cannot(node: &str, operation: &'static str, kind: BackendErrorKind) {
    warn!(target: TARGET, node, operation, ?kind, "node cannot");
}

enum Failure<'a> {
    Error(&'a BackendError),
    Silent(Duration),
}

/// Whether it is the failure that a node's trouble begins with.
enum Told {
    First,
    Again,
}

impl Told {
    const fn of(first: bool) -> Self {
        if first { Self::First } else { Self::Again }
    }
}

fn fails(asked: &Asked<'_>, told: Told, failure: &Failure<'_>) {
    let (node, operation) = (&**asked.name(), asked.operation);
    let (kind, error) = (Kind(failure), failure);
    match told {
        Told::First => warn!(target: TARGET, node, operation, %kind, %error, "node failing"),
        Told::Again => debug!(target: TARGET, node, operation, %kind, %error, "node failed"),
    }
}

/// The `BackendErrorKind`, or what stands in its place.
struct Kind<'a>(&'a Failure<'a>);

impl fmt::Display for Kind<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Failure::Error(error) => write!(f, "{:?}", error.kind()),
            Failure::Silent(_) => f.write_str("Silent"),
        }
    }
}

impl fmt::Display for Failure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(error) => error.fmt(f),
            Self::Silent(time) => write!(f, "no answer for {}", Short(*time)),
        }
    }
}

fn health<'a>(asked: &'a Asked<'_>) -> MutexGuard<'a, Health> {
    let health = &asked.cluster().watched.health[asked.node.index()];
    health.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The first few keys, with commas between them.
struct Keys<'a>(&'a [Key]);

impl fmt::Display for Keys<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        for (at, key) in self.0.iter().take(SHOWN).enumerate() {
            write!(f, "{}{key}", if at == 0 { "" } else { ", " })?;
        }
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// A duration with no more digits than anybody reads.
struct Short(Duration);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1?}", self.0)
    }
}
