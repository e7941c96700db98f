//! What a lock protects: counters that a holder reads and later writes, so that two holders at once lose a count.

use std::io;

use crate::redis_server::{Connection, RedisServer, Reply};

/// The token passes, and the counter is read, in one step. A reader must pass, too: else an older
/// holder could write between its reading and its writing.
const READ: &str = "\
if tonumber(ARGV[1]) < tonumber(redis.call('GET', KEYS[1]) or '0') then return -1 end
redis.call('SET', KEYS[1], ARGV[1])
return tonumber(redis.call('GET', KEYS[2]) or '0')
";

const WRITE: &str = "\
if tonumber(ARGV[1]) < tonumber(redis.call('GET', KEYS[1]) or '0') then return -1 end
redis.call('SET', KEYS[1], ARGV[1])
redis.call('SET', KEYS[2], ARGV[2])
return 1
";

/// The counters of one lock on a node of their own: one checks fencing tokens, and one does not.
#[derive(Debug)]
pub struct Resource {
    connection: Connection,
    lock: String,
}

/// What a holder has read.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    checked: Option<i64>,
    bare: i64,
}

impl Resource {
    /// Those of `lock`, on the node at `port`.
    pub fn open(port: u16, lock: &str) -> io::Result<Self> {
        Ok(Self { connection: Connection::to_port(port)?, lock: lock.to_owned() })
    }

    /// Reads both counters under a token.
    pub fn read(&mut self, token: u64) -> io::Result<Seen> {
        let bare = match self.connection.command(&["GET", &bare(&self.lock)])? {
            Reply::Bulk(digits) => number(&digits),
            _ => 0,
        };
        let checked = self.eval(READ, token, 0)?;
        Ok(Seen { checked: (checked >= 0).then_some(checked), bare })
    }

    /// Adds one to the number read, under the same token. Returns whether the counter that checks tokens
    /// took it.
    pub fn write(&mut self, token: u64, seen: Seen) -> io::Result<bool> {
        let next = (seen.bare + 1).to_string();
        self.connection.command(&["SET", &bare(&self.lock), &next])?;
        self.connection.command(&["INCR", &acknowledged(&self.lock)])?;
        Ok(self.eval(WRITE, token, seen.checked.unwrap_or_default() + 1)? == 1)
    }

    fn eval(&mut self, script: &str, token: u64, next: i64) -> io::Result<i64> {
        let (fence, counter) = (format!("fence:{}", self.lock), checked(&self.lock));
        let (token, next) = (token.to_string(), next.to_string());
        match self.connection.command(&["EVAL", script, "2", &fence, &counter, &token, &next])? {
            Reply::Integer(answer) => Ok(answer),
            other => Err(io::Error::other(format!("{other:?}"))),
        }
    }
}

/// The counter of a lock that checks tokens, when all is over.
pub fn counted(node: &RedisServer, lock: &str) -> u64 {
    look(node, &checked(lock))
}

/// How many writes the counter that checks no token has lost.
pub fn lost_without_tokens(node: &RedisServer, lock: &str) -> u64 {
    look(node, &acknowledged(lock)).saturating_sub(look(node, &bare(lock)))
}

fn look(node: &RedisServer, key: &str) -> u64 {
    node.get(key).map_or(0, |digits| number(&digits).unsigned_abs())
}

fn checked(lock: &str) -> String {
    format!("checked:{lock}")
}

fn bare(lock: &str) -> String {
    format!("bare:{lock}")
}

fn acknowledged(lock: &str) -> String {
    format!("acknowledged:{lock}")
}

fn number(digits: &[u8]) -> i64 {
    std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).unwrap_or_default()
}
