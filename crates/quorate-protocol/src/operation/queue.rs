//! The wait queue of a lock, on one node.
//!
//! | key | what it holds |
//! |---|---|
//! | `KEY:quorate:waiters` | an ordered set: the entries, in the order in which they joined |
//! | `KEY:quorate:seen` | an ordered set: when each entry expires by the server's clock |
//! | `KEY:quorate:ENTRY` | nothing: it exists to be watched, as long as the entry is alive |
//!
//! An entry expires 2 s after its last refresh, and all keys 10 s after theirs. A user of an ACL
//! needs these keys beside those that are locked. Without them, processes wait without an order.

use quorate_core::BackendError;
use quorate_core::backend::{
    AcquireOptions, Choice, Entry, Mode, Operation, Refreshed, ReleaseOptions, Waiters,
};
use quorate_core::resource::Key;

use crate::command::Command;
use crate::features::Features;
use crate::script::{By, Keys as _, Script, script};
use crate::value::Value;

/// `KEYS` waiters, seen, the entry's key, the lock's keys; `ARGV` the entry, and `any` if one of
/// the keys is wanted. Returns a number, the predecessor or an empty string, the first entry, the
/// place, and whether readers hold. The number is that of the last lock key that is held, or if one
/// of them is wanted that of the last one that is free. 0 is none.
///
/// The number comes first: fred drops a reply that begins like a message of a channel.
///
/// An entry whose second letter is `r` is one of readers. It has the last entry that is not as its
/// predecessor. Without a predecessor, a key of readers counts as free.
///
/// A lock key without a ttl counts as free: no Redlock client writes one, and one such key would
/// stop every waiter. It counts as held if one of several is wanted: there may be others, and it
/// would hide them.
pub(super) static REFRESH: Script = script!("queue_refresh");

/// `KEYS` waiters, seen, the entries' keys; `ARGV` the entries. Returns whether an entry is left.
pub(super) static LEAVE: Script = script!("queue_leave");

/// The keys of the wait queues that an operation asks about, if it asks and the user may.
///
/// They stand behind those of its script, and the number of its own keys behind its arguments. The
/// script returns a list: the number of the first queue in which others wait, or 0, and its own
/// reply.
pub(super) fn asked(operation: &Operation, features: &Features) -> Vec<Vec<u8>> {
    let (keys, what): (&[Key], &[u8]) = match operation {
        Operation::Release(claim, ReleaseOptions { asks: Some(keys), .. })
            if claim.mode() == Mode::Exclusive =>
        {
            (keys, b"waiters")
        }
        Operation::Acquire(claim, AcquireOptions { asks: true, .. })
            if claim.mode() == Mode::Shared =>
        {
            (claim.keys(), b"seen")
        }
        _ => return Vec::new(),
    };
    let keys = keys.iter().filter(|_| features.may_ask);
    keys.map(|key| beside(key, what)).collect()
}

/// What a script that asks returns: what it says of others that wait, and its own reply.
pub(super) fn answered(reply: Value) -> Result<(Waiters, Value), BackendError> {
    let found = match &reply {
        Value::List(list) => match list.as_slice() {
            [Value::Int(first), _] => usize::try_from(*first).ok(),
            _ => None,
        },
        _ => None,
    };
    match (found, reply) {
        (Some(found), Value::List(mut list)) => {
            let waiters = found.checked_sub(1).map_or(Waiters::Nobody, Waiters::For);
            Ok((waiters, list.swap_remove(1)))
        }
        (_, reply) => Err(reply.unexpected("a script")),
    }
}

/// Keeps an entry alive, and appends it if it is missing.
pub(super) fn refresh<C: Command>(
    by: By,
    key: &Key,
    entry: &Entry,
    locks: &[Key],
    choice: Choice,
) -> C {
    let command = REFRESH
        .run::<C>(by, 3 + locks.len())
        .arg(beside(key, b"waiters"))
        .arg(beside(key, b"seen"))
        .arg(beside(key, entry.as_bytes()))
        .keys(locks)
        .arg(entry.as_bytes());
    if choice == Choice::Any { command.arg(b"any") } else { command }
}

/// Removes entries.
pub(super) fn leave<C: Command>(by: By, key: &Key, entry: &Entry, also: Option<&Entry>) -> C {
    let entries = || [Some(entry), also].into_iter().flatten().map(Entry::as_bytes);
    let command = LEAVE.run::<C>(by, 2 + entries().count());
    let command = command.arg(beside(key, b"waiters")).arg(beside(key, b"seen"));
    let command = entries().map(|entry| beside(key, entry)).fold(command, C::arg);
    entries().fold(command, C::arg)
}

/// The key that a watch is about: that of the lock, or of an entry.
pub(crate) fn watched_key(operation: &Operation) -> Option<Vec<u8>> {
    match operation {
        Operation::Watch { key, entry: Some(entry) } => Some(beside(key, entry.as_bytes())),
        Operation::Watch { key, entry: None } => Some(key.as_bytes().to_vec()),
        _ => None,
    }
}

/// How many entries are left, as a leave replies.
pub(super) fn has_waiters(reply: &Value) -> Result<bool, BackendError> {
    match reply {
        Value::Int(count @ 0..) => Ok(*count > 0),
        _ => Err(reply.unexpected("a leave")),
    }
}

pub(super) fn refreshed(
    reply: &Value,
    locks: usize,
    choice: Choice,
) -> Result<Refreshed, BackendError> {
    parse(reply, locks, choice).ok_or_else(|| reply.unexpected("a refresh"))
}

fn parse(reply: &Value, locks: usize, choice: Choice) -> Option<Refreshed> {
    let Value::List(list) = reply else { return None };
    let [
        Value::Int(found),
        Value::Text(before),
        Value::Text(first),
        Value::Int(place),
        Value::Int(is_read),
    ] = list.as_slice()
    else {
        return None;
    };
    let entry = |name: &[u8]| (!name.is_empty()).then(|| Entry::new(name));
    let found = usize::try_from(*found).ok().filter(|found| *found <= locks)?.checked_sub(1);
    let (held, free) = match (choice, found) {
        (Choice::All, held) => (held, None),
        (Choice::Any, None) => (Some(0), None),
        (Choice::Any, free) => (None, free),
    };
    Some(Refreshed {
        predecessor: entry(before),
        first: entry(first)?,
        held,
        free,
        is_read: *is_read > 0,
        place: usize::try_from(*place).ok()?,
    })
}

/// The name of a key of the queue before `key`.
fn beside(key: &Key, what: &[u8]) -> Vec<u8> {
    [key.as_bytes(), b":quorate:", what].concat()
}
