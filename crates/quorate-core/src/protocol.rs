//! The canonical Redlock protocol on Redis or Valkey, once, for every client.
//!
//! A resource's key holds the token as a plain string with an expiry, set by
//! `SET key token NX PX ttl`; the rest are scripts that compare before they write. So quorate
//! excludes, and is excluded by, every other Redlock library on the same nodes.
//!
//! Only where fencing tokens are asked for, numbers are kept beside the keys: see [`fence`]. Only
//! those who wait for a lock keep their places there: see [`queue`].
//! And only with the restart guard a node keeps what tells whether it has forgotten: see
//! [`quarantine`].
//!
//! A backend for another client needs a [`Wire`] and passes its calls on to the functions here. To
//! tell when a key changes, it needs a connection of RESP3 with client tracking on, and
//! [`Watches`].
//!
//! For authors of backends: what is here may change in a minor version.

use std::future::Future;
use std::time::Duration;

use crate::algorithm::quorum::Vote;
use crate::backend::{BackendError, BackendErrorKind, Claim, Holder, Sighting};
use crate::resource::Key;
use crate::runtime::BoxFuture;
pub use crate::watches::Watches;

pub use self::company::Company;
pub use self::exchange::Exchange;
pub use self::joint::{Answers, EACH, Joint};
pub use self::seats::Seats;

mod company;
mod exchange;
pub mod fence;
mod joint;
pub mod quarantine;
pub mod queue;
mod seats;

/// What a client must be able to do: send one command, give back its reply.
pub trait Wire: Send + Sync {
    /// A command as the client sends it.
    type Command: Send;

    /// Makes a command of its parts, the name first.
    fn pack(&self, command: &[&[u8]]) -> Self::Command;

    /// Sends a command **once**, and waits for the reply.
    ///
    /// # Errors
    ///
    /// [`BackendError::from_reply`] of an error answer of the node. Any other if there is no answer:
    /// then the command may have been carried out.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the command may or may not be carried out. Its reply is nobody's: no other call is given it.
    fn send(
        &self,
        command: Self::Command,
    ) -> impl Future<Output = Result<Reply, BackendError>> + Send;
}

/// A node's answer, as far as the protocol goes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply {
    /// A nil of either RESP version.
    Nil,
    /// The simple string `OK`. As [`Bytes`](Self::Bytes) it counts as well.
    Okay,
    /// An integer.
    Integer(i64),
    /// A simple or a bulk string.
    Bytes(Vec<u8>),
    /// An array.
    List(Vec<Self>),
    /// Anything else, which no command of ours is answered with.
    Other,
}

/// A Lua text and the SHA-1 by which a node knows it.
#[derive(Clone, Copy, Debug)]
pub struct Script {
    source: &'static str,
    sha1: &'static str,
}

/// Several keys at once: all of them, or none. `ARGV` token, ttl in ms.
///
/// Keys that are ours already are left as they are: this may be a request that was sent twice, and
/// the lease may have been extended in between.
pub const ACQUIRE: Script = Script {
    source: "\
for i = 1, #KEYS do
  local held = redis.call('GET', KEYS[i])
  if held and held ~= ARGV[1] then return 0 end
end
for i = 1, #KEYS do redis.call('SET', KEYS[i], ARGV[1], 'NX', 'PX', ARGV[2]) end
return 1
",
    sha1: "e8d8922bd6436c9fd74b5cb12d92c28291e05682",
};

/// After a nil to `SET NX`: is it our own token that is in the way? `ARGV` token.
pub const OWN: Script = Script {
    source: "\
if redis.call('GET', KEYS[1]) == ARGV[1] then return 1 end
return 0
",
    sha1: "2ef65ded12c4af85a76546bb7a4d69dbeff9b124",
};

/// If all keys are ours, each lives for at least the ttl from now. `ARGV` token, ttl in ms.
pub const EXTEND: Script = Script {
    source: "\
for i = 1, #KEYS do
  if redis.call('GET', KEYS[i]) ~= ARGV[1] then return 0 end
end
for i = 1, #KEYS do
  if redis.call('PTTL', KEYS[i]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[i], ARGV[2]) end
end
return 1
",
    sha1: "320ed8a623b0102e199d068a57835c3a959cdda4",
};

/// Deletes the keys that are ours; 1 if all of them were. A key of another type is not ours.
/// `ARGV` token.
pub const RELEASE: Script = Script {
    source: "\
local ours = 0
for i = 1, #KEYS do
  local held = redis.pcall('GET', KEYS[i])
  if type(held) == 'table' and held.err and not string.find(held.err, 'WRONGTYPE') then return held end
  if held == ARGV[1] then ours = ours + redis.call('DEL', KEYS[i]) end
end
if ours == #KEYS then return 1 end
return 0
",
    sha1: "2a725c6877b4e393c1130c16dd7a9cfe83d8f7dc",
};

