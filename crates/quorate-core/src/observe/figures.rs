//! Counters and histograms.

use std::sync::Arc;
use std::time::Duration;

use metrics::{Unit, counter, describe_counter, describe_histogram, histogram};

use super::on::{Asked, not_acquired_because};
use crate::error::{AdoptError, LockError};
use crate::guard::LockGuard;

const ACQUIRED: &str = "quorate_acquired_total";
const NOT_ACQUIRED: &str = "quorate_not_acquired_total";
const ROUNDS_LOST: &str = "quorate_rounds_lost_total";
const LOST: &str = "quorate_lost_total";
const EXTENSIONS: &str = "quorate_extensions_total";
const RELEASES: &str = "quorate_releases_total";
const ADOPTIONS: &str = "quorate_adoptions_total";
const VOTES: &str = "quorate_node_votes_total";
const WAIT: &str = "quorate_wait_seconds";
const HOLD: &str = "quorate_hold_seconds";
const VALIDITY_LEFT: &str = "quorate_validity_left_seconds";
const CLEANUP: &str = "quorate_cleanup_seconds";
const LATENCY: &str = "quorate_node_latency_seconds";

/// Tells the recorder what the figures mean. It may be told again.
pub(super) fn describe() {
    for (name, what) in [
        (ACQUIRED, "Locks taken"),
        (NOT_ACQUIRED, "Requests for a lock that ended without it, by reason"),
        (ROUNDS_LOST, "Rounds lost on the way to a lock, by reason"),
        (LOST, "Leases that ended before they were given up, by reason"),
        (EXTENSIONS, "Extensions of leases, by outcome"),
        (RELEASES, "Releases, by outcome"),
        (ADOPTIONS, "Locks taken over from another holder, by outcome"),
        (VOTES, "Calls by node, operation and vote"),
    ] {
        describe_counter!(name, Unit::Count, what);
    }
    for (name, what) in [
        (WAIT, "Time from a request to its lock"),
        (HOLD, "Time from a lock to its end"),
        (VALIDITY_LEFT, "Validity left when a lease was given up"),
        (CLEANUP, "Time that late answers and cleanup took in the background"),
        (LATENCY, "Time from a call to its answer, by node and operation"),
    ] {
        describe_histogram!(name, Unit::Seconds, what);
    }
}

pub(super) fn acquisition(waited: Duration, result: &Result<LockGuard, LockError>) {
    match result {
        Ok(_) => {
            counter!(ACQUIRED).increment(1);
            histogram!(WAIT).record(waited);
        }
        Err(error) => {
            counter!(NOT_ACQUIRED, "reason" => not_acquired_because(error)).increment(1);
        }
    }
}

pub(super) fn adoption(result: &Result<LockGuard, AdoptError>) {
    let outcome = if result.is_ok() { "adopted" } else { "failed" };
    counter!(ADOPTIONS, "outcome" => outcome).increment(1);
}

pub(super) fn refused(reason: &'static str) {
    counter!(ROUNDS_LOST, "reason" => reason).increment(1);
}

pub(super) fn extension(outcome: &'static str) {
    counter!(EXTENSIONS, "outcome" => outcome).increment(1);
}

pub(super) fn ended(lost: Option<&'static str>, held: Duration, left: Duration) {
    histogram!(HOLD).record(held);
    match lost {
        Some(reason) => self::lost(reason),
        None => histogram!(VALIDITY_LEFT).record(left),
    }
}

pub(super) fn lost(reason: &'static str) {
    counter!(LOST, "reason" => reason).increment(1);
}

pub(super) fn released(outcome: &'static str) {
    counter!(RELEASES, "outcome" => outcome).increment(1);
}

pub(super) fn cleaned_up(took: Duration) {
    histogram!(CLEANUP).record(took);
}

pub(super) fn settled(asked: &Asked<'_>, latency: Option<Duration>, vote: Option<&'static str>) {
    let node = || Arc::clone(asked.name());
    if let Some(vote) = vote {
        counter!(VOTES, "node" => node(), "operation" => asked.operation, "vote" => vote)
            .increment(1);
    }
    if let Some(latency) = latency {
        histogram!(LATENCY, "node" => node(), "operation" => asked.operation).record(latency);
    }
}
