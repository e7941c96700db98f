//! Events of `tracing` and figures of `metrics`, each behind the feature of that name.
//!
//! With both features off, the functions here are empty. Durations are measured on the
//! [`Runtime`](crate::Runtime)'s clock. A key is shown as [`Key`] prints itself. A token
//! is never shown (A6).
//!
//! # Events and spans (feature `tracing`)
//!
//! The target of all of them is `quorate`. A duration is text (`1.2ms`). `keys` are the names of
//! the first eight keys, separated by commas. `failure` and `error` contain what each node
//! answered.
//!
//! | event | level | when | fields |
//! |---|---|---|---|
//! | `node failing` | warn | it fails, or is silent | `node`, `operation`, `kind`, `error` |
//! | `node recovered` | info | a failing node replies again | `node`, `operation`, `after` |
//! | `node lacks operation` | warn | no watch, or no queue | `node`, `operation`, `kind`, `error` |
//! | `runtime ended` | warn | a node connects again: its runtime has ended | `node`, `remedy` |
//! | `node list changed` | info | a group has other nodes | `group`, `node`, `before`, `now` |
//! | `process stopped` | warn | a timer of a manager is late by more than a node timeout | `late` |
//! | `lost` | warn | a lease ends before its release | `keys`, `reason`, `held`, `error` |
//! | `revoked` | info | a lease that is valid for `left` was revoked | `keys`, `by`, `left` |
//! | `not kept` | warn | no quorum keeps a lock that was to stay | `keys`, `error` |
//! | `not leading` | warn | `lead` has no lock, and pauses | `keys`, `pause`, `error` |
//! | `acquired` | debug | a lock is acquired | `keys`, `waited`, `left` |
//! | `not acquired` | debug | a request for a lock fails | `keys`, `waited`, `reason`, `error` |
//! | `round lost` | debug | another may follow | `keys`, `reason`, `took`, `failure` |
//! | `adopted` | debug | a detached lock is adopted | `keys`, `waited`, `left` |
//! | `not adopted` | debug | a detached lock cannot be adopted | `keys`, `waited`, `error` |
//! | `extended` | debug | an extension succeeds | `keys`, `took`, `left` |
//! | `extended late` | debug | late votes move the end of a lease on | `keys`, `left` |
//! | `not extended` | debug | an extension fails | `keys`, `took`, `left`, `failure` |
//! | `released` | debug | at its end | `keys`, `outcome`, `took`, `held`, `left`, `failure` |
//! | `detached` | debug | a lease is detached, for another process to adopt | `keys`, `held` |
//! | `kept` | debug | its lock stays, but on the nodes that lack it | `keys`, `held`, `lacking` |
//! | `closed` | debug | `close` of the manager ends a lease | `keys`, `held` |
//! | `cleaned up` | debug | the background work of an attempt ends | `keys`, `took`, `unanswered` |
//! | `call failed` | debug | an error | `node`, `operation`, `vote`, `latency`, `kind`, `error` |
//! | `call settled` | trace | a vote, or given up | `node`, `operation`, `vote`, `latency` |
//!
//! - A node fails where it returns an error, or is silent for a node timeout. It has recovered when
//!   it replies, and has not failed for 5 s.
//! - A node that fails in every round causes one `node failing`, until it has recovered. The `kind`
//!   of a silent node is `Silent`. Any other `kind` is a
//!   [`BackendErrorKind`](crate::BackendErrorKind), such as `Quarantined`. A silent node shows
//!   nowhere else, since rounds are won without it.
//! - `by` of `revoked` is the label of the process that revoked the lock, if it has one.
//! - A lease that is `not extended` keeps the end that the nodes have promised.
//! - `node lacks operation`: the node cannot watch keys or keep a wait queue, or its user may not.
//!   It is emitted once for `watch` and once for `queue`.
//! - `runtime ended` is emitted once for each runtime that ended, by the first call after that. Its
//!   `remedy` is `own_thread()`, with which connections outlive the runtimes of a program. A node
//!   over a pool emits none.
//! - `process stopped` comes when the process runs again. It was stopped or suspended, or its async
//!   runtime was blocked, for at least `late`. A manager that has nothing to do has no timer, and
//!   sees no stop.
//! - `released` comes when the release is decided, or when a dropped guard leaves it to the
//!   background. Its `took` and `failure` are absent where the release goes on in the background,
//!   or where nothing failed.
//! - `unanswered` is how many nodes did not answer until the cleanup bound. They may keep a key
//!   until its ttl has passed.
//!
//! The span `lock` (info, with `keys`) surrounds each acquire with its rounds and its waiting. It
//! ends when the guard is returned.
//!
//! # Metrics (feature `metrics`)
//!
//! Times are in seconds. A manager describes the metrics with their units when it is built, and
//! begins the counters with the label `reason` of failed requests and lost leases, and that of
//! stops, with zero. Install the recorder before that.
//!
//! | metric | kind | labels | what |
//! |---|---|---|---|
//! | `quorate_acquired_total` | counter | | locks acquired |
//! | `quorate_not_acquired_total` | counter | `reason` | failed: `held`, `no_quorum`, |
//! | | | | `too_many_waiters`, `same_server`, `closed`, `entropy`, `invalid` |
//! | `quorate_rounds_lost_total` | counter | `reason` | `held`, `no_quorum`, `expired` |
//! | `quorate_lost_total` | counter | `reason` | ended before release: `expired`, |
//! | | | | `not_held`, `hold_limit`, `revoked`, `closed` |
//! | `quorate_extensions_total` | counter | `outcome` | also renewals: `extended`, `failed` |
//! | `quorate_releases_total` | counter | `outcome` | `released`, `lost`, |
//! | | | | `unconfirmed`, `dropped` |
//! | `quorate_leases` | gauge | | leases held now, of all managers |
//! | `quorate_adoptions_total` | counter | `outcome` | `adopted`, `failed` |
//! | `quorate_stops_total` | counter | | stops of the process, as `process stopped` says |
//! | `quorate_node_votes_total` | counter | `node`, `operation`, `vote` | `granted`, |
//! | | | | `refused`, `failed`, or `silent`: no reply within the node timeout |
//! | `quorate_wait_seconds` | histogram | | from the first poll of a request to its guard |
//! | `quorate_hold_seconds` | histogram | | from the guard to the end of the lease |
//! | `quorate_validity_left_seconds` | histogram | | validity left when a lease was released |
//! | `quorate_cleanup_seconds` | histogram | | time in the background after a decision |
//! | `quorate_node_latency_seconds` | histogram | `node`, `operation` | late replies too |
//!
//! `operation` is `acquire`, `extend`, `raise` (the second phase of fencing), `repair` or
//! `release`; in events also `look`, and `question` for what [operators](crate::operators) ask. A
//! `silent` vote is counted when the late reply arrives, or when the call is given up at the
//! cleanup bound.