/// What is at a key: `milliseconds left:value`, or nil.
///
/// -1 is a key without an end. It writes nothing, so that a replica and a node out of memory run it, too.
pub const INSPECT: Script = Script {
    source: "\
local held = redis.call('GET', KEYS[1])
if not held then return false end
return string.format('%.0f:', redis.call('PTTL', KEYS[1])) .. held
",
    sha1: "121a3e34303a218d6ce03e5859be8339b2d904a4",
};

impl Script {
    /// The Lua text.
    #[must_use]
    pub const fn source(&self) -> &'static str {
        self.source
    }

    /// Its SHA-1 in lower-case hexadecimal digits.
    #[must_use]
    pub const fn sha1(&self) -> &'static str {
        self.sha1
    }

    /// Runs a script whose answer is a vote.
    async fn run(
        &self,
        wire: &impl Wire,
        keys: &[Key],
        arguments: &[&[u8]],
    ) -> Result<Vote, BackendError> {
        match self.eval(wire, keys, arguments).await? {
            Reply::Integer(1) => Ok(Vote::Granted),
            Reply::Integer(0) => Ok(Vote::Refused),
            reply => Err(nonsense("a script", &reply)),
        }
    }

    /// `EVALSHA`, and `EVAL` where the node does not know the script.
    async fn eval(
        &self,
        wire: &impl Wire,
        keys: &[Key],
        arguments: &[&[u8]],
    ) -> Result<Reply, BackendError> {
        let pack = |parts: &[&[u8]]| wire.pack(parts);
        let command = packed([b"EVALSHA", self.sha1.as_bytes()], keys, arguments, pack);
        match wire.send(command).await {
            Err(error) if is_noscript(&error) => {
                let command = packed([b"EVAL", self.source.as_bytes()], keys, arguments, pack);
                // A node is told the whole text once, so that is not kept in every future.
                apart(wire.send(command)).await
            }
            reply => reply,
        }
    }
}

fn apart<'a, F: Future + Send + 'a>(future: F) -> BoxFuture<'a, F::Output> {
    Box::pin(future)
}

fn packed<C>(
    [name, script]: [&[u8]; 2],
    keys: &[Key],
    arguments: &[&[u8]],
    pack: impl FnOnce(&[&[u8]]) -> C,
) -> C {
    let count = Digits::of(keys.len() as u64);
    let count = count.as_bytes();
    match (keys, arguments) {
        ([key], []) => pack(&[name, script, count, key.as_bytes()]),
        ([key], [a]) => pack(&[name, script, count, key.as_bytes(), a]),
        ([key], [a, b]) => pack(&[name, script, count, key.as_bytes(), a, b]),
        _ => {
            let mut command = vec![name, script, count];
            command.extend(keys.iter().map(Key::as_bytes));
            command.extend(arguments);
            pack(&command)
        }
    }
}

/// A number as its decimal digits.
struct Digits {
    bytes: [u8; 20],
    start: usize,
}

