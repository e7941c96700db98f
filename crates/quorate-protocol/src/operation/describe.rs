//! A node's description of itself.
//!
//! `CONFIG GET *appendfsync*` comes first, since no script may run it. A script reads `INFO`, and
//! the quarantine and the epoch of the restart guard. Where it may not, `INFO` alone is asked for:
//! there the guard cannot run either.

use std::sync::Arc;
use std::time::Duration;

use quorate_core::BackendError;
use quorate_core::backend::{Capabilities, Description};

use super::guard::{self, EPOCH, QUARANTINE};
use crate::command::Command;
use crate::error_reply::because;
use crate::features::{Features, field};
use crate::script::{By, Script, script};
use crate::value::Value;

/// `KEYS` the keys of the quarantine and of the epoch. Returns the milliseconds left of the first
/// as `PTTL`, `INFO`, and the value of the second; nil for what failed.
pub(super) static DESCRIBE: Script = script!("describe");

/// What needs scripts.
const SCRIPTED: Capabilities = Capabilities::FENCING
    .union(Capabilities::GUARD)
    .union(Capabilities::QUEUE)
    .union(Capabilities::INSPECT)
    .union(Capabilities::REVOKE)
    .union(Capabilities::SHARED);

/// What needs keys of several slots.
const SEVERAL_SLOTS: Capabilities =
    Capabilities::FENCING.union(Capabilities::GUARD).union(Capabilities::QUEUE);

/// Reads all with one script.
pub(super) fn command<C: Command>(by: By) -> C {
    DESCRIBE.run::<C>(by, 2).arg(QUARANTINE).arg(EPOCH)
}

/// When the log is written to the disk: `appendfsync` and `no-appendfsync-on-rewrite`, by a
/// pattern, since several names need Redis 7.
pub(super) fn fsync<C: Command>() -> C {
    C::new("CONFIG").arg("GET").arg("*appendfsync*")
}

/// The reply to that; `None` if the user may not ask. Where the log may wait for a rewrite,
/// `always` is not all.
pub(super) fn of_fsync(reply: &Value) -> Option<Arc<str>> {
    let Value::List(list) = reply else { return None };
    let of = |wanted: &str| {
        list.chunks_exact(2).find_map(|pair| match pair {
            [Value::Text(name), Value::Text(value)] if name == wanted.as_bytes() => {
                str::from_utf8(value).ok()
            }
            _ => None,
        })
    };
    let fsync = of("appendfsync")?;
    let waits = of("no-appendfsync-on-rewrite") == Some("yes");
    Some(if waits {
        format!("{fsync}, no-appendfsync-on-rewrite yes").into()
    } else {
        fsync.into()
    })
}

/// `INFO` alone.
pub(super) fn info<C: Command>() -> C {
    C::new("INFO")
}

/// What the script replies; `None` if it could not run `INFO`.
pub(super) fn of_script(
    reply: &Value,
    features: &Features,
) -> Result<Option<Description>, BackendError> {
    let Value::List(list) = reply else { return Err(reply.unexpected("a script")) };
    let (left, info, epoch) = match list.as_slice() {
        [left, Value::Text(info), epoch] => (left, info, epoch),
        [_, Value::Nil, _] => return Ok(None),
        _ => return Err(reply.unexpected("a script")),
    };
    let mut told = of_info(info, features);
    if let Value::Text(epoch) = epoch {
        (told.is_known_to_guard, told.guard_max_ttl) = guard::read_epoch(epoch, info);
    }
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
    let number = |name| field(info, name).and_then(|number| number.parse().ok());
    let mut told = Description::default();
    let software = [("valkey_version", "Valkey"), ("redis_version", "Redis")];
    told.version = software.into_iter().find_map(|(name, software)| {
        field(info, name).map(|version| Arc::from(format!("{software} {version}")))
    });
    told.server_id = text("run_id");
    told.is_replica = is("role", "slave");
    told.is_clustered = is("cluster_enabled", "1");
    if told.is_clustered == Some(true) {
        told.lacks = told.lacks | SEVERAL_SLOTS;
    }
    told.uptime = number("uptime_in_seconds").map(Duration::from_secs);
    told.max_memory = number("maxmemory");
    let uncounted = number("mem_not_counted_for_evict").unwrap_or_default();
    told.used_memory = number("used_memory").map(|used| used.saturating_sub(uncounted));
    told.eviction = text("maxmemory_policy");
    told.is_append_only = is("aof_enabled", "1");
    told.fsync.clone_from(&features.fsync);
    told.runs_scripts = Some(features.scripts.is_ok());
    if let Err(error) = &features.scripts {
        told.lacks = told.lacks | SCRIPTED;
        told.errors.push(error.clone());
    }
    told
}
