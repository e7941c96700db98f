//! Claims of readers: each key is an ordered set, whose members are tokens.
//!
//! The score of a member is when it expires, in milliseconds by the clock of the node. The key expires with the highest
//! score (RW7), so it is there as long as one of its readers is. `SET … NX` is refused by a key of any type: a plain lock
//! of any Redlock library excludes readers, and they exclude it. An ordered set without an expiry, or whose first member is
//! no token, is another program's. It is never written to (RW8).

use quorate_core::backend::{AcquireOptions, Claim, Operation, ReleaseOptions};

use super::guard;
use crate::command::Command;
use crate::script::{By, Script};

/// All keys or none. `ARGV` token, ttl in ms. Returns 1, or the value at a key that is locked.
///
/// A member that is ours already keeps its score (C6).
pub(super) static ACQUIRE: Script = Script::new(concat!(
    include_str!("../../scripts/has_readers.lua"),
    include_str!("../../scripts/held_at.lua"),
    include_str!("../../scripts/shared.lua"),
    include_str!("../../scripts/shared_acquire.lua")
));

/// If we read all keys, we do so for at least the ttl from now. `ARGV` token, ttl in ms. It never shortens (H2).
pub(super) static EXTEND: Script = Script::new(concat!(
    include_str!("../../scripts/has_readers.lua"),
    include_str!("../../scripts/held_at.lua"),
    include_str!("../../scripts/shared.lua"),
    include_str!("../../scripts/shared_extend.lua")
));

/// The same while memory is full: a score is replaced, and no member is added.
pub(super) static EXTEND_WHEN_FULL: Script = Script::new(concat!(
    "#!lua flags=allow-oom\n",
    include_str!("../../scripts/has_readers.lua"),
    include_str!("../../scripts/held_at.lua"),
    include_str!("../../scripts/shared.lua"),
    include_str!("../../scripts/shared_extend.lua")
));

/// Removes our members; 1 if all were there and not expired. `ARGV` token. The keys expire with who is left.
pub(super) static RELEASE: Script = Script::new(concat!(
    include_str!("../../scripts/has_readers.lua"),
    include_str!("../../scripts/held_at.lua"),
    include_str!("../../scripts/shared.lua"),
    include_str!("../../scripts/shared_release.lua")
));

/// As the acquire with a restart guard, without fencing numbers.
pub(super) static GUARDED: Script = Script::new(concat!(
    include_str!("../../scripts/has_readers.lua"),
    include_str!("../../scripts/held_at.lua"),
    include_str!("../../scripts/guard_epoch.lua"),
    include_str!("../../scripts/shared.lua"),
    include_str!("../../scripts/guard_shared.lua")
));

/// The script of a claim of readers. `None` with a fencing number: readers have none.
pub(super) fn command<C: Command>(
    by: By,
    operation: &Operation,
    claim: &Claim,
    when_full: bool,
) -> Option<C> {
    let ttl = claim.ttl().as_millis();
    Some(match operation {
        Operation::Acquire(_, AcquireOptions { fencing: None, guard: Some(guard), .. }) => {
            guard::acquire(&GUARDED, by, claim, None, *guard)
        }
        Operation::Acquire(_, AcquireOptions { fencing: None, guard: None, .. }) => {
            ACQUIRE.of_claim::<C>(by, claim).number(ttl)
        }
        Operation::Extend(..) => {
            let script = if when_full { &EXTEND_WHEN_FULL } else { &EXTEND };
            script.of_claim::<C>(by, claim).number(ttl)
        }
        Operation::Release(_, ReleaseOptions { raise_to: None, .. }) => RELEASE.of_claim(by, claim),
        _ => return None,
    })
}
