//! A protected resource that checks fencing tokens: one key on a node, written by one script.

use std::io;

use super::{Connection, Reply};

/// The check and the write are one step.
const WRITE: &str = "\
if tonumber(ARGV[1]) < tonumber(redis.call('GET', KEYS[1]) or '0') then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
return 1
";

/// Writes under `token`; `false` if a greater one was there before.
///
/// # Errors
///
/// If the connection breaks.
pub fn write(referee: &mut Connection, token: u64) -> io::Result<bool> {
    let reply = referee.command(&["EVAL", WRITE, "1", "fence", &token.to_string()])?;
    match reply {
        Reply::Integer(written) => Ok(written == 1),
        other => Err(io::Error::other(format!("{other:?}"))),
    }
}
