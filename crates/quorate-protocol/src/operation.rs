//! The operations of a node as values: what each sends, and what a reply to it means.
//!
//! Nothing here awaits anything. [`first`] gives the first command of an operation, and [`next`]
//! says what follows a reply: another command, or the answer to the call.
//!
//! What can set a key is one command: an acquire, a repair and a refresh. A second one could reach
//! the node behind the release or the leave that undoes it (C3, W3). The `GET` after a refused
//! `SET` only reads. So `NOSCRIPT` on such a command is *not sent*, and the scripts are loaded
//! again for the next one. A release, an extension, a raise and a leave only change what is theirs,
//! so `EVAL` may follow.

mod acquire;
mod describe;
mod fence;
mod guard;
mod inspect;
mod look;
mod queue;
mod shared;
#[cfg(test)]
mod tests;
mod together;

use quorate_core::backend::{
    AcquireOptions, CallReply, CallResult, Description, Mode, Operation, ReleaseOptions, Reply,
    Vote,
};
use quorate_core::{BackendError, BackendErrorKind};

use crate::command::Command;
use crate::error_reply::error_of_reply;
use crate::features::{self, Features};
use crate::script::{By, Script, script};
use crate::value::Value;

pub(crate) use look::{pushed_keys, tracked};
use queue::watched_key;
pub(crate) use together::{answers, command as together, sharing};

/// How a command asks, which decides what its reply means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A command that every server has.
    Plain,
    /// A `SET` whose reply is the value that is there.
    SetGet,
    /// A `GET` of the key that refused a plain `SET`.
    Holder,
    /// The compare-and-delete of the server.
    CompareAndDelete,
    /// A question for a setting, in front of a description.
    Config,
    /// A script.
    Script(By),
    /// A script that says as well whether others wait.
    Asking(By),
    /// A script that it shares with other calls.
    Together,
}

/// What follows.
#[derive(Debug)]
#[must_use]
pub(crate) enum Step<C> {
    /// This command leaves.
    Send(C, Form),
    /// The call is answered.
    Done(CallResult),
}

/// Every script that an operation runs, for the handshake.
pub(crate) static SCRIPTS: [&Script; 21] = [
    &acquire::ACQUIRE,
    &acquire::GUARDED,
    &RELEASE,
    &RELEASE_ASKING,
    &EXTEND,
    &together::RELEASE,
    &together::EXTEND,
    &queue::REFRESH,
    &queue::LEAVE,
    &inspect::INSPECT,
    &inspect::REVOKE,
    &describe::DESCRIBE,
    &fence::RAISE,
    &fence::RELEASE,
    &fence::RELEASE_ASKING,
    &shared::ACQUIRE,
    &shared::ACQUIRE_ASKING,
    &shared::EXTEND,
    &shared::RELEASE,
    &shared::GUARDED,
    &shared::GUARDED_ASKING,
];

/// The scripts that store nothing which is not there already, once more for servers whose memory is
/// full.
///
/// They begin with `#!lua flags=allow-oom`, which Redis 7 and Valkey know, and older servers refuse
/// to load. With that line a server also refuses them as writes before it runs them: on a replica,
/// without its least replicas, or with a failed save.
pub(crate) static WHEN_FULL: [&Script; 2] = [&shared::EXTEND_WHEN_FULL, &inspect::REVOKE_WHEN_FULL];

/// Deletes the keys that are ours, or have the mark for our token (V9); 1 if all were. `ARGV`
/// token. A key of another type is not ours.
static RELEASE: Script = script!("is_freed", "release");

/// The same, and [looks into queues](queue::asked).
static RELEASE_ASKING: Script = script!("is_freed", "has_waiters", "asking", "release", "asked");

/// If all keys are ours, each lives for at least the ttl from now. `ARGV` token, ttl in ms. Returns
/// 1, or what is at a key that is not ours: 0 for nothing.
///
/// It never shortens (H2), and [`NO_TTL`] extends nothing. `PEXPIRE … GT` needs Redis 7. With
/// client tracking, the last `GET` makes the server push the next change of the key; its own
/// `PEXPIRE` had ended that.
static EXTEND: Script = script!("has_readers", "held_at", "extend");

