//! What redis-rs says, in the words of quorate, and without secrets.

use quorate_core::protocol::Reply;
use quorate_core::{BackendError, BackendErrorKind};
use redis::{ErrorKind, RedisError, ServerError, Value};

/// An address that no node can be reached at, whatever the node does. It shows no password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The address is not one, or says something that would be ignored.
    #[error("{address:?} is not the address of a node: {reason}")]
    InvalidAddress {
        /// The address without user, password and parameters; as much as is surely none of them.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The address can be used with a feature of this crate only.
    #[error("{address:?} needs the feature {feature}")]
    MissingFeature {
        /// The address without user and password.
        address: String,
        /// The feature, or those of which one is needed.
        feature: &'static str,
    },
    /// A cluster, or servers behind sentinels. Every lock needs *independent* nodes.
    #[error("{address:?} is not one node but a group of them")]
    NotOneNode {
        /// The address without user and password.
        address: String,
    },
}

/// What is wrong with a login that redis-rs would leave out: commands would run as another user.
pub(crate) const NO_PASSWORD: &str = "a user needs a password; any will do for nopass";

/// There is no connection, and nothing has failed, as far as is known.
pub(crate) fn not_yet() -> BackendError {
    BackendError::new(BackendErrorKind::Connection, "there is no connection yet")
}

/// The answer of a node. An error answer becomes an error here.
pub(crate) fn reply(value: Value) -> Result<Reply, BackendError> {
    Ok(match value {
        Value::Nil => Reply::Nil,
        Value::Int(number) => Reply::Integer(number),
        Value::BulkString(bytes) => Reply::Bytes(bytes),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => {
            Reply::Bytes(text.into_bytes())
        }
        Value::Okay => Reply::Okay,
        Value::Attribute { data, .. } => return reply(*data),
        Value::ServerError(error) => return Err(of_answer(&error)),
        Value::Array(values) => {
            Reply::List(values.into_iter().map(reply).collect::<Result<_, _>>()?)
        }
        _ => Reply::Other,
    })
}

/// Why there is no answer.
pub(crate) fn of_redis(error: &RedisError) -> BackendError {
    if let Some([(_, answer), ..]) = error.clone().into_server_errors().as_deref() {
        return of_answer(answer);
    }
    let (kind, message) = match error.kind() {
        ErrorKind::AuthenticationFailed => {
            (BackendErrorKind::Auth, "authentication failed".to_owned())
        }
        ErrorKind::Parse if is_cut_off(error) => (
            BackendErrorKind::Connection,
            "the connection was lost in the middle of an answer".to_owned(),
        ),
        // The text of a parse error quotes what the peer sent, which may be an echo of a password.
        ErrorKind::Parse | ErrorKind::Server(_) | ErrorKind::UnexpectedReturnType => {
            (BackendErrorKind::Protocol, "the answer is not one of Redis".to_owned())
        }
        ErrorKind::RESP3NotSupported => {
            // As a node answers whose `HELLO` was renamed, and as fred tells it.
            (BackendErrorKind::Script, "the node does not know HELLO, so no RESP3".to_owned())
        }
        ErrorKind::Io => {
            let (kind, message) = if error.is_timeout() {
                (BackendErrorKind::TimedOut, error.to_string())
            } else if error.is_connection_dropped() && !error.is_connection_refusal() {
                (BackendErrorKind::Connection, format!("connection lost: {error}"))
            } else {
                (BackendErrorKind::Connection, error.to_string())
            };
            return BackendError::new(kind, message).with_source(error.clone());
        }
        _ => (BackendErrorKind::Other, format!("redis-rs cannot do it: {}", error.category())),
    };
    BackendError::new(kind, message)
}

/// Why there is no answer to the first command on a connection. A node that turns a client away says why
/// and hangs up at once, and redis-rs drops an answer that comes before a command.
pub(crate) fn of_first(error: &RedisError) -> BackendError {
    if !error.is_connection_dropped() {
        return of_redis(error);
    }
    let message = "the node closed the connection before it answered anything: it may be at \
                   maxclients, or in protected mode";
    BackendError::new(BackendErrorKind::Connection, message).with_source(error.clone())
}

/// Whether a parse error says that the bytes ended too early: redis-rs parses what was there when a
/// connection ended. What the peer sent is quoted on lines of its own, with its line breaks escaped.
fn is_cut_off(error: &RedisError) -> bool {
    error.to_string().lines().any(|line| line == "Unexpected end of input")
}