#![cfg_attr(
    not(all(feature = "tracing", feature = "metrics")),
    allow(unused_variables, unused_macros, reason = "each feature uses a part of the arguments")
)]

#[cfg(any(feature = "tracing", feature = "metrics"))]
mod contained;
#[cfg(feature = "tracing")]
mod fields;
#[cfg(feature = "metrics")]
mod figures;
#[cfg(feature = "tracing")]
mod span;
#[cfg(test)]
#[cfg(all(feature = "tracing", feature = "metrics"))]
mod tests;

use std::fmt::Display;
use std::time::Duration;

#[cfg(any(feature = "tracing", feature = "metrics"))]
use self::contained::contain_panic;
#[cfg(feature = "tracing")]
use self::fields::{Keys, Short, shown};
#[cfg(feature = "metrics")]
use self::figures::*;
#[cfg(feature = "tracing")]
use self::span::InSpan;
use crate::algorithm::group::{Listed, names};
use crate::error::{LockError, ReleaseError};
use crate::resource::{Key, Label};
use crate::seam::backend::BackendError;

/// Emits an event, with the feature `tracing`: of a lock with its keys, and with times of it.
macro_rules! event {
    ($level:ident, $keys:ident [$($time:ident),*], $($fields:tt)+) => {
        event!($level, keys = %Keys($keys), $($time = %Short($time),)* $($fields)+)
    };
    ($level:ident, $($fields:tt)+) => {
        #[cfg(feature = "tracing")]
        contain_panic(|| tracing::$level!(target: TARGET, $($fields)+));
    };
}

/// Records figures, with the feature `metrics`.
macro_rules! record {
    ($($figure:expr),+) => {
        #[cfg(feature = "metrics")]
        contain_panic(|| {
            $($figure;)+
        });
    };
}

/// Whether any event or figure is wanted.
pub(crate) const IS_ON: bool = cfg!(any(feature = "tracing", feature = "metrics"));

