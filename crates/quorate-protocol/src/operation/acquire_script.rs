//! The command of an acquire by a script, of whichever kind.

use quorate_core::backend::{AcquireOptions, Claim, Mode};

use super::{acquire, fence, guard, shared};
use crate::command::Command;
use crate::script::By;

/// The script of a claim that a plain `SET` cannot acquire: `KEYS` the keys, the counter of each if
/// there is a hint, and what a guard compares; `ARGV` token, ttl in ms, hint or nothing, and what
/// the guard wants. That of a reader may [ask](super::queue::asked).
pub(super) fn command<C: Command>(
    by: By,
    claim: &Claim,
    options: &AcquireOptions,
    asked: &[Vec<u8>],
) -> C {
    let (hint, guard) = (options.fencing, options.guard);
    let script = match (claim.mode(), guard, hint) {
        (Mode::Shared, None, _) if asked.is_empty() => &shared::ACQUIRE,
        (Mode::Shared, None, _) => &shared::ACQUIRE_ASKING,
        (Mode::Shared, Some(_), _) if asked.is_empty() => &shared::GUARDED,
        (Mode::Shared, Some(_), _) => &shared::GUARDED_ASKING,
        (_, Some(_), _) => &guard::ACQUIRE,
        (_, None, Some(_)) => &fence::ACQUIRE,
        (_, None, None) => &acquire::ACQUIRE,
    };
    let mut others = hint.map(|_| fence::counters(claim)).unwrap_or_default();
    if guard.is_some() {
        others.extend([guard::EPOCH, guard::QUARANTINE].map(<[u8]>::to_vec));
    }
    script.about(by, claim, &others, asked, |command: C| {
        let command = command.number(claim.ttl().as_millis());
        let command = match (hint, guard) {
            (Some(hint), _) => command.number(hint.get()),
            (None, Some(_)) => command.arg(""),
            (None, None) => command,
        };
        let Some(guard) = guard else { return command };
        let max_ttl = u64::try_from(guard.max_ttl().as_millis()).unwrap_or(u64::MAX);
        command.number(max_ttl).arg(if guard.is_strict() { "strict" } else { "soft" })
    })
}
