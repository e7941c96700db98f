//! Acquiring a claim without a fencing token and without the restart guard.

use quorate_core::BackendError;
use quorate_core::backend::{Claim, Holder, Reply, Vote};

use crate::command::Command;
use crate::script::{Script, script};
use crate::value::Value;

/// Several keys: all or none. `ARGV` token, ttl in ms. Returns 1, or the value at a key that is
/// held: an empty one if readers hold it.
///
/// Keys that are ours already count as granted and keep their ttl (C6): this may be a repair.
pub(super) static ACQUIRE: Script = script!("has_readers", "held_at", "acquire");

/// The command of a claim on one key, which every Redlock library sends. With `names_holder` the
/// reply is the value that was there: Redis 7 can do that.
pub(super) fn set<C: Command>(claim: &Claim, names_holder: bool) -> C {
    let (token, ttl) = (claim.token().as_bytes(), claim.ttl().as_millis());
    let key = claim.keys().first().map_or(&[][..], |key| key.as_bytes());
    let command = C::new("SET");
    let command = command.arg(key).arg(token).arg("NX").arg("PX").number(ttl);
    if names_holder { command.arg("GET") } else { command }
}

/// The reply to `SET … GET`: the value that was there before. Our own counts as granted (C6).
pub(super) fn reply_of_set_get(claim: &Claim, reply: &Value) -> Result<Reply, BackendError> {
    match reply {
        Value::Nil => Ok(Reply::new(Vote::Granted)),
        Value::Text(held) if held == claim.token().as_bytes() => Ok(Reply::new(Vote::Granted)),
        Value::Text(held) => Ok(Reply::held_by(Holder::new(held.as_slice()))),
        reply => Err(reply.unexpected("SET")),
    }
}

/// Reads who holds the key of a claim, on a server whose `SET` does not say it.
pub(super) fn holder<C: Command>(claim: &Claim) -> C {
    let key = claim.keys().first().map_or(&[][..], |key| key.as_bytes());
    C::new("GET").arg(key)
}

/// A refusal, with the holder if the reply to that is its value.
pub(super) fn refusal(reply: &Value) -> Reply {
    match reply {
        Value::Text(held) => held_by(held),
        _ => Reply::new(Vote::Refused),
    }
}

/// A refusal by the value that a script found. That of readers is empty, and names none of them.
pub(super) fn held_by(held: &[u8]) -> Reply {
    match held {
        [] => Reply::new(Vote::Refused),
        held => Reply::held_by(Holder::new(held)),
    }
}

/// What the script replies.
pub(super) fn reply(reply: &Value) -> Result<Reply, BackendError> {
    match reply {
        Value::Int(1) => Ok(Reply::new(Vote::Granted)),
        Value::Text(held) => Ok(held_by(held)),
        reply => Err(reply.unexpected("a script")),
    }
}

/// The reply to a plain `SET`. Only a nil refuses (Q4), and [`holder`] follows it.
pub(super) fn reply_of_set(reply: &Value) -> Result<Reply, BackendError> {
    match reply {
        Value::Okay => Ok(Reply::new(Vote::Granted)),
        Value::Text(ok) if ok == b"OK" => Ok(Reply::new(Vote::Granted)),
        reply => Err(reply.unexpected("SET")),
    }
}