/// With it, the script of an extension looks at several keys, for which a user needs no permission
/// more. No key has less left, not even one without a ttl.
const NO_TTL: &str = "-1";

/// The first command, or the answer to an operation that this server cannot carry out.
pub(crate) fn first<C: Command>(operation: &Operation, features: &Features) -> Step<C> {
    if let Some(lack) = features.lack_of(operation) {
        return not_sent(lack);
    }
    match operation {
        Operation::Acquire(claim, AcquireOptions { fencing: None, guard: None, .. })
            if claim.keys().len() == 1 && claim.mode() == Mode::Exclusive =>
        {
            let form = if features.names_holder { Form::SetGet } else { Form::Plain };
            Step::Send(acquire::set(claim, features.names_holder), form)
        }
        Operation::Release(claim, options)
            if options.raise_to.is_none() && claim.mode() == Mode::Exclusive =>
        {
            let asks = features.scripts.is_ok() && features.may_ask && options.asks.is_some();
            match (claim.keys(), features.compare_and_delete) {
                ([key], Some(how)) if !asks => {
                    let command = how.command(key.as_bytes(), claim.token().as_bytes());
                    Step::Send(command, Form::CompareAndDelete)
                }
                _ => scripted(operation, features),
            }
        }
        Operation::Watch { .. } => {
            let key = watched_key(operation).unwrap_or_default();
            Step::Send(C::new("GET").arg(key), Form::Plain)
        }
        Operation::Look(_) if !features.tracks => {
            not_sent(&BackendError::unsupported("the connection has no client tracking"))
        }
        Operation::Look(claim) => match claim.keys() {
            [key] => Step::Send(look::command(key), Form::Plain),
            _ => scripted(operation, features),
        },
        Operation::ServerId => Step::Send(features::info("server"), Form::Plain),
        Operation::Describe => Step::Send(describe::fsync(), Form::Config),
        _ => scripted(operation, features),
    }
}

/// What follows the reply to a command of this form.
pub(crate) fn next<C: Command>(
    operation: &Operation,
    form: Form,
    reply: Value,
    features: &mut Features,
) -> Step<C> {
    match (operation, form, &reply) {
        (Operation::Acquire(claim, _), Form::Plain, Value::Nil) => {
            Step::Send(acquire::holder(claim), Form::Holder)
        }
        // The script has failed, or has found what only the script of one call can tell. Neither
        // sets a key.
        (_, Form::Together, Value::Error(_) | Value::Nil) => {
            features.note_failed_script(operation, &reply);
            first(operation, features)
        }
        // The key was refused, whatever this says.
        (_, Form::Holder, _) => Step::Done(Ok(named(acquire::refusal(&reply), features))),
        (_, Form::Config, _) => {
            features.fsync = describe::of_fsync(&reply);
            match features.scripts {
                Ok(by) => script(operation, by, features),
                Err(_) => Step::Send(describe::info(), Form::Plain),
            }
        }
        // A revoke may have put its mark in place of the token, and the command compares with one
        // value.
        (
            Operation::Release(_, ReleaseOptions { was_held: true, .. }),
            Form::CompareAndDelete,
            Value::Int(0),
        ) if features.scripts.is_ok() => scripted(operation, features),
        (_, _, Value::Error(text)) => after_error(operation, form, text, features),
        (Operation::Describe, Form::Script(_), _) => match describe::of_script(&reply, features) {
            Ok(None) => Step::Send(describe::info(), Form::Plain),
            told => Step::Done(told.map(|told| described(told.unwrap_or_default()))),
        },
        _ => Step::Done(meaning(operation, form, reply, features)),
    }
}

