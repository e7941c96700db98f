//! Acquiring a claim without a fencing token and without the restart guard.

use quorate_core::BackendError;
use quorate_core::backend::{Claim, Vote};

use crate::command::Command;
use crate::script::{By, Script};
use crate::value::Value;

/// Several keys: all or none. `ARGV` token, ttl in ms.
///
/// Keys that are ours already count as granted and keep their ttl (C6): this may be a repair.
pub(super) static ACQUIRE: Script = Script::new(include_str!("../../scripts/acquire.lua"));

/// The command of a claim on one key, which every Redlock library sends.
pub(super) fn set(claim: &Claim) -> Command {
    let (token, ttl) = (claim.token().as_bytes(), claim.ttl().as_millis());
    let key = claim.keys().first().map_or(&[][..], |key| key.as_bytes());
    Command::new("SET", key.len() + token.len() + 16)
        .arg(key)
        .arg(token)
        .arg("NX")
        .arg("PX")
        .number(ttl)
}

/// The script of a claim on several keys.
pub(super) fn several(by: By, claim: &Claim) -> Command {
    ACQUIRE.of_claim(by, claim).number(claim.ttl().as_millis())
}

/// Only a nil refuses (Q4).
pub(super) fn vote_of_set(reply: &Value) -> Result<Vote, BackendError> {
    match reply {
        Value::Okay => Ok(Vote::Granted),
        Value::Text(ok) if ok == b"OK" => Ok(Vote::Granted),
        Value::Nil => Ok(Vote::Refused),
        reply => Err(reply.unexpected("SET")),
    }
}