/// Whether nothing more can be had from a connection after `error`.
pub(crate) fn ends_connection(error: &RedisError) -> bool {
    // redis-rs takes an ETIMEDOUT of the kernel for recoverable. No timeout of its own is on.
    error.is_io_error() || error.is_unrecoverable_error()
}

fn of_answer(error: &ServerError) -> BackendError {
    let details = error.details().unwrap_or_default();
    // "unknown command 'AUTH', with args beginning with: …": a renamed command quotes the password,
    // or the token.
    let details =
        details.split_once(", with args beginning with").map_or(details, |(safe, _)| safe);
    BackendError::from_reply(format!("{} {details}", error.code()).trim_end())
}

#[cfg(test)]
mod tests {
    use std::io;

    use BackendErrorKind as Kind;

    use super::*;

    fn answer(line: &str) -> Result<Reply, BackendError> {
        reply(redis::parse_redis_value(line.as_bytes()).unwrap())
    }

    #[test]
    fn q4_an_error_answer_is_unknown_with_its_reason() {
        for (text, kind) in [
            ("WRONGPASS invalid username-password pair", Kind::Auth),
            ("NOAUTH Authentication required.", Kind::Auth),
            ("NOSCRIPT No matching script.", Kind::Script),
            ("WRONGTYPE Operation against a key", Kind::WrongType),
            ("LOADING Redis is loading", Kind::Loading),
            ("MISCONF Redis is configured to save", Kind::Misconfigured),
            ("READONLY You can't write", Kind::ReadOnly),
            ("ERR max number of clients reached", Kind::Connection),
            ("OOM", Kind::OutOfMemory),
        ] {
            let error = answer(&format!("-{text}\r\n")).unwrap_err();
            assert_eq!(error.kind(), kind, "{text}");
            assert_eq!(error.to_string(), text);
        }
    }

    #[test]
    fn a6_a_renamed_command_tells_no_token() {
        let error = answer(
            "-ERR unknown command 'EVALSHA', with args beginning with: '82' '1' 'k' 'hunter2'\r\n",
        )
        .unwrap_err();
        assert_eq!(error.kind(), Kind::Script);
        assert_eq!(error.to_string(), "ERR unknown command 'EVALSHA'");
    }

    #[test]
    fn a_reply_keeps_its_bytes_in_both_protocols() {
        for (line, expected) in [
            ("+OK\r\n", Reply::Okay),
            ("+PONG\r\n", Reply::Bytes(b"PONG".to_vec())),
            ("$2\r\n\0\r\r\n", Reply::Bytes(b"\0\r".to_vec())),
            ("=8\r\ntxt:info\r\n", Reply::Bytes(b"info".to_vec())),
            ("$-1\r\n", Reply::Nil),
            ("_\r\n", Reply::Nil),
            (":1\r\n", Reply::Integer(1)),
            (
                "*2\r\n:1\r\n$2\r\nno\r\n",
                Reply::List(vec![Reply::Integer(1), Reply::Bytes(b"no".to_vec())]),
            ),
            ("%1\r\n:1\r\n:2\r\n", Reply::Other),
        ] {
            assert_eq!(answer(line).unwrap(), expected, "{line}");
        }
    }

    #[test]
    fn what_went_wrong_is_told_apart() {
        let io = |kind: io::ErrorKind| of_redis(&io::Error::from(kind).into());
        let refused = io(io::ErrorKind::ConnectionRefused);
        assert_eq!(refused.kind(), Kind::Connection);
        assert_eq!(refused.to_string(), "connection refused");
        let lost = io(io::ErrorKind::BrokenPipe);
        assert_eq!(lost.kind(), Kind::Connection);
        assert_eq!(lost.to_string(), "connection lost: broken pipe");
        assert_eq!(io(io::ErrorKind::TimedOut).kind(), Kind::TimedOut);

        let garbage = redis::parse_redis_value(b"HTTP/1.1 400 hunter2\r\n\r\n").unwrap_err();
        assert_eq!(of_redis(&garbage).kind(), Kind::Protocol);
        assert!(!of_redis(&garbage).to_string().contains("hunter2"));
    }

    #[test]
    fn a_connection_that_the_kernel_gave_up_is_not_used_again() {
        let gone = RedisError::from(io::Error::from(io::ErrorKind::TimedOut));
        assert!(!gone.is_unrecoverable_error());
        assert!(ends_connection(&gone));
    }
}
