//! What the locks protect: counters that are read, and later written, so that two at once lose one.

use std::io;
use std::sync::Arc;

use quorate::{FencedCell, FencingToken};
use quorate_tests::{Connection, RedisServer, Reply};

/// The token has passed, and the counter is read, in one step. A reader must pass, too: else an
/// older holder could write between its reading and its writing.
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

/// The resources of one lock, as one holder after the other sees them: a counter in a store and
/// one in the process, both of which check tokens, and a counter in the store that does not.
#[derive(Debug)]
pub struct Resource {
    store: Connection,
    lock: u32,
    cell: Arc<FencedCell<u32>>,
}

/// What a holder has read.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    store: Option<i64>,
    cell: Option<u32>,
    bare: i64,
}

/// What became of the writes of a holder.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "a part of the tests")]
pub struct Written {
    /// Acknowledged by the store, which checks tokens.
    pub store: bool,
    /// Acknowledged by the cell in this process.
    pub cell: bool,
}

impl Resource {
    /// Those of `lock`, in the store at `port`.
    ///
    /// # Errors
    ///
    /// What the connection says.
    pub fn open(port: u16, lock: u32, cell: Arc<FencedCell<u32>>) -> io::Result<Self> {
        Ok(Self { store: Connection::to_port(port)?, lock, cell })
    }

    /// Reads all counters, under a token.
    ///
    /// # Errors
    ///
    /// What the connection says.
    pub fn read(&mut self, token: FencingToken) -> io::Result<Seen> {
        let bare = match self.store.command(&["GET", &bare(self.lock)])? {
            Reply::Bulk(digits) => number(&digits),
            _ => 0,
        };
        let store = self.eval(READ, token, 0)?;
        let cell = self.cell.write(token, |counter| *counter).ok();
        Ok(Seen { store: (store >= 0).then_some(store), cell, bare })
    }

    /// Adds one to what was read, under the same token. The store is asked even if it has refused
    /// the token before.
    ///
    /// # Errors
    ///
    /// What the connection says.
    pub fn write(&mut self, token: FencingToken, seen: Seen) -> io::Result<Written> {
        let next = (seen.bare + 1).to_string();
        self.store.command(&["SET", &bare(self.lock), &next])?;
        self.store.command(&["INCR", &acknowledged(self.lock)])?;
        let store = self.eval(WRITE, token, seen.store.unwrap_or_default() + 1)? == 1;
        let cell = self.cell.write(token, |counter| *counter = seen.cell.unwrap_or_default() + 1);
        Ok(Written { store, cell: cell.is_ok() })
    }

    fn eval(&mut self, script: &str, token: FencingToken, next: i64) -> io::Result<i64> {
        let (fence, counter) = (format!("fence:{}", self.lock), checked(self.lock));
        let (token, next) = (token.to_string(), next.to_string());
        match self.store.command(&["EVAL", script, "2", &fence, &counter, &token, &next])? {
            Reply::Integer(answer) => Ok(answer),
            other => Err(io::Error::other(format!("{other:?}"))),
        }
    }
}

/// The counter of a lock in the store that checks tokens, when all is over.
#[must_use]
pub fn counted(store: &RedisServer, lock: u32) -> u64 {
    look(store, &checked(lock))
}

/// How many writes the counter that checks no token has lost.
#[must_use]
pub fn lost_without_tokens(store: &RedisServer, lock: u32) -> u64 {
    look(store, &acknowledged(lock)).saturating_sub(look(store, &bare(lock)))
}

fn look(store: &RedisServer, key: &str) -> u64 {
    store.get(key).map_or(0, |digits| number(&digits).unsigned_abs())
}

fn checked(lock: u32) -> String {
    format!("checked:{lock}")
}

fn bare(lock: u32) -> String {
    format!("bare:{lock}")
}

fn acknowledged(lock: u32) -> String {
    format!("acknowledged:{lock}")
}

fn number(digits: &[u8]) -> i64 {
    std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).unwrap_or_default()
}
