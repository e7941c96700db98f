//! A reply as a plain value, and how a command can fail without one.

use std::error::Error;
use std::fmt;

use quorate_core::{BackendError, BackendErrorKind, Vote};

use crate::error_reply::error_of_reply;

/// A server's reply to one command.
///
/// `Debug` shows no bytes: they may be a token (A6).
#[derive(Clone, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "our commands have no other replies")]
pub enum Reply {
    /// A nil of either RESP version.
    Nil,
    /// An integer.
    Int(i64),
    /// A simple or a bulk string; `OK` as well.
    Text(Vec<u8>),
    /// An array.
    List(Vec<Self>),
    /// An error reply: the server's own text.
    Error(Box<str>),
}

impl Reply {
    /// What kind of reply it is, for an error that must not show what is in it.
    const fn kind(&self) -> &'static str {
        match self {
            Self::Nil => "a nil",
            Self::Int(_) => "an unexpected integer",
            Self::Text(_) => "an unexpected string",
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

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(number) => write!(f, "Int({number})"),
            // The rest may repeat the command.
            Self::Error(text) => write!(f, "Error({})", text.split(' ').next().unwrap_or_default()),
            Self::Nil => f.write_str("Nil"),
            Self::Text(_) => f.write_str("Text(..)"),
            Self::List(list) => f.debug_tuple("List").field(list).finish(),
        }
    }
}

/// Why there is no reply to a command.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete by definition: it may have left, or not")]
pub enum Failure {
    /// The command was certainly not sent, and never will be.
    NotSent(BackendError),
    /// The command may have been executed.
    Lost(BackendError),
}

impl Failure {
    /// A command that was not sent since there is no connection.
    #[must_use]
    pub fn not_sent(why: &str) -> Self {
        Self::NotSent(BackendError::new(BackendErrorKind::Connection, why))
    }

    /// A command whose connection ended before its reply.
    #[must_use]
    pub fn lost(why: &str) -> Self {
        Self::Lost(BackendError::new(BackendErrorKind::Connection, why))
    }
}

impl From<Failure> for BackendError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::NotSent(error) => error.not_sent(),
            Failure::Lost(error) => error,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent(error) => write!(f, "not sent: {error}"),
            Self::Lost(error) => write!(f, "connection lost: {error}"),
        }
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::NotSent(error) | Self::Lost(error) => Some(error),
        }
    }
}

/// Sorts what came back for one command: an error reply is an error (Q4).
pub(crate) fn read(answer: Result<Reply, Failure>) -> Result<Reply, BackendError> {
    match answer? {
        Reply::Error(text) => Err(error_of_reply(&text)),
        reply => Ok(reply),
    }
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

    #[test]
    fn q4_only_one_and_zero_are_votes() {
        assert_eq!(Reply::Int(1).vote().unwrap(), Vote::Granted);
        assert_eq!(Reply::Int(0).vote().unwrap(), Vote::Refused);
        for reply in [Reply::Nil, Reply::Int(2), Reply::Text(b"1".to_vec()), Reply::List(vec![])] {
            assert_eq!(reply.vote().unwrap_err().kind(), BackendErrorKind::Protocol);
        }
    }

    #[test]
    fn q4_an_error_reply_and_a_failure_are_errors() {
        let error = read(Ok(Reply::Error("OOM no room".into()))).unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::OutOfMemory);
        assert!(!error.is_not_sent());
        assert!(read(Err(Failure::not_sent("no route"))).unwrap_err().is_not_sent());
        assert!(!read(Err(Failure::lost("reset"))).unwrap_err().is_not_sent());
        assert_eq!(read(Ok(Reply::Nil)).unwrap(), Reply::Nil);
    }

    #[test]
    fn a6_debug_shows_no_bytes() {
        let error = Reply::Error("ERR unknown command 'GET', with args: 's3cret'".into());
        let reply = Reply::List(vec![Reply::Text(b"s3cret".to_vec()), Reply::Int(1), error]);
        assert_eq!(format!("{reply:?}"), "List([Text(..), Int(1), Error(ERR)])");
    }
}
