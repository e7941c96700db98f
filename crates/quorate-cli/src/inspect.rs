//! `inspect`: who holds locks, as lines or as JSON.

use std::time::Duration;

use quorate::{KeyState, LockState};
use serde_json::{Value, json};

use crate::args::{Common, Under};
use crate::exit::{Failure, NO_QUORUM};
use crate::json::escaped;
use crate::names::{Seen, look, names, others};
use crate::nodes::manager;
use crate::say;

/// Shows who holds locks, and returns the exit code, which is that of the names given.
pub(crate) async fn inspect(
    common: &Common,
    given: &[String],
    under: &Under,
    is_json: bool,
) -> Result<u8, Failure> {
    let manager = manager(common)?;
    let asked = names(given, under.permits, under.once_per)?;
    let mut seen = look(&manager, asked).await?;
    let codes = seen.iter().map(|one| match one.found.state() {
        LockState::Held => 0,
        LockState::Free => 1,
        LockState::Unclear => NO_QUORUM,
    });
    let code = codes.max().unwrap_or_default();
    seen.extend(others(&manager, &seen, under).await?);
    match is_json {
        true => {
            let locks = seen.iter().map(json_of).collect::<Vec<_>>();
            say::report(escaped(&json!({ "locks": locks })))?;
        }
        false => seen.iter().try_for_each(|one| say::report(one.line()))?,
    }
    Ok(code)
}

fn json_of(Seen { name, found: inspection }: &Seen) -> Value {
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
        LockState::Held if inspection.is_done() => "done",
        LockState::Held => "held",
        LockState::Free => "free",
        LockState::Unclear => "unclear",
    };
    json!({
        "name": name.text,
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
