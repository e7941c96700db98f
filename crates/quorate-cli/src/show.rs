//! `inspect`, `free` and `nodes`: what is printed, as lines or as JSON.

use std::io::{self, BufRead as _, IsTerminal as _};
use std::time::Duration;

use quorate::backend::Capabilities;
use quorate::{Inspection, KeyState, LockState, NodeReport};
use serde_json::{Value, json};

use crate::args::Common;
use crate::exit::{Failure, NO_QUORUM};
use crate::json::escaped;
use crate::nodes::manager;
use crate::say;

/// Shows who holds locks, and returns the exit code.
pub(crate) async fn inspect(
    common: &Common,
    names: &[String],
    is_json: bool,
) -> Result<u8, Failure> {
    let manager = manager(common)?;
    let (mut code, mut seen) = (0, Vec::new());
    for name in names {
        let inspection = manager.inspect(name).await.map_err(Failure::usage)?;
        code = code.max(match inspection.state() {
            LockState::Held => 0,
            LockState::Free => 1,
            LockState::Unclear => NO_QUORUM,
        });
        match is_json {
            true => seen.push(json_of(name, &inspection)),
            false => say::report(format!("{name}: {inspection}"))?,
        }
    }
    if is_json {
        say::report(escaped(&json!({ "locks": seen })))?;
    }
    Ok(code)
}

fn json_of(name: &str, inspection: &Inspection) -> Value {
    let nodes = inspection.nodes().iter().map(|node| {
        let (state, left, error) = match &node.state {
            KeyState::Free => ("free", None, None),
            KeyState::Held { time_left, .. } => ("held", *time_left, None),
            KeyState::Read { readers } => {
                ("read", readers.iter().map(|one| one.time_left).max(), None)
            }
            other => ("unknown", None, Some(other.to_string())),
        };
        json!({ "name": *node.name, "state": state, "label": node.label(), "left_ms": millis(left), "error": error })
    });
    let state = match inspection.state() {
        LockState::Held => "held",
        LockState::Free => "free",
        LockState::Unclear => "unclear",
    };
    json!({
        "name": name,
        "state": state,
        "label": inspection.label(),
        "readers": inspection.readers().iter().map(|one| json!({ "label": one.label() })).collect::<Vec<_>>(),
        "left_ms": millis(inspection.time_left()),
        "held_on": inspection.nodes_held(),
        "nodes": nodes.collect::<Vec<_>>(),
    })
}

fn millis(time: Option<Duration>) -> Option<u64> {
    time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// Takes a lock away from its holder.
pub(crate) async fn free(common: &Common, name: &str, now: bool, yes: bool) -> Result<u8, Failure> {
    let manager = manager(common)?;
    if !yes && !is_confirmed(name, now)? {
        return Err(Failure::usage("nothing was done"));
    }
    let freed = match now {
        true => manager.delete(name).await,
        false => manager.revoke(name).await,
    };
    let freed = freed.map_err(Failure::usage)?;
    say::report(format!("{name}: {freed}"))?;
    let was_free = freed.found().state() == LockState::Free;
    Ok(if freed.is_effective() || was_free { 0 } else { NO_QUORUM })
}

/// Asks on a terminal. Without one, only what is safe is done without `--yes`.
fn is_confirmed(name: &str, now: bool) -> Result<bool, Failure> {
    if !io::stdin().is_terminal() {
        return match now {
            true => Err(Failure::usage("free --now needs --yes: the holder may go on working")),
            false => Ok(true),
        };
    }
    let what = if now {
        "delete the lock at once, though its holder may go on working"
    } else {
        "take the lock away"
    };
    say::text(format!("{name}: {what}? [y/N] "));
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(Failure::usage)?;
    Ok(answer.trim().eq_ignore_ascii_case("y"))
}

/// Shows what each node is, and returns the exit code.
pub(crate) async fn nodes(common: &Common, is_json: bool) -> Result<u8, Failure> {
    let check = manager(common)?.check().await;
    match is_json {
        true => {
            let nodes = check.nodes().iter().map(json_of_node).collect::<Vec<_>>();
            say::report(escaped(&json!({ "nodes": nodes, "has_quorum": check.has_quorum() })))?;
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
