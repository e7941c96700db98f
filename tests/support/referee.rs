//! Notices that two processes are where only one may be, and that one writes after a later holder.

use std::io;

use crate::redis_server::{Connection, RedisServer, Reply};

/// A critical section on a node of its own, entered by processes that hold a lock.
///
/// It reads, modifies and writes a counter, which loses a count if two are in it, with a flag that
/// no other process may have set.
#[derive(Debug)]
pub struct Referee {
    connection: Connection,
    section: String,
}

impl Referee {
    /// Goes to the node at `port`, for the section of this name.
    pub fn to_port(port: u16, section: &str) -> io::Result<Self> {
        Ok(Self { connection: Connection::to_port(port)?, section: section.to_owned() })
    }

    /// Enters the section, counts, and leaves it.
    pub fn visit(&mut self) -> io::Result<()> {
        if self.command(&["SET", "inside", "1", "NX"])? == Reply::Nil {
            self.command(&["INCR", "overlaps"])?;
        }
        let counter = match self.command(&["GET", "counter"])? {
            Reply::Bulk(counter) => count(&counter),
            _ => 0,
        };
        self.command(&["SET", "counter", &(counter + 1).to_string()])?;
        self.command(&["DEL", "inside"])?;
        Ok(())
    }

    /// How many visits were counted; `None` if two overlapped.
    pub fn verdict(node: &RedisServer, section: &str) -> Option<u64> {
        let overlaps = node.get(format!("{section}:overlaps"));
        let counter = node.get(format!("{section}:counter"));
        overlaps.is_none().then(|| counter.map_or(0, |counter| count(&counter)))
    }

    /// A command on a key, which is given by the last part of its name.
    fn command(&mut self, words: &[&str]) -> io::Result<Reply> {
        let key = format!("{}:{}", self.section, words[1]);
        let mut words = words.to_vec();
        words[1] = &key;
        self.connection.command(&words)
    }
}

fn count(digits: &[u8]) -> u64 {
    std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}
