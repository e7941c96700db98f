//! The names of the keys that locks leave on a node, written down a second time: they never change.

/// The server whose data the node has, its last promotion, and the `max_ttl` of its restart guard.
pub const EPOCH: &str = "quorate:guard:epoch2";

/// There while the node is quarantined.
pub const QUARANTINE: &str = "quorate:guard:quarantine";

/// How many fencing numbers a node keeps.
pub const COUNTERS: u32 = 1024;

/// The key of the fencing number of `key`: the FNV-1a hash of its name, folded into [`COUNTERS`].
pub fn counter(key: &str) -> String {
    let mix = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let hash = key.bytes().fold(0x811c_9dc5, mix);
    format!("quorate:fence:{}", (hash ^ (hash >> 16)) % COUNTERS)
}

/// The ordered set of the entries that wait for `key`.
pub fn waiters(key: &str) -> String {
    format!("{key}:quorate:waiters")
}

/// When each entry that waits for `key` expires.
pub fn seen(key: &str) -> String {
    format!("{key}:quorate:seen")
}

/// The key of one entry that waits for `key`.
pub fn entry(key: &str, name: &str) -> String {
    format!("{key}:quorate:{name}")
}