/// Describes all metrics to the recorder. Can be repeated.
pub(crate) fn describe_metrics() {
    record!(describe());
}

/// Puts an acquire into the span `lock`, from its first poll until it is dropped.
///
/// The code that runs after the acquire is outside, such as the body of `with`.
pub(crate) fn in_lock_span<F: Future>(
    keys: &[Key],
    acquire: F,
) -> impl Future<Output = F::Output> + use<F> {
    #[cfg(feature = "tracing")]
    let acquire =
        InSpan::new(|| tracing::info_span!(target: TARGET, "lock", keys = %Keys(keys)), acquire);
    acquire
}

/// A request got its lock.
pub(crate) fn acquired(keys: &[Key], waited: Duration, left: Duration) {
    event!(debug, keys [waited, left], "acquired");
    record!(count(ACQUIRED), time(WAIT, waited));
}

/// A request failed. `keys` is empty for an invalid name.
pub(crate) fn not_acquired(keys: &[Key], waited: Duration, error: &LockError) {
    let reason = error.reason();
    event!(debug, keys [waited], reason, %error, "not acquired");
    record!(count_by(NOT_ACQUIRED, "reason", reason));
}

/// A first round was lost after `took`.
pub(crate) fn round_lost(
    keys: &[Key],
    reason: &'static str,
    took: Duration,
    failure: &dyn Display,
) {
    event!(debug, keys = %Keys(keys), reason, took = %Short(took), %failure, "round lost");
    record!(count_by(ROUNDS_LOST, "reason", reason));
}

/// A detached lock was adopted.
pub(crate) fn adopted(keys: &[Key], waited: Duration, left: Duration) {
    event!(debug, keys [waited, left], "adopted");
    record!(count_by(ADOPTIONS, "outcome", "adopted"));
}

/// A detached lock could not be adopted.
pub(crate) fn not_adopted(keys: &[Key], waited: Duration, error: &dyn Display) {
    event!(debug, keys [waited], %error, "not adopted");
    record!(count_by(ADOPTIONS, "outcome", "failed"));
}

/// An extension succeeded.
pub(crate) fn extended(keys: &[Key], took: Duration, left: Duration) {
    event!(debug, keys [took, left], "extended");
    record!(count_by(EXTENSIONS, "outcome", "extended"));
}

/// An extension failed; `left` is what the lease still has.
pub(crate) fn not_extended(keys: &[Key], took: Duration, left: Duration, failure: &dyn Display) {
    event!(debug, keys [took, left], %failure, "not extended");
    record!(count_by(EXTENSIONS, "outcome", "failed"));
}

/// The votes of an extension that failed came late, and moved the end of the lease on. Once for
/// each.
pub(crate) fn extended_late(keys: &[Key], left: Duration) {
    event!(debug, keys[left], "extended late");
}

/// A lease ended before its holder released it. Once for each lease.
pub(crate) fn lost(keys: &[Key], reason: &'static str, held: Duration, error: &dyn Display) {
    event!(warn, keys = %Keys(keys), reason, held = %Short(held), %error, "lost");
    record!(count_by(LOST, "reason", reason), time(HOLD, held));
}

/// A lock was revoked while its lease is valid for the time `left`.
pub(crate) fn revoked(keys: &[Key], by: Option<&Label>, left: Duration) {
    event!(info, keys [], by = by.map(tracing::field::display), left = %Short(left), "revoked");
}

/// A release was decided, or left to the background: then `took` is `None`.
///
/// `outcome` is `released`, `lost`, `unconfirmed` or `dropped`. `held` and `left` are those of the
/// moment at which the release began. A lease that ended before that has no time left: [`lost`] has
/// recorded how long it was held.
pub(crate) fn released(
    keys: &[Key],
    result: Option<&Result<(), ReleaseError>>,
    took: Option<Duration>,
    held: Duration,
    left: Duration,
) {
    let outcome = match result {
        None => "dropped",
        Some(Ok(())) => "released",
        Some(Err(ReleaseError::Lost(_))) => "lost",
        Some(Err(ReleaseError::Unconfirmed(_))) => "unconfirmed",
    };
    event!(
        debug,
        keys = %Keys(keys),
        outcome,
        took = took.map(shown),
        held = %Short(held),
        left = %Short(left),
        failure = result.and_then(|result| result.as_ref().err()).map(tracing::field::display),
        "released"
    );
    record!(count_by(RELEASES, "outcome", outcome));
    if outcome != "lost" && !left.is_zero() {
        record!(time(HOLD, held), time(VALIDITY_LEFT, left));
    }
}

