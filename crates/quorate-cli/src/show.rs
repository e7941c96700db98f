//! `nodes`: what is printed, as lines or as JSON.

use std::time::Duration;

use quorate::NodeReport;
use quorate::backend::Capabilities;
use serde_json::{Value, json};

use crate::args::Common;
use crate::exit::{Failure, NO_QUORUM};
use crate::nodes::manager;
use crate::say;

pub(crate) fn millis(time: Option<Duration>) -> Option<u64> {
    time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// Shows what each node is, and returns the exit code.
pub(crate) async fn nodes(common: &Common, is_json: bool) -> Result<u8, Failure> {
    let check = manager(common)?.check().await;
    match is_json {
        true => {
            let nodes = check.nodes().iter().map(json_of_node).collect::<Vec<_>>();
            say::report(json!({ "nodes": nodes, "has_quorum": check.has_quorum() }))?;
        }
        false => say::report(&check)?,
    }
    Ok(if check.has_quorum() { 0 } else { NO_QUORUM })
}

fn json_of_node(node: &NodeReport) -> Value {
    let told = node.description.as_ref();
    let can = |ability| told.map(|_| node.abilities.contains(ability));
    json!({
        "name": *node.name,
        "is_reachable": told.is_some(),
        "round_trip_us": node.round_trip.map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX)),
        "version": told.and_then(|told| told.version.as_deref()),
        "server_id": told.and_then(|told| told.server_id.as_deref()),
        "is_replica": told.and_then(|told| told.is_replica),
        "max_memory": told.and_then(|told| told.max_memory),
        "maxmemory_policy": told.and_then(|told| told.eviction.as_deref()),
        "is_append_only": told.and_then(|told| told.is_append_only),
        "runs_scripts": told.and_then(|told| told.runs_scripts),
        "quarantine_left_ms": millis(told.and_then(|told| told.quarantine_left)),
        "can_watch": can(Capabilities::WATCH),
        "can_queue": can(Capabilities::QUEUE),
        "can_fence": can(Capabilities::FENCING),
        "can_guard": can(Capabilities::GUARD),
        "can_read": can(Capabilities::SHARED),
        "problems": node.problems.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}
