//! Names, descriptions and recording of the metrics.

use std::time::Duration;

use metrics::{
    Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};

pub(super) const ACQUIRED: &str = "quorate_acquired_total";
pub(super) const NOT_ACQUIRED: &str = "quorate_not_acquired_total";
pub(super) const ROUNDS_LOST: &str = "quorate_rounds_lost_total";
pub(super) const LOST: &str = "quorate_lost_total";
pub(super) const EXTENSIONS: &str = "quorate_extensions_total";
pub(super) const RELEASES: &str = "quorate_releases_total";
pub(super) const ADOPTIONS: &str = "quorate_adoptions_total";
pub(super) const STOPS: &str = "quorate_stops_total";
const LEASES: &str = "quorate_leases";
const VOTES: &str = "quorate_node_votes_total";
pub(super) const WAIT: &str = "quorate_wait_seconds";
pub(super) const HOLD: &str = "quorate_hold_seconds";
pub(super) const VALIDITY_LEFT: &str = "quorate_validity_left_seconds";
pub(super) const CLEANUP: &str = "quorate_cleanup_seconds";
const LATENCY: &str = "quorate_node_latency_seconds";

/// The series of which one more is news: where a series begins with one, Prometheus sees no
/// increase.
const NEWS: [(&str, &[&str]); 2] = [
    (
        NOT_ACQUIRED,
        &["held", "no_quorum", "too_many_waiters", "same_server", "closed", "entropy", "invalid"],
    ),
    (LOST, &["expired", "not_held", "hold_limit", "revoked", "closed"]),
];

/// Describes the metrics, and begins the series of which one more is news with zero.
pub(super) fn describe() {
    for (name, description) in [
        (ACQUIRED, "Locks acquired"),
        (NOT_ACQUIRED, "Requests for a lock that failed, by reason"),
        (ROUNDS_LOST, "First rounds that were lost, by reason"),
        (LOST, "Leases that ended before they were released, by reason"),
        (EXTENSIONS, "Extensions of leases, by outcome"),
        (RELEASES, "Releases, by outcome"),
        (ADOPTIONS, "Adoptions of detached locks, by outcome"),
        (STOPS, "Times that the process was stopped for longer than a node timeout"),
        (VOTES, "Calls by node, operation and vote"),
    ] {
        describe_counter!(name, Unit::Count, description);
    }
    describe_gauge!(LEASES, Unit::Count, "Leases held now");
    for (name, description) in [
        (WAIT, "Time from a request to its guard"),
        (HOLD, "Time from a guard to the end of its lease"),
        (VALIDITY_LEFT, "Validity left when a lease was released"),
        (CLEANUP, "Time in the background after a decision"),
        (LATENCY, "Time from a call to its reply, by node and operation"),
    ] {
        describe_histogram!(name, Unit::Seconds, description);
    }
    counter!(STOPS).increment(0);
    for (name, reasons) in NEWS {
        reasons.iter().for_each(|reason| counter!(name, "reason" => *reason).increment(0));
    }
}

/// Counts a lease that is held, or that has ended.
pub(super) fn count_lease(is_held: bool) {
    gauge!(LEASES).increment(if is_held { 1 } else { -1 });
}

pub(super) fn count(name: &'static str) {
    counter!(name).increment(1);
}

pub(super) fn count_by(name: &'static str, label: &'static str, value: &'static str) {
    counter!(name, label => value).increment(1);
}

pub(super) fn time(name: &'static str, time: Duration) {
    histogram!(name).record(time);
}

/// Counts a call's vote, and records its latency if there was a reply.
pub(super) fn call(
    node: &str,
    operation: &'static str,
    vote: &'static str,
    latency: Option<Duration>,
) {
    let name = || node.to_owned();
    counter!(VOTES, "node" => name(), "operation" => operation, "vote" => vote).increment(1);
    if let Some(latency) = latency {
        histogram!(LATENCY, "node" => name(), "operation" => operation).record(latency);
    }
}
