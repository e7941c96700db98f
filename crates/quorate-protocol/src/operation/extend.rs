//! Extending a claim.

use std::pin::pin;

use quorate_core::backend::{ExtendOptions, Extended};
use quorate_core::{BackendError, Claim, Key};

use super::hint::with_waiters;
use crate::script::Script;
use crate::transport::{Admission, Transport};

/// If all keys are ours, each lives for at least the ttl from now. `ARGV` token, ttl in ms.
///
/// It never shortens (H2). `PEXPIRE … GT` would need Redis 7.
pub(super) static EXTEND: Script = Script::new(include_str!("../../scripts/extend.lua"));

/// Extends all keys of a claim, if all are ours.
pub(crate) async fn extend<T: Transport>(
    transport: &T,
    claim: &Claim,
    options: ExtendOptions,
) -> Result<Extended, BackendError> {
    let operation = async {
        let keys: Vec<&[u8]> = claim.keys().iter().map(Key::as_bytes).collect();
        let ttl = claim.ttl().as_millis().to_string();
        let arguments = [claim.token().as_bytes(), ttl.as_bytes()];
        EXTEND.run(transport, Admission::Other, &keys, &arguments).await?.vote()
    };
    let (vote, waiters) = with_waiters(transport, claim, options.waiters, pin!(operation)).await;
    let mut extended = Extended::new(vote?);
    extended.waiters = waiters;
    Ok(extended)
}
