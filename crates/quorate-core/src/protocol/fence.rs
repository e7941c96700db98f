//! Fencing on the wire: the same keys and tokens, and a number beside them.
//!
//! A lock that is taken with a fencing token is a lock like any other: the keys hold what they
//! always hold, so it excludes, and is excluded by, holders without one and other Redlock
//! libraries. What is added are [`COUNTERS`] keys, and these scripts in place of the canonical ones.
//!
//! # For operators
//!
//! - The counters are `quorate:fence:0` to `quorate:fence:1023`: each is a number without a ttl, about
//!   100 KB in all. The hash of a resource's key selects its counter, so their number is bounded. Locks
//!   that share a counter have tokens that rise faster.
//! - **Never delete or lower a counter**: later holders would get lower tokens.
//! - **Set `maxmemory-policy noeviction`**, as for all nodes. A `volatile-…` policy spares the counters,
//!   which have no ttl, but it evicts locks, which have one.
//! - Fencing needs no more persistence than locks do: after a loss of data the numbers go on from the
//!   clients' clocks, see [`FenceHint`].
//! - A user of an ACL needs `~quorate:fence:*` beside the keys that are locked.
//! - A counter that does not hold a number from 0 to 2⁵³ − 1 makes the node's vote unknown
//!   ([`BackendErrorKind::Fence`], [`BackendErrorKind::WrongType`]). It is never overwritten. Only such a
//!   counter may be deleted: it then goes on from the clients' clocks.
//!
//! # Why the prefix of a manager plays no part
//!
//! A lock is the bytes of its key, so its counter is found from those, prefix included. If the name
//! of the counter had the prefix, too, then the prefix `a:` with the name `b` and no prefix with the
//! name `a:b`, which are one lock, would have two counters, and their tokens no order.
//!
//! # Several resources at once
//!
//! A claim on several keys has one number, over the counters of all of them: an acquire sets all of
//! them to one more than the highest, a raise raises all or none, and one that is sent again levels
//! them. So for each resource alone it is as if it had been locked alone: every grant strictly
//! raises its counter, and every vote leaves the counter no lower than the number voted.

use super::{Reply, Script, Wire, nonsense};
use crate::algorithm::fence::{FenceHint, FenceVote, FencingToken};
use crate::algorithm::quorum::Vote;
use crate::backend::{BackendError, BackendErrorKind, Claim};
use crate::resource::Key;

/// How many counters a node keeps. All clients must count alike, so it never changes.
pub const COUNTERS: u32 = 1024;

/// Takes the keys with a number. `KEYS` the keys, then the counter of each; `ARGV` token, ttl in
/// ms, hint. Answers the number, or 0 if the keys are taken.
pub const ACQUIRE: Script = Script {
    source: "\
local n, ours, top = #KEYS / 2, 0, 0
for i = 1, n do
  local held = redis.call('GET', KEYS[i])
  if held == ARGV[1] then ours = ours + 1 elseif held then return 0 end
end
for i = n + 1, #KEYS do
  local raw = redis.call('GET', KEYS[i])
  if raw then
    local f = #raw <= 16 and string.find(raw, '^%d+$') and tonumber(raw)
    if not f or f > 9007199254740991 then return redis.error_reply('QUORATEFENCE not a number at ' .. KEYS[i]) end
    if f > top then top = f end
  end
end
if ours < n or top == 0 then
  top = math.max(top + 1, tonumber(ARGV[3]))
  if top > 9007199254740991 then return redis.error_reply('QUORATEFENCE no number is left at ' .. KEYS[n + 1]) end
  for i = 1, n do redis.call('SET', KEYS[i], ARGV[1], 'NX', 'PX', ARGV[2]) end
end
local number = string.format('%.0f', top)
for i = n + 1, #KEYS do redis.call('SET', KEYS[i], number) end
return number
",
    sha1: "01b9bee076429ba3e1f8ee1b040c1757be021506",
};

/// Raises the number, if all keys are ours and it would not fall. `KEYS` as [`ACQUIRE`]; `ARGV`
/// token, number.
pub const RAISE: Script = Script {
    source: "\
local n = #KEYS / 2
for i = 1, n do
  if redis.call('GET', KEYS[i]) ~= ARGV[1] then return 0 end
end
for i = n + 1, #KEYS do
  local raw = redis.call('GET', KEYS[i])
  if raw then
    local f = #raw <= 16 and string.find(raw, '^%d+$') and tonumber(raw)
    if not f or f > 9007199254740991 then return redis.error_reply('QUORATEFENCE not a number at ' .. KEYS[i]) end
    if f > tonumber(ARGV[2]) then return 0 end
  end
end
for i = n + 1, #KEYS do redis.call('SET', KEYS[i], ARGV[2]) end
return 1
",
    sha1: "96bf79dc80c21cfe715c5f7c7cedb33acbd9046e",
};