/// What follows an error in place of a reply.
fn after_error<C: Command>(
    operation: &Operation,
    form: Form,
    text: &str,
    features: &mut Features,
) -> Step<C> {
    use BackendErrorKind::{Cluster, CrossSlot, Permission, Script, WrongType};

    let error = error_of_reply(text);
    match (operation, form, error.kind()) {
        (_, Form::Script(By::Sha) | Form::Asking(By::Sha), _) if text.starts_with("NOSCRIPT") => {
            features.must_load = true;
            if sets_a_key(operation) {
                let text = "the node had lost the script, which is loaded again";
                not_sent(&BackendError::new(BackendErrorKind::Other, text))
            } else {
                script(operation, By::Text, features)
            }
        }
        // The key exists.
        (_, Form::SetGet | Form::CompareAndDelete, WrongType)
        | (Operation::Look(_), _, WrongType) => Step::Done(Ok(voted(Vote::Refused, features))),
        // The same, and the server tracks it.
        (Operation::Watch { .. }, _, WrongType) => Step::Done(Ok(CallReply::Watched(true))),
        // The version promises more than the server has. A second command could set a key.
        (_, Form::SetGet, _) if text.contains("syntax error") => {
            features.names_holder = false;
            not_sent(&error)
        }
        (_, Form::CompareAndDelete, Permission | Script) if features.scripts.is_ok() => {
            // A key that the user may not access says nothing of other keys.
            features.compare_and_delete.take_if(|_| error.is_lack());
            scripted(operation, features)
        }
        // The user may not look into the queue.
        (_, Form::Asking(_), Permission | Script | Cluster | CrossSlot) => {
            features.may_ask = false;
            match sets_a_key(operation) {
                true => not_sent(&error),
                false => first(operation, features),
            }
        }
        (Operation::Describe, Form::Plain, Permission | Script | Cluster | CrossSlot) => {
            Step::Done(describe::of_plain(Err(error), features).map(described))
        }
        (Operation::Describe, _, Permission | Script | Cluster | CrossSlot) => {
            Step::Send(describe::info(), Form::Plain)
        }
        _ => {
            features.note_lack(operation, &error);
            Step::Done(Err(error))
        }
    }
}

/// The answer to a call whose connection ended before the reply to its next command, of this form.
/// `None`: the form decides nothing. A call whose next command had not left begins again, with its
/// first command.
pub(crate) fn end(form: Form, features: &Features) -> Option<CallResult> {
    // A node that has refused is not asked for the lock a second time (C6).
    (form == Form::Holder).then(|| Ok(named(acquire::refusal(&Value::Nil), features)))
}

/// Whether a second command could set a key behind the command that undoes the first.
const fn sets_a_key(operation: &Operation) -> bool {
    matches!(operation, Operation::Acquire(..) | Operation::Refresh { .. })
}

fn scripted<C: Command>(operation: &Operation, features: &Features) -> Step<C> {
    match &features.scripts {
        Ok(by) => script(operation, *by, features),
        Err(missing) => not_sent(missing),
    }
}

fn script<C: Command>(operation: &Operation, by: By, features: &Features) -> Step<C> {
    let asked = queue::asked(operation, features);
    let command = match operation {
        Operation::Acquire(claim, AcquireOptions { fencing: Some(_), .. })
        | Operation::Release(claim, ReleaseOptions { raise_to: Some(_), .. })
            if claim.mode() == Mode::Shared =>
        {
            return not_sent(&BackendError::unsupported("readers have no numbers"));
        }
        Operation::Acquire(claim, options) => acquire::scripted(by, claim, options, &asked),
        Operation::Extend(claim, _) => {
            let script = match claim.mode() {
                Mode::Exclusive => &EXTEND,
                Mode::Shared if features.runs_when_full => &shared::EXTEND_WHEN_FULL,
                Mode::Shared => &shared::EXTEND,
            };
            script.of_claim::<C>(by, claim).number(claim.ttl().as_millis())
        }
        Operation::Look(claim) => EXTEND.of_claim::<C>(by, claim).arg(NO_TTL),
        Operation::Raise(claim, number) => {
            let counters = fence::counters(claim);
            fence::RAISE.about(by, claim, &counters, &[], |command: C| command.number(number.get()))
        }
        Operation::Release(claim, ReleaseOptions { raise_to: Some(number), .. }) => {
            let script = if asked.is_empty() { &fence::RELEASE } else { &fence::RELEASE_ASKING };
            let counters = fence::counters(claim);
            script.about(by, claim, &counters, &asked, |command: C| command.number(number.get()))
        }
        Operation::Release(claim, _) => {
            let script = match claim.mode() {
                Mode::Exclusive if asked.is_empty() => &RELEASE,
                Mode::Exclusive => &RELEASE_ASKING,
                Mode::Shared => &shared::RELEASE,
            };
            script.about(by, claim, &[], &asked, |command| command)
        }
        Operation::Refresh { key, entry, locks, choice } => {
            queue::refresh(by, key, entry, locks, *choice)
        }
        Operation::Leave { key, entry, also } => queue::leave(by, key, entry, also.as_ref()),
        Operation::Inspect { key } => inspect::inspect(by, key),
        Operation::Revoke { key, how } => inspect::revoke(by, key, how, features.runs_when_full),
        Operation::Describe => describe::command(by),
        _ => return not_sent(&BackendError::unsupported("this node does not know the operation")),
    };
    Step::Send(command, if asked.is_empty() { Form::Script(by) } else { Form::Asking(by) })
}

