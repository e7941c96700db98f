//! `nodes`: the description and the problems of each node, as lines or as JSON.

use std::time::{Duration, Instant};

use quorate::backend::Capabilities;
use quorate::operators::{Check, NodeReport, Problem};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::args::{Common, Nodes};
use crate::exit::{Failure, NO_QUORUM, PERMANENT, PROBLEM};
use crate::nodes::open;
use crate::say;

/// How long after an answer the nodes are asked again.
const AGAIN: Duration = Duration::from_millis(500);

/// Shows what each node is, and returns the exit code. With a wait, when no problem is left that
/// passes by itself.
pub(crate) async fn nodes(common: &Common, nodes: &Nodes) -> Result<u8, Failure> {
    let (manager, start) = (open(common, None)?, Instant::now());
    let wait = nodes.wait.map(Duration::from);
    if common.is_new_group {
        // The nodes say their ids. With the next questions each of them keeps the list of all.
        drop(manager.check().await);
    }
    let passes = |check: &Check| check.problems().any(|(_, problem)| problem.passes_by_itself());
    let check = loop {
        let request = manager.check().longest_ttl(*nodes.max_ttl);
        let Some(wait) = wait else { break request.await };
        let check = request.begin_quarantine().between_restarts().await;
        let left = wait.saturating_sub(start.elapsed());
        if left.is_zero() || !passes(&check) {
            break check;
        }
        sleep(left.min(AGAIN)).await;
    };
    match nodes.json {
        true => say::report(say::json(&json!({
            "has_quorum": check.has_quorum(),
            "can_lock": check.can_lock(),
            "nodes": check.nodes().iter().map(json_of).collect::<Vec<_>>(),
        })))?,
        false if common.verbose => say::report(&check)?,
        false => {
            let mut lines: Vec<_> = check.nodes().iter().map(line).collect();
            lines.sort_by_key(|(worth, _)| *worth);
            lines.into_iter().try_for_each(|(_, line)| say::report(line))?;
        }
    }
    let code = match check.problems().count() {
        0 => 0,
        _ if check.has_one_server_twice() => PERMANENT,
        _ if check.can_lock() => PROBLEM,
        _ => NO_QUORUM,
    };
    let Some(wait) = wait.filter(|_| passes(&check)) else { return Ok(code) };
    let text = "has ended, and a problem is left that passes by itself";
    Err(Failure::new(code, format!("the wait of {wait:?} {text}")))
}

/// The line of a node: what its vote is worth, and why; and its place, the worst first.
fn line(node: &NodeReport) -> (u8, String) {
    let worst = node.problems.iter().min_by_key(|problem| !problem.prevents_votes());
    let (place, worth) = match worst {
        Some(problem) if problem.prevents_votes() => (0, "no vote"),
        Some(_) => (1, "problem"),
        None => (2, "ok"),
    };
    let why = worst.map_or_else(|| what_it_is(node), ToString::to_string);
    let more = match node.problems.len() {
        0 | 1 => String::new(),
        count => format!(" (+{})", count - 1),
    };
    let width = say::WIDTH - more.len();
    let line = say::short(format!("{worth:<9}{}: {why}", node.name), width);
    (place, format!("{line}{more}"))
}

/// The server of a node that is well, and the time that it takes.
fn what_it_is(node: &NodeReport) -> String {
    let version = node.description.as_ref().and_then(|told| told.version.as_deref());
    let time = node.round_trip.map(|time| format!("{time:.1?}"));
    let facts = version.map(str::to_owned).into_iter().chain(time);
    facts.collect::<Vec<_>>().join(", ")
}

fn json_of(node: &NodeReport) -> Value {
    let told = node.description.as_ref();
    let can = |ability| told.map(|_| node.abilities.contains(ability));
    let quarantine_left = told.and_then(|told| told.quarantine_left).map(|left| match left {
        Duration::MAX => json!("forever"),
        left => json!(left.as_millis()),
    });
    json!({
        "name": *node.name,
        "is_reachable": told.is_some(),
        "round_trip_us": node.round_trip.map(|time| time.as_micros()),
        "version": told.and_then(|told| told.version.as_deref()),
        "server_id": told.and_then(|told| told.server_id.as_deref()),
        "is_replica": told.and_then(|told| told.is_replica),
        "is_clustered": told.and_then(|told| told.is_clustered),
        "uptime_s": told.and_then(|told| told.uptime).map(|uptime| uptime.as_secs()),
        "max_memory": told.and_then(|told| told.max_memory),
        "used_memory": told.and_then(|told| told.used_memory),
        "maxmemory_policy": told.and_then(|told| told.eviction.as_deref()),
        "is_append_only": told.and_then(|told| told.is_append_only),
        "appendfsync": told.and_then(|told| told.fsync.as_deref()),
        "runs_scripts": told.and_then(|told| told.runs_scripts),
        "quarantine_left_ms": quarantine_left,
        "can_watch": can(Capabilities::WATCH),
        "can_queue": can(Capabilities::QUEUE),
        "can_fence": can(Capabilities::FENCING),
        "can_guard": can(Capabilities::GUARD),
        "can_read": can(Capabilities::SHARED),
        "passes": node.problems.iter().any(Problem::passes_by_itself),
        "problems": node.problems.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}