/// Deletes the keys that are ours, and raises their counters; 1 if all keys were ours. `KEYS` as
/// [`ACQUIRE`]; `ARGV` token, number. Sent to nodes that lag; others get the canonical
/// [`RELEASE`](super::RELEASE).
///
/// The lock goes in any case: what is wrong with a counter, or a node without memory for it, is no
/// reason to keep it.
pub const RELEASE: Script = Script {
    source: "\
local n, ours = #KEYS / 2, 0
for i = 1, n do
  local held = redis.pcall('GET', KEYS[i])
  if type(held) == 'table' and held.err and not string.find(held.err, 'WRONGTYPE') then return held end
  if held == ARGV[1] then
    ours = ours + redis.call('DEL', KEYS[i])
    local raw = redis.pcall('GET', KEYS[n + i])
    if not raw then raw = '0' end
    local f = type(raw) == 'string' and #raw <= 16 and string.find(raw, '^%d+$') and tonumber(raw)
    if f and f < tonumber(ARGV[2]) then redis.pcall('SET', KEYS[n + i], ARGV[2]) end
  end
end
if ours == n then return 1 end
return 0
",
    sha1: "33f5a272d072ad1b128a410276111e7714163811",
};

/// The key at which a node keeps the number of `key`.
#[must_use]
pub fn counter(key: &Key) -> Key {
    let hash = key.stable_hash();
    // The low bits of the hash alone hang on the low bits of the name.
    let place = (hash ^ (hash >> 16)) % COUNTERS;
    Key::of(format!("quorate:fence:{place}").into_bytes())
}

/// [`Fence::acquire`](crate::Fence::acquire) over `wire`.
///
/// # Errors
///
/// The vote is unknown: the command failed, its answer is not one of the protocol, or the counter
/// cannot count on ([`BackendErrorKind::Fence`]).
///
/// # Cancel safety
///
/// As [`Fence::acquire`](crate::Fence::acquire): keys may be taken and numbers raised. The text of the
/// script is not sent after a command that was dropped.
pub async fn acquire(
    wire: &impl Wire,
    claim: &Claim,
    hint: FenceHint,
) -> Result<FenceVote, BackendError> {
    let (ttl, hint) = (claim.ttl().as_millis().to_string(), hint.get().to_string());
    let arguments = [claim.token().as_bytes(), ttl.as_bytes(), hint.as_bytes()];
    match ACQUIRE.eval(wire, &keys_of(claim), &arguments).await? {
        Reply::Integer(0) => Ok(FenceVote::Refused),
        Reply::Bytes(digits) => match number(&digits) {
            Some(number) => Ok(FenceVote::Granted(number)),
            None => Err(nonsense("a script", &Reply::Bytes(Vec::new()))),
        },
        reply => Err(nonsense("a script", &reply)),
    }
}

/// [`Fence::raise`](crate::Fence::raise) over `wire`.
///
/// # Errors
///
/// As [`acquire`].
///
/// # Cancel safety
///
/// As [`Fence::raise`](crate::Fence::raise): the number may or may not be raised.
pub async fn raise(
    wire: &impl Wire,
    claim: &Claim,
    number: FencingToken,
) -> Result<Vote, BackendError> {
    let number = number.to_string();
    RAISE.run(wire, &keys_of(claim), &[claim.token().as_bytes(), number.as_bytes()]).await
}

/// [`Fence::release`](crate::Fence::release) over `wire`.
///
/// # Errors
///
/// As [`acquire`], but for the counter.
///
/// # Cancel safety
///
/// As [`Fence::release`](crate::Fence::release): keys may be deleted and numbers raised. It can be sent
/// again.
pub async fn release(
    wire: &impl Wire,
    claim: &Claim,
    number: FencingToken,
) -> Result<Vote, BackendError> {
    let number = number.to_string();
    RELEASE.run(wire, &keys_of(claim), &[claim.token().as_bytes(), number.as_bytes()]).await
}

/// The error of a node whose counter cannot count on, in the node's words.
#[must_use]
pub fn error(why: &str) -> BackendError {
    BackendError::new(BackendErrorKind::Fence, format!("{WORD} {why}"))
}

/// What the error answers of these scripts begin with.
pub(crate) const WORD: &str = "QUORATEFENCE";

/// The keys of a claim, then the counter of each.
fn keys_of(claim: &Claim) -> Vec<Key> {
    claim.keys().iter().cloned().chain(claim.keys().iter().map(counter)).collect()
}

fn number(digits: &[u8]) -> Option<FencingToken> {
    FencingToken::new(std::str::from_utf8(digits).ok()?.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_script_has_the_sha1_of_its_text() {
        for script in [ACQUIRE, RAISE, RELEASE] {
            let digest = sha1_smol::Sha1::from(script.source()).digest().to_string();
            assert_eq!(script.sha1(), digest, "of {}", script.source());
        }
    }

    /// Another number would give old and new clients different counters for one lock.
    #[test]
    fn a_key_has_its_counter_for_good() {
        for (name, counter_) in [
            ("orders:42", "quorate:fence:547"),
            ("a", "quorate:fence:288"),
            ("prefix:a", "quorate:fence:244"),
        ] {
            let key = Key::of(name.as_bytes().to_vec());
            assert_eq!(counter(&key).as_bytes(), counter_.as_bytes(), "{name}");
        }
    }

    #[test]
    fn names_that_count_up_spread_over_the_counters() {
        let names = (0..4096).map(|n| Key::of(format!("orders:{n}").into_bytes()));
        let mut counters: Vec<Key> = names.map(|key| counter(&key)).collect();
        counters.sort();
        counters.dedup();
        assert!(counters.len() > 900, "{} of {COUNTERS}", counters.len());
    }

    #[test]
    fn only_a_number_is_a_number() {
        assert_eq!(number(b"9007199254740991"), Some(FencingToken::MAX));
        for nonsense in [&b""[..], b"0", b"9007199254740992", b"-1", b"1.5", b"1e3", b"\xff"] {
            assert_eq!(number(nonsense), None);
        }
    }
}
