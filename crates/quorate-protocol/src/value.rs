//! A reply as a plain value, and what a server pushes.

use std::fmt;

use quorate_core::backend::Vote;
use quorate_core::{BackendError, BackendErrorKind};

use crate::error_reply::error_of_reply;

/// A server's reply to one command.
///
/// `Debug` shows no bytes: they may be a token (A6).
#[derive(Clone, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "our commands have no other replies")]
pub enum Value {
    /// A nil of either RESP version.
    Nil,
    /// An integer.
    Int(i64),
    /// The simple string `OK`. A client may give it as [`Text`](Self::Text), too.
    Okay,
    /// A simple or a bulk string.
    Text(Vec<u8>),
    /// An array.
    List(Vec<Self>),
    /// An error reply: the server's own text.
    Error(Box<str>),
}

impl Value {
    /// What kind of reply it is, for an error that must not show what is in it.
    const fn kind(&self) -> &'static str {
        match self {
            Self::Nil => "a nil",
            Self::Int(_) => "an unexpected integer",
            Self::Okay | Self::Text(_) => "an unexpected string",
            Self::List(_) => "an unexpected array",
            Self::Error(_) => "an error",
        }
    }

    /// The error of a reply that `command` does not have.
    pub(crate) fn unexpected(&self, command: &str) -> BackendError {
        let kind = BackendErrorKind::Protocol;
        BackendError::new(kind, format!("{} in reply to {command}", self.kind()))
    }

    /// The vote of a script that returns 1 or 0.
    pub(crate) fn vote(&self) -> Result<Vote, BackendError> {
        match self {
            Self::Int(1) => Ok(Vote::Granted),
            Self::Int(0) => Ok(Vote::Refused),
            _ => Err(self.unexpected("a script")),
        }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(number) => write!(f, "Int({number})"),
            // The rest may repeat the command.
            Self::Error(text) => write!(f, "Error({})", text.split(' ').next().unwrap_or_default()),
            Self::Nil => f.write_str("Nil"),
            Self::Okay => f.write_str("Okay"),
            Self::Text(_) => f.write_str("Text(..)"),
            Self::List(list) => f.debug_tuple("List").field(list).finish(),
        }
    }
}

/// Sorts what came back for one command: an error reply is an error (Q4).
pub(crate) fn read(answer: Result<Value, BackendError>) -> Result<Value, BackendError> {
    match answer? {
        Value::Error(text) => Err(error_of_reply(&text)),
        reply => Ok(reply),
    }
}

/// What came back for a command that the client has no reply for.
pub(crate) fn no_reply() -> Result<Value, BackendError> {
    Err(BackendError::new(BackendErrorKind::Protocol, "a reply is missing"))
}

/// What a server sends without being asked, on a connection with client tracking.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "client tracking has no other messages")]
pub enum Push {
    /// This key was written, has expired, or is no longer tracked.
    Key(Vec<u8>),
    /// All keys were deleted, or are no longer tracked.
    AllKeys,
    /// The connection has ended: no more pushes will come on it.
    ConnectionLost,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The server had it, so it may have been executed.
    #[test]
    fn q4_an_error_reply_is_an_error_of_a_command_that_was_sent() {
        let error = read(Ok(Value::Error("OOM no room".into()))).unwrap_err();
        assert_eq!((error.kind(), error.is_not_sent()), (BackendErrorKind::OutOfMemory, false));
    }

    #[test]
    fn a6_debug_shows_no_bytes() {
        let error = Value::Error("ERR unknown command 'GET', with args: 's3cret'".into());
        let reply = Value::List(vec![Value::Text(b"s3cret".to_vec()), Value::Int(1), error]);
        assert_eq!(format!("{reply:?}"), "List([Text(..), Int(1), Error(ERR)])");
    }
}
