//! Acquiring a claim.

use std::pin::pin;

use quorate_core::backend::{AcquireOptions, Acquired};
use quorate_core::{BackendError, Claim, Key, Vote};

use super::hint::with_waiters;
use super::{fence, guard};
use crate::command::Command;
use crate::reply::{Reply, read};
use crate::script::Script;
use crate::transport::{Admission, Transport};

/// Several keys: all or none. `ARGV` token, ttl in ms.
///
/// Keys that are ours already count as granted and keep their ttl (C6): this may be a repair.
pub(super) static ACQUIRE: Script = Script::new(include_str!("../../scripts/acquire.lua"));

/// Acquires all keys of a claim, or none.
///
/// Exactly one command is sent, whatever comes back: a second one could overtake the release (C3, C6).
pub(crate) async fn acquire<T: Transport>(
    transport: &T,
    claim: &Claim,
    options: AcquireOptions,
) -> Result<Acquired, BackendError> {
    let operation = async {
        match (options.guard, options.fencing) {
            // In boxes, so that the future of a plain acquire is small.
            (Some(guard), hint) => Box::pin(guard::acquire(transport, claim, hint, guard)).await,
            (None, Some(hint)) => Box::pin(fence::acquire(transport, claim, hint)).await,
            (None, None) => plain(transport, claim).await.map(Acquired::new),
        }
    };
    let (acquired, waiters) =
        with_waiters(transport, claim, options.waiters, pin!(operation)).await;
    let mut acquired = acquired?;
    acquired.waiters = waiters;
    Ok(acquired)
}

async fn plain<T: Transport>(transport: &T, claim: &Claim) -> Result<Vote, BackendError> {
    let (token, ttl) = (claim.token().as_bytes(), claim.ttl().as_millis());
    let [key] = claim.keys() else {
        let keys: Vec<&[u8]> = claim.keys().iter().map(Key::as_bytes).collect();
        let ttl = ttl.to_string();
        let arguments = [token, ttl.as_bytes()];
        return Box::pin(ACQUIRE.run_once(transport, Admission::Acquire, &keys, &arguments))
            .await?
            .vote();
    };
    let command = Command::new("SET", key.as_bytes().len() + 48).arg(key.as_bytes()).arg(token);
    let command = command.arg("NX").arg("PX").number(ttl);
    match read(transport.call(command, Admission::Acquire).await)? {
        Reply::Text(ok) if ok == b"OK" => Ok(Vote::Granted),
        Reply::Nil => Ok(Vote::Refused),
        reply => Err(reply.unexpected("SET")),
    }
}
