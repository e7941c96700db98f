//! The command of an acquire by a script, of whichever kind.

use quorate_core::backend::{AcquireOptions, Claim, Mode};

use super::queue::AskedQueues;
use super::{acquire, fence, guard, shared};
use crate::command::Command;
use crate::script::{By, Keys as _, size_of};

/// The script of a claim that a plain `SET` cannot acquire: `KEYS` the keys, the counter of each if
/// there is a hint, and what a guard compares; `ARGV` token, ttl in ms, hint or nothing, and what
/// the guard wants. That of a reader may [ask](super::queue::asked).
pub(super) fn command<C: Command>(
    by: By,
    claim: &Claim,
    options: &AcquireOptions,
    asked: Option<AskedQueues<'_>>,
) -> C {
    let (hint, guard, keys) = (options.fencing, options.guard, claim.keys());
    let script = match (claim.mode(), guard, hint) {
        (Mode::Shared, None, _) if asked.is_some() => &shared::ACQUIRE_ASKING,
        (Mode::Shared, None, _) => &shared::ACQUIRE,
        (Mode::Shared, Some(_), _) if asked.is_some() => &shared::GUARDED_ASKING,
        (Mode::Shared, Some(_), _) => &shared::GUARDED,
        (_, Some(_), _) => &guard::ACQUIRE,
        (_, None, Some(_)) => &fence::ACQUIRE,
        (_, None, None) => &acquire::ACQUIRE,
    };
    let counters = if hint.is_some() { keys.len() } else { 0 };
    let count = keys.len() + counters + if guard.is_some() { 2 } else { 0 };
    let (queues, more) = asked.map_or((0, 0), |asked| (asked.count(), asked.size()));
    let size = size_of(keys) + counters * fence::COUNTER_SIZE + more + 192;
    let mut command = script.run::<C>(by, count + queues, size).keys(keys);
    if hint.is_some() {
        command = fence::with_counters(command, claim);
    }
    if guard.is_some() {
        command = command.arg(guard::EPOCH).arg(guard::QUARANTINE);
    }
    if let Some(asked) = asked {
        command = asked.append(command);
    }
    command = command.arg(claim.token().as_bytes()).number(claim.ttl().as_millis());
    command = match (hint, guard) {
        (Some(hint), _) => command.number(hint.get()),
        (None, Some(_)) => command.arg(""),
        (None, None) => command,
    };
    if let Some(guard) = guard {
        let max_ttl = u64::try_from(guard.max_ttl().as_millis()).unwrap_or(u64::MAX);
        command = command.number(max_ttl).arg(if guard.is_strict() { "strict" } else { "soft" });
    }
    if asked.is_some() { command.number(count as u64) } else { command }
}
