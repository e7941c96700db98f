//! Looking at the keys of a lock that is held, and reading what is there: ours, a mark for ours,
//! another's, or nothing.

use std::borrow::Cow;

use quorate_core::BackendError;
use quorate_core::backend::{Claim, Holder, Mode, Operation, Reply, Vote};
use quorate_core::resource::Key;

use super::acquire::held_by;
use super::queue::watched_key;
use crate::command::Command;
use crate::script::sha1;
use crate::value::Value;

/// Reads the only key of a claim, which makes the server push its next change. Several keys:
/// `EXTEND`.
pub(super) fn command<C: Command>(key: &Key) -> C {
    C::new("GET").arg(key.as_bytes())
}

/// The keys whose next change is pushed to an operation, with client tracking.
pub(crate) fn pushed_keys(operation: &Operation) -> impl Iterator<Item = Cow<'_, [u8]>> {
    let keys = match operation {
        Operation::Look(claim) | Operation::Extend(claim, _) if claim.mode() == Mode::Exclusive => {
            claim.keys()
        }
        _ => &[],
    };
    let keys = keys.iter().map(|key| Cow::from(key.as_bytes()));
    keys.chain(watched_key(operation).map(Cow::from))
}

/// In front of a command whose keys the server tracks: it tracks no others.
pub(crate) fn tracked<C: Command>() -> C {
    C::new("CLIENT").arg("CACHING").arg("YES")
}

/// The reply to a look at one key.
pub(super) fn looked(claim: &Claim, reply: &Value) -> Result<Reply, BackendError> {
    match reply {
        Value::Text(held) if held == claim.token().as_bytes() => Ok(Reply::new(Vote::Granted)),
        Value::Text(held) => Ok(of_another(claim, held)),
        Value::Nil => Ok(Reply::new(Vote::Refused)),
        other => Err(other.clone().unexpected("GET")),
    }
}

/// The reply to an extension, and to a look at several keys.
pub(super) fn extended(claim: &Claim, reply: &Value) -> Result<Reply, BackendError> {
    match reply {
        Value::Text(held) => Ok(of_another(claim, held)),
        reply => Ok(Reply::new(reply.vote()?)),
    }
}

/// What is at a key that is not ours.
fn of_another(claim: &Claim, held: &[u8]) -> Reply {
    let digits = held.strip_prefix(b"revoked:").and_then(|rest| rest.get(..40));
    match digits {
        Some(digits) if digits == sha1(claim.token().as_bytes()).as_bytes() => {
            Reply::marked(Holder::new(held))
        }
        _ => held_by(held),
    }
}
