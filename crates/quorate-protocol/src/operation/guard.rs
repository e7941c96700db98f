//! The restart guard: an acquire that compares the node's epoch with its server's `INFO`.
//!
//! - `quorate:guard:epoch2` holds `run_id:master_replid2:second_repl_offset:max_ttl`, the last in
//!   milliseconds, without an expiry. The first changes with a restart, the other two with a
//!   promotion. Deleting the key begins a quarantine. (0.1 keeps an epoch without the two in
//!   `quorate:guard:epoch`.)
//! - `quorate:guard:quarantine` is there while the node is quarantined. Deleting it ends the
//!   quarantine. Without an expiry it lasts until it is deleted.
//!
//! A user of an ACL needs `~quorate:guard:*` and `+info`.

use std::sync::Arc;
use std::time::Duration;

use quorate_core::backend::{Reply, Vote};
use quorate_core::{BackendError, BackendErrorKind};

use super::acquire::held_by;
use super::fence;
use crate::features::field;
use crate::script::{Script, script};
use crate::value::Value;

/// `KEYS` the keys, then the counter of each if there is a hint, then epoch and quarantine; `ARGV`
/// token, ttl in ms, hint or nothing, `max_ttl` in ms, `strict` or `soft`.
///
/// Returns `{word, number, run}`. The word is `granted` with the fencing number or 0, `refused`
/// with the value at a key that is held, or `quarantined` with the milliseconds that are left.
/// `run` is the `run_id`.
pub(super) static ACQUIRE: Script =
    script!("has_readers", "held_at", "guard_epoch", "guard_acquire");

pub(super) const EPOCH: &[u8] = b"quorate:guard:epoch2";

pub(super) const QUARANTINE: &[u8] = b"quorate:guard:quarantine";

/// What the script replies.
pub(super) fn reply(reply: &Value) -> Result<Reply, BackendError> {
    parse(reply).unwrap_or_else(|| Err(reply.unexpected("a script")))
}

/// `None` if the reply is none of the script's.
fn parse(reply: &Value) -> Option<Result<Reply, BackendError>> {
    let Value::List(list) = reply else { return None };
    let [Value::Text(word), Value::Text(number), Value::Text(run)] = list.as_slice() else {
        return None;
    };
    let mut reply = match word.as_slice() {
        b"granted" if number == b"0" => Reply::new(Vote::Granted),
        b"granted" => fence::granted(number)?,
        b"refused" => held_by(number),
        b"quarantined" => {
            let left = std::str::from_utf8(number).ok()?.parse().ok()?;
            return Some(Err(quarantined(Duration::from_millis(left))));
        }
        _ => return None,
    };
    reply.server = Some(Arc::from(std::str::from_utf8(run).ok()?));
    Some(Ok(reply))
}

/// Whether an epoch is that of the server with this `info`, and its `max_ttl`. As [`ACQUIRE`]
/// compares them.
pub(super) fn read_epoch(epoch: &[u8], info: &[u8]) -> (bool, Option<Duration>) {
    let [run, replid, offset] =
        ["run_id", "master_replid2", "second_repl_offset"].map(|name| field(info, name));
    let known = [run, replid, offset].map(Option::unwrap_or_default).join(":");
    let text = std::str::from_utf8(epoch).unwrap_or_default();
    let (epoch, max_ttl) = text.rsplit_once(':').unwrap_or_default();
    // What is no epoch has a `max_ttl` that no guard has.
    (epoch == known, Some(Duration::from_millis(max_ttl.parse().unwrap_or_default())))
}

fn quarantined(left: Duration) -> BackendError {
    let text = format!("quarantined for another {left:.1?}: it restarted, is new or lost its data");
    BackendError::new(BackendErrorKind::Quarantined, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(parts: [&str; 3]) -> Value {
        Value::List(parts.map(|part| Value::Text(part.into())).to_vec())
    }

    #[test]
    fn a_reply_carries_the_vote_and_the_server() {
        for (parts, vote, number) in [
            (["granted", "7", "ab"], Vote::Granted, Some(7)),
            (["granted", "0", "ab"], Vote::Granted, None),
            (["refused", "0", "ab"], Vote::Refused, None),
        ] {
            let reply = parse(&reply(parts)).unwrap().unwrap();
            assert_eq!((reply.vote, reply.number.map(|number| number.get())), (vote, number));
            assert_eq!(reply.server.as_deref(), Some("ab"));
        }
        let error = parse(&reply(["quarantined", "3200", "ab"])).unwrap().unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::Quarantined);
        assert!(error.to_string().starts_with("quarantined for another 3.2s"), "{error}");
    }

    #[test]
    fn q4_nonsense_is_no_vote() {
        for parts in [["", "0", "a"], ["granted", "9007199254740992", "a"]] {
            assert!(parse(&reply(parts)).is_none());
        }
        assert!(parse(&Value::Int(1)).is_none());
        assert!(parse(&Value::List(vec![Value::Text(b"granted".to_vec())])).is_none());
    }
}
