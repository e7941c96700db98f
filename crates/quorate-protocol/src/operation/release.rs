//! Releasing a claim.

use std::pin::pin;

use quorate_core::backend::{ReleaseOptions, Released};
use quorate_core::{BackendError, BackendErrorKind, Claim, Key, Vote};

use super::fence;
use super::hint::with_waiters;
use crate::features::CompareAndDelete;
use crate::reply::read;
use crate::script::Script;
use crate::transport::{Admission, Transport};

/// Deletes the keys that are ours; 1 if all were. `ARGV` token. A key of another type is not ours.
pub(super) static RELEASE: Script = Script::new(include_str!("../../scripts/release.lua"));

/// Deletes those keys of a claim that are ours. It can be sent again (C7).
pub(crate) async fn release<T: Transport>(
    transport: &T,
    claim: &Claim,
    options: ReleaseOptions,
) -> Result<Released, BackendError> {
    let operation = async {
        match options.raise_to {
            // In a box, so that the future of a plain release is small.
            Some(number) => Box::pin(fence::release(transport, claim, number)).await,
            None => plain(transport, claim).await,
        }
    };
    let (vote, waiters) = with_waiters(transport, claim, options.waiters, pin!(operation)).await;
    let mut released = Released::new(vote?);
    released.waiters = waiters;
    Ok(released)
}

async fn plain<T: Transport>(transport: &T, claim: &Claim) -> Result<Vote, BackendError> {
    let [key] = claim.keys() else {
        return by_script(transport, claim).await;
    };
    let token = claim.token().as_bytes();
    if let Some(how) = transport.features().compare_and_delete {
        let vote = compare_and_delete(transport, key, token, how).await;
        // The server is another one by now, or the user may run scripts only.
        let retries = is_forbidden(&vote) && transport.features().scripts.is_ok();
        return if retries { by_script(transport, claim).await } else { vote };
    }
    let vote = by_script(transport, claim).await;
    match transport.features().compare_and_delete {
        // What the server has was not known yet when this release was queued.
        Some(how) if is_forbidden(&vote) => compare_and_delete(transport, key, token, how).await,
        _ => vote,
    }
}

async fn by_script<T: Transport>(transport: &T, claim: &Claim) -> Result<Vote, BackendError> {
    let keys: Vec<&[u8]> = claim.keys().iter().map(Key::as_bytes).collect();
    let token = claim.token().as_bytes();
    RELEASE.run(transport, Admission::Release, &keys, &[token]).await?.vote()
}

async fn compare_and_delete<T: Transport>(
    transport: &T,
    key: &Key,
    token: &[u8],
    how: CompareAndDelete,
) -> Result<Vote, BackendError> {
    let command = how.command(key.as_bytes(), token);
    match read(transport.call(command, Admission::Release).await) {
        Ok(reply) => reply.vote(),
        Err(error) if error.kind() == BackendErrorKind::WrongType => Ok(Vote::Refused),
        Err(error) => Err(error),
    }
}

/// Whether the server does not know the command, or the user may not run it on this key.
fn is_forbidden(vote: &Result<Vote, BackendError>) -> bool {
    let kind = vote.as_ref().err().map(BackendError::kind);
    matches!(kind, Some(BackendErrorKind::Permission | BackendErrorKind::Script))
}
