//! What a node tells of itself.
//!
//! A script reads `INFO` and the quarantine of the restart guard. Where it may not, `INFO` alone is asked for: there
//! the guard cannot run either.

use std::sync::Arc;
use std::time::Duration;

use quorate_core::BackendError;
use quorate_core::backend::{Capabilities, Description};

use super::guard::QUARANTINE;
use crate::command::Command;
use crate::error_reply::because;
use crate::features::{Features, field};
use crate::script::{By, Script};
use crate::value::Value;

/// `KEYS` the key of the quarantine. Returns its milliseconds left as `PTTL`, and `INFO`; nil for what failed.
pub(super) static DESCRIBE: Script = Script::new(include_str!("../../scripts/describe.lua"));

/// What needs scripts.
const SCRIPTED: Capabilities = Capabilities::FENCING
    .union(Capabilities::GUARD)
    .union(Capabilities::QUEUE)
    .union(Capabilities::INSPECT)
    .union(Capabilities::REVOKE)
    .union(Capabilities::SHARED);

/// Reads all with one script.
pub(super) fn command(by: By) -> Command {
    DESCRIBE.run(by, 1, QUARANTINE.len()).arg(QUARANTINE)
}

/// `INFO` alone.
pub(super) fn info() -> Command {
    Command::new("INFO", 0)
}

/// What the script replies; `None` if it could not run `INFO`.
pub(super) fn of_script(
    reply: &Value,
    features: &Features,
) -> Result<Option<Description>, BackendError> {
    let Value::List(list) = reply else { return Err(reply.unexpected("a script")) };
    let (left, info) = match list.as_slice() {
        [left, Value::Text(info)] => (left, info),
        [_, Value::Nil] => return Ok(None),
        _ => return Err(reply.unexpected("a script")),
    };
    let mut told = of_info(info, features);
    told.quarantine_left = match left {
        Value::Int(-1) => Some(Duration::MAX),
        Value::Int(left @ 0..) => Some(Duration::from_millis(left.unsigned_abs())),
        _ => None,
    };
    Ok(Some(told))
}

/// The reply to `INFO` alone, or why there is none.
pub(super) fn of_plain(
    reply: Result<&Value, BackendError>,
    features: &Features,
) -> Result<Description, BackendError> {
    let mut told = match reply {
        Ok(Value::Text(info)) => of_info(info, features),
        Ok(reply) => return Err(reply.unexpected("INFO")),
        Err(error) => {
            let mut told = of_info(b"", features);
            told.lacks = told.lacks | Capabilities::SERVER_ID;
            let what = "its role, memory and persistence are unknown; allow +info";
            told.errors.push(because(what, &error));
            told
        }
    };
    told.lacks = told.lacks | Capabilities::GUARD;
    Ok(told)
}

fn of_info(info: &[u8], features: &Features) -> Description {
    let text = |name| field(info, name).map(Arc::from);
    let is = |name, what| field(info, name).map(|value| value == what);
    let mut told = Description::default();
    let software = [("valkey_version", "Valkey"), ("redis_version", "Redis")];
    told.version = software.into_iter().find_map(|(name, software)| {
        field(info, name).map(|version| Arc::from(format!("{software} {version}")))
    });
    told.server_id = text("run_id");
    told.is_replica = is("role", "slave");
    told.max_memory = field(info, "maxmemory").and_then(|bytes| bytes.parse().ok());
    told.eviction = text("maxmemory_policy");
    told.is_append_only = is("aof_enabled", "1");
    told.runs_scripts = Some(features.scripts.is_ok());
    if let Err(error) = &features.scripts {
        told.lacks = SCRIPTED;
        told.errors.push(error.clone());
    }
    told
}