impl Digits {
    fn of(mut number: u64) -> Self {
        let (mut bytes, mut start) = ([b'0'; 20], 20);
        while number > 0 || start == 20 {
            start -= 1;
            bytes[start] += (number % 10) as u8;
            number /= 10;
        }
        Self { bytes, start }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

/// [`LockBackend::acquire`](crate::LockBackend::acquire) over `wire`.
///
/// # Errors
///
/// The vote is unknown: the command failed, or its answer is not one of the protocol.
///
/// # Cancel safety
///
/// Dropped, the command that was sent may or may not be carried out, and what would follow it is not
/// sent: the question whose the key is, or the text of the script. The caller sends a [`release`].
pub async fn acquire(wire: &impl Wire, claim: &Claim) -> Result<Vote, BackendError> {
    Exchange::acquire(claim).over(wire, claim).await
}

/// [`LockBackend::extend`](crate::LockBackend::extend) over `wire`.
///
/// # Errors
///
/// As [`acquire`].
///
/// # Cancel safety
///
/// Dropped, the command that was sent may or may not be carried out, and the text of the script is not
/// sent after it: the keys end as before, or later.
pub async fn extend(wire: &impl Wire, claim: &Claim) -> Result<Vote, BackendError> {
    Exchange::extend().over(wire, claim).await
}

/// [`LockBackend::release`](crate::LockBackend::release) over `wire`.
///
/// # Errors
///
/// As [`acquire`].
///
/// # Cancel safety
///
/// Dropped, the command that was sent may or may not be carried out, and the text of the script is not
/// sent after it. It can be sent again.
pub async fn release(wire: &impl Wire, claim: &Claim) -> Result<Vote, BackendError> {
    Exchange::release().over(wire, claim).await
}

/// [`Identify::server_id`](crate::backend::Identify::server_id) over `wire`: the `run_id` of
/// `INFO server`.
///
/// # Errors
///
/// The node cannot be asked, or may not be (`NOPERM`).
///
/// # Cancel safety
///
/// The future can be dropped at any time: it only reads.
pub async fn server_id(wire: &impl Wire) -> Result<Option<String>, BackendError> {
    let reply = wire.send(wire.pack(&[b"INFO", b"server"])).await?;
    let Reply::Bytes(info) = &reply else {
        return Err(nonsense("INFO", &reply));
    };
    let info = String::from_utf8_lossy(info);
    let id = info.lines().find_map(|line| line.strip_prefix("run_id:")).map(str::trim);
    Ok(id.filter(|id| !id.is_empty()).map(str::to_owned))
}

/// [`Inspect::inspect`](crate::backend::Inspect::inspect) over `wire`.
///
/// # Errors
///
/// The node cannot be asked, its answer is not one of the protocol, or what is at the key is not
/// a string (`WRONGTYPE`).
///
/// # Cancel safety
///
/// The future can be dropped at any time: it only reads.
pub async fn inspect(wire: &impl Wire, key: &Key) -> Result<Option<Sighting>, BackendError> {
    match INSPECT.eval(wire, std::slice::from_ref(key), &[]).await? {
        Reply::Nil => Ok(None),
        Reply::Bytes(answer) => match sighting(&answer) {
            Some(sighting) => Ok(Some(sighting)),
            None => Err(nonsense("a script", &Reply::Bytes(Vec::new()))),
        },
        reply => Err(nonsense("a script", &reply)),
    }
}

/// Reads the answer of [`INSPECT`]. The value may have any bytes in it, colons too.
fn sighting(answer: &[u8]) -> Option<Sighting> {
    let colon = answer.iter().position(|byte| *byte == b':')?;
    let (millis, value) = (&answer[..colon], &answer[colon + 1..]);
    let time_left = match std::str::from_utf8(millis).ok()? {
        "-1" => None,
        millis => Some(Duration::from_millis(millis.parse().ok()?)),
    };
    Some(Sighting::new(Holder::new(value), time_left))
}

fn is_noscript(error: &BackendError) -> bool {
    error.kind() == BackendErrorKind::Script && error.to_string().starts_with("NOSCRIPT")
}

/// The reply itself stays out of the text: it may be anything.
fn nonsense(command: &str, reply: &Reply) -> BackendError {
    let what = match reply {
        Reply::Nil => "a nil",
        Reply::Okay => "an OK",
        Reply::Integer(_) => "an unexpected integer",
        Reply::Bytes(_) => "an unexpected string",
        Reply::List(_) => "an unexpected array",
        Reply::Other => "a reply of another type",
    };
    BackendError::new(BackendErrorKind::Protocol, format!("{what} in answer to {command}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_script_has_the_sha1_of_its_text() {
        for script in [ACQUIRE, OWN, EXTEND, RELEASE, INSPECT, EACH, queue::JOIN, queue::LEAVE] {
            let digest = sha1_smol::Sha1::from(script.source()).digest().to_string();
            assert_eq!(script.sha1(), digest, "of {}", script.source());
        }
    }

    #[test]
    fn digits_are_those_of_the_number() {
        for number in [0, 1, 9, 10, 42, 30_000, 1_000_000_007, u64::MAX] {
            assert_eq!(Digits::of(number).as_bytes(), number.to_string().as_bytes());
        }
    }

    #[test]
    fn what_a_node_saw_is_read_whatever_the_value_is() {
        let ms = |millis| Some(Duration::from_millis(millis));
        for (answer, value, time_left) in [
            (&b"1234:token"[..], &b"token"[..], ms(1234)),
            (b"0:a:b:", b"a:b:", ms(0)),
            (b"-1:another program's", b"another program's", None),
            (b"5:\0\xff\r\n", b"\0\xff\r\n", ms(5)),
            (b"1000000000000000:", b"", ms(1_000_000_000_000_000)),
        ] {
            assert_eq!(sighting(answer), Some(Sighting::new(Holder::new(value), time_left)));
        }
        for nonsense in [&b""[..], b"token", b":token", b"-2:token", b"1.5:token", b"\xff:token"] {
            assert_eq!(sighting(nonsense), None);
        }
    }
}
