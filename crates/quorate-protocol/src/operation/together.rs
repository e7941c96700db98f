//! Several releases, or several extensions, as one script call with an answer for each.
//!
//! With client tracking, a command that reads makes the server remember **all** keys of its script.
//! So these scripts read all keys by one `MGET`, and not one by one.

use std::mem::discriminant;

use quorate_core::BackendError;
use quorate_core::backend::Operation;

use crate::command::Command;
use crate::features::Features;
use crate::script::{By, Keys as _, Script, script};
use crate::value::Value;

/// As `RELEASE` for the keys of each claim. `ARGV`: the token of each key. Returns a list with a
/// reply for each key.
pub(super) static RELEASE: Script = script!("is_freed", "release_many");

/// As `EXTEND` for each claim, but nil for one of another type. `ARGV` of each: token, number of
/// keys, ttl in ms. Returns a list.
pub(super) static EXTEND: Script = script!("extend_many");

/// Whether it may share a script with others of its kind.
pub(crate) fn sharing(operation: &Operation, features: &Features) -> bool {
    let is_alone = match operation {
        Operation::Release(claim, _) if claim.keys().len() > 1 => false,
        // It costs the server less than a place in the script.
        Operation::Release(..) => features.compare_and_delete.is_some(),
        // Redis 7 has brought `PEXPIRE … GT`, and a `SET … NX … GET` that names the holder.
        _ => !features.names_holder,
    };
    let has_failed = features.alone.contains(&discriminant(operation));
    operation.is_plain() && features.scripts.is_ok() && !is_alone && !has_failed
}

/// One command for operations of one kind, each of which is [`sharing`].
pub(crate) fn command<'a, C: Command>(
    operations: impl Iterator<Item = &'a Operation> + Clone,
    features: &Features,
) -> C {
    let by = features.scripts.clone().unwrap_or(By::Sha);
    let claims = operations.clone().filter_map(Operation::claim);
    let keys = claims.clone().map(|claim| claim.keys().len()).sum();
    let extends = operations.clone().any(|operation| matches!(operation, Operation::Extend(..)));
    let script = if extends { &EXTEND } else { &RELEASE };
    let command = script.run::<C>(by, keys);
    let command = claims.clone().fold(command, |command, claim| command.keys(claim.keys()));
    claims.fold(command, |command, claim| {
        let (token, count) = (claim.token().as_bytes(), claim.keys().len());
        if extends {
            command.arg(token).number(count as u64).number(claim.ttl().as_millis())
        } else {
            (0..count).fold(command, |command, _| command.arg(token))
        }
    })
}

/// The answer to each of these operations, of that to their script.
pub(crate) fn answers<'a>(
    operations: impl Iterator<Item = &'a Operation> + Clone,
    answer: Result<Value, BackendError>,
) -> Vec<Result<Value, BackendError>> {
    let count = |operation: &Operation| match operation {
        Operation::Release(claim, _) => claim.keys().len(),
        _ => 1,
    };
    let mut replies = match answer {
        Ok(Value::List(replies)) if replies.len() == operations.clone().map(count).sum() => {
            replies.into_iter()
        }
        Ok(Value::Error(_)) | Err(_) => return operations.map(|_| answer.clone()).collect(),
        // It answers none of them.
        Ok(_) => return operations.map(|_| Ok(Value::List(Vec::new()))).collect(),
    };
    let whole = |all, one| if all == Value::Int(1) { one } else { all };
    operations.map(|one| Ok(replies.by_ref().take(count(one)).fold(Value::Int(1), whole))).collect()
}
