//! Fencing: a number beside each lock that every grant raises.
//!
//! The keys are those of an ordinary lock, so a lock with a fencing token excludes one without. The
//! numbers are kept at `quorate:fence:0` to `quorate:fence:1023`, without an expiry. A key's
//! counter is found by hashing the key, prefix included, so their count is bounded however many
//! names are locked. Locks that share a counter have tokens that rise faster.
//!
//! A claim on several keys has one number: an acquire sets all its counters to one more than the
//! highest, and a raise raises all or none (FT1).

use quorate_core::FencingToken;
use quorate_core::backend::{Claim, Reply, Vote};
use quorate_core::resource::Key;

use crate::script::{Script, script};

/// Raises the number of all keys, if they are ours and none is higher. `KEYS` the keys, then the
/// counter of each; `ARGV` token, number.
pub(super) static RAISE: Script = script!("has_readers", "held_at", "fence_raise");

/// Deletes the keys that are ours and raises their numbers. `KEYS` as [`RAISE`]; `ARGV` token,
/// number. A counter that cannot be raised does not keep the lock.
pub(super) static RELEASE: Script = script!("is_freed", "fence_release");

/// The same, and [looks into queues](super::queue::asked).
pub(super) static RELEASE_ASKING: Script =
    script!("is_freed", "has_waiters", "asking", "fence_release", "asked");

/// How many counters a node keeps. All clients must count alike, so it never changes.
const COUNTERS: u32 = 1024;

/// The counter of each key of a claim.
pub(super) fn counters(claim: &Claim) -> Vec<Vec<u8>> {
    claim.keys().iter().map(counter).collect()
}

/// The key of the number of `key`, by FNV-1a.
fn counter(key: &Key) -> Vec<u8> {
    let mix = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    let hash = key.as_bytes().iter().fold(0x811c_9dc5, mix);
    // The low bits of the hash alone depend on the low bits of the name.
    let index = (hash ^ (hash >> 16)) % COUNTERS;
    format!("quorate:fence:{index}").into_bytes()
}

/// A grant with this number.
pub(super) fn granted(digits: &[u8]) -> Option<Reply> {
    let mut granted = Reply::new(Vote::Granted);
    granted.number = Some(number(digits)?);
    Some(granted)
}

/// Reads a number in decimal digits.
fn number(digits: &[u8]) -> Option<FencingToken> {
    FencingToken::new(std::str::from_utf8(digits).ok()?.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use quorate_core::resource::Resource;

    use super::*;

    fn key(name: &str) -> Key {
        Key::new(b"", &Resource::new(name).unwrap())
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
