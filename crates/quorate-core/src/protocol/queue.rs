//! The queue before a lock on Redis or Valkey: who waits for it, in which order.
//!
//! - Each place is a key of its own, `quorate:place:` and a random name, and holds the name of the
//!   place before it. The last place in the queue before a key `k` is named at `quorate:queue:k`. So
//!   whoever joins learns behind whom, as in the queue lock of Craig, Landin and Hagersten.
//! - All of them expire, and are gone when those who wait have left.
//! - A user of an ACL needs `~quorate:queue:*` and `~quorate:place:*` beside the keys that are locked.
//!   Without, nobody waits in order.

use super::{Digits, Reply, Script, Wire, nonsense};
use crate::backend::{BackendError, BackendErrorKind};
use crate::places::Place;
use crate::resource::Key;

/// Gives the place before, or nil. `KEYS` the queue, a place; `ARGV` ttl in ms.
pub const JOIN: Script = Script {
    source: "\
local last = redis.call('GET', KEYS[1])
if last and string.sub(last, 1, 14) ~= 'quorate:place:' then
  return redis.error_reply('ERR what stands at the queue is no place')
end
redis.call('PSETEX', KEYS[2], ARGV[1], last or '')
redis.call('PSETEX', KEYS[1], ARGV[1], KEYS[2])
return last
",
    sha1: "34ee556dc79e206d0841eed695a80439c9185c54",
};

/// 1 if the place was there. `KEYS` the queue, a place and, if it is known, the one before;
/// `ARGV` ttl in ms.
///
/// If the last one leaves, the one before is the last again.
pub const LEAVE: Script = Script {
    source: "\
local was_there = redis.call('DEL', KEYS[2])
if redis.call('GET', KEYS[1]) == KEYS[2] then
  if KEYS[3] and redis.call('EXISTS', KEYS[3]) == 1 then
    redis.call('PSETEX', KEYS[1], ARGV[1], KEYS[3])
  else
    redis.call('DEL', KEYS[1])
  end
end
return was_there
",
    sha1: "29b9e0640f6ef8a1c0b4770750e2306f3a77c3c2",
};

/// The key at which a node keeps the last place in the queue before `key`.
#[must_use]
pub fn last(key: &Key) -> Key {
    Key::of([b"quorate:queue:", key.as_bytes()].concat())
}

/// [`Queue::join`](crate::Queue::join) over `wire`.
///
/// # Errors
///
/// The command failed, or its answer is not one of the protocol.
///
/// # Cancel safety
///
/// As [`Queue::join`](crate::Queue::join): the place may be taken, and the caller leaves it.
pub async fn join(
    wire: &impl Wire,
    key: &Key,
    place: &Place,
) -> Result<Option<Place>, BackendError> {
    let keys = [last(key), place.key().clone()];
    match JOIN.eval(wire, &keys, &[ttl().as_bytes()]).await? {
        Reply::Nil => Ok(None),
        Reply::Bytes(last) => match Place::parse(&last) {
            Some(place) => Ok(Some(place)),
            None => Err(BackendError::new(
                BackendErrorKind::Protocol,
                "what stands at the queue of a key is no place",
            )),
        },
        reply => Err(nonsense("a script", &reply)),
    }
}

/// [`Queue::leave`](crate::Queue::leave) over `wire`.
///
/// # Errors
///
/// The command failed, or its answer is not one of the protocol.
///
/// # Cancel safety
///
/// As [`Queue::leave`](crate::Queue::leave): the place may still be there. It can be sent again.
pub async fn leave(
    wire: &impl Wire,
    key: &Key,
    place: &Place,
    before: Option<&Place>,
) -> Result<(), BackendError> {
    let mut keys = vec![last(key), place.key().clone()];
    keys.extend(before.map(|before| before.key().clone()));
    LEAVE.run(wire, &keys, &[ttl().as_bytes()]).await.map(|_was_there| ())
}

fn ttl() -> Digits {
    Digits::of(Place::TTL.as_millis() as u64)
}
