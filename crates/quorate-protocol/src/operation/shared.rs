//! Claims of readers: each key is an ordered set, whose members are tokens.
//!
//! The score of a member is when it expires, in milliseconds by the clock of the node. The key
//! expires with the highest score (RW7), so it is there as long as one of its readers is.
//! `SET … NX` is refused by a key of any type: a plain lock of any Redlock library excludes
//! readers, and they exclude it. An ordered set without an expiry, or whose first member is no
//! token, is another program's. It is never written to (RW8).

use crate::script::{Script, script};

/// All keys or none. `ARGV` token, ttl in ms. [Replies](super::acquire::reply_of_script) as each
/// acquire by a script.
///
/// A member that is ours already keeps its score (C6).
pub(super) static ACQUIRE: Script =
    script!("has_readers", "held_at", "no_guard", "shared", "shared_acquire");

/// The same, and [looks for writers](super::queue::asked) that were refreshed in the last 2 s.
pub(super) static ACQUIRE_ASKING: Script = script!(
    "has_readers",
    "held_at",
    "has_writers",
    "asking",
    "no_guard",
    "shared",
    "shared_acquire",
    "asked"
);

/// If we read all keys, we do so for at least the ttl from now. `ARGV` token, ttl in ms. It never
/// shortens (H2).
pub(super) static EXTEND: Script = script!("has_readers", "held_at", "shared", "shared_extend");

/// The same while memory is full: a score is replaced, and no member is added.
pub(super) static EXTEND_WHEN_FULL: Script =
    script!("allow_oom", "has_readers", "held_at", "shared", "shared_extend");

/// Removes our members; 1 if all were there and not expired. `ARGV` token. The keys expire with the
/// readers left.
pub(super) static RELEASE: Script = script!("has_readers", "held_at", "shared", "shared_release");

/// As the acquire with a restart guard, without fencing numbers.
pub(super) static GUARDED: Script =
    script!("has_readers", "held_at", "guard_epoch", "shared", "shared_acquire");

/// The same, and looks for writers.
pub(super) static GUARDED_ASKING: Script = script!(
    "has_readers",
    "held_at",
    "has_writers",
    "asking",
    "guard_epoch",
    "shared",
    "shared_acquire",
    "asked"
);