fn meaning(operation: &Operation, form: Form, reply: Value, features: &Features) -> CallResult {
    let Form::Asking(_) = form else { return own_meaning(operation, form, reply, features) };
    let (waiters, reply) = queue::answered(reply)?;
    let mut answer = own_meaning(operation, form, reply, features)?;
    if let CallReply::Voted(reply) = &mut answer {
        reply.waiters = waiters;
    }
    Ok(answer)
}

/// The meaning of a reply, but for what it says of others that wait.
fn own_meaning(operation: &Operation, form: Form, reply: Value, features: &Features) -> CallResult {
    Ok(match operation {
        Operation::Acquire(claim, _) => {
            let reply = match form {
                Form::Plain => acquire::reply_of_set(&reply)?,
                Form::SetGet => acquire::reply_of_set_get(claim, &reply)?,
                _ => acquire::reply_of_script(&reply)?,
            };
            named(reply, features)
        }
        Operation::Look(claim) if form == Form::Plain => {
            named(look::looked(claim, &reply)?, features)
        }
        Operation::Extend(claim, _) | Operation::Look(claim) if claim.mode() == Mode::Exclusive => {
            named(look::extended(claim, &reply)?, features)
        }
        Operation::Extend(..) | Operation::Raise(..) | Operation::Release(..) => {
            voted(reply.vote()?, features)
        }
        Operation::Leave { .. } => CallReply::Waiters(queue::has_waiters(&reply)?),
        Operation::Refresh { locks, choice, .. } => {
            CallReply::Refreshed(queue::refreshed(&reply, locks.len(), *choice)?)
        }
        Operation::Watch { .. } => match reply {
            Value::Nil => CallReply::Watched(false),
            Value::Text(_) => CallReply::Watched(true),
            reply => return Err(reply.unexpected("GET")),
        },
        Operation::Inspect { .. } | Operation::Revoke { .. } => {
            CallReply::Sighted(inspect::sighted(&reply)?)
        }
        Operation::Describe => described(describe::of_plain(Ok(&reply), features)?),
        Operation::ServerId => CallReply::ServerId(features::server_id(&reply)?),
        _ => return Err(reply.unexpected("an operation")),
    })
}

fn voted(vote: Vote, features: &Features) -> CallReply {
    named(Reply::new(vote), features)
}

/// Says which server voted, if the reply does not: whatever its form is, so that no refusal hides
/// where a wait queue is.
fn named(mut reply: Reply, features: &Features) -> CallReply {
    reply.server = reply.server.or_else(|| features.server.clone());
    reply.is_nameless = reply.server.is_none();
    CallReply::Voted(reply)
}

fn not_sent<C>(error: &BackendError) -> Step<C> {
    Step::Done(Err(error.clone().not_sent()))
}

fn described(told: Description) -> CallReply {
    CallReply::Described(told.into())
}
