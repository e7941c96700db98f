//! What redis-rs reports, in the words of quorate, and without secrets.

use quorate_core::{BackendError, BackendErrorKind};
use quorate_protocol::{HUNG_UP, Value, error_of_tls};
use redis::{ErrorKind, RedisError, ServerError};

/// A server's reply.
pub(crate) fn reply(value: redis::Value) -> Value {
    match value {
        redis::Value::Nil => Value::Nil,
        redis::Value::Int(number) => Value::Int(number),
        redis::Value::BulkString(bytes) => Value::Text(bytes),
        redis::Value::SimpleString(text) | redis::Value::VerbatimString { text, .. } => {
            Value::Text(text.into_bytes())
        }
        redis::Value::Okay => Value::Okay,
        redis::Value::Array(values) | redis::Value::Set(values) => {
            Value::List(values.into_iter().map(reply).collect())
        }
        redis::Value::Map(pairs) => {
            let pairs = pairs.into_iter().flat_map(|(name, value)| [reply(name), reply(value)]);
            Value::List(pairs.collect())
        }
        redis::Value::Attribute { data, .. } => reply(*data),
        redis::Value::ServerError(error) => Value::Error(text_of(&error).into()),
        // No command of ours has such a reply, nor an empty list.
        _ => Value::List(Vec::new()),
    }
}

/// The server's own text.
fn text_of(error: &ServerError) -> String {
    let details = error.details().unwrap_or_default();
    format!("{} {details}", error.code()).trim_end().to_owned()
}

/// Why there is no reply, or no connection.
pub(crate) fn of_redis(error: &RedisError) -> BackendError {
    if let Some([(_, reply), ..]) = error.clone().into_server_errors().as_deref() {
        return quorate_protocol::error_of_reply(&text_of(reply));
    }
    if error.kind() == ErrorKind::Io
        && let Some(refusal) = error_of_tls(&error.to_string())
    {
        return refusal.with_source(error.clone());
    }
    let (kind, text) = match error.kind() {
        // The text of such an error quotes what the peer sent, which may be an echo of a password
        // (A6).
        ErrorKind::Parse | ErrorKind::UnexpectedReturnType => {
            let text = "the reply is not one of Redis";
            return BackendError::new(BackendErrorKind::Protocol, text);
        }
        ErrorKind::AuthenticationFailed => {
            (BackendErrorKind::Auth, "authentication failed".to_owned())
        }
        // A certificate and a key that are not of one kind, for example: no address is read here.
        ErrorKind::InvalidClientConfig => (BackendErrorKind::Tls, error.to_string()),
        ErrorKind::Io if error.is_timeout() => (BackendErrorKind::TimedOut, error.to_string()),
        ErrorKind::Io if error.is_connection_dropped() && !error.is_connection_refusal() => {
            (BackendErrorKind::Connection, format!("connection lost: {error}"))
        }
        ErrorKind::Io => (BackendErrorKind::Connection, error.to_string()),
        _ => (BackendErrorKind::Other, format!("redis-rs cannot do it: {}", error.category())),
    };
    BackendError::new(kind, text).with_source(error.clone())
}

/// Why a connection could not be made.
pub(crate) fn of_connect(error: &RedisError) -> BackendError {
    if !error.is_connection_dropped() || error.is_connection_refusal() {
        return of_redis(error);
    }
    BackendError::new(BackendErrorKind::Connection, HUNG_UP).with_source(error.clone())
}

/// Whether the server does not know `HELLO`, or not this version of the protocol.
pub(crate) fn lacks_resp3(error: &RedisError) -> bool {
    error.kind() == ErrorKind::RESP3NotSupported || quorate_protocol::lacks_resp3(&of_redis(error))
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::io;

    use BackendErrorKind as Kind;

    use super::*;

    fn parsed(line: &str) -> Value {
        reply(redis::parse_redis_value(line.as_bytes()).unwrap())
    }

    #[test]
    fn an_error_reply_keeps_the_text_of_the_server() {
        for text in ["WRONGPASS invalid username-password pair", "ERR max number", "OOM"] {
            assert_eq!(parsed(&format!("-{text}\r\n")), Value::Error(text.into()));
        }
    }

    #[test]
    fn a_reply_keeps_its_bytes_in_both_protocols() {
        for (line, expected) in [
            ("+OK\r\n", Value::Okay),
            ("+PONG\r\n", Value::Text(b"PONG".to_vec())),
            ("$2\r\n\0\r\r\n", Value::Text(b"\0\r".to_vec())),
            ("=8\r\ntxt:info\r\n", Value::Text(b"info".to_vec())),
            ("$-1\r\n", Value::Nil),
            ("_\r\n", Value::Nil),
            (":1\r\n", Value::Int(1)),
            (
                "*3\r\n:1\r\n$2\r\nno\r\n-ERR x\r\n",
                Value::List(vec![
                    Value::Int(1),
                    Value::Text(b"no".to_vec()),
                    Value::Error("ERR x".into()),
                ]),
            ),
            ("%1\r\n:1\r\n:2\r\n", Value::List(vec![Value::Int(1), Value::Int(2)])),
        ] {
            assert_eq!(parsed(line), expected, "{line}");
        }
    }

    #[test]
    fn a_failure_has_its_kind_and_its_source() {
        let io = |kind: io::ErrorKind| of_redis(&io::Error::from(kind).into());
        for (kind, expected, text) in [
            (io::ErrorKind::ConnectionRefused, Kind::Connection, "connection refused"),
            (io::ErrorKind::BrokenPipe, Kind::Connection, "connection lost: broken pipe"),
            (io::ErrorKind::TimedOut, Kind::TimedOut, "timed out"),
        ] {
            let error = io(kind);
            assert_eq!((error.kind(), error.to_string().as_str()), (expected, text));
            assert!(error.source().unwrap().is::<RedisError>());
        }
    }

    #[test]
    fn a6_the_error_of_a_peer_that_is_not_redis_shows_nothing_that_it_sent() {
        let garbage = redis::parse_redis_value(b"HTTP/1.1 400 hunter2\r\n\r\n").unwrap_err();
        let error = of_redis(&garbage);
        assert_eq!(error.kind(), Kind::Protocol);
        assert!(!format!("{error} {error:?}").contains("hunter2"));
    }
}
