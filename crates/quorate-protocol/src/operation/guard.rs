//! The restart guard: an acquire that compares the node's epoch with the server's `run_id`.
//!
//! - `quorate:guard:epoch` holds `run_id:max_ttl`, in milliseconds, without an expiry. Deleting it
//!   begins a quarantine.
//! - `quorate:guard:quarantine` is there while the node is quarantined. Deleting it ends the
//!   quarantine. Without an expiry it lasts until it is deleted.
//!
//! A user of an ACL needs `~quorate:guard:*` and `+info`.

use std::time::Duration;

use quorate_core::backend::{Acquired, Server};
use quorate_core::{BackendError, BackendErrorKind, Claim, FenceHint, Key, RestartGuard, Vote};

use super::fence;
use crate::reply::Reply;
use crate::script::Script;
use crate::transport::{Admission, Transport};

/// `KEYS` the keys, then the counter of each if there is a hint, then epoch and quarantine; `ARGV`
/// token, ttl in ms, hint or nothing, `max_ttl` in ms, `strict` or `soft`.
///
/// Returns `{word, number, run, before}`. The word is `granted` with the fencing number or 0,
/// `refused`, or `quarantined` with the milliseconds that are left. `before` is the run whose epoch was
/// found, or empty if there was none or this one.
pub(super) static ACQUIRE: Script = Script::new(include_str!("../../scripts/guard_acquire.lua"));

const EPOCH: &[u8] = b"quorate:guard:epoch";

const QUARANTINE: &[u8] = b"quorate:guard:quarantine";

/// Acquires the keys unless the node is quarantined, and raises their number if there is a hint.
pub(super) async fn acquire<T: Transport>(
    transport: &T,
    claim: &Claim,
    hint: Option<FenceHint>,
    guard: RestartGuard,
) -> Result<Acquired, BackendError> {
    let counters = hint.map(|_| fence::counters(claim)).unwrap_or_default();
    let counters = counters.iter().map(Vec::as_slice);
    let keys: Vec<&[u8]> =
        claim.keys().iter().map(Key::as_bytes).chain(counters).chain([EPOCH, QUARANTINE]).collect();
    let ttl = claim.ttl().as_millis().to_string();
    let hint = hint.map(|hint| hint.get().to_string()).unwrap_or_default();
    let max_ttl = guard.max_ttl().as_millis().to_string();
    let rule = if guard.is_strict() { "strict" } else { "soft" };
    let parts = [ttl.as_bytes(), hint.as_bytes(), max_ttl.as_bytes(), rule.as_bytes()];
    let arguments: Vec<&[u8]> = [claim.token().as_bytes()].into_iter().chain(parts).collect();
    let reply = ACQUIRE.run_once(transport, Admission::Acquire, &keys, &arguments).await?;
    parse(&reply).unwrap_or_else(|| Err(reply.unexpected("a script")))
}

/// `None` if the reply is none of the script's.
fn parse(reply: &Reply) -> Option<Result<Acquired, BackendError>> {
    let Reply::List(list) = reply else { return None };
    let [Reply::Text(word), Reply::Text(number), Reply::Text(run), Reply::Text(before)] =
        list.as_slice()
    else {
        return None;
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut acquired = match word.as_slice() {
        b"granted" if number == b"0" => Acquired::new(Vote::Granted),
        b"granted" => {
            let mut acquired = Acquired::new(Vote::Granted);
            acquired.number = Some(fence::number(number)?);
            acquired
        }
        b"refused" => Acquired::new(Vote::Refused),
        b"quarantined" => {
            let left = Duration::from_millis(text(number).parse().ok()?);
            return Some(Err(quarantined(left)));
        }
        _ => return None,
    };
    let mut server = Server::new(text(run));
    server.before = (!before.is_empty()).then(|| text(before));
    acquired.server = Some(server);
    Some(Ok(acquired))
}

fn quarantined(left: Duration) -> BackendError {
    let text = format!("quarantined for another {left:.1?}: it restarted, is new or lost its data");
    BackendError::new(BackendErrorKind::Quarantined, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(parts: [&str; 4]) -> Reply {
        Reply::List(parts.map(|part| Reply::Text(part.into())).to_vec())
    }

    #[test]
    fn a_reply_carries_the_vote_and_the_server() {
        let acquired = parse(&reply(["granted", "7", "ab", "cd"])).unwrap().unwrap();
        assert_eq!((acquired.vote, acquired.number.unwrap().get()), (Vote::Granted, 7));
        let server = acquired.server.unwrap();
        assert_eq!((server.id.as_str(), server.before.as_deref()), ("ab", Some("cd")));
        let acquired = parse(&reply(["granted", "0", "ab", ""])).unwrap().unwrap();
        assert_eq!((acquired.vote, acquired.number), (Vote::Granted, None));
        assert_eq!(acquired.server.unwrap().before, None);
        let acquired = parse(&reply(["refused", "0", "ab", ""])).unwrap().unwrap();
        assert_eq!(acquired.vote, Vote::Refused);
        let error = parse(&reply(["quarantined", "3200", "ab", ""])).unwrap().unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::Quarantined);
        assert!(error.to_string().starts_with("quarantined for another 3.2s"), "{error}");
    }

    #[test]
    fn q4_nonsense_is_no_vote() {
        for parts in [["", "0", "a", ""], ["granted", "9007199254740992", "a", ""]] {
            assert!(parse(&reply(parts)).is_none());
        }
        assert!(parse(&Reply::Int(1)).is_none());
        assert!(parse(&Reply::List(vec![Reply::Text(b"granted".to_vec())])).is_none());
    }
}
