//! Reading what is at a key, and taking the key away from its holder.

use std::borrow::Cow;
use std::time::Duration;

use quorate_core::BackendError;
use quorate_core::backend::{Holder, KeyState, Leaves, Reader, Revoke};
use quorate_core::resource::Key;

use crate::command::Command;
use crate::script::{By, Script, script};
use crate::value::Value;

/// Returns nil, or `{milliseconds left, value}`. -1 is a key without an expiry. For a key of
/// readers, the value is empty, and the token and the milliseconds left of each reader follow.
///
/// It writes nothing, so that a replica and a node out of memory run it, too.
pub(super) static INSPECT: Script = script!("has_readers", "seen_at", "inspect");

/// `ARGV` the value that takes the place of the holder's, or nothing to delete the key; then the
/// holders that are meant, or none for all. Returns what [`INSPECT`] does, of before. `revoked:`
/// and a text behind it ask for a mark: between the two comes the SHA-1 of the value that is there,
/// and a mark that is there stays (V9).
///
/// A key without an expiry is left alone, and a key with another holder or reader than those (V7).
/// `KEEPTTL` leaves the expiry as it is (V1): `SET … PX` with the reply to `PTTL` can move it by
/// a millisecond, since the clock goes on between the two. It needs Redis 6, so an older server
/// gets that.
pub(super) static REVOKE: Script = script!("has_readers", "seen_at", "revoke");

/// The same while memory is full: one value is replaced.
pub(super) static REVOKE_WHEN_FULL: Script =
    script!("allow_oom", "has_readers", "seen_at", "revoke");

/// Reads what is at a key.
pub(super) fn inspect<C: Command>(by: By, key: &Key) -> C {
    INSPECT.run::<C>(by, 1).arg(key.as_bytes())
}

/// Takes a key away from its holder. If no holder is meant, it is only read.
pub(super) fn revoke<C: Command>(by: By, key: &Key, how: &Revoke, when_full: bool) -> C {
    let of = how.of.as_deref();
    if of.is_some_and(<[Holder]>::is_empty) {
        return inspect(by, key);
    }
    let value: Cow<'_, [u8]> = match &how.leaves {
        Leaves::Value(token) => token.as_bytes().into(),
        Leaves::Mark(label) => format!("revoked: {}", label.as_str()).into_bytes().into(),
        Leaves::Nothing => (&[][..]).into(),
    };
    let script = if when_full { &REVOKE_WHEN_FULL } else { &REVOKE };
    let command = script.run::<C>(by, 1).arg(key.as_bytes()).arg(value);
    of.unwrap_or_default().iter().fold(command, |command, holder| command.arg(holder.value()))
}

/// What a script found.
pub(super) fn sighted(reply: &Value) -> Result<KeyState, BackendError> {
    match reply {
        Value::Nil => Ok(KeyState::Free),
        Value::List(list) => match list.as_slice() {
            [Value::Int(left @ -1..), Value::Text(value)] => {
                let time_left = u64::try_from(*left).ok().map(Duration::from_millis);
                Ok(KeyState::Held { holder: Holder::new(value.as_slice()), time_left })
            }
            [Value::Int(0..), Value::Text(_), readers @ ..] => {
                let (pairs, rest) = readers.as_chunks::<2>();
                let readers = pairs.iter().map(reader).collect::<Option<Vec<_>>>();
                let readers = readers.filter(|_| rest.is_empty());
                let readers = readers.ok_or_else(|| reply.unexpected("a script"))?;
                Ok(KeyState::Read { readers })
            }
            _ => Err(reply.unexpected("a script")),
        },
        _ => Err(reply.unexpected("a script")),
    }
}

fn reader(pair: &[Value; 2]) -> Option<Reader> {
    let [Value::Text(token), Value::Int(left)] = pair else { return None };
    let time_left = Duration::from_millis(u64::try_from(*left).ok()?);
    Some(Reader { holder: Holder::new(token.as_slice()), time_left })
}
