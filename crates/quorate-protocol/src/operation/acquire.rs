//! Acquiring a claim: on one key as every Redlock library does, or by a script, which can do more.

use std::sync::Arc;
use std::time::Duration;

use quorate_core::BackendError;
use quorate_core::backend::{AcquireOptions, Claim, Holder, Mode, Reply, Vote};

use super::{fence, guard, shared};
use crate::command::Command;
use crate::script::{By, Script, script};
use crate::value::Value;

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

/// The reply to a plain `SET`. Only a nil refuses (Q4), and [`holder`] follows it.
pub(super) fn reply_of_set(reply: &Value) -> Result<Reply, BackendError> {
    match reply {
        Value::Okay => Ok(Reply::new(Vote::Granted)),
        Value::Text(ok) if ok == b"OK" => Ok(Reply::new(Vote::Granted)),
        reply => Err(reply.unexpected("SET")),
    }
}

/// `KEYS` the keys, then the counter of each if there is a hint, and what a guard compares; `ARGV`
/// token, ttl in ms, hint or nothing, and what the guard wants. All keys or none: those that are
/// ours already count as granted and keep their ttl (C6), since this may be a repair.
pub(super) static ACQUIRE: Script = script!("has_readers", "held_at", "no_guard", "acquire");

/// The same with the restart guard: `KEYS` end with epoch and quarantine, `ARGV` with `max_ttl` in
/// ms and `strict` or `soft`.
pub(super) static GUARDED: Script = script!("has_readers", "held_at", "guard_epoch", "acquire");

/// The command of a claim that a plain `SET` cannot acquire: of several keys, of a reader, with a
/// fencing number, or with the restart guard. That of a reader may [ask](super::queue::asked).
pub(super) fn scripted<C: Command>(
    by: By,
    claim: &Claim,
    options: &AcquireOptions,
    asked: &[Vec<u8>],
) -> C {
    let (hint, guard) = (options.fencing, options.guard);
    let script = match (claim.mode(), guard, asked.is_empty()) {
        (Mode::Shared, None, true) => &shared::ACQUIRE,
        (Mode::Shared, None, false) => &shared::ACQUIRE_ASKING,
        (Mode::Shared, Some(_), true) => &shared::GUARDED,
        (Mode::Shared, Some(_), false) => &shared::GUARDED_ASKING,
        (_, None, _) => &ACQUIRE,
        (_, Some(_), _) => &GUARDED,
    };
    let mut others = hint.map(|_| fence::counters(claim)).unwrap_or_default();
    if guard.is_some() {
        others.extend([guard::EPOCH, guard::QUARANTINE].map(<[u8]>::to_vec));
    }
    script.about(by, claim, &others, asked, |command: C| {
        let command = command.number(claim.ttl().as_millis());
        let command = match (hint, guard) {
            (Some(hint), _) => command.number(hint.get()),
            (None, Some(_)) => command.arg(""),
            (None, None) => command,
        };
        let Some(guard) = guard else { return command };
        let max_ttl = u64::try_from(guard.max_ttl().as_millis()).unwrap_or(u64::MAX);
        command.number(max_ttl).arg(if guard.is_strict() { "strict" } else { "soft" })
    })
}

/// What each of these scripts replies: `{word, number}`, and with a guard the `run_id`.
///
/// The word is `granted` with the fencing number or 0, `refused` with the value at a key that is
/// held, which is empty for readers, or `quarantined` with the milliseconds that are left.
pub(super) fn reply_of_script(reply: &Value) -> Result<Reply, BackendError> {
    parse(reply).unwrap_or_else(|| Err(reply.unexpected("a script")))
}

/// `None` if the reply is none of the scripts'.
fn parse(reply: &Value) -> Option<Result<Reply, BackendError>> {
    let Value::List(list) = reply else { return None };
    let [Value::Text(word), Value::Text(number), run @ ..] = list.as_slice() else { return None };
    let mut reply = match word.as_slice() {
        b"granted" if number == b"0" => Reply::new(Vote::Granted),
        b"granted" => fence::granted(number)?,
        b"refused" => held_by(number),
        b"quarantined" => {
            let left = std::str::from_utf8(number).ok()?.parse().ok()?;
            return Some(Err(guard::quarantined(Duration::from_millis(left))));
        }
        _ => return None,
    };
    reply.server = match run {
        [] => None,
        [Value::Text(run)] => Some(Arc::from(std::str::from_utf8(run).ok()?)),
        _ => return None,
    };
    Some(Ok(reply))
}