/// A lease was detached.
pub(crate) fn detached(keys: &[Key], held: Duration) {
    event!(debug, keys[held], "detached");
    record!(time(HOLD, held));
}

/// A lease has ended, and its lock stays on the nodes, but for those that are `lacking` it.
pub(crate) fn kept(keys: &[Key], held: Duration, lacking: &[&str]) {
    event!(
        debug,
        keys[held],
        lacking = (!lacking.is_empty()).then(|| tracing::field::display(lacking.join(", "))),
        "kept"
    );
    record!(time(HOLD, held));
}

/// A lock was to stay on the nodes, and no quorum keeps it.
pub(crate) fn not_kept(keys: &[Key], error: &dyn Display) {
    event!(warn, keys [], %error, "not kept");
}

/// A process that leads whenever it can cannot acquire the lock, and tries again after `pause`.
pub(crate) fn not_leading(keys: &[Key], pause: Duration, error: &dyn Display) {
    event!(warn, keys [pause], %error, "not leading");
}

/// The process did not run for the time `late`, or for longer.
pub(crate) fn stopped(late: Duration) {
    event!(warn, late = %Short(late), "process stopped");
    record!(count(STOPS));
}

/// A lease is held from now on, or not any more.
pub(crate) fn held(is_held: bool) {
    record!(count_lease(is_held));
}

/// The manager was closed and ended a lease.
pub(crate) fn closed(keys: &[Key], held: Duration) {
    event!(debug, keys[held], "closed");
    record!(count_by(LOST, "reason", "closed"), time(HOLD, held));
}

/// The background work of an attempt ended; `unanswered` nodes did not answer until then.
pub(crate) fn cleaned_up(keys: &[Key], took: Duration, unanswered: usize) {
    event!(debug, keys[took], unanswered, "cleaned up");
    record!(time(CLEANUP, took));
}

/// A call settled; or it was given up without a reply: then `latency` is `None`.
///
/// `vote` is `granted`, `refused`, `failed`, or `silent` past the node timeout.
pub(crate) fn call_settled(
    node: &str,
    operation: &'static str,
    vote: &'static str,
    latency: Option<Duration>,
    error: Option<&BackendError>,
) {
    if let Some(error) = error {
        let kind = error.kind();
        event!(
            debug,
            node,
            operation,
            vote,
            latency = latency.map(shown),
            ?kind,
            %error,
            "call failed"
        );
    } else {
        event!(trace, node, operation, vote, latency = latency.map(shown), "call settled");
    }
    record!(call(node, operation, vote, latency));
}

/// A node failed with `error`, and was well before.
pub(crate) fn node_failing(node: &str, operation: &'static str, error: &BackendError) {
    event!(warn, node, operation, kind = ?error.kind(), %error, "node failing");
}

/// A node has not replied to any call for the time `silent`, and was well before.
pub(crate) fn node_silent(node: &str, operation: &'static str, silent: Duration) {
    let error = format_args!("no reply for {silent:.1?}");
    event!(warn, node, operation, kind = "Silent", %error, "node failing");
}

/// A node replied, and has not failed for some time; it had been failing for the time `after`.
pub(crate) fn node_recovered(node: &str, operation: &'static str, after: Duration) {
    event!(info, node, operation, after = %Short(after), "node recovered");
}

/// A node does not support an operation that its backend was built for.
pub(crate) fn node_cannot(node: &str, operation: &'static str, error: &BackendError) {
    event!(warn, node, operation, kind = ?error.kind(), %error, "node lacks operation");
}

/// Emits `runtime ended`. For a backend whose connection to `node` ended with a runtime, and that
/// connects again.
pub fn runtime_ended(node: &str) {
    let remedy = "own_thread() keeps connections for longer than a runtime";
    event!(warn, node, remedy, "runtime ended");
}

/// Emits `node list changed`. For a backend that keeps on `node` which nodes the clients of a group
/// have.
pub fn node_list_changed(group: &str, node: &str, before: &[Listed], now: &[Listed]) {
    let (before, now) = (names(before), names(now));
    event!(info, group, node, before, now, "node list changed");
}

#[cfg(feature = "tracing")]
const TARGET: &str = "quorate";
