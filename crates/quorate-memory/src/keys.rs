//! The names of the keys that a node stores beside the locks' own. All clients use the same names.

use quorate_core::backend::Entry;
use quorate_core::resource::Key;

/// The server whose data the node has, its last promotion, and the `max_ttl` of its restart guard.
pub(crate) const EPOCH: &str = "quorate:guard:epoch2";

/// There while the node is quarantined.
pub(crate) const QUARANTINE: &str = "quorate:guard:quarantine";

/// How many fencing numbers a node keeps. It never changes.
const COUNTERS: u32 = 1024;

/// The key of the fencing number of `key`, by FNV-1a.
pub(crate) fn counter(key: &Key) -> Vec<u8> {
    let mix = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    let hash = key.as_bytes().iter().fold(0x811c_9dc5, mix);
    // The low bits of the hash alone depend on the low bits of the name.
    let index = (hash ^ (hash >> 16)) % COUNTERS;
    format!("quorate:fence:{index}").into_bytes()
}

/// The key of the entries in the wait queue of `key`, in the order in which they joined.
pub(crate) fn waiters(key: &Key) -> Vec<u8> {
    beside(key, b"waiters")
}

/// The key of the times at which the entries of `key` expire.
pub(crate) fn seen(key: &Key) -> Vec<u8> {
    beside(key, b"seen")
}

/// The key of one entry in the wait queue of `key`, or that of the lock itself.
pub(crate) fn watched(key: &Key, entry: Option<&Entry>) -> Vec<u8> {
    match entry {
        Some(entry) => beside(key, entry.as_bytes()),
        None => key.as_bytes().to_vec(),
    }
}

fn beside(key: &Key, what: &[u8]) -> Vec<u8> {
    [key.as_bytes(), b":quorate:", what].concat()
}
