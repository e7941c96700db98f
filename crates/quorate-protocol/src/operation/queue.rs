//! The wait queue of a lock, on one node.
//!
//! | key | what it holds |
//! |---|---|
//! | `KEY:quorate:waiters` | an ordered set: the entries, in the order in which they joined |
//! | `KEY:quorate:seen` | an ordered set: when each entry expires by the server's clock |
//! | `KEY:quorate:ENTRY` | nothing: it exists to be watched, as long as the entry is alive |
//!
//! An entry expires 2 s after its last refresh, and all keys 10 s after theirs. A user of an ACL needs
//! these keys beside those that are locked. Without them, processes wait without an order.

use quorate_core::backend::{Entry, Refreshed};
use quorate_core::{BackendError, Key};

use crate::reply::Reply;
use crate::script::Script;
use crate::transport::{Admission, Transport};

/// `KEYS` waiters, seen, the entry's key, the lock's keys; `ARGV` the entry. Returns the number of the last
/// lock key that is held, or 0, the predecessor or an empty string, and the first entry.
///
/// The number comes first: fred drops a reply that begins like a message of a channel.
///
/// A lock key without a ttl counts as free: no Redlock client writes one, and one such key would stop
/// every waiter.
pub(super) static REFRESH: Script = Script::new(include_str!("../../scripts/queue_refresh.lua"));

/// `KEYS` waiters, seen, the entries' keys; `ARGV` the entries. Returns whether an entry is left.
pub(super) static LEAVE: Script = Script::new(include_str!("../../scripts/queue_leave.lua"));

/// The key of the ordered set of entries before `key`.
pub(super) fn waiters_key(key: &Key) -> Vec<u8> {
    beside(key, b"waiters")
}

/// The key of one entry in the queue before `key`.
pub(crate) fn entry_key(key: &Key, entry: &Entry) -> Vec<u8> {
    beside(key, entry.as_bytes())
}

/// Keeps an entry alive, and appends it if it is missing.
pub(crate) async fn refresh<T: Transport>(
    transport: &T,
    key: &Key,
    entry: &Entry,
    locks: &[Key],
) -> Result<Refreshed, BackendError> {
    let own = [waiters_key(key), beside(key, b"seen"), entry_key(key, entry)];
    let keys: Vec<&[u8]> =
        own.iter().map(Vec::as_slice).chain(locks.iter().map(Key::as_bytes)).collect();
    // One command: a second one could append the entry behind its LEAVE (W3).
    let reply = REFRESH.run_once(transport, Admission::Other, &keys, &[entry.as_bytes()]).await?;
    parse(&reply, locks.len()).ok_or_else(|| reply.unexpected("a refresh"))
}

/// Removes entries. Returns whether any is left.
pub(crate) async fn leave<T: Transport>(
    transport: &T,
    key: &Key,
    entry: &Entry,
    also: Option<&Entry>,
) -> Result<bool, BackendError> {
    let entries: Vec<&Entry> = [Some(entry), also].into_iter().flatten().collect();
    let mut own = vec![waiters_key(key), beside(key, b"seen")];
    own.extend(entries.iter().map(|entry| entry_key(key, entry)));
    let keys: Vec<&[u8]> = own.iter().map(Vec::as_slice).collect();
    let names: Vec<&[u8]> = entries.iter().map(|entry| entry.as_bytes()).collect();
    // Admitted as every call but an acquire. It belongs to a refresh that was sent.
    match LEAVE.run(transport, Admission::Other, &keys, &names).await? {
        Reply::Int(left) => Ok(left > 0),
        reply => Err(reply.unexpected("a leave")),
    }
}

fn beside(key: &Key, what: &[u8]) -> Vec<u8> {
    [key.as_bytes(), b":quorate:", what].concat()
}

fn parse(reply: &Reply, locks: usize) -> Option<Refreshed> {
    let Reply::List(list) = reply else { return None };
    let [Reply::Int(held), Reply::Text(predecessor), Reply::Text(first)] = list.as_slice() else {
        return None;
    };
    let entry = |name: &[u8]| (!name.is_empty()).then(|| Entry::new(name));
    let held = usize::try_from(*held).ok().filter(|held| *held <= locks)?;
    let (predecessor, first) = (entry(predecessor), entry(first)?);
    Some(Refreshed { predecessor, first, held: held.checked_sub(1) })
}
