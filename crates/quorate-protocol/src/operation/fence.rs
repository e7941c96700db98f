//! Fencing: a number beside each lock that every grant raises.
//!
//! The keys are those of an ordinary lock, so a lock with a fencing token excludes one without. The
//! numbers are kept at `quorate:fence:0` to `quorate:fence:1023`, without an expiry. A key's counter
//! is found by hashing the key, prefix included, so their count is bounded however many names are
//! locked. Locks that share a counter have tokens that rise faster.
//!
//! A claim on several keys has one number: an acquire sets all its counters to one more than the
//! highest, and a raise raises all or none.

use quorate_core::backend::Acquired;
use quorate_core::{BackendError, Claim, FenceHint, FencingToken, Key, Vote};

use crate::reply::Reply;
use crate::script::Script;
use crate::transport::{Admission, Transport};

/// `KEYS` the keys, then the counter of each; `ARGV` token, ttl in ms, hint. Returns the number, or 0
/// if the keys are held.
pub(super) static ACQUIRE: Script = Script::new(include_str!("../../scripts/fence_acquire.lua"));

/// `KEYS` as [`ACQUIRE`]; `ARGV` token, number.
pub(super) static RAISE: Script = Script::new(include_str!("../../scripts/fence_raise.lua"));

/// `KEYS` as [`ACQUIRE`]; `ARGV` token, number. A counter that cannot be raised does not keep the lock.
pub(super) static RELEASE: Script = Script::new(include_str!("../../scripts/fence_release.lua"));

/// How many counters a node keeps. All clients must count alike, so it never changes.
const COUNTERS: u32 = 1024;

/// Acquires the keys and raises their number.
pub(super) async fn acquire<T: Transport>(
    transport: &T,
    claim: &Claim,
    hint: FenceHint,
) -> Result<Acquired, BackendError> {
    let (ttl, hint) = (claim.ttl().as_millis().to_string(), hint.get().to_string());
    let arguments = [claim.token().as_bytes(), ttl.as_bytes(), hint.as_bytes()];
    let counters = counters(claim);
    match ACQUIRE
        .run_once(transport, Admission::Acquire, &keys(claim, &counters), &arguments)
        .await?
    {
        Reply::Int(0) => Ok(Acquired::new(Vote::Refused)),
        Reply::Text(digits) => {
            let number = number(&digits);
            let number = number.ok_or_else(|| Reply::Text(digits).unexpected("a script"))?;
            let mut acquired = Acquired::new(Vote::Granted);
            acquired.number = Some(number);
            Ok(acquired)
        }
        reply => Err(reply.unexpected("a script")),
    }
}

/// Raises the number of all keys, if they are ours and none is higher.
pub(crate) async fn raise<T: Transport>(
    transport: &T,
    claim: &Claim,
    number: FencingToken,
) -> Result<Vote, BackendError> {
    let (number, counters) = (number.to_string(), counters(claim));
    let arguments = [claim.token().as_bytes(), number.as_bytes()];
    RAISE.run(transport, Admission::Other, &keys(claim, &counters), &arguments).await?.vote()
}

/// Deletes the keys that are ours and raises their numbers.
pub(super) async fn release<T: Transport>(
    transport: &T,
    claim: &Claim,
    number: FencingToken,
) -> Result<Vote, BackendError> {
    let (number, counters) = (number.to_string(), counters(claim));
    let arguments = [claim.token().as_bytes(), number.as_bytes()];
    RELEASE.run(transport, Admission::Release, &keys(claim, &counters), &arguments).await?.vote()
}

/// The counter of each key of a claim.
pub(super) fn counters(claim: &Claim) -> Vec<Vec<u8>> {
    claim.keys().iter().map(counter).collect()
}

/// The keys of a claim, then their counters.
fn keys<'a>(claim: &'a Claim, counters: &'a [Vec<u8>]) -> Vec<&'a [u8]> {
    claim.keys().iter().map(Key::as_bytes).chain(counters.iter().map(Vec::as_slice)).collect()
}

/// The key of the number of `key`, by FNV-1a.
fn counter(key: &Key) -> Vec<u8> {
    let mix = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    let hash = key.as_bytes().iter().fold(0x811c_9dc5, mix);
    // The low bits of the hash alone depend on the low bits of the name.
    let index = (hash ^ (hash >> 16)) % COUNTERS;
    format!("quorate:fence:{index}").into_bytes()
}

/// Reads a number in decimal digits.
pub(super) fn number(digits: &[u8]) -> Option<FencingToken> {
    FencingToken::new(std::str::from_utf8(digits).ok()?.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use quorate_core::Resource;

    use super::*;

    fn key(name: &str) -> Key {
        Key::new(b"", &Resource::new(name).unwrap())
    }

    /// Another number would give old and new clients different counters for one lock.
    #[test]
    fn a_key_has_its_counter_for_good() {
        for (name, place) in [("orders:42", 547), ("a", 288), ("prefix:a", 244)] {
            assert_eq!(counter(&key(name)), format!("quorate:fence:{place}").into_bytes());
        }
    }

    #[test]
    fn names_that_count_up_spread_over_the_counters() {
        let names = (0..4096).map(|number| key(&format!("orders:{number}")));
        let mut counters: Vec<Vec<u8>> = names.map(|key| counter(&key)).collect();
        counters.sort();
        counters.dedup();
        assert!(counters.len() > 900, "{} of {COUNTERS}", counters.len());
    }

    #[test]
    fn only_a_number_is_a_number() {
        assert_eq!(number(b"9007199254740991"), Some(FencingToken::MAX));
        for nonsense in [&b""[..], b"0", b"9007199254740992", b"-1", b"1.5", b"1e3", b"\xff"] {
            assert_eq!(number(nonsense), None);
        }
    }
}
